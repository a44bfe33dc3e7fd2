"""What model code does around its tensors: signatures, environment, modules made on the way."""

from __future__ import annotations

import functools
import inspect
import os
import types

import pytest
import torch
from capture_harness import Programs, check, two_tensors
from torch import nn

import tc
from tc import trace

program = Programs()


def whole(**options):
    return program(graphs=1, breaks=0, **options)


def scaled(x, by=2, *rest, shift=4, **named):
    return x * by + shift


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
        self.steps = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    def chunk(self, x, y):
        return x


def model_and_tensor():
    return Block(), *two_tensors()


@whole()
def signature_of_a_function(x, y):
    found = inspect.signature(scaled).parameters
    kinds = [p.kind is inspect.Parameter.VAR_KEYWORD for p in found.values()]
    plain = [p.default is inspect.Parameter.empty for p in found.values()]
    return x + len(found) + found["shift"].default, kinds, plain, list(found), "by" in found


@whole(make=model_and_tensor)
def signature_of_a_method(model, x, y):
    return x + len(inspect.signature(model.chunk).parameters)


@whole()
def signature_of_what_is_made(x, y):
    def inner(a, b=3, *, c=5):
        return a

    found = inspect.signature(inner).parameters
    return x + found["b"].default * found["c"].default


@whole()
def mapping_proxies(x, y):
    d = {"x": x}
    view = types.MappingProxyType(d)
    d["y"] = y
    try:
        view["z"]
    except KeyError as error:
        missing = error.args
    return x + len(view), list(view), view["y"], view.get("z", 3), missing, view


@whole(make=model_and_tensor)
def slices_of_module_lists(model, x, y):
    for layer in model.layers[:2]:
        x = layer(x)
    return model.steps[1:](x) + len(model.layers[1:]), [type(model.layers[2:]).__name__]


@whole(make=model_and_tensor)
def modules_made_and_returned(model, x, y):
    made = nn.Sequential(model.layers[0], nn.ReLU())
    table = nn.ModuleDict({"a": model.layers[1]})
    return made(x) + table["a"](y), made, table, made.training, made[0] is model.layers[0]


@whole()
def size_numel(x, y):
    return x + x.shape.numel() + y.size()[1:].numel()


@whole()
def callables_are_true(x, y):
    def inner():
        return 1

    partial = functools.partial(scaled)
    bound = [].append
    if scaled and inner and partial and bound and (i for i in ()) and (lambda: 0):
        x = x + 1
    if not scaled or not inner or not Block.forward:
        x = x * 9
    return x, [function for function in (scaled, None) if function] == [scaled]


@pytest.mark.parametrize("case", program, ids=lambda case: case.name)
def test_program(case):
    check(case)


def test_environment_is_read_and_guarded(monkeypatch):
    monkeypatch.delenv("TC_TEST_SWITCH", raising=False)

    def f(x):
        if "TC_TEST_SWITCH" in os.environ and os.environ["TC_TEST_SWITCH"] == "on":
            x = x * 2
        return x + (os.getenv("TC_TEST_SWITCH", "off") == "off")

    tc.reset()
    compiled, x = tc.compile(f, backend="eager", fullgraph=True), torch.ones(2)
    assert compiled(x).tolist() == f(x).tolist() == [2, 2]
    monkeypatch.setenv("TC_TEST_SWITCH", "on")
    assert compiled(x).tolist() == f(x).tolist() == [2, 2]
    monkeypatch.setenv("TC_TEST_SWITCH", "off")
    assert compiled(x).tolist() == f(x).tolist() == [2, 2]
    monkeypatch.setenv("TC_TEST_SWITCH", "half")
    assert compiled(x).tolist() == f(x).tolist() == [1, 1]


def test_new_defaults_make_a_new_signature():
    def inner(a, b=2):
        return a

    def f(x, function):
        return x + inspect.signature(function).parameters["b"].default

    tc.reset()
    compiled, x = tc.compile(f, backend="eager", fullgraph=True), torch.ones(2)
    assert compiled(x, inner).tolist() == [3, 3]
    inner.__defaults__ = (5,)
    assert compiled(x, inner).tolist() == [6, 6]


def test_functions_marked_constant_run_once():
    calls = []

    @functools.lru_cache
    @torch.compiler.assume_constant_result
    def probe(name):
        calls.append(name)
        return len(name)

    tc.reset()
    compiled = tc.compile(lambda x: x + probe("torch"), backend="eager", fullgraph=True)
    with trace.capture_events() as events:
        assert compiled(torch.ones(2)).tolist() == compiled(torch.ones(2)).tolist() == [6, 6]
    assert calls == ["torch"]
    assert not events.of(trace.GraphBreak)
