"""Programs with a planted slowdown say where it is, and count by the first finding."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import slowdowns
from slowdown_hosts import COMPILERS, MARK
from slowdown_programs import FAMILIES
from slowdowns import SOUND, Named, drawn, findings, is_right, run

NAMES = (*FAMILIES, SOUND)
DRAWS = 30


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", NAMES)
def test_programs_of_a_family_are_new_each_time_and_mark_their_lines(name: str) -> None:
    texts = set()
    for seed in range(DRAWS):
        planted = drawn(name, random.Random(seed))
        assert drawn(name, random.Random(seed)) == planted
        assert bool(planted.lines) == bool(planted.codes) == (name != SOUND)
        for compiler in COMPILERS:
            program = planted.under(compiler, seed)
            compile(program.text, "program.py", "exec")
            rows = program.text.splitlines()
            assert all(rows[line - 1].endswith(MARK) for line in program.lines)
            assert "@x" not in program.text and "@me" not in program.text
        texts.add(planted.text)
    assert len(texts) == DRAWS


def named(code: str, line: int, level: str = "warning", fix: str = "") -> Named:
    return Named(code, line, level, "", fix)


def test_the_first_finding_counts() -> None:
    planted = slowdowns.Planted(f"x = 1\ny = 2  {MARK}\n", ("TC312",), "float64")
    right = named("TC312", 2, "note", "float64 at …")
    assert is_right(planted, [right, named("TC101", 1)])
    assert not is_right(planted, [named("TC101", 1), right])
    assert not is_right(planted, [])
    assert not is_right(planted, [named("TC312", 1, "note", "float64")])
    assert not is_right(planted, [named("TC312", 2, "note", "bfloat16")])


def test_a_sound_program_may_have_notes() -> None:
    planted = slowdowns.Planted("x = 1\n", ())
    assert is_right(planted, []) and is_right(planted, [named("TC312", 1, "note")])
    assert not is_right(planted, [named("TC101", 1)])


def test_a_program_runs_and_its_report_is_read(tmp_path: Path) -> None:
    text = (
        "import torch, tc\n"
        f"f = tc.compile(lambda x: x.sum().item(), backend='eager')  {MARK}\nf(torch.ones(3))\n"
    )
    planted = slowdowns.Planted(text, ("TC1",))
    run(planted, tmp_path / "one", "tc")
    found = findings(tmp_path / "one")
    assert is_right(planted, found), found
    assert found[0].fix
