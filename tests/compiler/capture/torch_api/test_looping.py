"""Operations that run a body many times: what they give, their gradients, what they refuse.

Eager calls of them start torch.compile: what they must give is written out as loops here.
"""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import tc
from tc import exc

BACKENDS = ["eager", "inductor"]


@pytest.fixture(autouse=True)
def fresh():
    tc.reset()


@pytest.mark.parametrize("backend", BACKENDS)
def test_while_loop(backend):
    shift = torch.full((3,), 0.5)

    def looping(x, k):
        start = (torch.tensor(0), x.sin())
        return while_loop(
            lambda i, x: (i < 5) & (x.sum() < k), lambda i, x: (i + 1, x * 1.5 + shift + k), start
        )

    def written_out(x, k):
        i, x = 0, x.sin()
        while i < 5 and x.sum() < k:
            i, x = i + 1, x * 1.5 + shift + k
        return torch.tensor(i), x

    compiled, x = tc.compile(looping, backend=backend, fullgraph=True), torch.ones(3)
    for limit in (torch.tensor(1e3), torch.tensor(3.0), torch.tensor(-1e3)):
        torch.testing.assert_close(compiled(x, limit), written_out(x, limit))


def test_while_loop_has_gradients():
    def looping(x):
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))[1]

    x = torch.randn(3, requires_grad=True)
    tc.compile(looping, fullgraph=True)(x).sum().backward()
    assert x.grad.tolist() == [8.0] * 3


def test_a_while_loop_over_numbers_runs_in_eager():
    def looping(x):
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, x))[1]

    with pytest.raises(exc.Unsupported, match="while_loop over inputs that are not all tensors"):
        tc.compile(looping, fullgraph=True)(torch.ones(2))


@pytest.mark.parametrize(
    ("condition", "body", "text"),
    [
        (lambda x: x.sum() < 3, lambda x: (torch.cat([x, x]),), "its body takes"),
        (lambda x: x < 3, lambda x: (x + 1,), "a tensor of one element"),
    ],
)
def test_while_loops_whose_bodies_do_not_fit_are_refused(condition, body, text):
    with pytest.raises(exc.UncapturedHigherOrderOpError, match=text):
        tc.compile(lambda x: while_loop(condition, body, (x,)), fullgraph=True)(torch.ones(2))


def gradients(function, *args):
    made = [arg.clone().requires_grad_() for arg in args]
    out = function(*made)
    sum(t.sum() for t in out).backward()
    return out, [arg.grad for arg in made]


def recurrent(x, start, weight):
    return scan(lambda h, x: (torch.tanh(h @ weight + x), h.sin()), start, x, dim=0)


def recurrent_written_out(x, h, weight):
    out = []
    for row in x:
        out.append(h.sin())
        h = torch.tanh(h @ weight + row)
    return h, torch.stack(out)


def linear_recurrence(a, b):
    def combine(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    return associative_scan(combine, (a, b), dim=1, combine_mode="generic")


def linear_recurrence_written_out(a, b):
    rows = [b[:, 0]]
    for t in range(1, a.shape[1]):
        rows.append(a[:, t] * rows[-1] + b[:, t])
    return a.cumprod(1), torch.stack(rows, 1)


@pytest.mark.sample(2)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("function", "written_out", "shapes"),
    [
        (recurrent, recurrent_written_out, [(5, 3), (3,), (3, 3)]),
        (linear_recurrence, linear_recurrence_written_out, [(2, 5), (2, 5)]),
    ],
    ids=["scan", "associative_scan"],
)
def test_scans(backend, function, written_out, shapes):
    args = [torch.rand(shape) for shape in shapes]
    compiled = tc.compile(function, backend=backend, fullgraph=True)
    torch.testing.assert_close(gradients(compiled, *args), gradients(written_out, *args))


def test_a_scan_whose_function_changes_the_carried_shape_is_refused():
    def growing(x):
        return scan(lambda h, x: (torch.cat([h, h]), x), x[0], x, dim=0)

    with pytest.raises(exc.UncapturedHigherOrderOpError, match="scan"):
        tc.compile(growing, fullgraph=True)(torch.ones(2, 3))
