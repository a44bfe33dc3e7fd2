"""The backward of an autograd.Function runs later: what it reads then, and what it raises then."""

from __future__ import annotations

import contextlib

import pytest
import torch

import tc


class Held:
    """An object with a factor."""

    def __init__(self):
        self.k = 1.0


HELD = Held()


def _late(backward, forward=lambda ctx, x, held: x * 2):
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Late", (torch.autograd.Function,), members)


def _keeping(ctx, x, held):
    ctx.held = held
    return x * 2


def _without_backward(ctx, g):
    raise NotImplementedError("not yet")


#: what reads an object that its caller changes after the call, by how it gets there
LATE = {
    "an attribute of ctx": _late(lambda ctx, g: (g * ctx.held.k, None), _keeping),
    "a tuple on ctx": _late(
        lambda ctx, g: (g * ctx.held[1][0].k, None),
        lambda ctx, x, held: setattr(ctx, "held", (1, (held,))) or x * 2,
    ),
    "a closure": (lambda held: _late(lambda ctx, g: (g * held.k, None)))(HELD),
}


@pytest.mark.parametrize("place", LATE)
@pytest.mark.parametrize("changes", ["inside", "outside"])
def test_backward_reads_what_objects_hold_when_it_runs(place, changes):
    def program(x, held):
        y = LATE[place].apply(x, held)
        if changes == "inside":
            held.k += 3
        return y

    def run(call):
        HELD.k, found = 1.0, []
        for _ in range(3):
            x = torch.ones(2, requires_grad=True)
            y = call(x, HELD)
            HELD.k += 1
            y.sum().backward()
            found.append((y.tolist(), x.grad.tolist()))
        return found

    assert run(tc.compile(program, backend="eager")) == run(program)


@pytest.mark.parametrize(
    "backward", [_without_backward, lambda ctx, g: (g * ctx.absent, None)], ids=["raises", "lacks"]
)
def test_backward_that_raises_does_so_when_it_runs(backward):
    function = _late(backward)
    compiled = tc.compile(lambda x: function.apply(x, None) + 1, backend="eager")
    for _ in range(2):
        y = compiled(torch.ones(2, requires_grad=True))
        assert y.tolist() == [3.0, 3.0]
        with pytest.raises((NotImplementedError, AttributeError)):
            y.sum().backward()


def test_a_number_that_forward_returns_is_no_view():
    class Counts(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, n, y):
            return x + y, n, x

        @staticmethod
        def backward(ctx, g, n, h):
            return g + h, None, g

    compiled = tc.compile(lambda x, n: Counts.apply(x, n, x), backend="eager", dynamic=True)
    for n in (3, 4, 5):
        total, count, same = compiled(torch.ones(2), n)
        assert (total.tolist(), count, same.tolist()) == ([2.0, 2.0], n, [1.0, 1.0])


def test_hooks_unpack_what_forward_saved_once_for_each_read():
    function = _late(
        lambda ctx, g: (g * ctx.saved_tensors[0], None),
        lambda ctx, x, held: ctx.save_for_backward(x) or (print(end=""), x * 2)[1],
    )
    unpacked = []

    def unpack(x):
        unpacked.append(1)
        if len(unpacked) > 4:
            raise ValueError("unpacked too often")
        return x

    def run(call):
        unpacked.clear()
        found = []
        for _ in range(6):
            x = torch.ones(2, requires_grad=True)
            with torch.autograd.graph.saved_tensors_hooks(lambda x: x, unpack):
                y = call(x, None)
            try:
                y.sum().backward()
            except ValueError as error:
                found.append(str(error))
            found.append(len(unpacked))
        return found

    program = function.apply
    assert run(tc.compile(lambda x, held: program(x, held), backend="eager")) == run(program)


def test_a_compiled_backward_reads_what_forward_saved_in_its_graph():
    class Scales(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 3

    def gradient(ctx, g):
        return g * ctx.saved_tensors[0]

    def run(backward, hooks=contextlib.nullcontext):
        Scales.backward = staticmethod(backward)
        x = torch.full((2,), 5.0, requires_grad=True)
        with hooks():
            y = Scales.apply(x)
        y.sum().backward()
        return x.grad.tolist()

    pack = lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x + 1, lambda x: x + 1)  # noqa: E731
    whole = tc.compile(gradient, backend="eager", fullgraph=True)
    assert run(whole) == run(gradient) == [5.0, 5.0]
    broken = tc.compile(gradient, backend="eager")
    assert run(broken) == [5.0, 5.0]
    assert run(broken, pack) == run(gradient, pack) == [7.0, 7.0]


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_sparse_gradient_is_not_lost(backend, dense):
    class Fixed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, gradient):
            ctx.save_for_backward(gradient)
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return ctx.saved_tensors[0], None

    indices, values = torch.tensor([[0, 2]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    sparse = torch.sparse_coo_tensor(indices, values, (3, 2))

    def program(x):
        y = Fixed.apply(x, sparse)
        return y + Fixed.apply(x, torch.ones(3, 2)) if dense else y

    def run(call):
        x = torch.ones(3, 2, requires_grad=True)
        call(x).sum().backward()
        return x.grad.to_dense().tolist() if x.grad is not None else None

    assert run(tc.compile(program, backend=backend)) == run(program)
