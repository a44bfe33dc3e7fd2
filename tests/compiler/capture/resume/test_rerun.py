"""A graph that raises is followed by a run of Python: its effects, clauses and errors are seen."""

from __future__ import annotations

import inspect
import itertools
import random

import pytest
import torch

import tc

SEEN: list[object] = []
CALLS = """
def program(x, i, *rest, scale=2, **named):
    {before}
    {block}
        y = x * scale
        {effect}
        {broken}
        z = {raising}
        SEEN.append("after")
    {handled}
    return {result}
"""
BEFORE = ("state = [1]", "state = dict(a=1); rest[0].append(3)", "global COUNT; COUNT = COUNT + 1")
BLOCKS = {
    "try:": ("finally:\n        SEEN.append('finally')",
             "except IndexError as error:\n        SEEN.append(str(error))\n        z = x",
             "except KeyError:\n        z = x * 3"),
    "with Leaving():": ("SEEN.append('left')",),
    "with torch.no_grad(), torch.device('meta'):": ("SEEN.append(torch.is_grad_enabled())",),
    "with torch.inference_mode():": ("SEEN.append(torch.is_inference_mode_enabled())",),
    "for _ in range(2):": ("SEEN.append('looped')",),
}  # fmt: skip
EFFECTS = ("SEEN.append(COUNT)", "x.note = scale", "named['own'] = 5", "rest[0].pop()", "pass")
BROKEN = ("pass", "tc.graph_break()")
RAISING = ("x[i]", "torch.index_select(x, 0, i.view(1))", "x.flatten()[i.view(1) * 3]",
           "(lambda: inner(x, i))()", "torch.nn.functional.embedding(i, x) * y")  # fmt: skip
COUNT = 0


class Leaving:
    """Notes how it is left; no mode of torch."""

    def __enter__(self):
        SEEN.append("entered")

    def __exit__(self, kind, error, trace):
        SEEN.append(kind and kind.__name__)


def inner(x, i):
    SEEN.append("inner")
    return x[i] + 1


def drawn(rng):
    block = rng.choice(list(BLOCKS))
    filled = CALLS.format(
        before=rng.choice(BEFORE), block=block, effect=rng.choice(EFFECTS),
        broken=rng.choice(BROKEN), raising=rng.choice(RAISING),
        handled=rng.choice(BLOCKS[block]), result=rng.choice(("z + 1", "(z, x.sum(), scale)")),
    )  # fmt: skip
    space = globals().copy()
    exec(filled, space)
    return space["program"], space, filled


def outcome(function, space, at):
    SEEN.clear()
    space["COUNT"] = 0
    x, rest, named = torch.arange(6.0).reshape(3, 2), [1, 2], {"own": 1}
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    try:
        result = function(x, torch.tensor(at), rest, scale=3, **named)
        shown = [one.tolist() if isinstance(one, torch.Tensor) else one for one in result]
    except Exception as error:
        shown = [type(error).__name__, str(error)]
    assert modes == (torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    return shown, list(SEEN), getattr(x, "note", None), rest, space["COUNT"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("backend", ["inductor", "eager"])
def test_effects_clauses_and_errors_are_eagers(backend, fullgraph):
    rng = random.Random()
    for _ in range(6):
        program, space, text = drawn(rng)
        if fullgraph and ("tc.graph_break()" in text or "meta" in text):
            continue
        tc.reset()
        compiled = tc.compile(program, backend=backend, fullgraph=fullgraph)
        for at in (1, 2, 7, 0, 9):
            wanted = outcome(program, space, at)
            assert outcome(compiled, space, at) == wanted, text


def of_all_kinds(a, /, x, i, *more, key=1, **others):
    hidden = [a]

    def inside():
        return hidden[0] + x[i] + key

    SEEN.append((len(more), sorted(others)))
    return inside()


def test_arguments_of_each_kind_are_passed():
    x = torch.ones(3, 2)
    compiled = tc.compile(of_all_kinds, fullgraph=True)
    for at, more, named in itertools.product((1, 5), ((), (1, 2)), ({}, {"key": 4, "b": 1})):
        outcomes = []
        for function in (of_all_kinds, compiled):
            SEEN.clear()
            try:
                outcomes.append(
                    (function(1, x, torch.tensor(at), *more, **named).tolist(), [*SEEN])
                )
            except IndexError as error:
                outcomes.append((str(error), [*SEEN]))
        assert outcomes[0] == outcomes[1]


def written(x, i):
    x.add_(1)
    return x[i]


def through_a_view(x, i):
    x[0].mul_(2)
    return x[i]


def normalised(x, i, norm):
    return norm(x)[i]


def random_numbers(x, i):
    return (x + torch.rand_like(x))[i]


@pytest.mark.sample(2)
@pytest.mark.parametrize("function", [written, through_a_view, normalised, random_numbers])
def test_what_a_graph_did_is_not_done_again(function):
    norm = (torch.nn.BatchNorm1d(2),) if function is normalised else ()
    x = torch.ones(3, 2)
    compiled = tc.compile(function, fullgraph=True)
    states = []
    for one in (function, compiled):
        torch.manual_seed(1)
        given = x.clone()
        with pytest.raises(IndexError):
            one(given, torch.tensor(7), *norm)
        count = [int(norm[0].num_batches_tracked)] if norm else []
        states.append((given, torch.rand(1), count))
    torch.testing.assert_close(states[1][:2], states[0][:2])
    assert not norm or states[1][2][0] <= 2


class Own(Exception):
    pass


def failing_backend(module, examples):
    def run(*args):
        raise Own("of the backend")

    return run


def test_errors_of_compiled_code_alone_are_raised():
    SEEN.clear()
    with pytest.raises(Own) as caught:
        tc.compile(lambda x: SEEN.append(1) or x + 1, backend=failing_backend)(torch.ones(2))
    assert "without an error" in caught.value.__notes__[0]


def interrupted_backend(module, examples):
    def run(*args):
        raise KeyboardInterrupt

    return run


def test_an_interrupt_runs_nothing_again():
    SEEN.clear()
    with pytest.raises(KeyboardInterrupt):
        tc.compile(lambda x: SEEN.append(1) or x + 1, backend=interrupted_backend)(torch.ones(2))
    assert not SEEN


def test_the_traceback_names_the_programs_line():
    def called(x, i):
        return inner(x, i) * 2

    compiled = tc.compile(called, fullgraph=True)
    compiled(torch.ones(3, 2), torch.tensor(1))
    with pytest.raises(IndexError) as caught:
        compiled(torch.ones(3, 2), torch.tensor(5))
    names = [frame.name for frame in caught.traceback]
    assert names[-1] == "inner"
    assert inspect.getsource(inner).splitlines()[2].strip() in str(caught.traceback[-1].statement)
