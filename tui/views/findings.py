"""Findings go in; what is wrong, where, why and what to do about it come out."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import ClassVar, Final

from tc.trace.findings import Finding, Where, duration
from tc.trace.findings.matching import Row as Known
from tc.trace.findings.matching import match
from tc.trace.findings.model import recompiles_left
from tc.trace.fixes import NO_FIX, Fix
from tc.tui import look
from tc.tui.columns import Cells, Columns
from tc.tui.facts import Model, count, short_place
from tc.tui.lines import Line, Listed, Row, Rows, cut, left, line, tail, wrap
from tc.tui.source import excerpt
from tc.tui.views.base import Place, View, heading

_SEEN: Final = 200  # occurrences listed; a cause may have thousands


class Findings(View):
    """Each cause once, the most expensive first; on the right all that is known of it."""

    label: ClassVar = "Findings"

    def rows(self) -> list[Row]:
        cells = [_cells(one) for one in self.model.findings]
        columns = Columns.of(cells)
        return [
            Row(
                partial(columns.draw, _sign(one), texts),
                one.id,
                f"{one.id} {one.title} {one.where.file} {one.where.function}",
            )
            for one, texts in zip(self.model.findings, cells, strict=True)
        ]

    def update(self, model: Model) -> None:
        kept = self.chosen()
        before = self.model.findings
        super().update(model)
        if kept is not None and kept.id != self.list.key:  # it may be named otherwise by now
            known = match(
                [Known.of(one) for one in before], [Known.of(one) for one in model.findings]
            )
            now = next((b.id for a, b in known.same if a.id == kept.id), "")
            if self.stays and now:
                self.point_at(now)

    def nothing(self) -> str:
        return "✓ nothing needs attention"

    def count(self) -> str:
        return str(len(self.model.findings)) if self.model.diagnosis else ""

    def chosen(self) -> Finding | None:
        """The finding under the cursor."""
        key = self.list.key
        return next((one for one in self.model.findings if one.id == key), None)

    def document(self, key: Hashable | None) -> Rows:
        finding = self.chosen()
        if finding is None:
            calm = self.model.diagnosis is not None and not self.model.findings
            return Listed(_calm(self.model, self.key_of) if calm else [])
        return Listed(
            _document(finding, self.detail.row_width, self.trace_name, len(self.model.lanes) > 1)
        )

    def place(self) -> Place | None:
        finding = self.chosen()
        if finding is None or not finding.where.file:
            return None
        return Place(finding.where.file, finding.where.line)

    def copied(self) -> tuple[str, str]:
        finding = self.chosen()
        return (finding.id, str(finding)) if finding else ("", "")

    def command(self) -> str:
        finding = self.chosen()
        return str(finding.next.plus(self.trace_name)) if finding else super().command()

    def entered(self, key: Hashable | None) -> None:
        if isinstance(key, tuple):
            _, slug, artifact = key
            self.post_message(self.Goto("compile", slug, artifact))


def _calm(model: Model, key_of: Callable[[str], str]) -> list[Line]:
    """What to look at where nothing is wrong."""
    functions = model.functions
    rows = [
        line((f"{count(model.compiles, 'compile')} of {count(functions, 'function')}", "head")),
        line((f"{duration(model.seconds)} compiling", "")),
        Line(),
    ]
    if functions and functions[0].seconds:
        most = functions[0]
        text = f"{most.title}  {most.where}  {duration(most.seconds)}"
        rows += [line(("most expensive  ", "dim"), text), Line()]
    tabs = (("tab_2", "functions and their compiles"), ("tab_4", "where the time went"),
            ("tab_5", "the log"))  # fmt: skip
    return rows + [line((key_of(tab), "key"), f" {words}") for tab, words in tabs]


def _sign(finding: Finding) -> Line:
    status = finding.kind.mark
    return line("  ", (look.STATUS[status][0], status), " ", (left(finding.code, 6), "dim"))


def _cells(finding: Finding) -> Cells:
    return Cells(
        finding.title,
        short_place(finding.where.file, finding.where.line),
        f"×{finding.count}",
        duration(finding.seconds) if finding.seconds else "",
    )


def _document(finding: Finding, width: int, trace: str, ranks: bool) -> list[Row | Line]:
    rows: list[Row | Line] = [*_head(finding, width), Line()]
    shown = excerpt(finding.where)
    rows += [*shown, Line()] if shown else []
    rows += [*wrap(finding.why, width, "", line(("why   ", "head"))), Line()]
    for number, way in enumerate(finding.fixes):
        rows += _fix(way, width, "fix   " if not number else "  or  ")
    if not finding.fix:
        rows += [line(("fix   ", "head"), (NO_FIX, "dim"))]
    rows += _forecast(finding, width)
    rows += _causes(finding, width)
    rows += [Line(), *wrap(str(finding.next.plus(trace)), width, "code", line(("next  ", "head")))]
    rows += _occurrences(finding, width, ranks)
    rows += _stack(finding.stack, width)
    if finding.evidence:
        rows += [Line(), heading("in the compiler's words")]
        for row in finding.evidence.split("\n"):
            rows += wrap(row, width, "dim", line("  "))
    if finding.reference:
        rows += [Line(), line(("PyTorch calls it ", "dim"), finding.reference)]
    return rows


def _head(finding: Finding, width: int) -> list[Line]:
    """What it is called, where it is, how often it happened and what it cost."""
    status, where = finding.kind.mark, finding.where
    sign = line((f"{look.STATUS[status][0]} {finding.id}  ", status))
    rows = wrap(finding.title, width, "head", sign)
    if where.file:
        inside = f" in {where.function}" if where.function else ""
        place = f"{where.file}:{where.line}" if where.line else where.file
        rows.append(line((tail(place, width - len(inside)), "title"), inside))
    text = f"×{finding.count}  {finding.cost}".rstrip()
    return [*rows, line((text, "dim"))]


def _fix(way: Fix, width: int, label: str) -> list[Line]:
    """A way to fix it, whether it is safe and was checked, and the lines that were tried."""
    text, patch = (way.text, way.patch) if way.kind != "patch" else ("", way.text)
    rows = wrap(text, width, "ok", line((label, "head"))) if text else [line((label, "head"))]
    if rows[-1].width + len(way.mark) + 2 <= width:
        rows[-1] = rows[-1] + line((f"  {way.mark}", "dim"))
    else:
        rows += wrap(way.mark, width, "dim", line("      "))
    for row in patch.splitlines():
        rows += wrap(row, width, "ok" if row.startswith("+") else "error", line("      "))
    return rows


def _forecast(finding: Finding, width: int) -> list[Line]:
    """How many recompiles would be left, if inputs stopped changing one after the other."""
    rows = [Line()] if finding.forecast else []
    for number, step in enumerate(finding.forecast):
        text = f"{recompiles_left(step)} (predicted)" if not number else step
        rows += wrap(text, width, "", line(("saves " if not number else " then ", "head")))
    return rows


def _causes(finding: Finding, width: int) -> list[Line]:
    if not finding.causes:
        return []
    rows = [Line(), heading("changed inputs")]
    space = min(max(len(cause.source) for cause in finding.causes), width // 2)
    for cause in finding.causes[:20]:
        now = " (dynamic from then on)" if cause.now_dynamic else ""
        change = f"{cause.old or '?'} → {cause.new or '?'}{now}"
        rows += wrap(change, width, "", line("  ", (left(cause.source, space), "mark"), "  "))
    more = len(finding.causes) - 20
    return rows + ([line((f"  … and {more} more", "dim"))] if more > 0 else [])


def _occurrences(finding: Finding, width: int, ranks: bool) -> list[Row | Line]:
    rows: list[Row | Line] = [Line(), heading("seen in")]
    for number, seen in enumerate(finding.occurrences[:_SEEN]):
        where = f"[{seen.compile}]" if seen.compile else seen.place
        when = seen.time.partition(" ")[2].partition(".")[0]
        detail = "  ".join(part for part in (seen.lane if ranks else "", seen.detail) if part)
        row = line(
            ("  " + left(where, max(8, len(where))), "title"),
            (f"  {when}  " if when else "  ", "dim"),
        )
        row = row + line((cut(detail, width - row.width), ""))
        rows.append(Row(row, (number, seen.compile, seen.artifact)) if seen.compile else row)
    more = len(finding.occurrences) - _SEEN
    return [*rows, line((f"  … and {more} more", "dim"))] if more > 0 else rows


def _stack(stack: tuple[Where, ...], width: int) -> list[Line]:
    if len(stack) < 2:
        return []
    rows = [Line(), heading("called from")]
    for frame in stack:
        inside = f" in {frame.function}"
        place = tail(f"{frame.file}:{frame.line}", width - 2 - len(inside))
        rows += [line("  ", (place, "dim"), inside)]
        rows += [line(("      " + cut(frame.source.strip(), width - 6), "code"))]
    return rows
