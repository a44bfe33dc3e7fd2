"""The cut is minimal, the parts make up the whole, and random draws are done once."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from aot_harness import trace_training
from hypothesis import given, settings
from hypothesis import strategies as st

from tc.compiler.aot.mincut import FlowNetwork
from tc.compiler.core.gate import Gate

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
    assert not {"mm", "mm_1"} & set(graphs.partition.recomputed)


def test_dropout_keeps_its_mask():
    x = torch.randn(16, 16, requires_grad=True)
    saved = kept(lambda x: F.dropout(x, 0.5, training=True) * 2, x)
    assert [s.type for s in saved.values()] == ["b8[16, 16]"]


def test_softmax_keeps_its_output_not_its_input():
    x = torch.randn(16, 16, requires_grad=True)
    saved = kept(lambda x: x.softmax(-1), x)
    assert [(s.name, s.kind, s.bytes) for s in saved.values()] == [("_softmax", "output", 0)]
