"""The read that nothing guards: what compiled code took for granted, and was not so any more.

Two runs of a program are compared at the call that goes wrong: which graphs run in it where
compiled code of an earlier call is used, and which where it is compiled again. The first call that
differs is on the line where the read is, or a branch above it is. What that line reads is evaluated
in the program itself, as it is at that call (`call_watch`).
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tc.trace.syntax import tree_of

Row = tuple[str, str]  # a call of a graph as text, and its line: ``file:line``
SYMBOL: Final = re.compile(r"z?[suf]\d+")  # how torch names symbolic numbers
PARTS: Final = re.compile(r"([,\[\]])")
TENSOR: Final = ": tensor"  # how the row of an input begins its type


def branches(line: str) -> set[tuple[int, bool]]:
    """Return the tests above a line, and whether it is where they hold."""
    file, _, number = line.rpartition(":")
    tree = tree_of("".join(linecache.getlines(file)))
    found: set[tuple[int, bool]] = set()
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.If | ast.While):
            for body, holds in ((node.body, True), (node.orelse, False)):
                if body and body[0].lineno <= int(number) <= (body[-1].end_lineno or 0):
                    found.add((node.lineno, holds))
    return found


@dataclass(frozen=True)
class Missing:
    """A read that is not guarded.

    Attributes:
        line: ``file:line``.
        old: what compiled code does.
        new: what it has to do.
        reads: what the line reads, as text; the one that changed if that is known.
        guards: what would hold each of them.
    """

    line: str
    old: str
    new: str
    reads: tuple[str, ...]
    guards: tuple[str, ...]


def missing(
    stale: Mapping[str, Any], fresh: Mapping[str, Any], branches: Callable[[str], Any] = branches
) -> Missing | None:
    """Return what a call took for granted: how it ran with old code, and how when compiled again.

    Args:
        stale: `Watch.as_json` of the call that goes wrong.
        fresh: of the same call, compiled again.
    """
    rows = [[(text, where) for text, where in one.get("rows", ())] for one in (stale, fresh)]
    size = max(map(len, rows))
    padded = [one + [("nothing", "")] * (size - len(one)) for one in rows]
    differs = [pair for pair in zip(*padded, strict=True) if not agree(pair[0][0], pair[1][0])]
    if not differs:
        return None
    (old, old_line), (new, new_line) = differs[0]
    line = new_line or old_line
    reads = fresh.get("reads", {})
    if TENSOR in old and TENSOR in new:
        name = new.partition(":")[0]
        return Missing(line, old, new, (name,), (f"TENSOR on {name}",))
    found = [one for one in reads.get(line, ()) if _holds(new, one[2]) and not _holds(old, one[2])]
    if not found and old_line != new_line:  # another branch was taken
        apart = [branches(one) if one else set() for one in (old_line, new_line)]
        tests = sorted(test for test, _ in apart[0] ^ apart[1])
        if tests:
            line = f"{line.rpartition(':')[0]}:{tests[0]}"
            found = reads.get(line, [])
    guards = tuple(f"{'NONE' if value == 'None' else 'EQUALS'} on {source}"
                   for _, source, value in found)  # fmt: skip
    return Missing(line, old, new, tuple(f"{text} = {value}" for text, _, value in found), guards)


def agree(old: str, new: str) -> bool:
    """Return whether a call is what another one is for the sizes at hand: ``[s77, 4]``, ``[2, 4]``.

    Code that has symbolic sizes is compared with code compiled for one call alone.
    """
    sides = [PARTS.split(text) for text in (old, new)]
    return len(sides[0]) == len(sides[1]) and all(
        mine == theirs or _is_symbolic(mine) for mine, theirs in zip(*sides, strict=True)
    )


def _is_symbolic(part: str) -> bool:
    names = re.findall(r"[A-Za-z_]\w*", part)
    return bool(names) and all(SYMBOL.fullmatch(name) for name in names)


def _holds(text: str, value: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(value)}(?![\w.])", text) is not None
