"""Reads the logs of `recorder`: events with their lines, as far as a log goes."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

VALUE, GRADIENT, INPUT, VJP = range(4)  # what an event is about, as `recorder` numbers it
SCHEMA: Final = 2


class NoLog(Exception):
    """A file is no log; the text says why."""


@dataclass(frozen=True)
class Line:
    """A line of a program, known by its text and not by its number.

    Attributes:
        file: its file; empty for the script.
        function: where it is; resume functions have names of their own.
        nth: how many lines before it in its file have the same text.
        place: ``file:line``, for people.
    """

    file: str
    function: str = field(compare=False)
    text: str
    nth: int
    place: str = field(compare=False)


@dataclass(frozen=True)
class Event:
    """A value that was recorded.

    Attributes:
        number: in its log.
        kind: a result, its gradient, what comes from outside of what is recorded, or what a call
            passes back to an argument (a vector-Jacobian product).
        part: which of the results of a call; of what it passes back, which argument.
        dtype: empty for a value that could not be seen.
        enters: the events whose values the call takes; of a gradient, the event it is of; of what
            a call passes back, its first result.
        check: checksum of all bytes.
        sums: projections of blocks of its elements, see `recorder.summary`.
        odd: elements that are NaN or infinite.
        first: its first elements.
    """

    number: int
    kind: int
    line: Line
    operation: str
    part: int
    enters: tuple[int, ...]
    dtype: str
    shape: tuple[int, ...]
    check: int
    norm: float
    sums: tuple[float, ...]
    odd: int
    first: tuple[float, ...]

    @property
    def key(self) -> tuple[Any, ...]:
        """What is equal for the same value in two runs."""
        return (self.line, self.kind, self.operation, self.part)

    def __str__(self) -> str:
        if self.kind == VJP:
            what = f"the gradient that {self.operation} passes back to argument {self.part}"
            return f"{what}, {self.dtype}{list(self.shape)}"
        what = ("", "the gradient of ", "")[self.kind]
        part = f", result {self.part}" if self.part else ""
        return f"{what}{self.operation}{part}, {self.dtype}{list(self.shape)}"


@dataclass
class Log:
    """A log in memory.

    Attributes:
        facts: how it was recorded, rank, versions.
        notes: what the recorder had to say.
        end: its last row; empty for a log that was cut off.
    """

    path: Path
    facts: dict[str, Any]
    events: list[Event] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Log:
        """Return the log in a file.

        Raises:
            NoLog: it holds none.
        """
        rows = _rows(path)
        try:
            head = next(rows, None)
        except OSError as error:
            raise NoLog(f"{path} is no log of values: {error}") from None
        if not isinstance(head, dict) or "schema" not in head:
            raise NoLog(f"{path} is no log of values; make one with tc-bisect record")
        if head["schema"] != SCHEMA:
            raise NoLog(f"{path} is a log of another version of tc; record it again")
        log = cls(path, head)
        lines: list[Line] = []
        for row in rows:
            if isinstance(row, list):
                log.events.append(_event(len(log.events), row, lines))
            elif "place" in row:
                lines.append(Line(**row))
            elif "note" in row:
                log.notes.append(row["note"])
            else:
                log.end = row
        return log


def _event(number: int, row: list[Any], lines: list[Line]) -> Event:
    kind, place, operation, part, enters, dtype, shape, check, norm, sums, odd, first = row
    return Event(number, kind, lines[place], operation, part, tuple(enters), dtype, tuple(shape),
                 check, norm, tuple(sums), odd, tuple(first))  # fmt: skip


def _rows(path: Path) -> Iterator[Any]:
    """Yield the rows of a file; one that was cut off ends early."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        try:
            for text in file:
                yield json.loads(text)
        except (EOFError, zlib.error, ValueError):
            return
