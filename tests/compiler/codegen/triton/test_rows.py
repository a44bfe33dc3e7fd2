"""Every row of the lowering table, as Triton under its interpreter, agrees with eager."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from loop_samples import samples

from tc.compiler import loops  # noqa: F401 - fills the table
from tc.compiler.loops.lower.registry import BY_CHOICE, LOWERINGS, VIEWS

ROWS = {str(op).removeprefix("aten."): op for op in LOWERINGS if op not in BY_CHOICE}
pytestmark = [
    pytest.mark.usefixtures("interpreter"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for item in value for t in tensors(item)] if isinstance(value, list | tuple) else []


def filled(value: Any, left: Iterator[torch.Tensor]) -> Any:
    """The value with its tensors replaced by the next ones."""
    if isinstance(value, torch.Tensor):
        return next(left)
    return [filled(item, left) for item in value] if isinstance(value, list | tuple) else value


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", ROWS)
def test_row_agrees_with_eager(name: str) -> None:
    from triton_harness import compare_gpu

    op, calls = ROWS[name], samples(name)
    torch.manual_seed(0)

    def run(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left = iter(given)
        results: list[torch.Tensor] = []
        for args, kwargs in calls:
            values = [filled(a, left) for a in args]
            keywords = {k: filled(v, left) for k, v in kwargs.items()}
            made = tensors(op(*values, **keywords))
            results += [result + 1 if op in VIEWS else result for result in made]
        return tuple(results)

    compare_gpu(run, [t for args, kwargs in calls for t in tensors([args, list(kwargs.values())])])
