"""The seed of a run draws n cases of a table marked `sample(n)`; naming its file runs all."""

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
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n  sample(n): some cases\n  slow: no\n"
    )
    (tmp_path / "test_table.py").write_text(TABLE)
    return tmp_path


def collected(folder: Path, seed: str, *arguments: str) -> tuple[list[str], int]:
    """Return the cases of `test_sampled` that a run would take, and how many others it would."""
    done = python(
        *("-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "--collect-only", "-q"),
        *("-m", "not slow"),
        *arguments,
        cwd=folder,
        variables={
            "TC_TEST_SEED": seed,
            "PYTHONPATH": str(ROOT / "tests"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    names = [line for line in done.stdout.splitlines() if "::" in line]
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
