"""Two sides in step: what pairs up, what is marked, and the screens that show it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import python
from textual.pilot import Pilot

from tc.tui.feed import Feed
from tc.tui.keys import Table
from tc.tui.lines import line
from tc.tui.pairs import Pairs, Side, compile_pairs, fitted, sides_in, text_rows, whole
from tc.tui.split import SplitApp

TEXTS = st.lists(st.sampled_from("abc"), max_size=12).map("\n".join)


@given(TEXTS, TEXTS)
def test_every_line_is_on_its_side_once_and_marks_are_true(a: str, b: str) -> None:
    halves: tuple[list[str], list[str]] = ([], [])
    for pair in text_rows(a, b):
        x, y = (half.pieces[1][0] if half.pieces else "" for half in pair.draw(40))
        expected = "=" if x == y else "≠" if x and y else "◂" if x else "▸"
        assert pair.sign == expected
        halves[0].extend([x] if x else [])
        halves[1].extend([y] if y else [])
    assert halves == (a.split("\n") if a else [], b.split("\n") if b else [])


@given(st.text(max_size=30), st.integers(1, 40), st.integers(0, 40))
def test_a_half_is_as_wide_as_it_should_be(text: str, width: int, shift: int) -> None:
    assert fitted(line(text), width, shift).width == width


def test_long_texts_that_differ_all_over_are_shown_soon() -> None:
    a, b = ("\n".join(f"{c}{n}" for n in range(60_000)) for c in "ab")
    assert len(text_rows(a, b)) == 60_000


def other_side(trace: Path, tools: Any) -> Path:
    """The same trace with the frames of two functions changed round, and one compile more."""
    text = (trace / "dedicated_log_torch_trace_a.log").read_text()
    log = tools.log()
    log.compile("7/0", "extra", 40, 1.0)
    other = trace.parent / "other"
    other.mkdir()
    text = text.replace("torch.sin(L_x_)", "torch.cos(L_x_)", 1)
    (other / "dedicated_log_torch_trace_a.log").write_text(text + log.text)
    return other


def sides(trace: Path, tools: Any) -> tuple[Side, Side]:
    first, second = (Feed(str(one)).read() for one in (trace, other_side(trace, tools)))
    return whole(first, "tc_trace", ""), whole(second, "other", "")


def test_compiles_pair_up_by_id_and_code(trace: Path, tools: Any) -> None:
    a, b = sides(trace, tools)
    rows = compile_pairs(a, b)
    assert all(x is None or y is None or x.id == y.id for x, y in rows)
    assert [y.id for x, y in rows if x is None and y is not None] == ["7/0"]


def test_a_name_is_a_compile_or_a_rank(trace: Path, tools: Any) -> None:
    for rank in (0, 1):
        name = f"dedicated_log_torch_trace_rank_{rank}_a.log"
        (trace / name).write_text(tools.small_log(rank))
    (trace / "dedicated_log_torch_trace_a.log").unlink()
    diagnosis = Feed(str(trace)).read()
    for name in ("rank 1", "rank1", "r1", "R1", "rank:1"):
        side = sides_in(diagnosis, name, "")
        assert side is not None and side.name == "rank 1" and len(side.compiles) > 1
    one = sides_in(diagnosis, "1:0/2", "")
    assert one is not None and [each.slug for each in one.compiles] == ["1:0/2"]
    for name in ("", "r", "r7", "rank", "9/9", "1"):
        assert sides_in(diagnosis, name, "") is None


@pytest.mark.sample(1)
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (30, 6), (5, 3)])
def test_from_the_traces_to_the_line_that_differs(
    size: tuple[int, int], trace: Path, tools: Any
) -> None:
    app = SplitApp(*sides(trace, tools), command="tc-tui --split a b", theme="dark", keys=Table())
    app.ascii_only = False

    async def main() -> None:
        async with app.run_test(size=size) as pilot:
            await go(pilot)

    async def go(pilot: Pilot[int]) -> None:
        await pilot.press("Y")
        assert app.clipboard == "tc-tui --split a b"
        await pilot.press("n", "N", "enter")  # the first compile differs
        assert isinstance(app.list.rows, Pairs) and app.level.compiles is not None
        before = app.list.cursor
        await pilot.press("n")
        sign = app.list.rows.pairs[app.list.cursor].sign
        assert sign == "≠" and app.list.cursor > before
        await pilot.press("enter", "n", "right", "y", "question_mark", "escape", "T")
        assert app.level.artifacts is not None
        assert app.list.rows.here >= 0
        if size[0] >= 80:
            reported = tools.screen_of(app)
            assert "torch.sin" in reported and "≠" in reported and "torch.cos" in reported
            assert "lines: 3 the same, 1 differ" in reported
        await pilot.press("escape", "escape")
        assert len(app.levels) == 1
        await pilot.press("escape")
        assert app.is_running
        await pilot.press("q")

    asyncio.run(main())
    assert app.return_code == 0


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--split", "tc_trace", "other"], 0, "compiles: "),
        (["tc_trace", "--split", "0/0", "0/1"], 0, "artifacts: "),
        (["--split", "0/0", "9/9"], 2, "9/9 is no trace, and no compile or rank of tc_trace"),
        (["nowhere", "--split", "0/0", "0/1"], 2, "there is none at nowhere"),
        (["--split", "tc_trace"], 2, "expected 2 arguments"),
        (["--split", "tc_trace", "other", "--goto", "0/0"], 2, "neither with --follow nor"),
        (["--split", "tc_trace", "empty"], 3, "no trace log in empty"),
    ],
)
def test_the_command(arguments: list[str], code: int, words: str, trace: Path, tools: Any) -> None:
    other_side(trace, tools)
    (trace.parent / "empty").mkdir()
    done = python("-m", "tc.tui", *arguments, cwd=trace.parent)
    assert done.returncode == code
    assert words in (done.stderr if code else done.stdout)
    assert done.stderr.count("\n") == bool(code)
