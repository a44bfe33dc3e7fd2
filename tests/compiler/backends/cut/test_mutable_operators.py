"""Graphs around custom operators that write to arguments are compiled in parts, and equal eager."""

from __future__ import annotations

import random

import pytest
import torch

import tc
from tc import trace
from tc.compiler.backends.cut.mutable_operators import has_no_functional_form
from tc.trace import capture_events

T = torch.Tensor
CALLS: list[str] = []


@torch.library.custom_op("tc_test::decay_into", mutates_args=("out",))
def decay_into(x: T, out: T, by: float) -> None:
    CALLS.append("decay_into")
    out.mul_(0.5).add_(x.sin().mean() * by)


@torch.library.custom_op("tc_test::write_both", mutates_args=("a", "b"))
def write_both(a: T, b: T, x: T) -> tuple[T, T]:
    a.add_(x.cos().mean())
    b.mul_(0.25)
    return a * 2, b.sum().reshape(1)


@torch.library.custom_op("tc_test::write_list", mutates_args=("many",))
def write_list(many: list[T], like: T | None) -> T:
    for number, one in enumerate(many):
        one.add_(number + 1.5)
    return many[0] + 1 if like is None else like.sin()


decay_into.register_fake(lambda x, out, by: None)
write_both.register_fake(lambda a, b, x: (torch.empty_like(a), a.new_empty(1)))
write_list.register_fake(lambda many, like: torch.empty_like(many[0] if like is None else like))


def reports(events) -> list[tuple[str, str]]:
    return [(e.name, e.payload) for e in events.of(trace.Artifact) if "regions" in e.name or
            "eager" in e.name]  # fmt: skip


def layers(x, cache):
    for number in range(6):
        x = torch.tanh(x) * 2 + 1
        decay_into(x, cache[number], 0.5)
        x = x + cache[number].exp()
    return x


@pytest.mark.parametrize("fullgraph", [False, True])
def test_equal_layers_are_compiled_once_around_it(fullgraph):
    tc.reset()
    compiled = tc.compile(layers, fullgraph=fullgraph)
    with torch.no_grad(), capture_events() as events:
        for size in (4, 5, 6):
            x, cache = torch.rand(size, 3), [torch.rand(size, 3) for _ in range(6)]
            mine = [one.clone() for one in cache]
            expected = layers(x, cache)
            CALLS.clear()
            torch.testing.assert_close((compiled(x, mine), mine), (expected, cache))
            assert len(CALLS) == 6
    wanted = "cut around tc_test.decay_into.default: 13 parts, 3 graphs are compiled"
    assert reports(events) == [("tc_compile_regions", wanted)] * 2  # static, then dynamic
    assert not events.of(trace.GraphBreak)


def test_a_graph_that_asks_for_gradients_runs_as_it_is():
    def f(x, weight):
        total = torch.zeros_like(x)
        decay_into(x, total, 2.0)
        return (total * weight).sum()

    x = torch.rand(3)
    grads = []
    for call in (f, tc.compile(f)):
        weight = torch.ones(3, requires_grad=True)
        with capture_events() as events:
            call(x, weight).backward()
        grads.append(weight.grad)
    torch.testing.assert_close(*grads)
    assert [name for name, _ in reports(events)] == ["tc_graph_runs_eagerly"]


def called(target, *args) -> torch.fx.Node:
    graph = torch.fx.Graph()
    return graph.call_function(target, args)


def test_which_operators_have_no_functional_form():
    ops = torch.ops
    assert has_no_functional_form(called(ops.tc_test.decay_into.default))
    assert has_no_functional_form(called(ops.tc_test.write_list))
    others = (ops.aten.add_.Tensor, ops.aten.sin.default, ops.aten.add_, torch.sin, ops.aten.sin)
    assert not any(has_no_functional_form(called(target)) for target in others)


VIEWS = (
    lambda t: t[1:] if t.shape[0] > 1 else t.view(t.shape),
    lambda t: t.transpose(0, -1),
    lambda t: t[..., 0:1],
    lambda t: t.detach(),
)
VALUES = (torch.sin, lambda t: t * 0.5 + 1, torch.clone, torch.zeros_like)
WRITES = (lambda t: t.mul_(0.5), lambda t: t.add_(1), torch.sin_, torch.zero_)


def drawn(draw: random.Random):
    """Return a program over views of two tensors, their values, and writes of all kinds."""
    steps, count = [], 2
    for _ in range(draw.randint(5, 11)):
        kind = draw.choice(["view", "value", "write", "decay", "decay", "both", "list", "mean"])
        places = [draw.randrange(count) for _ in range(3)]
        steps.append((kind, places, draw.randrange(4)))
        count += {"write": 0, "decay": 0, "both": 2}.get(kind, 1)
    returned = draw.sample(range(count), min(count, 3))

    def program(x, y):
        values = [x, y]
        for kind, places, number in steps:
            one, other, third = (values[place] for place in places)
            if kind == "view":
                values.append(VIEWS[number](one))
            elif kind == "value":
                values.append(VALUES[number](one))
            elif kind == "write":
                WRITES[number](one)
            elif kind == "decay":
                decay_into(one, other, number - 1.5)
            elif kind == "both":
                values += write_both(one, other, third)
            elif kind == "list":
                values.append(write_list([one, other], third if number % 2 else None))
            else:
                values.append(one.mean() + other)
        return [values[place] for place in returned]

    return program


def memory(tensors) -> list[list[bool]]:
    places = [t.untyped_storage().data_ptr() for t in tensors]
    return [[one == other for other in places] for one in places]


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(16))
def test_drawn_programs(seed):
    draw = random.Random(seed)
    program, dynamic, overlap = drawn(draw), draw.choice([None, True]), draw.random() < 0.3
    compiled = tc.compile(program, dynamic=dynamic)
    for size in (3, 5, 4):
        given = torch.rand(2 * size, 4, dtype=torch.float64)
        found = []
        for call in (program, compiled):
            held = given.clone()
            x, y = (held[:size], held[1 : size + 1]) if overlap else held.chunk(2)
            with torch.no_grad():
                try:
                    found.append([*call(x, y), x, y])
                except RuntimeError as error:  # a write whose sizes do not fit
                    found.append(type(error))
        if isinstance(found[0], type):
            assert found[0] is found[1]
            continue
        expected, got = found
        torch.testing.assert_close(got, expected)
        assert memory(got) == memory(expected)
        assert [t.stride() for t in got] == [t.stride() for t in expected]


def transposed_in_place(x, y):
    decay_into(x, y, 1.0)
    x.t_()
    decay_into(x, y, 2.0)
    return x + 1


def resized_in_place(x, y):
    made = x.cos().unsqueeze_(0)
    decay_into(made, y, 1.0)
    made = (made * 2).squeeze_(0)
    decay_into(y, made, 1.0)
    return made, made.shape


def data_replaced(x, y):
    decay_into(x, y, 1.0)
    y.data = y * 2
    decay_into(x, y, 1.0)
    return y + 1


def number_read(x, y):
    decay_into(x, y, 1.0)
    total = y.sum().item()
    decay_into(x, y, total)
    return y * total


def drawn_between(x, y):
    torch.manual_seed(3)
    made = torch.rand_like(x)
    decay_into(made, y, 1.0)
    made = torch.randn(3, dtype=x.dtype)
    decay_into(made, y, 1.0)
    return torch.rand(2), y


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "program",
    [transposed_in_place, resized_in_place, data_replaced, number_read, drawn_between],
)
@pytest.mark.parametrize("gradients", [False, True])
def test_what_happens_between_two_of_them(program, gradients):
    compiled = tc.compile(program)
    for rows in (3, 3, 5):
        given = torch.rand(2, rows, 4, dtype=torch.float64)
        found = []
        for call in (program, compiled):
            x, y = given.clone()
            with torch.set_grad_enabled(gradients):
                found.append((call(x, y), x, y, x.stride(), y.stride()))
        torch.testing.assert_close(*found)
