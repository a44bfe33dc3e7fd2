"""What two runs of a program printed goes in; whether they say the same comes out."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import Final

_NUMBER: Final = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_CLOSE: Final = 1e-3  # relative: other kernels round otherwise
_SMALL: Final = 1e-5
_LONGEST: Final = 60


def same(one: str, other: str) -> bool:
    """Whether two outputs say the same, numbers up to rounding."""
    return not difference(one, other)


def difference(one: str, other: str) -> str:
    """Return the first line of the second output that says something else, empty if none does."""
    for a, b in zip_longest(one.splitlines(), other.splitlines()):
        if a is None or b is None:
            return f"{(a or b or '').strip()[:_LONGEST]!r} is {'new' if a is None else 'gone'}"
        if _NUMBER.sub("#", a) != _NUMBER.sub("#", b) or not _near(a, b):
            return f"{b.strip()[:_LONGEST]!r} in place of {a.strip()[:_LONGEST]!r}"
    return ""


def _near(a: str, b: str) -> bool:
    pairs = zip(map(float, _NUMBER.findall(a)), map(float, _NUMBER.findall(b)), strict=True)
    return all(abs(x - y) <= max(_SMALL, _CLOSE * max(abs(x), abs(y))) for x, y in pairs)
