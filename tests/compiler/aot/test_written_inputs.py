"""Inputs that are written to where gradients see it: values, history and gradients as in eager."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import tc
from tc.compiler import aot_dispatch as aot_backend


def adds(x, w, b):
    x.add_(w)
    return x


def writes_a_buffer_with_gradients(x, w, b):
    b.add_(w)
    return x * b


def writes_a_row(x, w, b):
    x[0].mul_(w)
    return x.t(), x[1]


def writes_without_gradients(x, w, b):
    with torch.no_grad():
        x.mul_(2)
    return x + w


def writes_past_autograd(x, w, b):
    x.detach().mul_(2)
    return x.sum() * w


def relu_in_place(x, w, b):
    return F.relu(x, inplace=True) * w


def copies(x, w, b):
    x.copy_(b)
    return x * w


def writes_twice(x, w, b):
    x.add_(w)
    with torch.no_grad():
        b.copy_(x.mean(0))
    x.sigmoid_()
    return x.sin(), b


def sets_and_zeroes(x, w, b):
    b[0] = w
    x.zero_()
    return b * 2, x


def writes_through_a_view(x, w, b):
    transposed = x.t()
    transposed[2:3].mul_(3)
    return transposed, x * w


PROGRAMS = [
    adds, writes_a_buffer_with_gradients, writes_a_row, writes_without_gradients,
    writes_past_autograd, relu_in_place, copies, sets_and_zeroes, writes_through_a_view,
    writes_twice,
]  # fmt: skip
INPUTS = {
    "computed": lambda leaf: leaf * 2,
    "transposed": lambda leaf: (leaf * 2).t().contiguous().t(),
    "view": lambda leaf: (leaf * 2)[:, :],
}


def run(function, made):
    """Return values and gradients, and what autograd knows of outputs and inputs."""
    draw = torch.Generator().manual_seed(1)
    leaf, w = (torch.randn(*n, generator=draw).requires_grad_() for n in ((3, 4), (4,)))
    b, x = torch.zeros(3, 4), made(leaf)
    out = function(x, w, b)
    outs = out if isinstance(out, tuple) else (out,)
    tensors = [*outs, x, b]
    loss = sum((v * v).sum() for v in outs) + (x * x * x).sum() + (b * w).sum()
    grads = torch.autograd.grad(loss, [leaf, w], allow_unused=True)
    history = [(v.requires_grad, v.is_leaf, v._base is not None) for v in tensors]
    return [*tensors, *grads], [*history, x._version > 0, b._version > 0]


@pytest.fixture
def reported(monkeypatch):
    """Why graphs were run eagerly."""
    reasons = []
    run_eagerly = aot_backend.run_eagerly
    monkeypatch.setattr(
        aot_backend, "run_eagerly", lambda gm, why: (reasons.append(why), run_eagerly(gm, why))[1]
    )
    return reasons


def check(function, made):
    tc.reset()
    expected, history = run(function, made)
    found, known = run(tc.compile(function), made)
    assert known == history
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.sample(3)
@pytest.mark.parametrize("made", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize("function", PROGRAMS)
def test_compiled_as_eager(function, made, reported):
    check(function, made)
    assert not reported


def test_a_leaf_is_refused_as_by_eager():
    leaf, w, b = torch.ones(3, 4, requires_grad=True), torch.ones(4), torch.ones(3, 4)
    compiled = tc.compile(adds)
    compiled(leaf * 1, w, b)
    for function in (adds, compiled, tc.compile(writes_a_row)):
        with pytest.raises(RuntimeError, match="leaf"):
            function(leaf, w, b)


def test_what_was_read_before_the_write_counts(reported):
    def function(x, w):
        y = (x * w).sum()
        x.mul_(2)
        return y

    leaf, w = torch.arange(4.0).requires_grad_(), torch.ones(4)
    found = torch.autograd.grad(tc.compile(function)(leaf * 3, w), leaf)[0]
    torch.testing.assert_close(found, torch.full((4,), 3.0))
    assert not reported


def test_an_input_that_is_also_another_inputs_memory():
    def run(function):
        leaf = torch.arange(6.0).requires_grad_()
        base = leaf * 1
        out = function(base[:4], base[2:])
        return torch.autograd.grad((out * out).sum() + base.sum(), leaf)[0], base

    def function(x, y):
        x.mul_(2)
        return y + 1

    for one, other in zip(run(tc.compile(function)), run(function), strict=True):
        torch.testing.assert_close(one, other)


def test_changing_sizes():
    for n in (3, 5, 6):

        def made(leaf, n=n):
            return (leaf.sum() * torch.ones(n, 4)).contiguous()

        expected, _ = run(adds, made)
        found, _ = run(tc.compile(adds, dynamic=True), made)
        for one, other in zip(found[:2], expected[:2], strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.sample(4)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("steps", [(3, 1), (6, 2), (6, 1), (1, 5)])
@pytest.mark.parametrize(
    "view", [(6, 2, 2, 1, 0), (15, 1, 1, 1, 0), (2, 2, 3, 1, 4), (4, 1, 1, 1, 6)]
)
def test_a_write_through_as_strided_reaches_memory_that_the_tensor_has_not(view, steps, dynamic):
    rows, columns, *strides, offset = view

    def write(x):
        seen = x.as_strided((rows, columns), strides, offset)
        seen[: x.size(0)].add_(1)
        return seen, x * 2

    compiled = tc.compile(write, dynamic=dynamic)
    for size in (5, 7):
        memory, others = torch.arange(300.0), torch.arange(300.0)
        got = compiled(memory.as_strided((size, 3), steps))
        want = write(others.as_strided((size, 3), steps))
        assert torch.equal(memory, others)
        assert all(map(torch.equal, got, want))


VIEWS = {
    "conjugated": lambda z: z.conj(),
    "negated": lambda z: torch._neg_view(z),
    "imaginary part of the conjugate": lambda z: z.conj().imag,
    "both": lambda z: torch._neg_view(z.conj()),
    "rows": lambda z: z.conj()[1:],
}


@pytest.mark.parametrize("wants", [False, True])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_write_through_a_conjugated_or_negated_view_leaves_its_base_plain(view, wants):
    def program(x):
        made = x.clone()
        view(made).mul_(3)
        return made, torch.view_as_real(made), made * 2

    x = torch.randn(3, 2, dtype=torch.complex64, requires_grad=wants)
    results = []
    for call in (tc.compile(program, fullgraph=True), program):
        x.grad = None
        made = call(x)
        bits = [(one.is_conj(), one.is_neg()) for one in made]
        if wants:
            torch.view_as_real(made[0]).sum().backward()
        results.append((made, bits, x.grad))
    torch.testing.assert_close(*results)
