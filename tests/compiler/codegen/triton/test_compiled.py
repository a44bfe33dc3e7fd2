"""Triton's own compiler takes the generated kernels, for sm_80 and sm_90, with no GPU at hand; and
the launcher hands it the arguments it compiled for.

Those of the golden texts by default, which are of all sorts; those of all programs if slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from loop_harness import lowered
from loop_programs import PROGRAMS
from triton_golden import KERNELS as GOLDEN
from triton_harness import gpu_program, machine_code, run

from tc.compiler.codegen.triton import Tuning, generate
from tc.compiler.core.gate import Gate
from tc.compiler.core.gpu import GpuProgram
from tc.compiler.core.tune import Tuner, Way
from tc.compiler.schedule import gpu

CPU = torch.device("cpu")


def products() -> GpuProgram:
    """A program whose matrix products are kernels, none of which was run."""

    def measure(ways: Mapping[str, Way], rounds: int) -> dict[str, float]:
        return {name: float(name == "aten") for name in ways}

    def fn(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.gelu(x @ w + b), (x.float() @ w.float()).relu()

    half = {"dtype": torch.bfloat16}
    args = (torch.empty(512, 256, **half), torch.empty(256, 384, **half), torch.empty(384, **half))
    tuner = Tuner(Nowhere(), "no machine", True, measure)
    tuning = Tuning(tuner, lambda source, specs: {s.name: lambda *_: None for s in specs}, CPU)
    plan = gpu.plan(lowered(fn, args), Gate(), tuning.product)
    return generate(plan, CPU, tuning=tuning)


class Nowhere:
    """Keeps nothing."""

    def read(self, kind: str, key: str) -> bytes | None:
        return None

    def write(self, kind: str, key: str, content: bytes) -> bool:
        return False


def test_some_kernels_become_machine_code(as_on_a_gpu: None, tmp_path: Path) -> None:
    programs = {"products": products()}
    assert programs["products"].triton_source.count("tl.dot(") == 2
    for name, (fn, args, mode) in GOLDEN.items():
        programs[name] = gpu_program(lowered(fn, args, mode))
    assert len(machine_code(tmp_path, programs)) >= 2 * 12


@pytest.mark.slow
def test_all_programs_become_machine_code(tmp_path: Path) -> None:
    programs: dict[str, GpuProgram] = {}
    for name, (fn, make) in PROGRAMS.items():
        for mode in ("fake", "symbolic"):
            made = gpu_program(lowered(fn, make(7), mode))
            if made.kernels:
                programs[f"{name}_{mode}"] = made
    machine_code(tmp_path, programs)


def test_launches_carry_what_was_compiled_for() -> None:
    first, second, other = run("triton_fake_gpu.py").splitlines()
    assert first == second  # by Triton's own call, and by ours
    assert "(1, 1, 1) stream 7 tensor tensor 6 40 0.408" in first
    assert "(28, 1, 1) stream 8 tensor tensor 700 40 0.0377" in other  # the caller's
