"""Triton's own compiler takes the generated kernels, for sm_80 and sm_90, without a GPU; and
the launcher passes it the arguments it compiled for.

Those of the golden texts by default, which are of all sorts; those of all programs if slow.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loop_harness import lowered
from loop_programs import PROGRAMS
from triton_golden import KERNELS as GOLDEN
from triton_harness import Choosing, gpu_program, machine_code, planned_by, run

from tc.compiler.core.gpu import GpuProgram


def e(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def heads(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return (q * 0.125) @ k.transpose(-1, -2)


PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], str]] = {
    "two_types": (
        lambda x, w, b: (F.gelu(x @ w + b), (x.float() @ w.float()).relu()),
        (e(512, 256), e(256, 384), e(384)),
        "fake",
    ),
    "edges": (lambda x, w, b: F.linear(x, w, b), (e(500, 250), e(390, 250), e(390)), "fake"),
    "int8": (
        lambda x, w, s: F.linear(x, w.to(x.dtype) * s[:, None]).relu(),
        (e(64, 512), e(1024, 512, dtype=torch.int8), e(1024)),
        "fake",
    ),
    "heads": (heads, (e(2, 8, 256, 64), e(2, 8, 256, 64)), "fake"),
    "summands": (
        lambda b, x, w: torch.baddbmm(b, x, w, beta=0.5),
        (e(4, 1, 96), e(4, 128, 64), e(4, 64, 96)),
        "fake",
    ),
    "symbolic": (
        lambda x, b, w: ((x + b).relu() @ w).sigmoid(),
        (e(300, 256), e(256), e(256, 128)),
        "symbolic",
    ),
    "symbolic_heads": (heads, (e(2, 8, 250, 64), e(2, 8, 250, 64)), "symbolic"),
}


def inside(names: list[str]) -> str:
    """The first way of a product, with factors computed inside if there is one."""
    return next((name for name in names if name.endswith("inside")), names[min(1, len(names) - 1)])


def test_some_kernels_become_machine_code(as_on_a_gpu: None, tmp_path: Path) -> None:
    programs = {}
    for name, (fn, args, mode) in GOLDEN.items():
        programs[name] = gpu_program(lowered(fn, args, mode))
    assert len(machine_code(tmp_path, programs)) >= 2 * 12


@pytest.mark.slow
def test_products_become_machine_code(tmp_path: Path) -> None:
    programs = {
        name: planned_by(fn, args, Choosing(inside), mode)[1]
        for name, (fn, args, mode) in PRODUCTS.items()
    }
    assert all("tl.dot(" in program.triton_source for program in programs.values())
    machine_code(tmp_path, programs)


MOVES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "transposed": (lambda x: (x.t() + 1).contiguous(), (e(512, 384, dtype=torch.float32),)),
    "transposed_inside": (lambda x: x.transpose(1, 2).contiguous(), (e(3, 512, 384),)),
    "transposed_beside": (lambda x, y: x.t() + y, (e(512, 384), e(384, 512))),
    "rows": (lambda x: F.softmax(x, -1), (e(64, 1024),)),
    "elements": (lambda x, y: F.gelu(x) * y, (e(64, 1024), e(64, 1024))),
}


@pytest.mark.slow
def test_memory_is_moved_by_128_bits(tmp_path: Path) -> None:
    programs = {name: gpu_program(lowered(fn, args)) for name, (fn, args) in MOVES.items()}
    lines = machine_code(tmp_path, programs)
    assert {line.split()[2] for line in lines} == {"128"}, lines


@pytest.mark.slow
def test_all_programs_become_machine_code(tmp_path: Path) -> None:
    programs: dict[str, GpuProgram] = {}
    for name, (fn, make) in PROGRAMS.items():
        for mode in ("fake", "symbolic"):
            made = gpu_program(lowered(fn, make(7), mode))
            if made.kernels:
                programs[f"{name}_{mode}"] = made
    machine_code(tmp_path, programs)


@pytest.mark.slow
def test_launches_carry_what_was_compiled_for() -> None:
    first, second, other = run("triton_fake_gpu.py").splitlines()
    assert first == second  # by Triton's own call, and by tc's
    assert "(1, 1, 1) stream 7 tensor tensor 6 40 0.408" in first
    assert "(28, 1, 1) stream 8 tensor tensor 700 40 0.0377" in other  # the caller's
