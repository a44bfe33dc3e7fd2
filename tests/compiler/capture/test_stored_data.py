"""A store to ``.data`` of a tensor is replayed after the graph, which uses what was stored."""

from __future__ import annotations

import pytest
import torch

import tc


def store_last(p, x):
    y = x * p
    p.data = y.detach() + 1
    return y + 1


def use_after(p, x):
    y = x * p
    p.data = y.detach() + 1
    return y + p


def two_swapped(p, x):
    y = x + p
    kept = p.data
    p.data = x.data
    x.data = kept
    return y


def used_when_swapped(p, x):
    kept = p.data
    p.data = x.data
    x.data = kept
    return p * 2 + x


def other_shape(p, x):
    y = x * p
    p.data = torch.cat([y.detach(), y.detach()])
    return y * 2, p.numel()


def other_shape_used(p, x):
    p.data = torch.cat([x, p.detach()])
    with torch.no_grad():
        return p * 2, p.shape


def returned(p, x):
    y = x * p
    p.data = y.detach()
    return p, y


def scaled_in_place(p, x):
    p.data *= x
    return p.exp()


def stored_twice(p, x):
    p.data = p.data * x
    y = p.exp()
    p.data = p.data + 1
    return y + p


def written_to_later(p, x):
    p.data = p.data * x
    p.data.add_(1)
    with torch.no_grad():
        p.mul_(2)
    return p.sin()


def memory_of_another(p, x):
    p.data = x.data
    with torch.no_grad():
        p.add_(1)
    return p.sin() * x


def part_of_another(p, x):
    both = torch.stack([x, x * 2])
    p.data = both[1]
    both.add_(1)
    return p.sin()


def strided(p, x):
    p.data = torch.stack([x, x + 1], 1)[:, 1]
    return p.stride(), p.detach() * 2


def moved_towards(p, x):
    p.data = p.data * 0.9 + x * 0.1
    with torch.no_grad():
        y = (p * x).sum()
    return y


def gradients_beside(p, x):
    p.data = p.data - 0.1 * p.grad if p.grad is not None else p.data - 1
    p.grad = None
    return x * 2, p.shape, p.dtype is x.dtype, p.requires_grad, p.is_leaf, p.grad is None


def recomputed(p, x):
    y = (p * x).sin().exp()
    p.data = p.detach() + 1
    return y


def renormed(p, x):
    p.data = p.data / p.data.norm() * x.exp()
    return (p.sin() * x).exp()


def of_a_view(p, x):
    y = p.detach()[1:].exp() * p[:2]
    p.data = p.data + 1
    return y.sin()


def under_a_body(p, x):
    p.data = p.data * x
    return torch.utils.checkpoint.checkpoint(lambda x: (p * x).sin(), x, use_reentrant=False)


#: program -> graphs for a tensor without, and with gradients
PROGRAMS = {
    store_last: (1, 1),
    use_after: (1, 1),
    two_swapped: (1, 1),
    used_when_swapped: (1, 1),
    other_shape: (1, 1),
    other_shape_used: (1, 1),
    returned: (1, 1),
    scaled_in_place: (1, 1),
    stored_twice: (1, 1),
    written_to_later: (1, 1),
    memory_of_another: (1, 1),
    part_of_another: (1, 1),
    strided: (1, 2),
    moved_towards: (1, 1),
    gradients_beside: (1, 1),
    recomputed: (1, 1),
    renormed: (1, 1),
    of_a_view: (1, 1),
    under_a_body: (1, 1),
}


def results(function, differentiable):
    """Return all that two calls, and their backward, leave behind."""
    found = []
    for start in (1.0, 2.0):
        p = torch.nn.Parameter(torch.full((3,), start), requires_grad=differentiable)
        if differentiable:
            p.grad = torch.full((3,), 0.5)
        x = torch.arange(3.0)
        out = function(p, x)
        out = out if isinstance(out, tuple) else (out,)
        if differentiable and isinstance(out[0], torch.Tensor) and out[0].grad_fn is not None:
            out[0].sum().backward()
        found.append([*out, p, x, p.grad, p.untyped_storage().size()])
    return found


@pytest.mark.sample(15)
@pytest.mark.parametrize("backend", ["count", "inductor"])
@pytest.mark.parametrize("differentiable", [False, True], ids=["plain", "differentiable"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_stores_to_data_are_those_of_eager(program, differentiable, backend):
    tc.reset()
    graphs = []

    def counting(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = tc.compile(program, backend=counting if backend == "count" else backend)
    found, expected = (results(one, differentiable) for one in (compiled, program))
    torch.testing.assert_close(found, expected)
    if graphs:
        assert len(graphs) == PROGRAMS[program][differentiable]


def test_results_after_a_store_are_not_taken_for_the_tensor_stored_to():
    """The fake that a tensor had before is another object's id as soon as it is freed."""

    def f(rows, x):
        made = []
        for n, row in enumerate(rows):
            row.data = x * n
            made += [row * 2, x - n]
        return made

    def called(function):
        return function([torch.ones(3) for _ in range(30)], torch.arange(3.0))

    for _ in range(5):
        tc.reset()
        torch.testing.assert_close(called(tc.compile(f, backend="eager")), called(f))


@pytest.mark.parametrize("store", ["swapped", "new"])
def test_a_view_made_after_a_store_is_of_what_was_stored(store):
    """The graph gives a parameter its history by a copy, which a view would be one of."""

    def f(p, x):
        if store == "swapped":
            p.data, x.data = x.data, p.data
        else:
            p.data = x * 2
        view = p.view(-1)
        with torch.no_grad():
            view.add_(1)
        return view, p * view

    def called(function):
        p, x = torch.arange(3.0, requires_grad=True), torch.ones(3)
        made = function(p, x)
        with torch.no_grad():
            made[0].mul_(3)
        return *made, p, x

    tc.reset()
    torch.testing.assert_close(called(tc.compile(f, backend="eager")), called(f))


def shape_changed_in_place(p, x):
    p.data = x * 2
    p.unsqueeze_(0)


def history_by_a_write(p, x):
    p.data = x.detach() * 2
    p[0] = x.sum()


def history_by_a_write_to_a_view(p, x):
    p.data = x.detach() * 2
    p[1:].mul_(x[1:])


def stored_again(p, x):
    p.data = torch.cat([x.detach(), x.detach()])
    p.data = x.detach() * 2
    p.add_(1)


@pytest.mark.parametrize(
    "change",
    [shape_changed_in_place, history_by_a_write, history_by_a_write_to_a_view, stored_again],
)
def test_a_change_in_place_after_a_store_is_one_of_the_tensor(change):
    def f(p, x):
        change(p, x)
        return p * 3

    def called(function):
        p, x = torch.arange(3.0), torch.ones(3, requires_grad=True)
        made = function(p, x)
        kept = p.requires_grad, p.shape
        if made.requires_grad:
            (made + p).sum().backward()
        return kept, made.detach(), p.detach(), x.grad

    tc.reset()
    found, expected = called(tc.compile(f, backend="eager")), called(f)
    assert found[0] == expected[0]
    torch.testing.assert_close(found[1:], expected[1:])


def test_a_gradient_is_stored_before_the_shape_changes():
    def f(p, x):
        p.grad = x * 2
        with torch.no_grad():
            p.unsqueeze_(0)
        return p * 2

    def called(function):
        p, x = torch.ones(3, requires_grad=True), torch.arange(3.0)
        return function(p, x).detach(), p.detach(), p.grad

    tc.reset()
    torch.testing.assert_close(called(tc.compile(f, backend="eager")), called(f))


def test_a_tensor_is_read_whose_gradient_no_longer_fits():
    def f(p):
        return p * 2

    p = torch.ones(3, requires_grad=True)
    p.grad = torch.ones(3)
    with torch.no_grad():
        p.unsqueeze_(0)
    tc.reset()
    assert torch.equal(tc.compile(f, backend="eager")(p), f(p))
