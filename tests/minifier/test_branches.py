"""Branches of `torch.cond` are inlined or made shorter."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from tc.minifier.case import Case, Fact, Input, Step
from tc.minifier.passes import branches

THEN = "def then(x):\n    a = torch.relu(x)\n    b = a.sin()\n    return (b,)"
ELSE = "def otherwise(x):\n    a = x.cos()\n    return (a,)"
FACT = Fact("tensor", (3,), (1,), "torch.float32")


def conditional() -> Case:
    cond = Step("c", "torch.cond($0, then, otherwise, ($1,))", ("p", "x"), helpers=(THEN, ELSE))
    steps = (Step("p", "$0.sum() > 0", ("x",)), cond, Step("i", "$0[0]", ("c",)))
    return Case((Input("x", "ones", "x", (3,)),), steps, ("i",), facts={"x": FACT, "i": FACT})


def apply(one: Callable[[Case, Callable[[Case], bool]], Iterator[Case]], wanted: str) -> Case:
    case = conditional()
    for smaller in one(case, lambda candidate: wanted in candidate.program()):
        case = smaller
    return case


def result_of(case: Case) -> torch.Tensor:
    names: dict[str, object] = {}
    exec(case.program(), names)
    result = names["f"](*(names[name] for name in case.arguments))  # type: ignore[operator]
    assert isinstance(result, torch.Tensor)
    return result


def test_a_branch_takes_the_place_of_the_condition() -> None:
    case = apply(branches.inline, "torch.relu")
    assert "cond" not in case.steps[-1].form
    assert [step.form for step in case.steps[1:]] == ["torch.relu($0)", "$0.sin()"]
    torch.testing.assert_close(result_of(case), torch.ones(3).sin())


def test_the_other_branch_does_too() -> None:
    case = apply(branches.inline, ".cos()")
    assert "torch.relu" not in case.program()


def test_branches_get_shorter() -> None:
    case = apply(branches.shorten, "torch.cond")
    assert "relu" not in case.program()
    assert "cos" not in case.program()


def test_what_is_needed_in_a_branch_stays() -> None:
    case = apply(branches.shorten, "torch.relu")
    assert "torch.relu" in case.program()
    assert ".sin()" not in case.program()
