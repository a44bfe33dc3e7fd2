"""The calls that led to a line go in; what a person reads of them comes out, outermost first."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

from tc.trace.cells import in_cell
from tc.trace.ids import plain_function
from tc.trace.places import StackFrame, file_name

#: frames of a chain that are shown at its two ends, where there are more
OUTERMOST, INNERMOST = 6, 10
#: times that one frame is shown where it stands many times in a row
REPEATED = 3
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Spell out what could steer a terminal: user text must stay text."""
    return _CONTROL.sub(lambda match: ascii(match.group())[1:-1], text)


def shown(source: str) -> str:
    """Return source as it is printed: a tab is one space, so that carets stand where they should.

    Where a terminal puts a tab depends on what stands before the line.
    """
    return clean(source.replace("\t", " "))


def columns(source: str) -> int:
    """Return how many columns of a terminal source takes, printed as `shown` does."""
    return sum(map(_width, shown(source)))


def _width(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):  # drawn onto what stands before
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def characters(source: str, column: int) -> int:
    """Return how many characters the first bytes of source are; Python counts columns in bytes."""
    return len(source.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "replace"))


def carets(source: str, col: int | None, end_col: int | None) -> str:
    """Return what stands under a line to mark a part of it.

    Args:
        col, end_col: of the part, 0-based UTF-8 byte offsets; without an end it continues in the
            next line.

    Returns:
        Nothing if the part is unknown, or is all there is to see.
    """
    if col is None:
        return ""
    begin = characters(source, col)
    end = len(source) if end_col is None else characters(source, end_col)
    part = source[begin:end]
    if not part.strip() or part.strip() == source.strip():
        return ""
    return " " * columns(source[:begin]) + "^" * columns(part.rstrip())


def chain_lines(stack: Sequence[StackFrame], cut: bool = True) -> list[str]:
    """Return a chain of calls as Python's tracebacks show it, the lines of a long one left out.

    Args:
        cut: leave out the middle of a long chain; a frame that calls itself is listed once anyway.
    """
    parts = [*_parts(stack)]
    if cut and len(parts) > OUTERMOST + INNERMOST + 1:
        left = sum(count for _, count in parts[OUTERMOST:-INNERMOST])
        summary = f"  ... {left} frames left out; TC_LOGS=+graph_breaks shows them ..."
        middle: list[tuple[list[str], int]] = [([summary], left)]
        parts[OUTERMOST:-INNERMOST] = middle
    return [line for lines, _ in parts for line in lines]


def _parts(stack: Sequence[StackFrame]) -> Iterator[tuple[list[str], int]]:
    """Yield lines and how many frames each is for; many alike in a row are one."""
    alike = 0
    for number, frame in enumerate(stack):
        alike = alike + 1 if number and frame == stack[number - 1] else 0
        if alike < REPEATED:
            yield _lines(frame), 1
        elif number + 1 == len(stack) or frame != stack[number + 1]:
            more = alike + 1 - REPEATED
            times = "1 more time" if more == 1 else f"{more} more times"
            yield [f"  ... the frame above {times} ..."], more


def _lines(frame: StackFrame) -> list[str]:
    name = plain_function(frame.name)
    place = in_cell(frame.file, frame.line) or f'File "{clean(frame.file)}", line {frame.line}'
    lines = [f"  {place}, in {clean(name)}"]
    if frame.loc and frame.loc.strip():
        lines.append(f"    {shown(frame.loc.rstrip())}")
        marks = carets(frame.loc, frame.col, frame.end_col)
        lines += [f"    {marks}"] if marks else []
    return lines


def callers_line(stack: Sequence[StackFrame]) -> str:
    """Return the calls above the innermost frame on one line, nearest first; empty if none."""
    above = [
        (in_cell(frame.file, frame.line) or f"{file_name(frame.file)}:{frame.line}")
        + f" in {plain_function(frame.name)}"
        for frame in reversed(stack[:-1])
    ]
    distinct = list(dict.fromkeys(above))
    kept = distinct if len(distinct) <= 3 else [distinct[0], distinct[1], "...", distinct[-1]]
    return clean("called from " + ", ".join(kept)) if kept else ""
