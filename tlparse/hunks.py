"""Two texts of generated code go in; the places where they really differ come out."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from tc.trace.plaintext import plain_rows

_CONTEXT: Final = 2
_MOST_HUNKS: Final = 20
_MOST_LINES: Final = 3000  # a longer stretch of differences is shown from its beginning only
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class Hunk:
    """One place: its line in B, and rows that begin with `- `, `+ ` or two spaces."""

    line: int
    rows: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.rows)


def hunks(old: str, new: str) -> tuple[Hunk, ...]:
    """Return where two texts differ, comments and volatile parts left out of account."""
    if old == new:
        return ()
    before, after = plain_rows(old), plain_rows(new)
    a, b = [row for _, row in before], [row for _, row in after]
    if a == b:
        return ()
    head = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    head = min(len(a), len(b)) if head is None else head
    tail = 0
    while tail < min(len(a), len(b)) - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    start = max(head - _CONTEXT, 0)
    a_end, b_end = len(a) - tail + _CONTEXT, len(b) - tail + _CONTEXT
    lines = [number for number, _ in after[start:b_end]] or [len(new.split("\n"))]
    return _hunks(a[start:a_end][:_MOST_LINES], b[start:b_end][:_MOST_LINES], lines)


def _hunks(a: list[str], b: list[str], lines: list[int]) -> tuple[Hunk, ...]:
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    made = []
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        rows: list[str] = []
        first = next((op[3] for op in group if op[0] != "equal"), group[0][3])
        for tag, i, i_end, j, j_end in group:
            if tag == "equal":
                rows += [f"  {row}" for row in a[i:i_end]]
                continue
            rows += [f"- {row}" for row in a[i:i_end]]
            rows += [f"+ {row}" for row in b[j:j_end]]
        if len(rows) > _SHOWN:
            rows = [*rows[:_SHOWN], f"  … {len(rows) - _SHOWN} more lines"]
        made.append(Hunk(lines[min(first, len(lines) - 1)], tuple(rows)))
        if len(made) == _MOST_HUNKS:
            break
    return tuple(made)
