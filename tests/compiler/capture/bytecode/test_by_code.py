"""Functions of two files that are equal as code, and yet two functions."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

import tc
from tc.compiler.capture.bytecode.by_code import ByCode, cached_by_code
from tc.compiler.capture.frame import program_of
from tc.trace import Recompile, capture_events

BREAKS = """
K = {number}
def f(x):
    x = x + 1
    print(end="")
    return x * K
"""
INNER = """
K = {number}
def f(x, n):
    def g(y):
        return y * K * len(n)
    return g(x)
"""


def two(folder: Path, text: str) -> list[ModuleType]:
    """Two modules whose functions differ in nothing but file and globals."""
    modules = []
    for number in (2, 5):
        path = folder / f"of_{number}.py"
        path.write_text(text.format(number=number))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        modules.append(module)
    assert modules[0].f.__code__ == modules[1].f.__code__
    return modules


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_each_goes_on_after_a_break_with_its_own_globals(tmp_path: Path, backend: str) -> None:
    tc.reset()
    one, other = (tc.compile(module.f, backend=backend) for module in two(tmp_path, BREAKS))
    for _ in range(3):
        assert (one(torch.ones(1)).item(), other(torch.ones(1)).item()) == (4, 10)


def test_lines_of_events_are_in_the_function_s_own_file(tmp_path: Path) -> None:
    tc.reset()
    with capture_events() as events:
        for module in two(tmp_path, INNER):
            compiled = tc.compile(module.f, backend="eager")
            compiled(torch.ones(1), [1])
            compiled(torch.ones(1), [1, 2])
    files = [Path(event.causes[0].file).name for event in events.of(Recompile)]
    assert files == ["of_2.py", "of_5.py"]


def test_a_cache_distinguishes_equal_code(tmp_path: Path) -> None:
    asked = []

    @cached_by_code(8)
    def name(code: object, more: int = 0) -> str:
        asked.append(code)
        return str(getattr(code, "co_filename", ""))

    codes = [module.f.__code__ for module in two(tmp_path, BREAKS)]
    for _ in range(2):
        assert [Path(name(code)).name for code in codes] == ["of_2.py", "of_5.py"]
    assert len(asked) == 2
    assert program_of(codes[0]) is program_of(codes[0]) is not program_of(codes[1])


def test_entries_end_with_their_code_and_the_oldest_are_evicted() -> None:
    codes = [compile(f"lambda: {number}", "<here>", "eval") for number in range(5)]
    table: ByCode[int] = ByCode(maxsize=3)
    for number, code in enumerate(codes):
        table.set(code, number)
    assert [table.get(code) for code in codes] == [None, None, 2, 3, 4]
    del code, codes[3]
    table.set(codes[0], 7)
    assert [table.get(code) for code in codes] == [7, None, 2, 4]
    assert len(table._values) == 3
