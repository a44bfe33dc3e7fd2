"""What a person reads of a finding: messages in; text as full, short, json or github out."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tc.trace.cells import in_cell, typed_line
from tc.trace.chains import characters, clean, columns, shown
from tc.trace.fixes import NO_FIX, fix_of, fixes_of

WIDTH = 100
MARGIN = 19  # two columns and `review, unchecked`
TIMES = "\N{MULTIPLICATION SIGN}"
DASH = "\N{EN DASH}"
_GLYPHS = {"break": "↯", "recompile": "↻", "error": "✗", "skip": DASH, "text": "▢", "summary": ""}
ASCII = {
    "↯": "*",
    "↻": "~",
    "✗": "x",
    DASH: "-",
    "▢": "=",
    "→": "->",
    TIMES: "x",
    "…": "...",
    "·": "-",
}
_COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_MARK_COLOURS = {"break": "yellow", "recompile": "cyan", "error": "red", "skip": "dim"}


@dataclass(frozen=True)
class Change:
    """One input that changed, as a row of a table."""

    source: str
    old: str
    new: str
    note: str
    fix: str = ""


@dataclass(frozen=True)
class Message:
    """One message, independent of the layout.

    Attributes:
        topic: name of the switch that asked for it, e.g. ``graph_breaks``.
        mark: break, recompile, error, skip, text or summary; chooses glyph and colour.
        col, end_col: 0-based UTF-8 byte offsets into ``source_line``.
        lead: a sentence before the table of changes.
        lines: further lines, printed as they are.
        text: a whole document, e.g. a graph.
    """

    topic: str
    mark: str
    title: str
    code: str = ""
    id: str = ""
    file: str = ""
    line: int = 0
    col: int | None = None
    end_col: int | None = None
    function: str = ""
    compile: str = ""
    rank: int | None = None
    source_line: str = ""
    why: str = ""
    lead: str = ""
    changes: tuple[Change, ...] = ()
    fix: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    text: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return full(self, _no_paint)

    def on_rank(self, rank: int) -> Message:
        """Return the message as one of that rank."""
        return replace(self, rank=rank)


Paint = Callable[[str, str], str]


def _no_paint(text: str, _colour: str) -> str:
    return text


def _paint(text: str, colour: str) -> str:
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if text and colour in _COLOURS else text


def near(path: str) -> str:
    """Return the path relative to the current folder if it is in it."""
    try:
        here = os.path.join(os.getcwd(), "")
    except OSError:
        return path
    return path.removeprefix(here)


def place_text(file: str, line: int) -> str:
    """Return a line as people read it: of a cell, or of a file near the current folder."""
    return in_cell(file, line) or f"{near(file)}:{line}"


def render(message: Message, form: str, colour: bool = False, ascii_only: bool = False) -> str:
    """Return the message in one of `FORMATS`; an empty text when that format leaves it out."""
    text = FORMATS[form](message, _paint if colour else _no_paint)
    if form == "full" and message.mark != "summary" and text.count("\n") > 1:
        text += "\n"  # findings of several lines stand apart
    return to_ascii(text) if ascii_only else text


def to_ascii(text: str) -> str:
    """Return the text with tc's glyphs replaced, for terminals that cannot show them."""
    return "".join(ASCII.get(character, character) for character in text)


# --- full ---------------------------------------------------------------------------------------


def full(message: Message, paint: Paint) -> str:
    """Head, source line with caret, changes, fixes; at most 100 columns where we choose them."""
    lines = [_head(message, paint)]
    lines += _source(message, paint)
    if message.lead:
        lines.append(f"   {clean(message.lead)}")
    lines += _changes(message.changes)
    lines += _fixes(message.fix, paint)
    lines += [clean(line) for line in message.lines]
    if message.text:
        lines += [clean(line) for line in message.text.rstrip("\n").split("\n")]
    return "\n".join(lines)


def _head(message: Message, paint: Paint) -> str:
    glyph = _GLYPHS[message.mark]
    rank = "" if message.rank is None else f"[rank {message.rank}] "
    name = f"{glyph} {message.code}".strip()
    title = clean(message.title)
    where = clean(_where(message))
    shown = f"{rank}{paint(name, _MARK_COLOURS.get(message.mark, 'bold'))} {paint(title, 'bold')}"
    if not where:
        return shown if name else f"{rank}{title}"
    used = len(f"{rank}{name} {title}")
    if used + 2 + len(where) <= WIDTH:
        gap = max(2, min(66, WIDTH - len(where)) - used)
        return f"{shown}{' ' * gap}{where}"
    return f"{shown}\n     {where}"


def _where(message: Message) -> str:
    place = place_text(message.file, message.line) if message.file else ""
    function = f"in {message.function}" if message.function and message.mark == "break" else ""
    return " ".join(part for part in (place, function, message.compile) if part)


def _source(message: Message, paint: Paint) -> list[str]:
    """The user's line with its number, a caret under the part in question, and the reason."""
    why = clean(message.why)
    if not message.source_line.strip():
        return [f"   {line}" for line in textwrap.wrap(why, WIDTH - 3)]
    begin, end = _columns(message)
    source = message.source_line.rstrip()
    visible = source if len(source) <= WIDTH - 9 else source[: WIDTH - 10] + "…"
    lines = [f"{typed_line(message.file, message.line):>5} | {shown(visible)}"]
    lead = f"{'':5} | {' ' * columns(visible[:begin])}"
    length = max(1, columns(visible[begin:end]))
    caret = paint("^" * length, "red")
    if begin < len(visible) and len(lead) + length + 1 + len(why) <= WIDTH:
        return [*lines, f"{lead}{caret} {why}".rstrip()]
    if begin < len(visible):
        lines.append(f"{lead}{caret}")
    return lines + [f"{'':5} | {line}" for line in textwrap.wrap(why, WIDTH - 8)]


def _columns(message: Message) -> tuple[int, int]:
    """Return the caret's begin and end in characters; the whole line when unknown."""
    source = message.source_line.rstrip()
    indent = len(source) - len(source.lstrip())
    if message.col is None:
        return indent, len(source)
    end = len(source)
    if message.end_col is not None and message.end_col > message.col:
        end = characters(source, message.end_col)
    return characters(source, message.col), end


def _changes(changes: tuple[Change, ...]) -> list[str]:
    """A table: input, old → new, what that means."""
    if not changes:
        return []
    sources = [clean(change.source) for change in changes]
    steps = [f"{brief(change.old)} → {brief(change.new)}" for change in changes]
    wide = min(40, max(map(len, sources)))
    step_wide = min(30, max(map(len, steps)))
    lines = []
    for change, source, step in zip(changes, sources, steps, strict=True):
        start = f"     {source:<{wide}}  {step:<{step_wide}}  "
        lines += textwrap.wrap(
            start + clean(change.note),
            WIDTH,
            subsequent_indent=" " * 9,
            drop_whitespace=True,
            break_long_words=False,
            break_on_hyphens=False,
        )
        if change.fix:
            rows = textwrap.wrap(clean(change.fix), WIDTH - MARGIN - 12)
            rows = _marked(rows, fix_of(change.fix).mark, WIDTH - 12)
            lines += [f"{'' if n else 'fix:':>11} {row}" for n, row in enumerate(rows)]
    return [line.rstrip() for line in lines]


def brief(value: str, width: int = 40) -> str:
    """Return the value on one line of at most that many columns."""
    value = clean(" ".join(value.split()))
    return value if len(value) <= width else value[: width - 1] + "…"


def _fixes(fixes: tuple[str, ...], paint: Paint) -> list[str]:
    """Each way with its mark in the margin of its last line."""
    lines = []
    for number, way in enumerate(fixes_of(fixes)):
        label = "or  " if number else "fix "
        parts: list[str] = []
        for line in clean(way.text).rstrip().split("\n"):
            parts += [line] if way.kind == "patch" else textwrap.wrap(line, WIDTH - 8 - MARGIN)
        mark = "" if way.text == NO_FIX else way.mark
        for part in _marked(parts or [""], mark, WIDTH - 8):
            colour = {"-": "red", "+": "green"}.get(part[:1]) if way.kind == "patch" else None
            lines.append(f"   {label:<5}{paint(part, colour) if colour else part}".rstrip())
            label = ""
    return lines


def _marked(rows: list[str], mark: str, width: int) -> list[str]:
    """Put the mark at the right end of the last row, so that it ends at that width."""
    return [*rows[:-1], f"{rows[-1]:<{width - len(mark) - 2}}  {mark}"] if mark else rows


# --- the other formats --------------------------------------------------------------------------


def short(message: Message, _: Paint) -> str:
    """One line a finding, as editors and ``grep`` like it."""
    if message.mark == "summary":
        return ""
    if message.text:
        return full(message, _no_paint)
    col = "" if message.col is None else f":{message.col + 1}"
    place = f"{near(message.file)}:{message.line}{col}: " if message.file else ""
    changed = ", ".join(f"{c.source} {brief(c.old)} → {brief(c.new)}" for c in message.changes)
    more = f" ({changed})" if changed else ""
    line = f"{place}{message.code} {message.title}{more} {message.compile}"
    return clean(" ".join(line.split()))


def as_json(message: Message, _: Paint) -> str:
    """One JSON object a finding."""
    facts = {
        "schema": 1,
        "topic": message.topic,
        "code": message.code,
        "id": message.id,
        "title": message.title,
        "file": message.file,
        "line": message.line or None,
        "col": message.col,
        "function": message.function,
        "compile": message.compile.strip("[]"),
        "rank": message.rank,
        "why": message.why,
        "changes": [vars(change) for change in message.changes],
        "fix": list(message.fix),
        "fixes": [way.to_json() for way in fixes_of(message.fix) if way.text != NO_FIX],
        "text": message.text,
        **message.facts,
    }
    kept = {key: value for key, value in facts.items() if value not in ("", None, [])}
    return json.dumps(kept, default=repr)


def github(message: Message, _: Paint) -> str:
    """One workflow annotation a finding; documents as foldable groups."""
    if message.text:
        body = full(message, _no_paint).replace("\n::", "\n ::")
        return f"::group::{_escaped(message.title, True)}\n{body}\n::endgroup::"
    if message.mark == "summary":
        return ""
    level = {"error": "error", "skip": "notice"}.get(message.mark, "warning")
    place = {"file": near(message.file), "line": str(message.line or "")}
    if message.col is not None:
        place["col"] = str(message.col + 1)
    place["title"] = f"{message.code} {message.title}"
    properties = ",".join(f"{key}={_escaped(value, True)}" for key, value in place.items() if value)
    changed = "; ".join(f"{c.source}: {c.old} → {c.new}" for c in message.changes)
    body = "\n".join(part for part in (message.why, changed, *message.fix) if part)
    return f"::{level} {properties}::{_escaped(body or message.title, False)}"


def _escaped(text: str, is_property: bool) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    if is_property:
        text = text.replace(":", "%3A").replace(",", "%2C")
    return clean(text)


FORMATS: dict[str, Callable[[Message, Paint], str]] = {
    "full": full,
    "short": short,
    "json": as_json,
    "github": github,
}
