"""All kernels of the op tests become machine code for sm_80 and sm_90, without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from loop_harness import lowered
from loop_samples import samples
from triton_harness import gpu_program, machine_code

from tc.compiler.core.gpu import GpuProgram
from tc.compiler.loops.lower.registry import LOWERINGS, VIEWS

pytestmark = pytest.mark.slow
ROWS = {str(op).removeprefix("aten."): op for op in LOWERINGS}
#: processes that the rows are shared out to
PARTS = 24


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for item in value for t in tensors(item)] if isinstance(value, list | tuple) else []


def filled(value: Any, left: Iterator[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return next(left)
    return [filled(item, left) for item in value] if isinstance(value, list | tuple) else value


def program(name: str) -> GpuProgram:
    """All sample calls of an op, as a program for a GPU."""
    op, calls = ROWS[name], samples(name)

    def fn(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left = iter(given)
        results: list[torch.Tensor] = []
        for args, kwargs in calls:
            values = [filled(a, left) for a in args]
            made = tensors(op(*values, **{k: filled(v, left) for k, v in kwargs.items()}))
            results += [result + 1 if op in VIEWS else result for result in made]
        return tuple(results)

    given = [t for args, kwargs in calls for t in tensors([args, list(kwargs.values())])]
    return gpu_program(lowered(fn, given))


@pytest.mark.parametrize("part", range(PARTS))
def test_ops_become_machine_code(part: int, tmp_path: Path) -> None:
    made = {name.replace(".", "_"): program(name) for name in sorted(ROWS)[part::PARTS]}
    assert machine_code(tmp_path, {name: one for name, one in made.items() if one.kernels})
