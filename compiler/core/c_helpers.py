"""C helper functions that generated kernels may call, each with what it depends on.

In: the ``.h`` files of the folder ``c_helpers``, read once, when the first is asked for. Out: the
text of helpers and of all that they call, in order of dependency (`helpers_for`).

In a file, a comment introduces each helper, whose text goes to the next such comment::

    /* helper: tc_shl_TAG
       for: TAG BITS = i64 64, i32 32
       with: tc_wide
       Prose, without asterisks. */

``for`` lists placeholders and their values, a set of values for each helper; TYPE is a
placeholder for the C type of a suffix like ``i64`` among the values. ``with`` names what else the
text defines. Lines before the first helper are for editors. All ``tc_`` names of a text are helpers
or named by ``with``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tc.compiler.errors import StageError

FOLDER = Path(__file__).parent / "c_helpers"
#: what stands before all kernels; routines, which choose their own optimizations, need the macros
PRELUDE, WRAPPING, MACROS = "tc_prelude", "tc_wrapping", "tc_macros"
TYPES = {
    "f32": "float",
    "f64": "double",
    "i64": "long long",
    "i32": "int",
    "i16": "short",
    "i8": "signed char",
    "u8": "unsigned char",
    "b8": "unsigned char",
}

_HELPER = re.compile(r"/\* helper: (\w+)([^*]*)\*/\n")
_FOR = re.compile(r"^ *for: (\w[\w ]*) = ((?:[^\n,]+,\s+)*[^\n,]+)$", re.M)
_WORD = re.compile(r"[^\s,]+")
_WITH = re.compile(r"^ *with: (.*)$", re.M)
_CAPITALS = re.compile(r"[A-Z]{3,}")  # what may be a placeholder
# A name before ## is a piece of the names that a macro makes of it.
_NAME = re.compile(r"\btc_\w+\b(?!##)")


@dataclass(frozen=True)
class Helper:
    """One helper.

    Attributes:
        name: of the function that kernels call.
        text: its C.
        needs: the helpers that it calls, in order.
    """

    name: str
    text: str
    needs: tuple[str, ...]


class Helpers:
    """The helpers of some files; the text of each is filled in when it is first asked for."""

    def __init__(self, files: Iterable[str]) -> None:
        """Find the helpers of the files.

        Raises:
            StageError: two have one name.
        """
        # name -> the rest of its comment, its text, the values of its placeholders
        self._found: dict[str, tuple[str, str, Mapping[str, str]]] = {}
        self._made: dict[str, Helper] = {}
        for file in files:
            marks = list(_HELPER.finditer(file))
            ends = [mark.start() - 1 for mark in marks[1:]]  # without the blank line before it
            for mark, end in zip(marks, [*ends, len(file)], strict=True):
                text = file[mark.end() : end]
                for values in _rows(mark[2]):
                    name = _filled(mark[1], values)
                    if name in self._found:
                        raise StageError("codegen", f"Two C helpers are named {name!r}.")
                    self._found[name] = mark[2], text, values

    def names(self) -> Iterable[str]:
        """Return the names of all helpers."""
        return self._found.keys()

    def get(self, name: str) -> Helper | None:
        """Return a helper, None if there is none of this name.

        Raises:
            StageError: its text has a name that neither it nor another helper defines.
        """
        if name not in self._made and name in self._found:
            _, text, values = self._found[name]
            text = _filled(text, values)
            own = self._defined(name) | self._defined(MACROS)
            needs = [one for one in dict.fromkeys(_NAME.findall(text)) if one not in own]
            for one in needs:
                if one not in self._found:
                    message = f"C helper {name!r} needs {one!r}, which is no helper."
                    raise StageError("codegen", message)
            self._made[name] = Helper(name, text, tuple(needs))
        return self._made.get(name)

    def _defined(self, name: str) -> set[str]:
        """What the text of a helper defines."""
        if name not in self._found:
            return set()
        head, _, values = self._found[name]
        return {name, *_WORD.findall(_filled(" ".join(_WITH.findall(head)), values))}

    def source(self, names: Iterable[str]) -> str:
        """C of some helpers and of all that they call, those that are called first."""
        order: dict[str, str] = {}

        def visit(name: str) -> None:
            helper = self.get(name)
            if helper is None:
                raise StageError("codegen", f"There is no C helper {name!r}.")
            if name not in order:
                for called in helper.needs:
                    visit(called)
                order[name] = helper.text

        for name in names:
            visit(name)
        return "".join(order.values())


@functools.cache
def helpers() -> Helpers:
    """Return all helpers."""
    return Helpers(path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.h")))


def helpers_for(names: Iterable[str], *, wrapping: bool = False) -> str:
    """C of some helpers, of all that they call, and of what stands before all kernels.

    Args:
        wrapping: whether the kernels compute with integers, which wrap around.
    """
    before = (PRELUDE, WRAPPING, MACROS) if wrapping else (PRELUDE, MACROS)
    return helpers().source((*before, *names))


def _rows(head: str) -> Iterator[dict[str, str]]:
    """Yield the values of placeholders, once for each helper made of a text."""
    found = _FOR.search(head)
    if found is None:
        yield {}
        return
    columns = _WORD.findall(found[1])
    rows = iter(_WORD.findall(found[2]))
    for row in zip(*[rows] * len(columns), strict=True):
        values = dict(zip(columns, row, strict=True))
        kinds = [TYPES[value] for value in row if value in TYPES]
        yield values | ({"TYPE": kinds[0]} if kinds else {})


def _filled(text: str, values: Mapping[str, str]) -> str:
    """Return the text with its placeholders filled in."""
    if not values:
        return text
    pieces, start = [], 0
    for place in _CAPITALS.finditer(text):
        pieces += [text[start : place.start()], values.get(place[0], place[0])]
        start = place.end()
    return "".join((*pieces, text[start:]))
