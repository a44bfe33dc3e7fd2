"""The text of an artifact goes in; roles for the lines that are looked at come out.

Only blocks that are shown are lexed.  Generated Python holds C++ and Triton kernels in strings:
these are found first, by one scan for triple quotes, and lexed as what they are.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from tc.tui.lines import Line, clean

BLOCK: Final = 100
_KEPT: Final = 64
_LONGEST: Final = 2_000
_TRIPLE: Final = re.compile(r"'''|\"\"\"")

# The first row whose pygments token type contains the token gives its role.
_ROLES: Final = (
    ("Comment.Preproc", "keyword"),
    ("Comment", "comment"),
    ("Keyword", "keyword"),
    ("Operator.Word", "keyword"),
    ("Name.Function", "defined"),
    ("Name.Class", "defined"),
    ("Name.Decorator", "defined"),
    ("Name.Builtin", "builtin"),
    ("Name.Tag", "builtin"),  # keys of JSON
    ("Literal.String", "string"),
    ("Literal.Number", "number"),
)


@dataclass(frozen=True, slots=True)
class Region:
    """Lines `start..` that one lexer reads."""

    start: int
    lexer: str


def regions(rows: list[str], kind: str) -> list[Region]:
    """Divide a text by language: kernels inside of strings are regions of their own."""
    if kind != "python":
        return [Region(0, kind)]
    found = [Region(0, "python")]
    inside, opened = "", 0
    for number, row in enumerate(rows):
        if "'''" not in row and '"""' not in row:
            continue
        for match in _TRIPLE.finditer(row):
            if not inside and row.lstrip().startswith("#"):
                break
            if not inside:
                inside, opened = match[0], number
                found.append(Region(number + 1, _inner(row[: match.start()])))
            elif match[0] == inside:
                inside = ""
                if opened == number:  # a string on one line is plain Python
                    found.pop()
                else:
                    found += [Region(number, "string"), Region(number + 1, "python")]
    return _settled(found)


def _inner(before: str) -> str:
    if "cpp" in before:
        return "cpp"
    return "python" if "triton" in before else "string"


def _settled(found: list[Region]) -> list[Region]:
    """Of regions that begin at the same line, the last holds."""
    return [
        one for n, one in enumerate(found) if n + 1 == len(found) or found[n + 1].start > one.start
    ]


class Highlighter:
    """Colours rows of one text, block by block, as they are asked for."""

    def __init__(self, rows: list[str], kind: str) -> None:
        self.rows = rows
        self.regions = regions(rows, kind)
        self._starts = [region.start for region in self.regions]
        self._blocks: OrderedDict[int, list[Line]] = OrderedDict()
        self._lexers: dict[str, Any] = {}

    def line(self, index: int) -> Line:
        """Return a row with the roles of its parts."""
        if len(self.rows[index]) > _LONGEST:
            return Line(((clean(self.rows[index]), ""),))
        block = index // BLOCK
        found = self._blocks.get(block)
        if found is None:
            found = self._lex(block * BLOCK, min(block * BLOCK + BLOCK, len(self.rows)))
            self._blocks[block] = found
            while len(self._blocks) > _KEPT:
                self._blocks.popitem(last=False)
        return found[index - block * BLOCK]

    def _lex(self, start: int, stop: int) -> list[Line]:
        lines: list[Line] = []
        at = start
        while at < stop:
            number = bisect_right(self._starts, at) - 1
            following = self._starts[number + 1] if number + 1 < len(self._starts) else stop
            until = min(following, stop)
            lines += self._coloured(self.rows[at:until], self.regions[number].lexer)
            at = until
        return lines

    def _coloured(self, rows: list[str], language: str) -> list[Line]:
        if language == "string":
            return [Line(((clean(row), "string"),)) for row in rows]
        lexer = self._lexer(language)
        short = [clean(row) if len(row) <= _LONGEST else "" for row in rows]
        if lexer is None:
            return [Line(((row, ""),)) for row in short]
        lines: list[Line] = []
        pieces: list[tuple[str, str]] = []
        for _, token, text in lexer.get_tokens_unprocessed("\n".join(short) + "\n"):
            role = _role(str(token))
            first, *rest = text.split("\n")
            if first:
                pieces.append((first, role))
            for part in rest:
                lines.append(Line(tuple(pieces)))
                pieces = [(part, role)] if part else []
        return lines[: len(rows)] + [Line()] * (len(rows) - len(lines))

    def _lexer(self, language: str) -> Any:
        if language not in self._lexers:
            self._lexers[language] = _make(language)
        return self._lexers[language]


def _make(language: str) -> Any:
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        return get_lexer_by_name(language)
    except ClassNotFound:
        return None


def _role(token: str) -> str:
    name = token.removeprefix("Token.")
    return next((role for prefix, role in _ROLES if name.startswith(prefix)), "")
