"""Each graph pass does its one thing, and the gate can refuse it."""

from __future__ import annotations

import pytest
import torch
from aot_harness import captured, check, trace
from torch._subclasses.fake_tensor import FakeTensorMode

from tc.compiler.aot.decompositions import DECOMPOSITIONS
from tc.compiler.aot.inference import inference
from tc.compiler.aot.passes import PASSES
from tc.compiler.core.gate import Gate
from tc.compiler.errors import VerifyError
from tc.trace import StackFrame

M = torch.arange(16.0).view(4, 4)


def graph_text(function, *args, refuse=()):
    with torch.no_grad():
        return str(trace(function, args, gate=Gate(refuse_from=dict.fromkeys(refuse, 1))))


def test_artifact_prints():
    assert (
        graph_text(lambda x, y: (x.add_(y.exp()), y[0]), M.clone(), M)
        == """\
inference graph
  in[0]  in0: f32[4, 4]  (written to)
  in[1]  in1: f32[4, 4]
  exp: f32[4, 4] = aten.exp(in1)
  add: f32[4, 4] = aten.add.Tensor(in0, exp)
  copy_: f32[4, 4] = aten.copy_(in0, add)
  return []
results: in[0], in[1].as_strided([4], [1], +0)"""
    )


def test_common_subexpressions():
    def function(x):
        return x.exp() + 1, x.exp() * 2

    assert graph_text(function, M).count("aten.exp") == 1
    off = ("aot.share_common_subexpressions",)
    assert graph_text(function, M, refuse=off).count("aten.exp") == 2


def test_numbers_of_different_types_stay_apart():
    text = graph_text(lambda x: (torch.full_like(x, 1), x + 1, x + 1.0, x + True), M)
    assert text.count("aten.add") == 3


def test_random_draws_are_neither_shared_nor_dropped():
    text = graph_text(lambda x: (torch.rand(4), torch.rand(4)) and x + torch.rand(4), M)
    assert text.count("aten.rand") == 3


def test_dead_code_and_no_ops():
    def function(x):
        x.exp().view(-1)
        return (x + 1).view(4, 4).detach() * 2

    assert "exp" not in graph_text(function, M)
    assert "view" not in graph_text(function, M) and "detach" not in graph_text(function, M)
    assert "exp" in graph_text(function, M, refuse=["aot.drop_dead_code"])
    assert "view" in graph_text(function, M, refuse=["aot.drop_no_ops"])


@pytest.mark.parametrize("graph_pass", PASSES, ids=lambda p: p.__name__)
def test_each_pass_can_be_refused(graph_pass):
    gate = Gate(refuse_from={f"aot.{graph_pass.__name__}": 1})
    check(lambda x: (x.exp() + 1, x.exp() + 1, x.t().t().sum()), (M,), gate=gate)
    assert gate.taken[f"aot.{graph_pass.__name__}"] == 1


def test_decomposition_is_an_optional_step():
    loss, gate = torch.nn.functional.mse_loss, Gate({"aot.decompose.aten.mse_loss": 1})
    with torch.no_grad():
        graph = trace(loss, (M, M + 1))
        refused = trace(loss, (M, M + 1), gate=gate)
    assert dict(graph.decomposed)["aten.mse_loss.default"] == 1
    assert gate.taken["aot.decompose.aten.mse_loss"] == 1
    assert "aten.mse_loss" in str(refused) and "aten.mse_loss" not in str(graph)


@pytest.mark.parametrize("op", list(DECOMPOSITIONS), ids=str)
def test_rows_neither_write_nor_draw(op):
    assert not op._schema.is_mutable
    assert torch.Tag.nondeterministic_seeded not in op.tags


def test_origins_reach_every_node():
    gm = captured(lambda x: (torch.nn.functional.mse_loss(x, x.relu()), x.softmax(0)), (M,))
    for i, node in enumerate(gm.graph.nodes):
        node.meta["tc_origin"] = (StackFrame("model.py", i, "forward"),)
    with torch.no_grad():
        graph = inference(gm, [FakeTensorMode().from_tensor(M)], Gate())
    for node in graph.module.graph.find_nodes(
        op="call_function", target=torch.ops.aten.pow.Tensor_Scalar
    ):
        assert node.meta["tc_from"] == "mse_loss"
    for node in graph.module.graph.nodes:
        if node.op == "call_function":
            assert node.meta["tc_origin"][0].file == "model.py" and "tc_from" in node.meta
    assert "# model.py:" in str(graph)


def test_verify_refuses_a_graph_that_writes():
    with torch.no_grad():
        graph = trace(lambda x: x.exp() * 2, (M,))
    nodes = list(graph.module.graph.nodes)
    with graph.module.graph.inserting_after(nodes[1]):
        extra = graph.module.graph.call_function(torch.ops.aten.add_.Tensor, (nodes[1], 1))
    extra.meta["val"] = nodes[1].meta["val"]
    with pytest.raises(VerifyError, match="writes to its arguments"):
        graph.verify()


def test_transposes_of_tensors_without_dimensions():
    """A tensor without dimensions has one axis to transpose, 0 or -1."""

    def program(x):
        x.swapaxes(0, -1).view(-1)[0:1].mul_(3)
        return x * 2

    check(program, [torch.tensor(4.0)])
