"""The records of the logs go in; each as it was written comes out."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from rich.cells import cell_len

from tc.trace.commands import quoted
from tc.trace.kinds import kind_of
from tc.trace.reader import Defects, Record, Source, Span, payload_of, read_records
from tc.trace.session import Session
from tc.tui.facts import size_of
from tc.tui.lines import Line, Rows, cut, left, line, right
from tc.tui.views.base import Place, View
from tc.tui.views.compile import laid_out
from tc.tui.widgets.body import Body
from tc.tui.widgets.rows import RowList

BATCH: Final = 5_000
_READERS: Final = {".gz": "zcat", ".zst": "zstdcat"}  # of packed logs


@dataclass(frozen=True, slots=True)
class Entry:
    """One record: enough to list it, and to find the rest in its log."""

    source: int
    line: int
    time: str
    emitter: str
    event: str
    name: str
    compile: str
    value: Any
    context: dict[str, Any]
    span: Span | None

    @property
    def words(self) -> str:
        """What a filter looks at."""
        return f"{self.time} {self.compile} {self.event} {self.name} {self.emitter}"


def entry(index: int, record: Record) -> Entry:
    """Take from a record what the list needs; its payload stays in the log."""
    value, context = record.value, record.context
    name = ""
    if isinstance(value, dict):
        name = str(value.get("name") or "")
    frame, number = context.get("frame_id"), context.get("frame_compile_id")
    return Entry(
        source=index,
        line=record.line,
        time=record.time,
        emitter=record.emitter,
        event=record.event,
        name=name,
        compile="" if frame is None else f"{frame}/{'-' if number is None else number}",
        value=value,
        context=context,
        span=record.span,
    )


class Entries:
    """Records as rows; they become more while the log is read."""

    width = 0

    def __init__(self, several: bool) -> None:
        self.all: list[Entry] = []
        self.shown: list[int] | None = None
        self.several = several

    def __len__(self) -> int:
        return len(self.all if self.shown is None else self.shown)

    def at(self, index: int) -> Entry:
        """The record in a row."""
        return self.all[index if self.shown is None else self.shown[index]]

    def key(self, index: int) -> Hashable | None:
        one = self.at(index)
        return one.source, one.line

    def line(self, index: int, width: int) -> Line:
        one = self.at(index)
        size = size_of(one.span.stop - one.span.start) if one.span else ""
        lane = (f"{one.source} ", "dim") if self.several else ""
        clock = one.time.partition(" ")[2][:12]
        head = line("  ", lane, (clock, "dim"), " ", (left(one.compile, 7), "title"), " ")
        space = max(width - head.width - 10, 8)
        role = "" if kind_of(one.event).record else "mark"
        name = f"  {one.name}" if one.name else ""
        event = cut(one.event, space)
        rest = space - cell_len(event)
        return head + line((event, role), (left(name, rest), "dim"), (" " + right(size, 8), "dim"))

    def index(self, key: Hashable) -> int:
        rows = range(len(self))
        if not isinstance(key, tuple):
            return -1
        at = bisect_right(rows, key, key=lambda n: (self.at(n).source, self.at(n).line)) - 1
        return at if at >= 0 and self.key(at) == key else -1

    def add(self, more: list[Entry], matches: Callable[[str], bool]) -> None:
        """Take in more records."""
        start = len(self.all)
        self.all += more
        if self.shown is not None:
            self.shown += [start + n for n, one in enumerate(more) if matches(one.words)]


class Log(View):
    """Every record of the run; on the right the one under the cursor, whole."""

    DEFAULT_CSS = """
    Log .list { width: 50%; }
    """
    label: ClassVar = "Log"

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.entries = Entries(False)
        self.session: Session | None = None
        self.reading = False

    def make_detail(self) -> RowList:
        return Body(classes="detail")

    def count(self) -> str:
        return str(self.model.diagnosis.session.records) if self.model.diagnosis else ""

    def start(self) -> Session | None:
        """Begin to list the records of a session that is not listed yet; None if it is."""
        diagnosis = self.model.diagnosis
        if diagnosis is None or diagnosis.session is self.session:
            return None
        self.session = diagnosis.session
        self.reading = True
        return self.session

    def take(self, session: Session, batch: list[Entry], first: bool, last: bool) -> None:
        """Take in a part of what was read, unless it is no longer wanted."""
        if session is not self.session:
            return
        if first:
            at_end = 0 < self.list.max_scroll_y <= self.list.scroll_offset.y
            kept = self.list.key if not at_end else None
            self.entries = Entries(len(session.sources) > 1)
            self.entries.shown = [] if self.filter_text else None
            self.entries.add(batch, self.matches)
            self.list.show(self.entries)
            if isinstance(kept, tuple):
                self.list.point_at(kept)
            elif at_end:
                self.list.action_bottom()
        else:
            self.entries.add(batch, self.matches)
            self.list.grown()
        if last:
            self.reading = False
        self.list.empty = self._empty()
        if first:
            self.fill_detail()
            self.draw_title()

    def fill(self, *, keep: bool) -> None:
        self.list.empty = self._empty()
        if self.filter_text:
            rows = enumerate(self.entries.all)
            self.entries.shown = [n for n, one in rows if self.matches(one.words)]
        else:
            self.entries.shown = None
        self.list.show(self.entries, keep=keep)
        self.fill_detail(keep=keep)
        self.draw_title()

    def _empty(self) -> str:
        return "reading …" if self.reading else super()._empty()

    def chosen(self) -> Entry | None:
        """The record under the cursor."""
        at = self.list.cursor
        return self.entries.at(at) if 0 <= at < len(self.entries) else None

    def fill_detail(self, *, keep: bool = False) -> None:
        one = self.chosen()
        assert isinstance(self.detail, Body)
        if one is None or self.session is None:
            self.detail.read("", "text")
            return
        self.detail.read(*self._text(one), keep=keep)

    def title(self) -> tuple[Line, Line]:
        one = self.chosen()
        if one is None or self.session is None:
            return Line(), Line()
        place = f" {self.session.sources[one.source].name}:{one.line}"
        found = self.detail.found if isinstance(self.detail, Body) and self.deep else ""
        return line((place, "title"), (f"  {one.emitter}", "dim")), line((found + " ", "mark"))

    def _text(self, one: Entry) -> tuple[str, str]:
        """A record as it may be read: its envelope, then its payload."""
        assert self.session is not None
        source = self.session.sources[one.source]
        head = json.dumps({one.event: one.value, **one.context}, indent=2, ensure_ascii=False)
        if one.span is None:
            return head, "json"
        payload = payload_of(source, one.span).decode("utf-8", "replace")
        text, kind = laid_out(payload, "text")
        return f"{head}\n\n{text}", kind

    def document(self, key: Hashable | None) -> Rows:
        return self.entries

    def place(self) -> Place | None:
        one = self.chosen()
        if one is None or self.session is None:
            return None
        return Place(self.session.sources[one.source].path, one.line)

    def command(self) -> str:
        one = self.chosen()
        if one is None or self.session is None:
            return super().command()
        source = self.session.sources[one.source]
        reader = next(
            (command for end, command in _READERS.items() if source.path.endswith(end)), ""
        )
        if not Path(source.path).is_file():  # in an archive, or from stdin
            return super().command()
        last = one.line + (payload_of(source, one.span).count(b"\n") + 1 if one.span else 0)
        lines = f"sed -n '{one.line},{last}p'"
        name = quoted(source.path)
        return f"{reader} {name} | {lines}" if reader else f"{lines} {name}"

    def copied(self) -> tuple[str, str]:
        one = self.chosen()
        return (f"record {one.line}", self._text(one)[0]) if one else ("", "")


def records(source: Source, index: int) -> Iterator[list[Entry]]:
    """Yield the records of one log in batches."""
    batch: list[Entry] = []
    for record in read_records(source, index, Defects()):
        batch.append(entry(index, record))
        if len(batch) >= BATCH:
            yield batch
            batch = []
    yield batch
