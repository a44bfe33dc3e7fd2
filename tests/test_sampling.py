"""The seed of a run draws n cases of a table marked `sample(n)`; naming its file runs all.

It also draws the rows that a test asks the fixture `drawn` for.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support import ROOT, python

TABLE = """
import pytest

SLOW = [pytest.param(number, marks=pytest.mark.slow) for number in range(30, 90)]

@pytest.mark.sample(4)
@pytest.mark.parametrize("number", [*range(30), *SLOW])
def test_sampled(number):
    pass

@pytest.mark.parametrize("number", range(3))
def test_whole(number):
    pass

def test_walk(drawn, capsys):
    with capsys.disabled():
        print("rows", *drawn(range(30), 4))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n  sample(n): some cases\n  slow: no\n"
    )
    (tmp_path / "test_table.py").write_text(TABLE)
    return tmp_path


def run(folder: Path, seed: str, *arguments: str) -> list[str]:
    """Return the lines that pytest prints."""
    done = python(
        *("-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-q", "-m", "not slow"),
        *arguments,
        cwd=folder,
        variables={
            "TC_TEST_SEED": seed,
            "PYTHONPATH": str(ROOT / "tests"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def collected(folder: Path, seed: str, *arguments: str) -> tuple[list[str], int]:
    """Return the cases of `test_sampled` that a run would take, and how many others it would."""
    lines = run(folder, seed, "--collect-only", *arguments)
    names = [line for line in lines if "::" in line and "test_walk" not in line]
    sampled = [name for name in names if "test_sampled" in name]
    return sampled, len(names) - len(sampled)


def test_the_seed_draws_the_cases(folder: Path) -> None:
    first, others = collected(folder, "1", ".")
    assert len(set(first)) == 4 and others == 3
    assert collected(folder, "1", ".") == (first, 3)
    second, others = collected(folder, "2", ".")
    assert len(set(second)) == 4 and others == 3
    assert set(second) != set(first)


@pytest.mark.parametrize("arguments", [("--every-case", "."), ("test_table.py",)], ids=" ".join)
def test_all_cases_run_where_that_is_asked_for(folder: Path, arguments: tuple[str, ...]) -> None:
    sampled, others = collected(folder, "1", *arguments)
    assert len(set(sampled)) == 30 and others == 3


def test_the_seed_draws_rows_of_a_table_that_is_walked_through(folder: Path) -> None:
    def rows(*arguments: str) -> list[int]:
        (line,) = (one for one in run(folder, *arguments) if one.startswith("rows"))
        return [int(word) for word in line.split()[1:5]]

    first = rows("1", "-k", "walk", ".")
    assert first == sorted({*first}) and len(first) == 4
    assert rows("2", "-k", "walk", ".") != first
    assert rows("1", "-k", "walk", "--every-case", ".") == [0, 1, 2, 3]
