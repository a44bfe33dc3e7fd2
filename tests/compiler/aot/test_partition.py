"""The cut is minimal, the parts make up the whole, and random draws are done once."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from aot_harness import check_training, trace_training
from hypothesis import given, settings
from hypothesis import strategies as st

import tc
from tc.compiler.aot.mincut import FlowNetwork
from tc.compiler.core.gate import Gate
from tc.trace import capture_events

EDGES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=14
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(EDGES)
def test_cut_against_brute_force(edges):
    network = FlowNetwork()
    for _ in range(6):
        network.vertex()
    for tail, head, capacity in edges:
        if tail != head:
            network.edge(tail, head, capacity)
    flow, near = network.source_side(0, 5)

    def crossing(side):
        return sum(c for t, h, c in edges if t in side and h not in side)

    inner = [{0, *chosen} for n in range(5) for chosen in itertools.combinations(range(1, 5), n)]
    assert 0 in near and 5 not in near
    assert flow == crossing(near) == min(crossing(side) for side in inner)


def test_long_path_needs_no_recursion():
    network = FlowNetwork()
    vertices = [network.vertex() for _ in range(20000)]
    for i, (tail, head) in enumerate(itertools.pairwise(vertices)):
        network.edge(tail, head, 5 if i != 777 else 3)
    flow, near = network.source_side(vertices[0], vertices[-1])
    assert flow == 3 and len(near) == 778


def kept(function, *args, gate=None):
    graphs = trace_training(function, args, gate=gate)
    return {saved.name: saved for saved in graphs.partition.saved}


def test_pointwise_chain_keeps_only_its_input():
    x = torch.randn(64, 64, requires_grad=True)
    saved = kept(lambda x: (x.sin().exp().tanh() * 2).sigmoid(), x)
    assert [s.kind for s in saved.values()] == ["input"]


def test_refused_recomputation_keeps_values():
    x = torch.randn(64, 64, requires_grad=True)
    gate = Gate({"aot.recompute": 1})
    saved = kept(lambda x: (x.sin().exp().tanh() * 2).sigmoid(), x, gate=gate)
    assert sum(s.kind == "extra" for s in saved.values()) >= 2


def test_products_are_not_done_twice():
    x, w = (torch.randn(16, 16, requires_grad=True) for _ in range(2))
    graphs = trace_training(lambda x, w: F.gelu(x @ w) @ w, (x, w))
    assert "mm" in {saved.name for saved in graphs.partition.saved}
    assert not {"mm", "mm_1"} & {value.name for value in graphs.partition.recomputed}


def test_dropout_keeps_its_mask():
    x = torch.randn(16, 16, requires_grad=True)
    saved = kept(lambda x: F.dropout(x, 0.5, training=True) * 2, x)
    assert [s.type for s in saved.values()] == ["b8[16, 16]"]


def test_softmax_keeps_its_output_not_its_input():
    x = torch.randn(16, 16, requires_grad=True)
    saved = kept(lambda x: x.softmax(-1), x)
    assert [(s.name, s.kind, s.bytes) for s in saved.values()] == [("_softmax", "output", 0)]


def test_normalised_values_come_from_statistics():
    x, w, b, v = (torch.randn(*s, requires_grad=True) for s in ((64, 16), (16,), (16,), (16, 16)))
    graphs = check_training(lambda x, w, b, v: F.layer_norm(x, (16,), w, b) @ v, (x, w, b, v))
    kinds = [(s.kind, s.type) for s in graphs.partition.saved if s.kind != "input"]
    assert sorted(kinds) == [("extra", "f32[64, 1]")] * 2  # mean and deviation, x is an input
    assert "native_layer_norm" not in str(graphs.backward).replace("native_layer_norm_part", "")
    nodes = graphs.joint.module.graph.nodes  # what of the formula nobody came to use is gone
    assert all(node.users for node in nodes if node.op == "call_function")


def test_a_norm_without_weights_is_kept_once():
    x, v = torch.randn(64, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    graphs = check_training(lambda x, v: F.layer_norm((x @ v) * 2, (16,)) @ v, (x, v))
    large = [s.type for s in graphs.partition.saved if s.type == "f32[64, 16]"]
    assert large == ["f32[64, 16]"] * 2  # x and the normalised value, not what was normalised


def test_a_norm_that_lays_its_result_out_again_is_kept():
    x, v = torch.randn(8, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    graphs = check_training(lambda x, v: (F.layer_norm(x.t(), (8,)).view(8, 16) @ v).sin(), (x, v))
    assert not any("_again" in node.name for node in graphs.joint.module.graph.nodes)


def test_a_dropped_value_comes_from_its_mask():
    x, v = torch.randn(64, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    graphs = check_training(lambda x, v: F.dropout(x.relu(), 0.3) @ v, (x, v))
    extra = [s.type for s in graphs.partition.saved if s.kind == "extra"]
    assert extra == ["b8[64, 16]"]


def test_dropout_and_norm_are_kept_where_nothing_is_computed_again():
    x, v = torch.randn(64, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    gate = Gate({"aot.recompute": 0})
    graphs = check_training(
        lambda x, v: F.layer_norm(F.dropout(x.relu(), 0.3), (16,)) @ v, (x, v), gate=gate
    )
    assert not graphs.partition.recomputed


def test_long_chains_are_not_computed_again_from_the_start():
    def function(x):
        for _ in range(60):
            x = x.sin()
        return x

    x = torch.randn(64, 64, dtype=torch.float64, requires_grad=True)
    graphs = check_training(function, (x,))
    extra = [s for s in graphs.partition.saved if s.kind == "extra"]
    assert 1 <= len(extra) <= 6
    assert "too many steps" in extra[0].reason


def test_equal_gradients_beside_a_formula():
    """Copies of one gradient are equal nodes, which merge where a formula is added."""
    x, *shared = (torch.randn(*size, requires_grad=True) for size in ((6, 8), *[(8,)] * 4))
    function = lambda x, *shared: F.layer_norm(sum(shared, x), (8,)) + sum(shared, x.sin())  # noqa: E731
    graphs = check_training(function, (x, *shared))
    assert "None" not in str(graphs.backward).partition("results:")[0]


def test_values_are_computed_again_just_before_they_are_used():
    def function(x, w):
        for _ in range(4):
            x = F.gelu(x @ w)
        return x

    x, w = (torch.randn(8, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    graphs = check_training(function, (x, w))
    nodes = list(graphs.backward.module.graph.nodes)
    assert sum(s.op == "aten.gelu" for s in graphs.partition.recomputed) == 3
    for node in nodes:
        if node.target is torch.ops.aten.gelu.default:
            (view,) = [u for u in node.users if u.op == "call_function"]
            products = [n for n in nodes[nodes.index(node) : nodes.index(view)] if "mm" in n.name]
            assert len(products) <= 1


# -- any graph -------------------------------------------------------------------------------

CHEAP = [torch.sin, torch.exp, torch.sigmoid, torch.relu, F.gelu]
COSTLY = [
    lambda x: x @ x,
    lambda x: x.softmax(-1),
    lambda x: x - x.mean(0),
    lambda x: F.layer_norm(x, (8,)),
    lambda x: F.dropout(x, 0.5),
    lambda x: x.t(),
    lambda x: torch.cat([x[2:], x[:2]]),
]
STEPS = st.lists(
    st.tuples(st.integers(0, len(CHEAP + COSTLY) - 1), st.integers(0, 5), st.integers(0, 5)),
    min_size=1,
    max_size=12,
)


def program_of(steps):
    def function(*values):
        values, shared = list(values[:2]), values[2:]  # the latter have equal gradients
        for op, first, second in steps:
            value = (CHEAP + COSTLY)[op](values[-1 - first % len(values)])
            values.append(value * values[-1 - second % len(values)] / 4)
        return sum(shared, values[-1] + values[len(values) // 2])

    return function


def cost(partition):
    return sum(
        0 if saved.kind == "input" else BYTES[saved.type.partition("[")[0]] * count(saved.type)
        for saved in partition.saved
    )


BYTES = {"f64": 8, "b8": 1, "i64": 8}


def count(text):
    sizes = text.partition("[")[2].rstrip("]")
    return torch.Size(int(size) for size in sizes.split(", ") if size).numel()


@settings(max_examples=5, deadline=None)
@given(STEPS)
def test_any_graph_is_cut_right(steps):
    args = [torch.randn(8, 8, dtype=torch.float64, requires_grad=True) for _ in range(5)]
    graphs = check_training(program_of(steps), args)
    everything = trace_training(program_of(steps), args, gate=Gate({"aot.recompute": 0}))
    assert not everything.partition.recomputed
    inputs = len(args)  # each costs the cut a byte
    assert cost(graphs.partition) <= cost(everything.partition) + inputs
    for value in graphs.partition.recomputed:
        assert not any(name in value.op for name in ("mm", "softmax", "mean", "native", "cat"))
    kept = {saved.name for saved in graphs.partition.saved}
    assert not kept & {value.name for value in graphs.partition.recomputed}


test_many_graphs_are_cut_right = pytest.mark.slow(
    settings(max_examples=40, deadline=None, derandomize=True)(
        given(STEPS)(test_any_graph_is_cut_right.hypothesis.inner_test)
    )
)


#: functions whose backward has sizes computed of a number or size that it has nowhere else
COMPUTED = (
    lambda x, k: x.topk(k // 2 + 1, dim=1)[0],
    lambda x, k: x.topk(min(k, 3), dim=1)[0],
    lambda x, k: x.topk(max(k - 1, 1), dim=1)[0],
    lambda x, k: x.topk(min((x[:, 0] > -99).sum().item(), 3), dim=1)[0],
    lambda x, k: x.gather(0, x.topk(min(k, 1), dim=0)[1]),
    lambda x, k: x.topk((x.shape[0] + 1) // 2, dim=0)[0],
    lambda x, k: x.topk((x.shape[0] + 1) // 2, dim=0)[0].topk(min(k, 1), dim=1)[0],
)


@pytest.mark.sample(2)
@pytest.mark.parametrize("place", range(len(COMPUTED)))
def test_backward_is_given_the_symbols_of_its_sizes(place):
    function = COMPUTED[place]
    compiled = tc.compile(function)
    for rows, k in ((4, 1), (1, 2), (7, 3), (5, 4)):
        start, found = torch.randn(rows, 3), []
        for call in (function, compiled):
            x = start.clone().requires_grad_()
            (call(x, k) ** 2).sum().backward()
            found.append(x.grad)
        torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("op", [torch.special.erfcx, torch.erfinv, torch.special.i0])
def test_a_call_of_aten_is_not_repeated_in_backward(op):
    """An elementwise op that no kernel computes costs a call, and its result is kept."""

    def program(x):
        y = op(x * 0.5)
        return y * y

    x = torch.linspace(-0.9, 0.9, 50, requires_grad=True)
    with capture_events() as events, tc.config.patch(fx_graph_cache=False):
        made = tc.compile(program)(x)
        (mine,) = torch.autograd.grad(made.sum(), x)
    names = [e.code for e in (getattr(e, "event", e) for e in events) if hasattr(e, "code")]
    name = op.__name__.removeprefix("special_")
    assert sum(code.count(f"{name}(") for code in names if "def call" in code) == 1
    (wanted,) = torch.autograd.grad(program(x).sum(), x)
    torch.testing.assert_close(mine, wanted)
