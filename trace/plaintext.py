"""A text of generated code goes in; what of it has a meaning comes out."""

from __future__ import annotations

import re
from typing import Final

# What changes from run to run and means nothing.
_VOLATILE: Final = (
    (re.compile(r"0x[0-9a-fA-F]{5,}"), "0x…"),
    (re.compile(r"(?<![\w.])(?:/[\w.+-]+)+/([\w.+-]+)"), r"\1"),
    (re.compile(r"\bc[a-z2-7]{50,51}\b|\b[0-9a-f]{32,64}\b"), "…"),
    (re.compile(r"\b(__compiled_fn_\d+)_[0-9a-f_]{8,}"), r"\1"),
    (re.compile(r"(?:\x1b\[[\d;]*m)+"), ""),
)
# Comments name lines of the user's source, which move; directives of C stay.
_COMMENT: Final = re.compile(r"^\s*(?:#(?!\s*(?:include|pragma|define|if|endif|else)\b)|//).*$")
_TRAIL: Final = re.compile(r"\s+(?:#|//)\s.*$")


def plain_rows(text: str) -> list[tuple[int, str]]:
    """Return (line number, text) of each line that counts: no comments, nothing volatile."""
    return [
        (number, _plain(row))
        for number, row in enumerate(text.split("\n"), 1)
        if row.strip() and not _COMMENT.match(row)
    ]


def plain_code(text: str) -> str:
    """Return a text without comments and without what changes in each run."""
    return "\n".join(row for _, row in plain_rows(text))


def _plain(row: str) -> str:
    for pattern, plain in _VOLATILE:
        row = pattern.sub(plain, row)
    return _TRAIL.sub("", row).rstrip()
