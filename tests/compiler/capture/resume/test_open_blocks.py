"""Errors of graphs in code that resumes in ``with`` blocks: the blocks are left, as in eager."""

from __future__ import annotations

import contextlib

import pytest
import torch

import tc

LOG: list[object] = []


class Block:
    """Logs how it is left; breaks the graph where it is asked to."""

    def __init__(self, name, breaks=False, fails=False):
        self.name, self.breaks, self.fails = name, breaks, fails

    def __enter__(self):
        if self.breaks:
            tc.graph_break()
        return self

    def __exit__(self, kind, error, trace):
        LOG.append((self.name, None if kind is None else issubclass(kind, IndexError)))
        if self.fails:
            raise ValueError("left badly")


def under(x, at):
    with torch.no_grad():
        tc.graph_break()
        return x[at] * 2


def after(x, at):
    with torch.no_grad():
        y = x * 2
        tc.graph_break()
    return y.sum() + x[at]


def around_callee(x, at):
    return under(x, at) + 1


def twice(x, at):
    with torch.no_grad(), torch.enable_grad():
        tc.graph_break()
        return x[at]


def with_autocast(x, at):
    with torch.autocast("cpu"), torch.no_grad():
        tc.graph_break()
        return x[at]


def inference(x, at):
    with torch.inference_mode():
        tc.graph_break()
        return x[at] * 1


@torch.no_grad()
def decorated(x, at):
    tc.graph_break()
    return x[at]


def calls_decorated(x, at):
    return decorated(x, at) + 1


def loop(x, at):
    with torch.set_grad_enabled(False):
        for _ in range(2):
            tc.graph_break()
            y = x[at]
    return y


def device(x, at):
    with torch.device("cpu"):
        tc.graph_break()
        return x[at] + torch.ones(3)


def threading(x, at):
    with torch.autograd.set_multithreading_enabled(False):
        return x[at] * 1


def own_blocks(x, at):
    with Block("outer"), torch.no_grad(), Block("inner", breaks=True):
        return x[at] * 1


def own_block_left(x, at):
    with torch.no_grad(), Block("left", breaks=True):
        tc.graph_break()
    return x[at] * 1


def failing_block(x, at):
    with torch.no_grad(), Block("outer"), Block("inner", breaks=True, fails=True):
        return x[at] * 1


@contextlib.contextmanager
def generated():
    LOG.append("entered")
    try:
        yield
    finally:
        LOG.append("left")


def of_a_generator(x, at):
    with torch.no_grad(), generated():
        tc.graph_break()
        return x[at] * 1


FUNCTIONS = [under, after, around_callee, twice, with_autocast, inference, decorated,
             calls_decorated, loop, device, threading, own_blocks, own_block_left, failing_block,
             of_a_generator]  # fmt: skip


def modes():
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch._C._len_torch_function_stack(),
        torch._C._is_multithreading_enabled(),
    )


def outcome(function, *args):
    LOG.clear()
    before = modes()
    try:
        error, context = None, None
        function(*args)
    except Exception as raised:
        error, context = raised, raised.__context__
    kinds = [isinstance(one, IndexError) for one in (error, context)]
    return type(error) if not kinds[0] else IndexError, kinds, modes() == before, list(LOG)


@pytest.mark.sample(8)
@pytest.mark.parametrize("backend", ["inductor", "eager"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_blocks_are_left_where_a_graph_raises(function, backend):
    tc.reset()
    compiled = tc.compile(function, backend=backend)
    x = torch.ones(3, 3)
    for position in (1, 9, 2, 9):
        at = torch.tensor(position)
        wanted = outcome(function, x, at)
        assert outcome(compiled, x, at) == wanted
        assert wanted[2], "eager leaves the modes as they were"
