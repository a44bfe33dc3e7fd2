"""The text of eleven kernels, as people read it; needs no triton.

``TC_WRITE_GOLDEN=1`` writes the texts anew, for a look at the difference before it is committed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loop_harness import lowered

from tc.compiler.codegen.triton import generate
from tc.compiler.core.gate import Gate
from tc.compiler.schedule import gpu

T = torch.Tensor
GOLDEN = Path(__file__).parent / "golden"


def e(*shape: int, dtype: torch.dtype = torch.float32) -> T:
    return torch.empty(shape, dtype=dtype)


KERNELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "add_relu": (lambda x, y: F.relu(x + y), (e(64, 64), e(64, 64)), "fake"),
    "add_symbolic": (lambda x, y: x + y, (e(7, 5), e(5)), "symbolic"),
    "bfloat16": (lambda x: x.sigmoid() * x, (e(3000, dtype=torch.bfloat16),), "fake"),
    "transposed": (lambda x: x.t().contiguous(), (e(40, 70),), "fake"),
    "cat": (lambda x, y: torch.cat([x, y], 1), (e(9, 4), e(9, 6)), "fake"),
    "embedding": (
        lambda t, w: F.embedding(t, w),
        (torch.zeros(8, 9, dtype=torch.int64), e(50, 16)),
        "fake",
    ),
    "softmax_held": (lambda x: F.softmax(x, -1), (e(100, 300),), "fake"),
    "layer_norm_looped": (lambda x: F.layer_norm(x, (9000,)), (e(8, 9000),), "fake"),
    "argmax_symbolic": (lambda x: x.argmax(-1), (e(7, 33),), "symbolic"),
    "cumsum_held": (lambda x: x.cumsum(1) * 2, (e(100, 300),), "fake"),
    "columns": (lambda x: x.sum(0), (e(500, 300),), "fake"),
}


def with_plain_sizes(text: str) -> str:
    """Sizes named s0, s1, … as they come: torch's own names differ from version to version."""
    names = list(dict.fromkeys(re.findall(r"\bs\d+\b", text)))
    return re.sub(r"\bs\d+\b", lambda found: f"s{names.index(found.group())}", text)


@pytest.mark.parametrize("name", KERNELS)
def test_text(name: str) -> None:
    fn, args, mode = KERNELS[name]
    program = generate(gpu.plan(lowered(fn, args, mode), Gate()), torch.device("cuda:0"))
    text = with_plain_sizes(program.triton_source)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("TC_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
