"""The text of a captured graph computes what the graph does."""

from __future__ import annotations

import math
import operator
from types import BuiltinFunctionType, FunctionType
from typing import Any

import pytest
import torch
from torch import fx
from torch.overrides import get_testing_overrides

import tc
from tc.minifier import graphs
from tc.minifier.case import Call, Case


def attention(x: torch.Tensor, w: torch.Tensor) -> Any:
    a, b = (x @ w).chunk(2, -1)
    y = torch.nn.functional.scaled_dot_product_attention(a[None], b[None], b[None], is_causal=True)
    y.add_(1)
    z = torch.nn.functional.layer_norm(y, (y.shape[-1],), eps=1e-5)
    return z[..., 1:3], -z.relu(), y.to(torch.float64).view(-1, 2)


def numbers(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = torch.where(x > 0, x, float("inf")).clamp(max=3.5) ** -2
    y = torch.full((2, 2), -1.5).to(y.dtype).sum() * y
    return torch.cat([y, y.new_zeros(x.shape)], dim=1)[:, None, ::2], x.size(0) * 2


def captured(function: Any, inputs: tuple[torch.Tensor, ...], **options: Any) -> fx.GraphModule:
    found: list[fx.GraphModule] = []

    def backend(gm: fx.GraphModule, example_inputs: Any) -> Any:
        found.append(gm)
        return gm.forward

    tc.compile(function, backend=backend, fullgraph=True, **options)(*inputs)
    return found[0]


def rerun(case: Case, recorded: dict[str, torch.Tensor]) -> tuple[Any, ...]:
    names: dict[str, Any] = {"recorded": lambda key, shape=(): recorded[key]}
    exec(case.program(), names)
    result = names["f"](*(names[name] for name in case.arguments))
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.sample(2)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [attention, numbers])
def test_text_computes_what_the_graph_computes(function: Any, dynamic: bool) -> None:
    inputs = (torch.randn(4, 8), torch.randn(8, 8))
    gm = captured(function, inputs, dynamic=dynamic)
    case, recorded = graphs.case_of(gm, inputs[: _count(gm)], Call(), "", False)
    expected = gm(*(value.clone() for value in inputs[: _count(gm)]))
    returned = [v for v in expected if isinstance(v, torch.Tensor)]
    for mine, theirs in zip(rerun(case, recorded), returned, strict=False):
        torch.testing.assert_close(mine, theirs)


def _count(gm: fx.GraphModule) -> int:
    return len(gm.graph.find_nodes(op="placeholder"))


def test_steps_know_the_users_line() -> None:
    inputs = (torch.randn(4, 8), torch.randn(8, 8))
    case, _ = graphs.case_of(captured(attention, inputs), inputs, Call(), "", False)
    (line,) = {step.where for step in case.steps if "chunk" in step.form}
    assert line.endswith("\ta, b = (x @ w).chunk(2, -1)")
    assert __file__ in line
    assert [step.name for step in case.steps if step.mutates] == ["add_"]


@pytest.mark.parametrize(
    "function, name",
    [
        (torch.relu, "torch.relu"),
        (torch.nn.functional.gelu, "torch.nn.functional.gelu"),
        (torch.ops.aten.relu.default, "torch.ops.aten.relu"),
        (torch.ops.aten.add.Tensor, "torch.ops.aten.add.Tensor"),
        (operator.setitem, "operator.setitem"),
    ],
)
def test_functions_are_named_as_users_name_them(function: Any, name: str) -> None:
    assert graphs.name_of(function) == name


def test_every_function_of_torch_has_a_name_that_python_finds() -> None:
    private = ["_VariableFunctions", "_nn", "_fft", "_linalg", "_special"]
    spaces = [torch, *(getattr(torch._C, name) for name in private)]
    found = [getattr(space, name) for space in spaces for name in dir(space) if name[:2] != "__"]
    functions = {id(one): one for one in found if isinstance(one, BuiltinFunctionType)}
    methods = {id(one): one for one in get_testing_overrides() if isinstance(one, FunctionType)}
    assert len(functions) > 1000 and len(methods) > 20
    for function in (*functions.values(), *methods.values()):
        assert eval(graphs.name_of(function), {"torch": torch, "math": math}) is function


def test_ops_whose_name_is_a_keyword_are_found_by_their_text() -> None:
    op = getattr(torch.ops.aten.random_, "from")
    assert eval(graphs.name_of(op), {"torch": torch}) is op


def test_what_has_no_text_is_refused() -> None:
    with pytest.raises(graphs.Unprintable):
        graphs.name_of(lambda x: x)


def test_items_are_assigned_by_statements() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        m = torch.zeros(4, 4)
        m[1:, torch.tensor([0, 2])] = 3
        return x + m

    x = torch.ones(4, 4)
    case, recorded = graphs.case_of(captured(function, (x,)), (x,), Call(), "", False)
    assert [step.statement for step in case.steps].count(True) == 1
    assert "setitem" not in case.program() and "] = 3" in case.program()
    assert torch.equal(rerun(case, recorded)[0], function(x))
