"""The text of kernels of each sort, as people read it; needs no triton.

``TC_WRITE_GOLDEN=1`` writes the texts again, for a look at the difference before it is committed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from loop_harness import lowered
from triton_golden import KERNELS, e
from triton_harness import Choosing, planned_by

from tc.compiler.codegen.triton import generate
from tc.compiler.core.gate import Gate
from tc.compiler.schedule import gpu

T = torch.Tensor
GOLDEN = Path(__file__).parent / "golden"


def with_plain_sizes(text: str) -> str:
    """Sizes named s0, s1, … as they come: torch's own names differ from version to version."""
    names = list(dict.fromkeys(re.findall(r"\bs\d+\b", text)))
    return re.sub(r"\bs\d+\b", lambda found: f"s{names.index(found.group())}", text)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", KERNELS)
def test_text(name: str, as_on_a_gpu: None) -> None:
    fn, args, mode = KERNELS[name]
    program = generate(gpu.plan(lowered(fn, args, mode), Gate()), torch.device("cuda:0"))
    golden(name, program.triton_source)


def test_text_of_a_product() -> None:
    """Weights in int8, a summand, what follows: all in one kernel, for any number of rows."""

    def fn(x: T, w: T, s: T, b: T) -> T:
        return F.gelu(torch.addmm(b, x, w.to(x.dtype) * s))

    half = torch.bfloat16
    args = (e(300, 512, dtype=half), e(512, 1000, dtype=torch.int8), e(1000, dtype=half))
    wanted = "triton 128x128x64, 8 warps, 3 stages, factors inside"
    tuner = Choosing(lambda names: wanted if wanted in names else names[0])
    _, program = planned_by(fn, (*args, e(1000, dtype=half)), tuner, "symbolic")
    golden("product", program.triton_source)


def golden(name: str, source: str) -> None:
    """Compare with the text kept under a name."""
    text = with_plain_sizes(source)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("TC_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
