"""A trace records which lines of the user's functions each compile went through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import tc
from tc import trace


def helper(x: torch.Tensor, deep: bool) -> torch.Tensor:
    if deep:
        return x.cos()
    return x.sin()


def f(x: torch.Tensor, n: int) -> torch.Tensor:
    x = x * 2
    if n < 3:
        x = x + 1
    return helper(x, False)


def broken(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    tc.graph_break()
    return y.cos()


def reported(fn: Any, *args: Any) -> dict[str, trace.FunctionLines]:
    with trace.capture_events() as events:
        tc.compile(fn, backend="eager")(*args)
    found: dict[str, trace.FunctionLines] = {}
    for event in events:
        if isinstance(event, trace.SourceLines):
            for one in event.functions:
                before = found.get(one.function)
                lines = {*one.traced, *(before.traced if before else ())}
                found[one.function] = trace.FunctionLines(
                    one.file, one.function, one.line, one.text, one.lines, tuple(sorted(lines))
                )
    return found


def skipped(one: trace.FunctionLines) -> list[str]:
    rows = one.text.split("\n")
    return [rows[line - one.line].strip() for line in one.lines if line not in one.traced]


def test_lines_that_were_not_gone_through_are_reported_of_callees_too() -> None:
    found = reported(f, torch.ones(3), 5)
    assert set(found) == {"f", "helper"}
    assert found["f"].file == str(Path(__file__))
    assert skipped(found["f"]) == ["x = x + 1"]
    assert skipped(found["helper"]) == ["return x.cos()"]


def test_resumed_code_counts_for_the_function_it_was_made_of() -> None:
    found = reported(broken, torch.ones(3))
    assert set(found) == {"broken"}
    assert skipped(found["broken"]) == []


def test_functions_of_packages_are_left_out() -> None:
    assert set(reported(torch.nn.Linear(2, 2), torch.ones(1, 2))) <= set()
