"""Seconds of steps go in; where the time went, by phase and by function, comes out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import ClassVar, Final

from tc.trace.compiles import Compile
from tc.trace.findings import duration
from tc.tui import look
from tc.tui.facts import Function, phases_of, steps_of
from tc.tui.lines import Line, Listed, Row, Rows, cut, left, line, right
from tc.tui.views.base import Place, View, heading
from tc.tui.views.functions import goto, legend, phase_bar, seconds_of

_STEPS: Final = 40
_COMPILES: Final = 100


class Time(View):
    """Phases, then functions, each with a bar; on the right the steps behind it."""

    label: ClassVar = "Time"

    def rows(self) -> list[Row]:
        shares = phases_of(self.model.compiles)
        whole = sum(shares.values())
        if not whole:
            return []
        rows = [Row(heading(f" by phase, {duration(whole)} in all"))]
        for phase, seconds in sorted(shares.items(), key=lambda row: -row[1]):
            draw = _phase_row(phase, seconds, whole)
            rows.append(Row(draw, ("phase", phase), phase))
        rows += [Row(Line()), Row(heading(" by function"))]
        most = max((one.seconds for one in self.model.functions), default=0.0)
        for one in self.model.functions:
            rows.append(
                Row(
                    partial(_function_row, one, most),
                    ("function", one.key),
                    f"{one.title} {one.place[0]}",
                )
            )
        return rows

    def nothing(self) -> str:
        return "the trace has no times"

    def chosen(self) -> Function | None:
        """The function under the cursor."""
        key = self.list.key
        if not isinstance(key, tuple) or key[0] != "function":
            return None
        return next((one for one in self.model.functions if one.key == key[1]), None)

    def document(self, key: Hashable | None) -> Rows:
        if not isinstance(key, tuple):
            return Listed([])
        function = self.chosen()
        phase = "" if function else str(key[1])
        compiles = function.compiles if function else self.model.compiles
        return Listed(_document(phase, compiles, self.detail.row_width, function))

    def place(self) -> Place | None:
        function = self.chosen()
        return Place(*function.place) if function and function.place[0] else None

    def copied(self) -> tuple[str, str]:
        rows = self.document(self.list.key)
        text = "\n".join(str(rows.line(n, 100)).rstrip() for n in range(len(rows)))
        return ("the times", text) if text else ("", "")

    def command(self) -> str:
        function = self.chosen()
        return goto(self.model, function, self.trace_name) if function else super().command()

    def entered(self, key: Hashable | None) -> None:
        if isinstance(key, str):
            self.post_message(self.Goto("compile", key))


def _phase_row(phase: str, seconds: float, whole: float) -> Callable[[int], Line]:
    def draw(width: int) -> Line:
        head = line("  ", (left(phase, 13), ""), (right(duration(seconds), 8), ""))
        share = line((right(f"{100 * seconds / whole:.0f} %", 6), "dim"), " ")
        space = max(width - head.width - share.width - 3, 0)
        drawn = phase_bar({phase: seconds}, space, whole)
        return head + share + line(" ") + (drawn if drawn.pieces else _sliver(phase))

    return draw


def _sliver(phase: str) -> Line:
    """Something too short for a cell is not nothing."""
    return line(("▏", look.phase_role(phase)))


def _function_row(one: Function, most: float, width: int) -> Line:
    name = min(max(width // 3, 13), 34)
    head = line(
        "  ", (left(one.title, name - 1), ""), " ", (right(seconds_of(one.seconds), 8), ""), "  "
    )
    return head + phase_bar(one.phases, max(width - head.width - 2, 0), most)


def _document(
    phase: str,
    compiles: Sequence[Compile],
    width: int,
    function: Function | None,
) -> list[Row | Line]:
    title = function.title if function else f"{phase}, over all functions"
    rows: list[Row | Line] = [line((title, "head"))]
    if function:
        rows += [line((f"{function.place[0]}:{function.place[1]}", "title")), Line()]
        rows += [phase_bar(function.phases, min(width - 1, 60)), *legend(function.phases, width)]
    rows += [Line(), heading("steps, each without the steps inside of it")]
    steps = steps_of(compiles, phase)
    for name, seconds in steps[:_STEPS]:
        rows.append(line("  ", right(duration(seconds), 8), "  ", (cut(name, width - 13), "")))
    if len(steps) > _STEPS:
        rest = sum(seconds for _, seconds in steps[_STEPS:])
        rows.append(line((f"  {right(duration(rest), 8)}  in {len(steps) - _STEPS} more", "dim")))
    rows += [Line(), heading("compiles")]
    costs = [(one.phases.get(phase, 0.0) if phase else one.seconds, one) for one in compiles]
    costs = sorted((cost for cost in costs if cost[0]), key=lambda cost: -cost[0])
    for seconds, one in costs[:_COMPILES]:
        drawn = line("  ", right(duration(seconds), 8), "  ", (left(f"[{one.slug}]", 8), "title"))
        drawn = drawn + line(" ")
        rows.append(Row(drawn + line((cut(one.title, width - drawn.width), "")), one.slug))
    return rows
