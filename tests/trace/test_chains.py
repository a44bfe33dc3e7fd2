"""Chains of calls as text: carets in columns of a terminal, long chains and recursion cut."""

from __future__ import annotations

import pytest

from tc.trace import StackFrame
from tc.trace.chains import callers_line, carets, chain_lines, columns


def test_carets_stand_under_the_part_that_ran() -> None:
    assert carets("y = g(x) + 1", 4, 8) == "    ^^^^"
    assert carets("y = g(", 4, None) == "    ^^"  # it continues in the next line
    assert carets("y = g(x", 4, 99) == "    ^^^"  # the file is another by now


@pytest.mark.parametrize("part", [(None, None), (0, 4), (0, None), (4, 4), (9, 12), (0, 99)])
def test_a_part_unknown_empty_or_all_of_the_line_gets_none(part: tuple[int | None, ...]) -> None:
    assert carets("f(x)", *part) == ""


@pytest.mark.parametrize(
    ("before", "width"),
    [
        ("größe, ", 7),
        ("日本語, ", 8),
        ("n\N{COMBINING TILDE}, ", 3),
        ("\N{GRINNING FACE}, ", 4),
        ("a,\t", 3),
        ("\x1b, ", 6),
        ("\u202e, ", 8),
    ],
)
def test_columns_are_bytes_in_source_and_cells_on_a_terminal(before: str, width: int) -> None:
    source = f"{before}g(値)"
    begin = len(before.encode())
    assert columns(before) == width
    assert carets(source, begin, len(source.encode())) == " " * width + "^" * 5


def test_control_characters_and_tabs_are_printed_as_text() -> None:
    frame = StackFrame("a\x1b.py", 1, "f", "a\t\x1b", 0, 1)
    assert chain_lines([frame]) == ['  File "a\\x1b.py", line 1, in f', "    a \\x1b", "    ^"]


def test_frames_without_source_and_resumed_functions() -> None:
    frame = StackFrame("m.py", 7, "torch_dynamo_resume_in_f_at_3")
    assert chain_lines([frame]) == ['  File "m.py", line 7, in f']


def chain(count: int) -> list[StackFrame]:
    return [StackFrame("m.py", n, f"f{n}", f"g{n}()") for n in range(count)]


def test_a_long_chain_loses_its_middle() -> None:
    assert len(chain_lines(chain(17))) == 34
    lines = chain_lines(chain(40))
    assert len(lines) == 33
    assert lines[12] == "  ... 24 frames left out; TC_LOGS=+graph_breaks shows them ..."
    assert "in f5" in lines[10] and "in f30" in lines[13] and "in f39" in lines[-2]
    assert len(chain_lines(chain(40), cut=False)) == 80


@pytest.mark.parametrize(
    ("count", "more"), [(3, ""), (4, "1 more time"), (5, "2 more times"), (900, "897 more times")]
)
def test_recursion_is_reported_once(count: int, more: str) -> None:
    again = StackFrame("m.py", 4, "fact", "n * fact(n - 1)", 4, 15)
    lines = chain_lines([*chain(1), *[again] * count, *chain(1)])
    reported = [line for line in lines if "the frame above" in line]
    assert reported == ([f"  ... the frame above {more} ..."] if more else [])
    assert sum("in fact" in line for line in lines) == 3
    assert "        ^^^^^^^^^^^" in lines


def test_frames_left_out_count_those_of_recursion() -> None:
    again = StackFrame("m.py", 4, "fact", "fact(n - 1)")
    lines = chain_lines([*chain(8), *[again] * 50, *chain(12)])
    assert any("54 frames left out" in line for line in lines)


def test_callers_on_one_line() -> None:
    assert callers_line(chain(1)) == ""
    assert callers_line(chain(3)) == "called from m.py:1 in f1, m.py:0 in f0"
    nearest = "m.py:7 in f7, m.py:6 in f6, ..., m.py:0 in f0"
    assert callers_line(chain(9)) == f"called from {nearest}"
