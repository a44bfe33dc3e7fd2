"""A compile's artifacts go in; its graph and kernels, in a form that two compilers share, come out.

Compilers print the same graph in notations of their own: they order the inputs differently, name
symbols and values differently, give strides or not. What is compared across them is which
operations a graph holds, on what, in which order, and which of the user's lines run in one kernel.
Graphs of ATen are left out: each compiler decomposes in its own way.
"""

from __future__ import annotations

import re
from typing import Final

from tc.trace.compiles import Compile
from tc.trace.places import file_name
from tc.trace.provenance import Kernel, View, code_map, owner
from tc.trace.session import Session

_ASSIGNED: Final = re.compile(
    r'^\s+(?P<name>\w+): "(?P<type>[^"]+)" = (?P<call>.+?)(?:;  (?:\w+ = )+None)?\s*$'
)
# A name that is neither a function, nor of a keyword, nor a part of a longer name or a string.
_OPERAND: Final = re.compile(r"(?<![\w.%'\"])([A-Za-z_]\w*)\b(?!\s*[(=])")
_INPUT: Final = re.compile(r"l_(?!stack\d|inner\d)\w+_$")
_KEYWORD: Final = re.compile(r"\b(\w+) = ")
_SIZED: Final = re.compile(r"^(\w+\[[^\]]*\]).*$")
_SYMBOL: Final = re.compile(r"\b[su]\d+\b")
_WORDS: Final = frozenset(("None", "True", "False", "inf", "nan", "torch", "operator", "math"))


def graph_text(text: str) -> str:
    """Return the operations of a captured graph, one a line: `relu(%0): f32[5, s0]`.

    Values and symbols are numbered as they come up; inputs keep the names that their sources give
    them, unless that is a place on the stack of a resume function. Lines without a tensor's type
    (conditions on numbers, names given to inputs) are no operations.
    """
    values: dict[str, str] = {}
    symbols: dict[str, str] = {}

    def value(match: re.Match[str]) -> str:
        name = match[0]
        if name in _WORDS or (_INPUT.match(name) and name not in values):
            return name
        return values.setdefault(name, f"%{len(values)}")

    def symbol(match: re.Match[str]) -> str:
        return symbols.setdefault(match[0], f"s{len(symbols)}")

    rows = []
    for row in text.split("\n"):
        match = _ASSIGNED.match(row)
        if match is None:
            continue
        call = _KEYWORD.sub(r"\1=", _OPERAND.sub(value, match["call"]))
        values[match["name"]] = f"%{len(values)}"
        kind = _SIZED.sub(r"\1", match["type"])
        rows.append(f"{values[match['name']]} = {call}: {_SYMBOL.sub(symbol, kind)}")
    return "\n".join(rows)


def kernel_text(session: Session, compiled: Compile) -> str | None:
    """Return the user's lines of each kernel, one kernel a line; None if nothing links them."""
    found = code_map(session, compiled)
    if not found.linked:
        return None
    return "\n".join(_lines(view, one) for view in found.views for one in view.kernels)


def _lines(view: View, kernel: Kernel) -> str:
    """Return `prog.py:14, 20`; library code is left out where a line of the user's is known."""
    places = {*kernel.places, *(p for n in kernel.nodes if (p := view.nodes[n].place))}
    own = [place for place in places if owner(place[0]) == 0]
    by_file: dict[str, list[int]] = {}
    for file, line in sorted(own or places):
        by_file.setdefault(file_name(file), []).append(line)
    words = [f"{file}:{', '.join(map(str, lines))}" for file, lines in by_file.items()]
    return f"one kernel over {'; '.join(words)}" if words else "one kernel of no known line"
