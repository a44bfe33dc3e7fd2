"""Caches as Linux reports them, and what holds where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tc.compiler.core.machine import Caches, caches, read_caches


def report(folder: Path, *rows: tuple[str, str, str]) -> Path:
    """Write what Linux would report: level, type and size of each cache."""
    for number, row in enumerate(rows):
        entry = folder / f"index{number}"
        entry.mkdir()
        for name, text in zip(("level", "type", "size"), row, strict=True):
            (entry / name).write_text(f"{text}\n")
    return folder


L1 = [("1", "Instruction", "64K"), ("1", "Data", "48K")]


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([*L1, ("2", "Unified", "2048K"), ("3", "Unified", "36M")], (48 << 10, 2 << 20, 36 << 20)),
        ([*L1, ("2", "Unified", "4096K")], (48 << 10, 4 << 20, 4 << 20)),
        (L1, (48 << 10, 1 << 20, 32 << 20)),
        ([("1", "Data", ""), ("x", "Data", "3K"), ("2", "Unified", "0K")], None),
        ([], None),
    ],
)
def test_caches_are_read_by_level(
    rows: list[tuple[str, str, str]], found: tuple[int, int, int] | None, tmp_path: Path
) -> None:
    assert read_caches(report(tmp_path, *rows)) == (Caches(*found) if found else Caches())


def test_a_folder_that_is_not_there_or_unreadable_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "index0").mkdir()
    assert read_caches(tmp_path) == read_caches(tmp_path / "none") == Caches()


def test_levels_of_this_machine_grow() -> None:
    assert 0 < caches().first <= caches().second <= caches().last
