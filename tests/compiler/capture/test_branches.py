"""Branches that depend on data take the side that eager takes, whatever computed the condition.

Python versions differ in who converts a condition to a bool: the jump, an instruction of its own in
front of it, or (since 3.13) the comparison. Every sort of condition meets every sort of jump here.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tc


class Box:
    """An object whose comparisons and truth depend on a tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __lt__(self, other: float) -> bool:
        return bool(self.tensor.max() < other)

    def __contains__(self, number: float) -> bool:
        return bool(self.tensor.max() == number)

    def __bool__(self) -> bool:
        return bool(self.tensor.max() > 1)


#: compared, identical, contained, negated, tested as they are
CONDITIONS = (
    "x.max() < 0.5", "x.max() > 0.5", "x.max() == 0.5", "0 < x.max() <= 0.5", "x.max() != x.min()",
    "x.sum() is None", "3.0 in x", "3.0 not in x", "not x.max() > 1", "x.max()", "not x.sum()",
    "x.max().item() > 1", "x.shape[0] > 3 and x.max() > 1", "x.max() > 5 or x.min() < 1",
    "Box(x) < 2", "3.0 in Box(x)", "Box(x)", "not Box(x)",
)  # fmt: skip
JUMPS = {
    "if": "    if {0}:\n        return x * 2\n    return x",
    "if not": "    if not ({0}):\n        return x * 2\n    return x",
    "conditional expression": "    return x * 2 if {0} else x",
    "while": "    n = 0\n    while ({0}) and n < 3:\n        x, n = x / 2, n + 1\n    return x",
    "comprehension": "    return sum([x * n for n in (1, 2) if {0}], x)",
    "guard of a case": "    match x:\n        case _ if {0}:\n            x = x * 2\n    return x",
}


def function(jump: str, condition: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a function of a tensor that branches."""
    names = {"Box": Box}
    exec(f"def f(x):\n{JUMPS[jump].format(condition)}", names)
    return names["f"]  # type: ignore[return-value]


@pytest.mark.sample(1)
@pytest.mark.parametrize("jump", JUMPS)
def test_side_is_that_of_eager(jump: str) -> None:
    for condition in CONDITIONS:
        eager = function(jump, condition)
        compiled = tc.compile(function(jump, condition), backend="eager")
        for value in (-1.0, 0.0, 0.25, 0.5, 3.0):
            x = torch.full((4,), value)
            assert torch.equal(compiled(x), eager(x)), (condition, value)
