"""autograd.Function in traced code: instances, too few gradients, functions recorded whole."""

from __future__ import annotations

import enum
import math
import warnings

import pytest
import torch

import tc


class Mode(enum.Enum):
    SIN = 0
    COS = 1


class Saving(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = x + x
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad):
        (result,) = ctx.saved_tensors
        return grad * math.sqrt(result.numel())


class Choosing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mode):
        ctx.mode = mode
        return x.sin() if mode is Mode.SIN else x.cos()

    @staticmethod
    def backward(ctx, grad):
        return grad * (2 if ctx.mode is Mode.SIN else 3), None


class TooFew(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mode):
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        return grad


@tc.allow_in_graph
class Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        tc.graph_break()
        ctx.size = x.size(0)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.size


def through_an_instance(x):
    return Saving().apply(x) + Saving.apply(x)


def with_an_enum(x):
    return Choosing.apply(x, Mode.SIN) + Choosing.apply(x, Mode.COS)


def recorded_whole(x):
    return Whole.apply(x) + 1


def too_few(x):
    return TooFew.apply(x, Mode.SIN)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("fn", [through_an_instance, with_an_enum, recorded_whole])
def test_values_and_gradients(fn, backend):
    x = torch.randn(3, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        want, got = fn(x), tc.compile(fn, backend=backend, fullgraph=True)(x)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(*(torch.autograd.grad(r.sum(), x) for r in (got, want)))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_too_few_gradients_are_an_error_of_backward(backend):
    x = torch.randn(3, requires_grad=True)
    got = tc.compile(too_few, backend=backend, fullgraph=True)(x)
    torch.testing.assert_close(got, x.sin())
    errors = []
    for result in (too_few(x), got):
        with pytest.raises(RuntimeError, match="incorrect number of gradients") as error:
            result.sum().backward()
        errors.append(str(error.value))
    assert errors[0] == errors[1]


def test_a_function_recorded_whole_is_one_node():
    graphs = []
    fn = tc.compile(recorded_whole, backend=lambda gm, _: graphs.append(gm) or gm, fullgraph=True)
    for _ in range(2):
        tc.reset()
        fn(torch.randn(3, requires_grad=True))
    names = [[n.name for n in graph.graph.nodes if n.op == "call_function"] for graph in graphs]
    assert names == [["whole_apply", "add"]] * 2
