"""Packs source positions and exception ranges as CPython's two tables, and unpacks the latter."""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator
from typing import NamedTuple

# Codes of one location entry (Objects/locations.md); 0 to 9 hold the column's upper bits.
_ONE_LINE = 10
_NO_COLUMNS = 13
_LONG = 14
_NO_LOCATION = 15

_MAX_UNITS = 8  # a location entry covers at most eight code units


class ExceptionRange(NamedTuple):
    """Code units `start` to `end` (exclusive) are guarded by the handler at `target`."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


def encode_locations(
    spans: Iterable[tuple[dis.Positions | None, int]], first_line: int, *, merge: bool
) -> bytes:
    """Pack (position, number of code units) pairs as `co_linetable`.

    With `merge`, neighbours with the same position share entries, as Python 3.12 and later do.
    """
    out = bytearray()
    line = first_line
    for position, units in _merged(spans) if merge else spans:
        while units > 0:
            size = min(units, _MAX_UNITS)
            line = _write_location(out, position, size, line)
            units -= size
    return bytes(out)


def _merged(
    spans: Iterable[tuple[dis.Positions | None, int]],
) -> Iterator[tuple[dis.Positions | None, int]]:
    last: dis.Positions | None = None
    total = 0
    for position, units in spans:
        if total and position != last:
            yield last, total
            total = 0
        last = position
        total += units
    if total:
        yield last, total


def _write_location(
    out: bytearray, position: dis.Positions | None, units: int, line: int
) -> int:
    """Append one entry; return the line that the next entry counts from."""
    if position is None or position.lineno is None:
        _head(out, _NO_LOCATION, units)
        return line
    start = position.lineno
    end = start if position.end_lineno is None else position.end_lineno
    column, end_column = position.col_offset, position.end_col_offset
    delta = start - line
    if column is None or end_column is None:
        if end == start:
            _head(out, _NO_COLUMNS, units)
            _signed_varint(out, delta)
            return start
    elif end == start:
        if delta == 0 and column < 80 and 0 <= end_column - column < 16:
            _head(out, column >> 3, units)
            out.append((column & 7) << 4 | (end_column - column))
            return start
        if 0 <= delta < 3 and column < 128 and end_column < 128:
            _head(out, _ONE_LINE + delta, units)
            out += bytes((column, end_column))
            return start
    _head(out, _LONG, units)
    _signed_varint(out, delta)
    _varint(out, end - start)
    _varint(out, 0 if column is None else column + 1)
    _varint(out, 0 if end_column is None else end_column + 1)
    return start


def _head(out: bytearray, code: int, units: int) -> None:
    out.append(0x80 | code << 3 | (units - 1))


def _varint(out: bytearray, value: int) -> None:
    """Return a number as six bits a byte, lowest first; bit 0x40 means that more bytes follow."""
    while value >= 0x40:
        out.append(0x40 | value & 0x3F)
        value >>= 6
    out.append(value)


def _signed_varint(out: bytearray, value: int) -> None:
    _varint(out, (-value << 1 | 1) if value < 0 else value << 1)


def encode_exceptions(ranges: Iterable[ExceptionRange]) -> bytes:
    """Pack ranges, sorted by start and not overlapping, as `co_exceptiontable`."""
    out = bytearray()
    for entry in ranges:
        first = len(out)
        _big_varint(out, entry.start)
        _big_varint(out, entry.end - entry.start)
        _big_varint(out, entry.target)
        _big_varint(out, entry.depth << 1 | entry.lasti)
        out[first] |= 0x80
    return bytes(out)


def _big_varint(out: bytearray, value: int) -> None:
    """Return a number as six bits a byte, highest first; bit 0x40 means that more bytes follow."""
    groups = [value & 0x3F]
    while value := value >> 6:
        groups.append(0x40 | value & 0x3F)
    out += bytes(reversed(groups))


def decode_exceptions(table: bytes) -> list[ExceptionRange]:
    """Unpack `co_exceptiontable`."""
    numbers: list[int] = []
    value = 0
    for byte in table:
        value = value << 6 | byte & 0x3F
        if not byte & 0x40:
            numbers.append(value)
            value = 0
    quads = zip(*[iter(numbers)] * 4, strict=True)
    return [
        ExceptionRange(start, start + size, target, tag >> 1, bool(tag & 1))
        for start, size, target, tag in quads
    ]
