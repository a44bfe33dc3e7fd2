"""JSON of a log goes in; values come out, and numbers that can be counted with.

Damage can make any number of a log infinite, or none (``NaN``, ``1e400``, a number of 400 digits).
Such a number is read as if it were missing, here and nowhere else: what a log measured is taken
out of it by `real`, `whole`, `measured` and `line_number`, and no sum of these is infinite.
"""

from __future__ import annotations

import json
import math
import threading
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

orjson: Any = None
with suppress(ImportError):  # the standard library reads the same, only slower
    orjson = import_module("orjson")

#: above this nothing is measured: seconds, bytes, operations
LARGEST: Final = 1e30


class _Missing(threading.local):
    """How many numbers this thread has read that are none."""

    count = 0


_missing: Final = _Missing()


def _finite(text: str) -> float | None:
    number = float(text)
    if math.isfinite(number):
        return number
    _missing.count += 1
    return None


_DECODER: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def parse_json(text: bytes | str) -> Any:
    """Parse JSON as Python writes it, lone surrogates included; NaN and infinity become None.

    Raises:
        ValueError: it is no JSON.
    """
    if orjson is not None:
        try:
            return orjson.loads(text)
        except ValueError:  # strict: refuses NaN, which Python writes
            pass
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "surrogatepass")
        if text[:1] in ("{", "["):  # nothing before it: spare the search for white space
            value, stop = _DECODER.raw_decode(text)
            if stop == len(text):
                return value
        return _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def parse_counting(text: bytes | str) -> tuple[Any, int]:
    """Parse JSON, and return with it how many numbers became None.

    Raises:
        ValueError: it is no JSON.
    """
    before = _missing.count
    value = parse_json(text)
    return value, _missing.count - before


def real(value: Any) -> float:
    """Return a number that was measured.

    Raises:
        ValueError, TypeError: it is none, or none that anything could measure.
    """
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not abs(number) <= LARGEST:
        raise ValueError("no number that can be measured")
    return number


def whole(value: Any) -> int:
    """Return a number that was counted.

    Raises:
        ValueError, TypeError: it is none, or none that anything could count.
    """
    real(value)
    return int(value)


def measured(value: object) -> float | None:
    """Return a number that was measured; None if it is none."""
    if not isinstance(value, (int, float)):
        return None
    try:
        return real(value)
    except ValueError:
        return None


def line_number(value: object) -> int:
    """Return the number of a line; 0 if it is none."""
    return value if type(value) is int and 0 <= value <= LARGEST else 0
