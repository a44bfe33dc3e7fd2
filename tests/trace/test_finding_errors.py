"""Findings about compiles that failed, or that have no end."""

from __future__ import annotations

from pathlib import Path

from tc_log import Compiler

from tc.trace import events as ev


def test_a_compile_that_a_dead_program_left_is_a_finding(tmp_path: Path) -> None:
    """A compile that hung and was killed has no end, and no failure either."""
    compiler = Compiler(tmp_path).start()
    for at, step in enumerate(("entire_frame_compile", "loops.lower")):
        compiler.say(ev.Span(step, "B", 1e6 + at, 7, 7, {"compile_id": "0/0"}))
    (found,) = compiler.end().findings
    assert (found.code, found.title) == ("TC909", "f was never compiled to the end")
    assert "loops.lower" in found.why and found.where.line == 3
