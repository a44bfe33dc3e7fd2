"""A graph as a picture: boxes and what leads from one to the other go in, an SVG comes out.

Layered drawing after Sugiyama, Tagawa and Toda (1981): a box stands one row below the lowest of
those that lead to it, and the boxes of a row are ordered by the mean place of their neighbours in
the row above, then in the row below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

#: of letters, boxes and the space between them, in pixels
LETTER, HEIGHT, ROW, GAP, MARGIN = 7.2, 26, 62, 24, 20
MOST_LETTERS = 56
SWEEPS = 4
COLOURS = {"input": "#e8eef7", "kernel": "#e3f1e1", "call": "#fbeed5", "output": "#f3e6f5"}


@dataclass(frozen=True)
class Box:
    """A box: its name in edges, its text, and its kind, a key of `COLOURS`.

    `note` is shown when the pointer rests on it.
    """

    name: str
    label: str
    kind: str = "call"
    note: str = ""

    @property
    def text(self) -> str:
        """The label, cut where it is too long."""
        return self.label if len(self.label) <= MOST_LETTERS else self.label[:MOST_LETTERS] + "…"

    @property
    def width(self) -> float:
        """Of the box."""
        return len(self.text) * LETTER + 18


def svg(boxes: Sequence[Box], edges: Iterable[tuple[str, str]], title: str = "") -> str:
    """Return a picture of a graph as SVG.

    Args:
        boxes: in an order in which no edge leads backwards.
        edges: pairs of names of boxes; others are left out.
    """
    known = {box.name: box for box in boxes}
    pairs = [(a, b) for a, b in dict.fromkeys(edges) if a in known and b in known and a != b]
    rows = _ordered(_rows(list(known), pairs), pairs)
    places = _places(rows, known)
    width = max((x + known[name].width / 2 for name, (x, _) in places.items()), default=0) + MARGIN
    height = len(rows) * ROW + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        f'width="{width:.0f}" height="{height}" font-family="monospace" font-size="12">',
        f"<title>{escape(title)}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for a, b in pairs:
        (x1, y1), (x2, y2) = places[a], places[b]
        y1, middle = y1 + HEIGHT / 2, (y1 + HEIGHT / 2 + y2 - HEIGHT / 2) / 2
        parts.append(
            f'<path d="M{x1:.1f},{y1:.1f} C{x1:.1f},{middle:.1f} {x2:.1f},{middle:.1f} '
            f'{x2:.1f},{y2 - HEIGHT / 2:.1f}" fill="none" stroke="#889" stroke-width="1.2"/>'
        )
    parts += [_drawn(known[name], *places[name]) for row in rows for name in row]
    return "\n".join([*parts, "</svg>\n"])


def _drawn(box: Box, x: float, y: float) -> str:
    return (
        f'<g><title>{escape(box.note or box.label)}</title><rect x="{x - box.width / 2:.1f}" '
        f'y="{y - HEIGHT / 2:.1f}" width="{box.width:.1f}" height="{HEIGHT}" rx="4" '
        f'fill="{COLOURS[box.kind]}" stroke="#667"/><text x="{x:.1f}" y="{y + 4:.1f}" '
        f'text-anchor="middle">{escape(box.text)}</text></g>'
    )


def _rows(names: Sequence[str], pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    above: dict[str, list[str]] = {name: [] for name in names}
    below: dict[str, list[str]] = {name: [] for name in names}
    for a, b in pairs:
        above[b].append(a)
        below[a].append(b)
    level: dict[str, int] = {}
    for name in names:
        level[name] = max((level.get(one, 0) + 1 for one in above[name]), default=0)
    for name in names:  # parameters stand beside the rest, and not all at the top
        if not above[name] and below[name]:
            level[name] = max(min(level[one] for one in below[name]) - 1, 0)
    rows: list[list[str]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for name in names:
        rows[level[name]].append(name)
    return rows


def _ordered(rows: list[list[str]], pairs: Iterable[tuple[str, str]]) -> list[list[str]]:
    near: tuple[dict[str, list[str]], dict[str, list[str]]] = ({}, {})
    for a, b in pairs:
        near[0].setdefault(b, []).append(a)
        near[1].setdefault(a, []).append(b)
    for sweep in range(SWEEPS):
        place = {name: at / max(len(row), 1) for row in rows for at, name in enumerate(row)}
        for row in rows if sweep % 2 == 0 else rows[::-1]:
            row.sort(key=lambda name: _mean(near[sweep % 2].get(name, ()), place, name))
            place |= {name: at / len(row) for at, name in enumerate(row)}
    return rows


def _mean(names: Sequence[str], place: Mapping[str, float], name: str) -> float:
    return sum(place[one] for one in names) / len(names) if names else place[name]


def _places(rows: list[list[str]], known: Mapping[str, Box]) -> dict[str, tuple[float, float]]:
    widths = [sum(known[name].width + GAP for name in row) for row in rows]
    whole = max(widths, default=0)
    places = {}
    for number, (row, width) in enumerate(zip(rows, widths, strict=True)):
        x = MARGIN + (whole - width) / 2
        for name in row:
            places[name] = (x + known[name].width / 2, MARGIN + HEIGHT / 2 + number * ROW)
            x += known[name].width + GAP
    return places
