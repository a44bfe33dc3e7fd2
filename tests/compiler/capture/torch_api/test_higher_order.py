"""Operations that take functions: bodies, what they lift, what they may not do, their metadata."""

from __future__ import annotations

import functools
from contextlib import nullcontext

import pytest
import torch
from functorch.experimental import control_flow
from torch._higher_order_ops.cond import cond_op
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.out_dtype import out_dtype
from torch._higher_order_ops.strict_mode import strict_mode
from torch._higher_order_ops.wrap import tag_activation_checkpoint, wrap
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import tc
from tc.compiler import api


def capture(fn, *args, **options):
    """Return a call's result and the graphs it made."""
    tc.reset()
    graphs: list[torch.fx.GraphModule] = []
    compiled = tc.compile(fn, backend=lambda gm, _: graphs.append(gm) or gm, **options)
    return compiled(*args), graphs


def targets(graph):
    return [node.target for node in graph.graph.nodes if node.op == "call_function"]


# -- map -------------------------------------------------------------------------------------
def mapping(x, y):
    many = control_flow.map(lambda a, k: {"s": a.sin() + y, "c": [a * k]}, x, 2)
    pairs = control_flow.map(lambda p: p[0] @ p[1], [x, y.expand(3, 4)])
    return many, pairs, control_flow.map(lambda a: control_flow.map(torch.cos, a), x)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_map(backend):
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True)
    want = (
        {"s": torch.stack([a.sin() + y for a in x]), "c": [x * 2]},
        (x * y).sum(1),
        x.cos(),
    )
    got = tc.compile(mapping, backend=backend, fullgraph=True)(x, y)
    torch.testing.assert_close(got, want)
    grads = [
        torch.autograd.grad(r[0]["s"].sum() + r[0]["c"][0].sum() + r[1].sum() + r[2].sum(), (x, y))
        for r in (want, got)
    ]
    torch.testing.assert_close(grads[1], grads[0])


def test_map_is_a_node_whose_example_is_stacked():
    x = torch.randn(3, 4, requires_grad=True)
    _, (graph,) = capture(lambda x: control_flow.map(lambda a: a.cos(), x), x, fullgraph=True)
    (node,) = (n for n in graph.graph.nodes if n.name == "map_impl")
    (example,) = node.meta["example_value"]
    assert example.shape == (3, 4)
    assert example.requires_grad
    assert dict(graph.named_children()).keys() == {"map_body_0"}


# -- hints -----------------------------------------------------------------------------------
def hinted(x, hints):
    return hints_wrapper(lambda a: (a + 1).relu(), (x,), {}, hints=hints)


def test_hints_wrapper():
    x = torch.randn(3)
    got, (graph,) = capture(hinted, x, {"level": 2})
    torch.testing.assert_close(got, (x + 1).relu())
    (node,) = (n for n in graph.graph.nodes if n.target is hints_wrapper)
    assert node.kwargs == {"hints": {"level": 2}}
    with pytest.raises(RuntimeError, match="hints must be a dict containing"):
        capture(hinted, x, {"level": (1,)})


# -- wrap ------------------------------------------------------------------------------------
def test_only_what_a_body_uses_is_an_operand():
    free = torch.randn(3)
    got, (graph,) = capture(lambda x: wrap(lambda a: (free, free * 2), x), torch.randn(3))
    torch.testing.assert_close(got, (free, free * 2))
    (node,) = (n for n in graph.graph.nodes if n.target is wrap)
    assert len(node.args) == 2


def by_keyword(x, y=None):
    def body(*, a, b=None):
        return a * 2 if b is None else a + b

    return wrap(body, a=x, b=y)


def test_keywords_and_counts_of_calls():
    x = torch.randn(3)
    tc.counters["stats"].clear()
    got, (graph,) = capture(by_keyword, x, fullgraph=True)
    torch.testing.assert_close(got, x * 2)
    assert tc.counters["stats"]["calls_captured"] == len(targets(graph)) == 2


# -- effects ---------------------------------------------------------------------------------
class Box:
    value = 0


def writes_nonlocal(x, operation):
    value = 1

    def body(a):
        nonlocal value
        value = value + a.dim()
        return a + value

    return operation(body, x) + value


def writes_attribute(x, operation):
    box = Box()
    box.value = 3

    def body(a):
        box.value = a.dim()
        return a.clone()

    return operation(body, x) + box.value


def writes_list(x, operation):
    items = [x]

    def body(a):
        items.append(a + 1)
        return a * 2

    return operation(body, x) + items[-1]


def in_wrap(body, x):
    return wrap(body, x)


def in_checkpoint(body, x):
    return checkpoint(body, x, use_reentrant=False)


@pytest.mark.parametrize("operation", [in_wrap, in_checkpoint])
@pytest.mark.parametrize("fn", [writes_nonlocal, writes_attribute, writes_list])
def test_a_body_that_writes_outside_of_itself_runs_in_python(fn, operation):
    x = torch.randn(3)
    want = fn(x, operation)
    got, graphs = capture(fn, x, operation)
    torch.testing.assert_close(got, want)
    assert api.graph_stats()["graph_breaks"] >= 1
    assert not any(target in (wrap, checkpoint) for graph in graphs for target in targets(graph))


def writes_its_own(x):
    def body(a):
        box, items = Box(), [a]
        box.value = 2
        items.append(a * box.value)

        def bump():
            nonlocal count
            count += 1

        count = 0
        bump()
        return sum(items) + count

    return wrap(body, x)


def test_a_body_may_write_to_what_it_made():
    x = torch.randn(3)
    got, _ = capture(writes_its_own, x, fullgraph=True)
    torch.testing.assert_close(got, x * 3 + 1)


# -- cond ------------------------------------------------------------------------------------
def branches_write(x):
    box = Box()

    def yes(a):
        box.value = 1
        return a + 1

    def no(a):
        box.value = 2
        return a - 1

    return torch.cond(x.sum() > 0, yes, no, (x,)) + box.value


def branches_differ(x):
    return torch.cond(x.sum() > 0, lambda a: torch.cat([a, a]), torch.sin, (x,))


def wrong_operand(x):
    return torch.cond(x.sum() > 0, lambda a, s: a + 1, lambda a, s: a, (x, "s"))


def wrong_keyword(x):
    return cond_op(pred=x.sum() > 0, true_fn=torch.sin, false_fn=torch.cos, operands=[x], more=1)


@pytest.mark.parametrize("fn", [branches_write, branches_differ, wrong_operand, wrong_keyword])
def test_what_cond_cannot_mean_is_an_error_without_fullgraph_too(fn):
    with pytest.raises(tc.exc.UncapturedHigherOrderOpError, match="cannot be captured"):
        capture(fn, torch.randn(3))


def nested_operands(x, y):
    def yes(tree):
        return tree[0] + tree[1]["k"][0]

    def no(tree):
        return tree[0] - tree[1]["k"][0]

    return torch.cond(x.sum() > 0, yes, no, [(x, {"k": [y]})])


def test_cond_takes_nests():
    x, y = torch.rand(3), torch.rand(3)
    for sign in (1, -1):
        got, _ = capture(nested_operands, x * sign, y, fullgraph=True)
        torch.testing.assert_close(got, x * sign + y * sign)


# -- names and metadata ----------------------------------------------------------------------
def nested_bodies(x, flag):
    def no(a):
        return torch.cond(flag, lambda b: b.sin() - 1, lambda b: b.cos() - 1, (a,))

    return torch.cond(x.sum() > 0, lambda a: a + 1, no, (wrap(torch.tanh, x),))


def test_bodies_have_names_of_their_own_and_nodes_know_where_they_are():
    x = torch.randn(3)
    _, (graph,) = capture(nested_bodies, x, torch.tensor(True), fullgraph=True)
    assert {name for name, _ in graph.named_modules()} == {
        "", "wrap_body_0", "cond_true_1", "cond_false_1",
        "cond_false_1.cond_true_0", "cond_false_1.cond_false_0",
    }  # fmt: skip
    found = {
        node.name: [name for name, _ in node.meta["source_fn_stack"]]
        for module in graph.modules()
        for node in module.graph.nodes
        if node.name in ("tanh", "sin", "add", "sum_1")
    }
    assert found == {
        "tanh": ["wrap", "tanh"], "sin": ["cond", "cond", "sin"],
        "add": ["cond", "add"], "sum_1": ["sum_1"],
    }  # fmt: skip


# -- checkpoint with a policy ----------------------------------------------------------------
def policy(ctx, op, *args, **kwargs):
    saved = op is torch.ops.aten.mm.default
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


contexts = functools.partial(create_selective_checkpoint_contexts, policy)


def listed():
    return create_selective_checkpoint_contexts([torch.ops.aten.mm.default])


def selective(x, y, context_fn):
    def body(a, b):
        return torch.sigmoid(a @ b) * b

    return checkpoint(body, x, y, use_reentrant=False, context_fn=context_fn)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("context_fn", [contexts, listed], ids=["partial", "function"])
def test_checkpoint_with_a_policy(context_fn, backend):
    x, y = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    want = selective(x, y, context_fn)
    got = tc.compile(selective, backend=backend, fullgraph=True)(x, y, context_fn)
    torch.testing.assert_close(got, want)
    grads = [torch.autograd.grad(r.sum(), (x, y)) for r in (want, got)]
    torch.testing.assert_close(grads[1], grads[0])


def test_another_policy_is_another_graph():
    tc.reset()
    graphs: list[torch.fx.GraphModule] = []
    fn = tc.compile(selective, backend=lambda gm, _: graphs.append(gm) or gm)
    x, y = (torch.randn(4, 4, requires_grad=True) for _ in range(2))

    def made(op):
        return lambda: create_selective_checkpoint_contexts([op])

    functions = made(torch.ops.aten.mm.default), made(torch.ops.aten.mul.Tensor)
    for context_fn in functions:
        fn(x, y, context_fn)
    held = [graph.wrap_body_0.meta["_checkpoint_context_fn"] for graph in graphs]
    assert held == list(functions)
    assert all(tag_activation_checkpoint in targets(graph) for graph in graphs)


def test_a_policy_must_give_two_modes():
    x = torch.randn(4, 4, requires_grad=True)
    with pytest.raises(tc.exc.UncapturedHigherOrderOpError, match="two `TorchDispatchMode`s"):
        capture(selective, x, x, lambda: (1, 2))


# -- operations without bodies of their own ------------------------------------------------------
def strictly(x):
    return strict_mode(lambda a, b: (a.sin() * b, [a + b]), (x, x.cos()))


def multiplied(x):
    whole = (x * 3).to(torch.int8)
    wider = out_dtype(torch.ops.aten.mul.Tensor, torch.int32, whole, whole)
    return out_dtype(torch.ops.aten.mm.default, torch.int32, whole, whole), wider


@pytest.mark.parametrize("program", [strictly, multiplied])
def test_operations_that_eager_computes_by_others_are_one_graph(program):
    x = torch.randn(4, 4)
    got, graphs = capture(program, x, fullgraph=True)
    torch.testing.assert_close(got, program(x))
    assert len(graphs) == 1
    torch.testing.assert_close(tc.compile(program, fullgraph=True)(x), program(x))


@pytest.mark.sample(3)
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("wants", [False, True])
@pytest.mark.parametrize("enabled", [False, True])
def test_a_reentrant_checkpoint_has_the_gradients_that_its_arguments_want(enabled, wants, backend):
    layer = torch.nn.Linear(3, 3)

    def program(x):
        inside = checkpoint(lambda x: layer(x).sin(), x, use_reentrant=True)
        return inside, inside * layer.bias

    results = []
    for call in (tc.compile(program, backend=backend, fullgraph=True), program):
        layer.zero_grad()
        x = torch.ones(2, 3, requires_grad=wants)
        with torch.set_grad_enabled(enabled), pytest.warns() if not wants else nullcontext():
            inside, made = call(x)
        if enabled:
            made.sum().backward()
        gradients = [x.grad, layer.weight.grad, layer.bias.grad]
        results.append((made, inside.requires_grad, gradients))
    torch.testing.assert_close(*results)


def test_a_reentrant_checkpoint_refuses_keywords():
    def program(x):
        return checkpoint(lambda x, by: x * by, x, by=2, use_reentrant=True)

    with pytest.raises(ValueError, match="keyword"):
        tc.compile(program)(torch.ones(2, requires_grad=True))
