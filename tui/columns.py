"""The rows of a list go in; lines whose columns line up and never touch come out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len

from tc.tui.lines import Line, left, line, right, tail

_GAP: Final = "  "
_WIDEST_PLACE: Final = 30
_LEAST_PLACE: Final = 8  # `…y.py:12` still says where
_LEAST_TITLE: Final = 12


@dataclass(frozen=True, slots=True)
class Cells:
    """What one row says: what, where, how often, how long."""

    title: str
    place: str
    times: str
    spent: str


@dataclass(frozen=True, slots=True)
class Columns:
    """The widths of the columns behind the title, each as wide as its widest cell."""

    place: int
    times: int
    spent: int

    @classmethod
    def of(cls, rows: Iterable[Cells]) -> Columns:
        """Return the widths that the rows of a list need."""
        place = times = spent = 0
        for row in rows:
            place = max(place, cell_len(row.place))
            times = max(times, cell_len(row.times))
            spent = max(spent, cell_len(row.spent))
        return cls(min(place, _WIDEST_PLACE), times, spent)

    def draw(self, head: Line, cells: Cells, width: int) -> Line:
        """Draw a row; the title is cut first, then the place, and the costs never."""
        costs = line((_GAP + right(cells.times, self.times), "dim"))
        if self.spent:
            costs = costs + line(_GAP + right(cells.spent, self.spent))
        costs = costs + line(" ")
        space = width - head.width - costs.width
        place = min(self.place, space - _LEAST_TITLE - len(_GAP))
        where = Line()
        if place >= min(self.place, _LEAST_PLACE) > 0:
            where = line((_GAP + right(tail(cells.place, place), place), "dim"))
        return head + line((left(cells.title, space - where.width), "")) + where + costs
