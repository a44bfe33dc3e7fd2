"""Triton's own compiler takes the generated kernels, for sm_80 and sm_90, with no GPU at hand; and
the launcher hands it the arguments it compiled for.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from loop_harness import lowered
from loop_programs import PROGRAMS
from support import ROOT, python

TESTS = ROOT / "tests"
SOME = ("attention", "block", "reductions", "integers", "gathered", "padded", "rotary")


def run(script: str, *arguments: str) -> str:
    """Output of a script of `tests/` in a process where Triton compiles."""
    pytest.importorskip("triton", reason="triton is not installed")
    path = os.pathsep.join([str(ROOT), str(TESTS), os.environ.get("PYTHONPATH", "")])
    variables = {"TRITON_INTERPRET": "0", "PYTHONPATH": path}
    done = python(str(TESTS / script), *arguments, timeout=600, variables=variables)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def write(folder: Path, name: str, mode: str) -> Path | None:
    """A module of kernels, and beside it the types of their arguments."""
    from triton_harness import gpu_program

    fn, make = PROGRAMS[name]
    graph = lowered(fn, make(7), mode)
    program = gpu_program(graph)
    if not program.kernels:
        return None
    path = folder / f"{name}_{mode}.py"
    path.write_text(program.triton_source)
    path.with_suffix(".json").write_text(json.dumps(dict(program.arguments)))
    return path


def compiled(tmp_path: Path, names: tuple[str, ...]) -> None:
    modules = [write(tmp_path, name, mode) for name in names for mode in ("fake", "symbolic")]
    paths = [str(path) for path in modules if path is not None]
    lines = run("triton_cubins.py", *paths).splitlines()
    kernels = sum(len(json.loads(Path(p).with_suffix(".json").read_text())) for p in paths)
    assert len(lines) == 2 * kernels
    assert all(int(line.split()[-2]) > 0 for line in lines)


def test_some_programs_become_machine_code(tmp_path: Path) -> None:
    compiled(tmp_path, SOME)


@pytest.mark.slow
def test_all_programs_become_machine_code(tmp_path: Path) -> None:
    compiled(tmp_path, tuple(PROGRAMS))


def test_launches_carry_what_was_compiled_for() -> None:
    first, second, other = run("triton_fake_gpu.py").splitlines()
    assert first == second  # by Triton's own call, and by ours
    assert "(1, 1, 1) tensor tensor 6 40 0.408" in first
    assert "(28, 1, 1) tensor tensor 700 40 0.0377" in other
