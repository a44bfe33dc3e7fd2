"""The demo GPT: its kernels run under Triton's interpreter, and become machine code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from support import ROOT
from triton_harness import machine_code

import tc
from tc.compiler import pipeline
from tc.compiler.core.gpu import GpuProgram

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
DYNAMIC = pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.slow)])


def programs_that_agree(dynamic: bool, monkeypatch: pytest.MonkeyPatch) -> list[GpuProgram]:
    """The programs of the GPT's inference and training, both found equal to eager."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from gpt import GPT

    programs: list[GpuProgram] = []
    load = pipeline.run

    def spied(program):
        programs.append(program)
        return load(program)

    tc.reset()
    monkeypatch.setattr(pipeline, "gpu_of", lambda module: torch.device("cpu"))
    monkeypatch.setattr(pipeline, "run", spied)
    torch.manual_seed(0)
    model = GPT(width=32, heads=4, layers=2 if dynamic else 1)
    tokens = torch.randint(0, 256, (2, 34))  # fewer are multiplied in loops, on a CPU
    compiled = tc.compile(model, dynamic=dynamic)
    with tc.config.patch(fx_graph_cache=False):
        with torch.no_grad():
            torch.testing.assert_close(compiled(tokens), model(tokens), rtol=1e-3, atol=1e-3)
        found = torch.autograd.grad(compiled(tokens).square().mean(), list(model.parameters()))
    wanted = torch.autograd.grad(model(tokens).square().mean(), list(model.parameters()))
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)
    del sys.modules["gpt"]

    assert {program.kind for program in programs} == {"inference", "forward", "backward"}
    return programs


@DYNAMIC
def test_interpreted(dynamic: bool, interpreter: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert programs_that_agree(dynamic, monkeypatch)


@pytest.mark.slow
@DYNAMIC
def test_machine_code(
    dynamic: bool, interpreter: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = programs_that_agree(dynamic, monkeypatch)
    machine_code(tmp_path, {f"program{k}": program for k, program in enumerate(programs)})
