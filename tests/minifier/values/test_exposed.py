"""Compiled runs: every value of a graph is recorded, and a wrong one is found."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from minifier_scripts import tool
from torch import fx

from tc.minifier.values.exposed import Graph, name_of, without

TRAINING = """\
import torch, tc
import torch.nn.functional as F
torch.manual_seed(0)
a, b = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
opt = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1)
@tc.compile
def loss(x):
    h = F.silu(a(x))
    h = F.dropout(h, 0.5)
    h = h * 2
    h += 1
    return torch.tanh(b(h)).square().mean()
for step in range(2):
    opt.zero_grad()
    loss(torch.randn(6, 8)).backward()
    opt.step()
"""


def compared(folder: Path, text: str, fault: str = "", *more: str) -> dict[str, object]:
    (folder / "train.py").write_text(text)
    done = tool(
        "tc.minifier.bisect", "compare", "train.py", "--json", *more, fault=fault, cwd=folder
    )
    assert done.stdout.startswith("{"), done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    assert done.returncode == (1 if found["verdict"] == "differs" else 0)
    assert not {*os.listdir(folder)} - {"train.py", "cache", "inductor"}
    return found


@pytest.mark.slow
def test_a_sound_compiler_differs_by_rounding_alone(tmp_path: Path) -> None:
    found = compared(tmp_path, TRAINING)
    assert found["verdict"] == "rounding"
    assert int(str(found["compared"])) >= 80
    assert "alone" not in found or sum(found["alone"]) <= 6  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault, line, value",
    [
        ("tc:wrong:tanh", "train.py:12", "tanh, float32[6, 4]"),
        (
            "tc:decomposition:silu_backward",
            "train.py:8",
            "the gradient that silu passes back to argument 0, float32[6, 16]",
        ),
    ],
)
def test_a_planted_fault_is_found_at_its_line(
    fault: str, line: str, value: str, tmp_path: Path
) -> None:
    found = compared(tmp_path, TRAINING, fault)
    assert (found["verdict"], found["line"], found["value"]) == ("differs", line, value)
    assert all(each["distance"] < 1e-5 for each in found["enters"])  # type: ignore[attr-defined]


WAYS = """\
import torch, tc
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
a, b = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
def inner(x):
    return F.silu(a(x))
@tc.compile
def loss(x):
    h = checkpoint(inner, x, use_reentrant=False)
    return torch.tanh(b(h) + h[:, :4]).square().mean()
weights = [*a.parameters(), *b.parameters()]
for step in range(2):
    torch.autograd.grad(loss(torch.randn(6, 8)), weights)
"""


@pytest.mark.slow
def test_gradients_are_seen_whatever_asks_for_them(tmp_path: Path) -> None:
    found = compared(tmp_path, WAYS, "tc:decomposition:silu_backward")
    assert found["value"] == "the gradient that silu passes back to argument 0, float32[6, 16]"
    assert found["line"] == "train.py:7"


def graph_of(function: object) -> fx.GraphModule:
    """A graph as a compiler captures it: with fake values."""
    gm = fx.symbolic_trace(function)  # type: ignore[arg-type]
    values = [torch.ones(3, 4, requires_grad=True), torch.ones(3, 4)]
    known: dict[fx.Node, object] = {}
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            known[node] = values[len(known)]
        elif node.op != "output":
            args = fx.map_arg(node.args, known.__getitem__)
            call = node.target if callable(node.target) else getattr(torch.Tensor, node.target)
            known[node] = call(*args, **node.kwargs)
        node.meta["example_value"] = known.get(node)
    return gm


def test_an_exposed_graph_returns_every_value_and_its_gradients() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a = torch.sin(x)
        b = a.t()
        c = (y > 0) * a
        return c + b.t()

    graph = Graph.of(graph_of(function), True)
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    taps = [zero.requires_grad_() for zero in graph.zeros([x, y])]
    out, *values = graph.module(x, y, *taps)
    names = [name_of(node) for node in graph.values]
    assert names == ["sin", "t", "gt", "mul", "t", "add"]
    torch.testing.assert_close(out, function(x, y))
    torch.testing.assert_close(values[0], x.sin())
    assert not any(value.requires_grad for value in values)
    shown = [
        (tap.node.name, tap.of_value, [name_of(user) for user, _ in tap.uses]) for tap in graph.taps
    ]
    assert shown == [
        ("x", False, ["sin"]), ("sin", True, []), ("sin", False, ["mul"]),
        ("mul", True, ["add"]), ("t_1", False, ["add"]), ("add", True, []),
    ]  # fmt: skip
    out.backward(torch.full((3, 4), 3.0))
    torch.testing.assert_close(taps[1].grad, 3.0 * (y > 0) + 3.0)
    torch.testing.assert_close(taps[2].grad, 3.0 * (y > 0))


def test_memory_that_is_written_is_copied_as_it_was() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        a = y * 2
        a.add_(1)
        return x * a

    graph = Graph.of(graph_of(function), True)
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)
    out, first, second, _ = graph.module(x, y, *graph.zeros([x, y]))
    torch.testing.assert_close(first, y * 2)
    torch.testing.assert_close(second, y * 2 + 1)
    torch.testing.assert_close(out, function(x, y))


def test_what_is_written_later_is_not_what_a_call_computed() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a = y * 2
        a.add_(1)
        return a, x * a

    graph = Graph.of(graph_of(function), False)
    assert [name_of(node) for node in graph.values] == ["mul"]
    assert graph.values[0] is graph.calls[-1]


def test_a_mode_is_left_out_from_among_others() -> None:
    class Mode(torch.overrides.TorchFunctionMode):
        pass

    with Mode() as one, Mode() as two, Mode() as three:
        with without(two):
            assert torch._C._len_torch_function_stack() == 2
        found = [torch._C._get_function_stack_at(n) for n in range(3)]
        assert found == [one, two, three]
    with without(two):
        assert not torch._C._len_torch_function_stack()
