"""Where some outputs have no gradient, gradients are eager's, infinite derivatives included.

Zeros in the place of undefined gradients would give NaN where a derivative is infinite.
"""

from __future__ import annotations

import itertools
import random

import pytest
import torch
import torch.nn.functional as F
from gradient_samples import FAMILIES
from torch.autograd.function import once_differentiable

import tc
from tc import trace

pytestmark = pytest.mark.filterwarnings("ignore")


def zeros(*shape):
    """Return numbers of which some are 0, where many derivatives are infinite."""
    x = torch.randn(*shape, dtype=torch.float64).abs()
    x[..., 0] = 0
    return x.requires_grad_()


class AddsOne(torch.autograd.Function):
    """Its gradient is no linear function of that of its output."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        return gradient * 2 + 1


def two_rows(x):
    first, second = x.unbind()
    return first.log(), second.sqrt(), x.sum()


def pieces(x):
    y = torch.cat([x.sqrt(), x * 2], -1)
    return (*y.chunk(2, -1), y[..., 0].exp(), x.t().contiguous())


def chain(x):
    h = x.sqrt()
    return h, h * 2, (h * 3).log(), F.softmax(x, -1), x.norm(dim=0)


#: programs whose outputs have infinite derivatives somewhere
PROGRAMS = {
    "separate": (lambda x: (x.log(), x * 2, x.sqrt()), (zeros(3, 4),)),
    "one above another": (chain, (zeros(3, 4),)),
    "parts": (two_rows, (zeros(2, 4),)),
    "pieces": (pieces, (zeros(4, 3),)),
    "product": (lambda x, w: ((x.sqrt() @ w), w.pow(0.5), x @ w), (zeros(3, 4), zeros(4, 4))),
    "norms": (lambda x: (x.norm(dim=-1), (x * 0).norm(), x.var(0).sqrt()), (zeros(1, 4),)),
    "the input": (lambda x: (x, x.log(), x.view(-1)), (zeros(3, 4),)),
    "sums of three": (lambda x: (x.sqrt().sum() + x.log().sum(), x.log(), x * x), (zeros(5),)),
    "own gradient": (lambda x: (AddsOne.apply(x), AddsOne.apply(x.sqrt()), x * 3), (zeros(4),)),
    "numbers": (lambda x: (x.log(), x.shape[0], x.detach(), x * 2), (zeros(3, 4),)),
}


def gradients(fn, args, missing, **options):
    """Return the gradients of the outputs of a call that are not missing."""
    outputs = [out for out in fn(*args) if isinstance(out, torch.Tensor) and out.requires_grad]
    kept = [out for at, out in enumerate(outputs) if at not in missing]
    ones = [torch.full_like(out, 1.5) for out in kept]
    return torch.autograd.grad(kept, args, ones, allow_unused=True, **options)


def same(fn, compiled, args, missing, **options):
    """Compare gradients with eager's, those that are undefined included."""
    want, got = (gradients(each, args, missing, **options) for each in (fn, compiled))
    assert [g is None for g in got] == [g is None for g in want], missing
    for actual, theirs in zip(got, want, strict=True):
        if theirs is not None:
            torch.testing.assert_close(actual, theirs, equal_nan=True, msg=about(missing))
            assert actual.requires_grad == theirs.requires_grad


def subsets(count):
    """Return all sets of some, but not all, of so many outputs; few of the first sizes."""
    chosen = [set(s) for k in range(1, count) for s in itertools.combinations(range(count), k)]
    return random.SystemRandom().sample(chosen, min(len(chosen), 5))


def outputs_of(fn, args):
    return sum(isinstance(out, torch.Tensor) and out.requires_grad for out in fn(*args))


@pytest.mark.sample(5)
@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name, backend):
    fn, args = PROGRAMS[name]
    compiled = tc.compile(fn, backend=backend, fullgraph=True)
    for missing in [set(), *subsets(outputs_of(fn, args))]:
        same(fn, compiled, args, missing)
        same(fn, compiled, args, missing)


@pytest.mark.sample(3)
@pytest.mark.parametrize("options", [{"create_graph": True}, {"retain_graph": True}])
@pytest.mark.parametrize("name", ["separate", "one above another", "product", "the input"])
def test_as_eager_with_options(name, options):
    fn, args = PROGRAMS[name]
    compiled = tc.compile(fn, fullgraph=True)
    for missing in subsets(outputs_of(fn, args)):
        same(fn, compiled, args, missing, **options)


def test_sizes_that_are_symbols():
    fn, _ = PROGRAMS["pieces"]
    compiled = tc.compile(fn, fullgraph=True, dynamic=True)
    for size in (3, 5, 4):
        for missing in ({0}, {1, 3}, {2}):
            same(fn, compiled, (zeros(size, size + 1),), missing)


def test_gradients_in_batches():
    fn, (x,) = (lambda x: (x.exp(), x * 2)), (zeros(3),)
    want, got = (
        torch.autograd.grad(each(x)[1], x, torch.ones(2, 3).double(), is_grads_batched=True)
        for each in (fn, tc.compile(fn))
    )
    torch.testing.assert_close(got, want)


def test_more_patterns_than_are_compiled_for():
    def fn(x):
        return x.log(), x * 2, x.sqrt(), x * 3, x.sum()

    compiled, x = tc.compile(fn, fullgraph=True), zeros(3)
    with trace.capture_events() as events:
        for count in (1, 2, 3, 4):
            for missing in itertools.combinations(range(5), count):
                same(fn, compiled, (x,), set(missing))
    compiles = [e for e in events.of(trace.AtenGraph) if e.kind == "backward"]
    assert len(compiles) < 12


def in_one(first, second, count):
    """Return a function that does what two do, the first with so many arguments."""

    def function(*args):
        parts = [first(*args[:count]), second(*args[count:])]
        return [out for part in parts for out in (part if isinstance(part, tuple) else [part])]

    return function


@pytest.mark.sample(2)
@pytest.mark.parametrize("family", FAMILIES)
def test_operations(family):
    """Of two operations in one function, several of which are drawn, one gets gradients."""
    rows = [*FAMILIES[family]().items()]
    drawn = random.SystemRandom().sample(rows, min(4, len(rows)))
    for (name, (fn, args)), (_, (other, more)) in itertools.pairwise(drawn):
        tc.reset()
        both, given = in_one(fn, other, len(args)), (*args, *more)
        leaves = [arg for arg in given if isinstance(arg, torch.Tensor) and arg.requires_grad]
        results = []
        for each in (both, tc.compile(both)):
            outputs = [o for o in each(*given) if isinstance(o, torch.Tensor) and o.requires_grad]
            wanted = outputs[: max(1, len(outputs) // 2)]
            ones = [torch.ones_like(out) for out in wanted]
            results.append(torch.autograd.grad(wanted, leaves, ones, allow_unused=True))
        for theirs, got in zip(*results, strict=True):
            if theirs is None:
                assert got is None or not got.any(), name
            else:
                torch.testing.assert_close(got, theirs, equal_nan=True, msg=about(name))


def about(name):
    return lambda message: f"{name}: {message}"


def test_what_leads_from_undefined_gradients_is_not_computed():
    def fn(x, w):
        return (x @ w).sum(), x.exp() @ w

    x, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    with trace.capture_events() as events:
        loss, _ = tc.compile(fn)(x, w)
        loss.backward()
    *_, graph = [e.code for e in events.of(trace.AtenGraph) if e.kind == "backward"]
    assert graph.count("aten.mm") == 2, graph  # of four
