"""Syntax trees of other people's programs: those that a recursive walk can follow to the end.

In: the text of a program. Out: its tree, or None. Python parses programs far deeper than its own
`ast.unparse` or a visitor can walk: a sum of a thousand terms is a tree of a thousand levels.
"""

from __future__ import annotations

import ast
from typing import Final

#: levels of a tree; `ast.unparse` takes three frames a level of the thousand that Python has
DEEPEST: Final = 200
#: what CPython raises for texts that are no program, or too much of one
REFUSALS: Final = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, OverflowError)


def tree_of(text: str | bytes) -> ast.Module | None:
    """Return the tree of a program, or None: Python refuses it, or it exceeds `DEEPEST` levels."""
    try:
        tree = ast.parse(text)
    except REFUSALS:
        return None
    level: list[ast.AST] = [tree]
    for _ in range(DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return tree
    return None
