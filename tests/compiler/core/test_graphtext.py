"""Captured graphs as Python: the text that fx prints, but for what it says of lifetimes."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from aot_harness import captured

import tc
from tc.compiler.core.graphtext import python_text
from tc.trace import OutputGraph
from tc.trace.emit import capture_events

X = torch.randn(4, 4)


def operators(x: Any) -> Any:
    y = x + 1
    y = 2 - y @ y.t() ** 2 / 3
    return -y, ~(y > 0), y[0:2, None], y[..., 1], y.mT, (y >= 1) & (y != 2)


def in_place(x: Any) -> Any:
    x = x.clone()
    x += 1
    x *= 2
    x[0:2] = 3
    x[1] = x[0]
    return x.add_(1, alpha=2)


def arguments(x: Any) -> Any:
    y = torch.zeros(3, dtype=torch.float64, device="cpu")
    z = torch.cat([x, x], dim=-1), torch.einsum("ij,kj->ik", x, x), x.split([1, 3])[1]
    return (*z, y.to(torch.int32), torch.nn.functional.pad(x, (1, 1), value=float("inf")))


def operations(x: Any) -> Any:
    return torch.ops.aten.sin(x), torch.ops.aten.sum.dim_IntList(x, [0]), x.sum((0,), keepdim=True)


def plain(text: str) -> str:
    """Drop what fx says of the ends of lifetimes, its blanks around ``=``, and empty lines."""
    rows = []
    for row in text.splitlines():
        row = re.sub(r";  (\w+ = )+None", "", row)
        row = re.sub(r"(\w+) = (?=[^=]+[,)])", r"\1=", row) if "(" in row else row
        rows.append(re.sub(r"(^ *\w+(?:: \"[^\"]*\")?)=", r"\1 = ", row).rstrip())
    return "\n".join(row for row in rows if row)


@pytest.mark.parametrize("function", [operators, in_place, arguments, operations])
def test_it_is_the_text_of_fx(function: Any) -> None:
    seen: list[Any] = []

    def backend(module: Any, inputs: Any) -> Any:
        seen.append((python_text(module), module.print_readable(print_output=False)))
        return module.forward

    tc.compile(function, backend=backend)(X)
    (texts,) = seen
    got, theirs = map(plain, texts)
    assert got == theirs
    compile(texts[0], "graph", "exec")


def test_graphs_inside_graphs_are_printed() -> None:
    def function(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    with capture_events() as events:
        tc.compile(function, backend="eager")(X)
    assert ".sin()" in events.of(OutputGraph)[0].code


def test_graphs_without_notes_are_printed() -> None:
    text = python_text(captured(lambda x: x.relu() + 1, (X,)))
    assert "relu = " in text and "return (add,)" in text
