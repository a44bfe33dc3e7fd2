"""The text of kernels of each sort, as people read it; needs no triton.

``TC_WRITE_GOLDEN=1`` writes the texts anew, for a look at the difference before it is committed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch
from loop_harness import lowered
from triton_golden import KERNELS

from tc.compiler.codegen.triton import generate
from tc.compiler.core.gate import Gate
from tc.compiler.schedule import gpu

GOLDEN = Path(__file__).parent / "golden"


def with_plain_sizes(text: str) -> str:
    """Sizes named s0, s1, … as they come: torch's own names differ from version to version."""
    names = list(dict.fromkeys(re.findall(r"\bs\d+\b", text)))
    return re.sub(r"\bs\d+\b", lambda found: f"s{names.index(found.group())}", text)


@pytest.mark.parametrize("name", KERNELS)
def test_text(name: str, as_on_a_gpu: None) -> None:
    fn, args, mode = KERNELS[name]
    program = generate(gpu.plan(lowered(fn, args, mode), Gate()), torch.device("cuda:0"))
    text = with_plain_sizes(program.triton_source)
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("TC_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
