"""The compiles of each function go in; how they fared, and what changed between them, come out."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import ClassVar, Final

from rich.cells import cell_len

from tc.trace.commands import command
from tc.trace.compiles import Calls, Compile, calls_of
from tc.trace.findings import duration
from tc.trace.findings.ledger import Entry, Ledger, ledger
from tc.trace.words import count
from tc.tui import look
from tc.tui.columns import Cells, Columns
from tc.tui.facts import Function, Model, bar, short_place
from tc.tui.lines import Line, Listed, Row, Rows, cut, left, line, right, tail
from tc.tui.views.base import Place, View, heading

_WIDEST: Final = 18


class Functions(View):
    """Every function that was compiled; on the right its ledger: a row a compile."""

    label: ClassVar = "Functions"

    def rows(self) -> list[Row]:
        cells = [
            Cells(one.title, one.where, f"×{len(one.compiles)}", seconds_of(one.seconds))
            for one in self.model.functions
        ]
        columns = Columns.of(cells)
        return [
            Row(
                partial(columns.draw, _sign(one), texts),
                one.key,
                f"{one.title} {one.place[0]} {one.status}",
            )
            for one, texts in zip(self.model.functions, cells, strict=True)
        ]

    def nothing(self) -> str:
        return "no function was compiled"

    def count(self) -> str:
        return str(len(self.model.functions)) if self.model.diagnosis else ""

    def chosen(self) -> Function | None:
        """The function under the cursor."""
        key = self.list.key
        return next((one for one in self.model.functions if one.key == key), None)

    def document(self, key: Hashable | None) -> Rows:
        function = self.chosen()
        if function is None or self.model.diagnosis is None:
            return Listed([])
        return page(self.model, function, self.detail.row_width)

    def place(self) -> Place | None:
        function = self.chosen()
        return Place(*function.place) if function and function.place[0] else None

    def copied(self) -> tuple[str, str]:
        function = self.chosen()
        if function is None:
            return "", ""
        rows = page(self.model, function, 120)
        return function.title, "\n".join(str(rows.line(n, 120)).rstrip() for n in range(len(rows)))

    def command(self) -> str:
        function = self.chosen()
        return goto(self.model, function, self.trace_name) if function else super().command()

    def entered(self, key: Hashable | None) -> None:
        if isinstance(key, str):
            self.post_message(self.Goto("compile", key))


def _sign(function: Function) -> Line:
    return line("  ", (look.STATUS[function.status][0], function.status), " ")


def goto(model: Model, function: Function, trace: str) -> str:
    """The command that shows a function; where others have its name, its first compile."""
    alike = sum(one.title == function.title for one in model.functions)
    name = function.title if alike == 1 else function.compiles[0].slug
    return str(command("tc-tui", trace, "--goto", name))


def page(model: Model, function: Function, width: int) -> Listed:
    """The ledger of a function, under a few words on it."""
    diagnosis = model.diagnosis
    assert diagnosis is not None
    file, number = function.place
    status = look.STATUS[function.status]
    refused = f", {len(function.refused)} refused" if function.refused else ""
    calls = calls_of([*function.compiles, *function.refused])
    rows: list[Row | Line] = [
        line((function.title, "head"), "  ", (f"{status[0]} {status[2]}", function.status)),
        line((f"{file}:{number}" if number else file, "title")),
        line((f"{len(function.compiles)} compiled{refused} · {duration(function.seconds)}", "dim")),
        *([line((calls_words(calls), "dim"))] if calls else []),
        phase_bar(function.phases, min(width - 1, 60)),
        *legend(function.phases, width),
        Line(),
    ]
    table = ledger(diagnosis.session, diagnosis.recompiles, function.compiles)
    widths = [_column(table, n) for n in range(len(table.columns))]
    rows += [heading("compiles, and the inputs that changed") if widths else heading("compiles")]
    titles = [
        left(tail(name, size), size) for name, size in zip(table.columns, widths, strict=True)
    ]
    several = len(model.lanes) > 1
    ids = max([len(_id(entry.compiled, several)) for entry in table.entries] + [8])
    head = f"    {left('', ids)} {right('time', 8)}  {left('cache', 7)}" + "".join(
        f"  {title}" for title in titles
    )
    rows += [line((head, "dim"))]
    rows += [
        _entry(model, entry, widths, left(_id(entry.compiled, several), ids))
        for entry in table.entries
    ]
    if widths:
        rows += [Line(), line(("◂", "mark"), (" changed, and made this compile necessary", "dim"))]
    widest = max(row.draw.width if isinstance(row, Row) and isinstance(row.draw, Line)
                 else row.width if isinstance(row, Line) else 0 for row in rows)  # fmt: skip
    return Listed(rows, widest + 1 if widest > width else 0)


def _column(table: Ledger, number: int) -> int:
    cells = [cell_len(entry.cells[number]) + 2 for entry in table.entries]
    return min(max(cell_len(table.columns[number]), *cells), _WIDEST)


def _id(compiled: Compile, several: bool) -> str:
    return f"[{compiled.slug if several else compiled.id}]"


def _entry(model: Model, entry: Entry, widths: list[int], name: str) -> Row:
    one = entry.compiled
    status = model.statuses.get(id(one), "ok")
    drawn = line(
        "  ", (look.STATUS[status][0], status), " ", (name, "title"), " ",
        (right("refused" if entry.refused else duration(one.seconds), 8), ""),
        "  ", (left(one.cache, 7), "dim"),
    )  # fmt: skip
    for value, changed, size in zip(entry.cells, entry.changed, widths, strict=True):
        if changed:
            shown = cut(value or "?", size - 2)
            pad = " " * (size - cell_len(shown) - 2)
            drawn = drawn + line("  ", (f"{shown} ◂", "mark"), pad)
        else:
            drawn = drawn + line("  ", (left(value or "·", size), "" if value else "dim"))
    return Row(drawn, one.slug)


def phase_bar(phases: dict[str, float], width: int, whole: float = 0.0) -> Line:
    """A bar of phases, each with its colour and its texture."""
    cells = bar(phases, width, whole or sum(phases.values()))
    return line(*((look.TEXTURE[name] * n, look.phase_role(name)) for name, n in cells))


def legend(phases: dict[str, float], width: int) -> list[Line]:
    """What the colours of a bar mean, and how long each phase took."""
    rows = [Line()]
    for name, seconds in phases.items():
        part = line(
            (look.TEXTURE[name] + " ", look.phase_role(name)), (f"{name} ", ""),
            (f"{duration(seconds)}   ", "dim"),
        )  # fmt: skip
        if rows[-1].width + part.width > width:
            rows.append(Line())
        rows[-1] = rows[-1] + part
    return rows


def seconds_of(seconds: float) -> str:
    """A duration; nothing where nothing was measured."""
    return duration(seconds) if seconds else ""


def calls_words(calls: Calls) -> str:
    """What was counted while the program ran: calls, those in eager, the time of one."""
    parts = [count(calls.count, "call")] if calls.count else []
    if calls.eager:
        parts.append(f"{calls.eager} op by op")
    if calls.each is not None:
        parts.append(f"{calls.each * 1e6:.0f} µs a call")
    if calls.python:
        parts.append(f"{count(calls.python, 'call')} in Python")
    return " · ".join(parts)


def compile_words(model: Model, compiled: Compile) -> Line:
    """A compile in one line: id, function, place, status, time, cache."""
    status = model.statuses.get(id(compiled), "ok")
    sign, _, word = look.STATUS[status]
    cache = f" · cache {compiled.cache}" if compiled.cache else ""
    cache += f" · {calls_words(compiled.calls)}" if compiled.calls else ""
    tries = f" · {compiled.attempts} attempts" if compiled.attempts > 1 else ""
    where = short_place(*compiled.home)
    return line(
        (f"[{compiled.slug}] ", "title"), (compiled.title, "head"), (f"  {where}  ", "dim"),
        (f"{sign} {word}", status), (f"  {duration(compiled.seconds)}{cache}{tries}", "dim"),
    )  # fmt: skip
