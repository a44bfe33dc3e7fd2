"""Bytes of a TORCH_TRACE log go in; records, interned strings and counted defects come out."""

from __future__ import annotations

import glob
import gzip
import hashlib
import mmap
import os
import re
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, ClassVar, Final, NamedTuple

from tc.trace import archives
from tc.trace.parsed import parse_counting, parse_json
from tc.trace.words import file_size

HEADER: Final = re.compile(
    rb"[VIWEC](\d{4} \d\d:\d\d:\d\d\.\d{6}) +(\d{1,640}) ([^:\n]+:\d{1,18})\] "
)
CONTEXT_KEYS: Final = frozenset(
    (
        "frame_id", "frame_compile_id", "attempt", "compiled_autograd_id", "rank",
        "stack", "subgraph_name", "has_payload",
    )
)  # fmt: skip
TRACE_PREFIX: Final = "dedicated_log_torch_trace_"
STDIN: Final = "-"
_MAGIC: Final = {b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}
_FIRST_BYTES: Final = 4096

# The next line that is neither payload (TAB) nor blank starts the next record.
_NEXT_RECORD: Final = re.compile(rb"\n(?:[^\t\n\r]|\r(?!\n))")
_MD5: Final = re.compile(r"[0-9a-f]{32}\Z")
_SAMPLES: Final = 20
_MOST_OPEN: Final = 200  # logs
# What a packed log may unpack to: traces shrink to a tenth or twentieth, a bomb to a thousandth.
_MOST_UNPACKED: Final = 1 << 28  # bytes that any log may have
_MOST_PIPED: Final = 1 << 34  # where the packed size is not known
_MOST_TIMES: Final = 150  # times the packed size, above that
_FIRST_RECORD: Final = 1 << 24  # bytes within which a log has its first record
_RELEASED: Final = 1 << 23  # bytes read between two releases of mapped memory


_BLOCK: Final = 1 << 16  # looked at to find the last record


class Unreadable(Exception):
    """The input cannot be read at all; the text says what, why, and what to do."""


@dataclass(slots=True)
class Defects:
    """Damage found in the input, counted by kind; the first places of each are remembered."""

    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)
    latest: str = ""

    def add(self, kind: str, place: str, times: int = 1) -> None:
        """Count one kind of damage at `file:line`."""
        self.counts[kind] = self.counts.get(kind, 0) + times
        self.latest = place
        known = self.places.setdefault(kind, [])
        if len(known) < _SAMPLES:
            known.append(place)

    def merge(self, other: Defects) -> None:
        """Add what was counted elsewhere."""
        for kind, number in other.counts.items():
            self.counts[kind] = self.counts.get(kind, 0) + number
            known = self.places.setdefault(kind, [])
            known += other.places[kind][: _SAMPLES - len(known)]


class Span(NamedTuple):
    """Where a record's payload is in its log: bytes `start:stop`, line prefixes included.

    `plain`: its only TABs are those that begin its lines, as its checksum proved.
    `event`: of a record without a payload the key of its text; the place is its header's JSON.
    """

    source: int
    start: int
    stop: int
    prefix: bytes = b""
    plain: bool = False
    event: str = ""


@dataclass(slots=True)  # not frozen: a log has millions, and freezing triples their price
class Record:
    """One envelope of the log; `span` locates its payload, if it has one.

    Attributes:
        head: where the JSON of its header begins and ends.
        stamp: when it was written, as the header has it: `1120 09:14:22.968000`.
        origin: the header's `file:line` of the code that wrote it.
    """

    line: int
    head: tuple[int, int]
    stamp: bytes
    pid: int
    origin: bytes
    event: str
    value: Any
    context: dict[str, Any]
    span: Span | None
    payload: bytes | None

    @property
    def time(self) -> str:
        """When it was written: `11-20 09:14:22.968000`, local time."""
        return stamp_text(self.stamp)

    @property
    def emitter(self) -> str:
        """The `file:line` that wrote it."""
        file, _, line = self.origin.rpartition(b":")
        return f"{file.decode('utf-8', 'replace')}:{int(line)}"

    def text(self) -> str:
        """Return the payload as text; bytes that are no UTF-8 show as U+FFFD."""
        return "" if self.payload is None else self.payload.decode("utf-8", "replace")


class Source:
    """One log, mapped into memory when it is looked at.

    Packed logs and stdin are unpacked to a temporary file. Of many logs only the last few looked
    at stay open, so that a job of 10,000 ranks needs no 10,000 files at a time.
    """

    _open: ClassVar[OrderedDict[int, Source]] = OrderedDict()

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._touched = 0
        self._data: mmap.mmap | bytes | None = None
        self.name = "stdin" if self.path == STDIN else Path(path).name
        self._map()

    @property
    def place(self) -> str:
        """The path as another process finds it."""
        return os.path.abspath(self.path)

    @property
    def data(self) -> mmap.mmap | bytes:
        """The whole log."""
        return self._map() if self._data is None else self._data

    def _map(self) -> mmap.mmap | bytes:
        try:
            with _open(self.path) as file:
                size = file.seek(0, 2)
                made = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        except (OSError, EOFError) as error:
            raise Unreadable(f"cannot read {self.path}: {_reason(error)}") from error
        self._data = made
        if self.path != STDIN:  # which can be read but once
            self._open[id(self)] = self
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)[1].close()
        return made

    def __len__(self) -> int:
        return len(self.data)

    @property
    def whole(self) -> bool:
        """Whether the log is still there as it was mapped: what was cut away must not be read."""
        return not isinstance(self._data, mmap.mmap) or self._data.size() >= len(self._data)

    def touched(self, size: int) -> None:
        """Note that so many bytes were read; give memory back when it adds up.

        The system counts the mapped log as memory of this process; it is mapped again where needed.
        """
        self._touched += size
        if self._touched > _RELEASED:
            self._touched = 0
            if isinstance(self._data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
                self._data.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Unmap the log."""
        if isinstance(self._data, mmap.mmap):
            self._data.close()
        self._data = None
        self._open.pop(id(self), None)


def stamp_text(stamp: bytes) -> str:
    """`1120 09:14:22.968000` -> `11-20 09:14:22.968000`."""
    return f"{stamp[:2].decode()}-{stamp[2:].decode()}"


def value_of(source: Source, span: Span) -> Any:
    """Return what a header holds of its event, of a record without a payload."""
    text = source.data[span.start : span.stop]
    source.touched(len(text))
    return parse_json(text.decode("utf-8", "replace")).get(span.event)


def payload_of(source: Source, span: Span) -> bytes:
    """Cut a payload out of its log and take off the leading TAB of each line."""
    raw = source.data[span.start : span.stop]
    source.touched(len(raw))
    if span.plain:
        return raw.replace(b"\t", b"")[:-1]
    if not span.prefix and (payload := _untabbed(raw, raw.count(b"\n"))) is not None:
        return payload
    skip = len(span.prefix) + 1
    lines = (line for line in raw.split(b"\n") if line not in (b"", b"\r", span.prefix))
    return b"\n".join(line[skip:] for line in lines)


def _untabbed(raw: bytes, rows: int) -> bytes | None:
    """Take off the TABs of a payload's lines; None if it is not written as torch does."""
    if raw[:1] != b"\t" or raw[-1:] != b"\n" or raw.count(b"\n\t") != rows - 1:
        return None
    if raw.count(b"\t") == rows:  # none but the leading ones: the faster way
        return raw.replace(b"\t", b"")[:-1]
    return raw[1:-1].replace(b"\n\t", b"\n")


@dataclass(slots=True)
class Cursor:
    """Where the reading of a log continues: a byte, its line, whether a record came before."""

    at: int = 0
    line: int = 1
    after_record: bool = False


def read_records(
    source: Source,
    index: int,
    defects: Defects,
    cursor: Cursor | None = None,
    end: int | None = None,
) -> Iterator[Record]:
    """Yield every record of one log; damage is counted, never fatal.

    Args:
        cursor: where to begin; moved along.
        end: where to stop, the beginning of a record; default the end of the log.
    """
    data = source.data
    cursor = cursor or Cursor()
    end = len(data) if end is None else end
    while cursor.at < end:
        at, line = cursor.at, cursor.line
        head_stop = data.find(b"\n", at)
        head_stop = end if head_stop < 0 else head_stop
        head = data[at:head_stop]
        if head[:1] in (b"\t", b"", b"\r") and not _looks_like_header(data, at):
            stop = _region_end(data, max(at - 1, 0), end)
            orphans = sum(row.startswith(b"\t") for row in data[at:stop].split(b"\n"))
            if orphans:
                defects.add("orphan_payload", f"{source.name}:{line}", orphans)
            cursor.line += data[at:stop].count(b"\n")
            cursor.at = stop
            continue
        match = HEADER.match(head) or HEADER.search(head)
        if match is None:
            kind = "truncated" if head_stop == end and cursor.after_record else "no_header"
            defects.add(kind, f"{source.name}:{line}")
            cursor.at, cursor.line = min(head_stop + 1, end), line + 1
            continue
        cursor.after_record = True
        prefix = head[: match.start()]
        stop = _payload_end(data, head_stop, end, prefix)
        body = Span(index, min(head_stop + 1, end), stop, prefix)
        raw = data[body.start : stop]
        rows = raw.count(b"\n")
        last = stop == len(data)
        record = _record(source, at, line, match, head, body, raw, rows, defects, last=last)
        cursor.at, cursor.line = stop, line + 1 + rows
        if record is not None:
            yield record
        source.touched(stop - at)


def last_record(data: mmap.mmap | bytes) -> int:
    """Return where the last record begins; 0 if there is none."""
    size = _BLOCK
    while True:
        at = max(len(data) - size, 0)
        block = data[at:]
        for match in reversed(list(HEADER.finditer(block))):
            line = block.rfind(b"\n", 0, match.start()) + 1
            if (line or at == 0) and b"\t" not in block[line : match.start()]:
                return at + line
        if at == 0:
            return 0
        size *= 4


def _looks_like_header(data: mmap.mmap | bytes, at: int) -> bool:
    return data[at : at + 1] == b"\r" and data[at : at + 2] != b"\r\n"


def _region_end(data: mmap.mmap | bytes, newline: int, end: int) -> int:
    found = _NEXT_RECORD.search(data, newline)
    return found.start() + 1 if found else end


def _payload_end(data: mmap.mmap | bytes, newline: int, end: int, prefix: bytes) -> int:
    """Return the end of the lines that follow a header and belong to it."""
    stop = _region_end(data, newline, end)
    if not prefix:
        return stop
    # A log collector that marks each line marks payload lines too: PREFIX TAB text.
    marked = prefix + b"\t"
    while data[stop : stop + len(marked)] == marked:
        after = data.find(b"\n", stop)
        stop = end if after < 0 else after + 1
    return stop


def _record(
    source: Source,
    at: int,
    line: int,
    match: re.Match[bytes],
    head: bytes,
    body: Span,
    raw: bytes,
    rows: int,
    defects: Defects,
    *,
    last: bool,
) -> Record | None:
    place = f"{source.name}:{line}"
    text = head[match.end() :]
    clean = text if _is_utf8(text) else text.decode("utf-8", "replace")
    try:
        envelope, missing = parse_counting(clean)
    except ValueError:
        cut = last and source.data[-1:] != b"\n" and not raw
        defects.add("truncated" if cut else "bad_json", place)
        return None
    if not isinstance(envelope, dict):
        defects.add("bad_json", place)
        return None
    if missing:
        defects.add("bad_number", place, missing)
    events = envelope.keys() - CONTEXT_KEYS
    if len(events) == 1:
        (event,) = events
        value = envelope.pop(event)
    else:
        defects.add("no_event" if not events else "many_events", place)
        event = next((key for key in envelope if key in events), "(no event)")
        value = envelope.get(event)
        envelope = {key: envelope[key] for key in envelope if key in CONTEXT_KEYS}
    digest = envelope.get("has_payload")
    payload = _whole(raw, rows, digest, body.prefix)
    if payload is None:
        payload = _payload(source, body, raw, digest, defects, place, last=last)
    elif b"\t" not in payload:
        body = Span(body.source, body.start, body.stop, plain=True)
    if (clean is not text or not _is_utf8(payload or b"")) and defects.latest != place:
        defects.add("bad_utf8", place)
    return Record(
        line=line,
        head=(at + match.end(), at + len(head)),
        stamp=match[1],
        pid=int(match[2]),
        origin=match[3],
        event=event,
        value=value,
        context=envelope,
        span=None if payload is None else body,
        payload=payload,
    )


def _whole(raw: bytes, rows: int, digest: object, prefix: bytes) -> bytes | None:
    """Return the payload if it is as torch writes it; None if it has to be looked at closely."""
    if not isinstance(digest, str) or prefix:
        return None
    # Mostly no TAB but the leading ones; the checksum shows whether that was so.
    plain = raw.replace(b"\t", b"")[:-1]
    if len(raw) - 1 - len(plain) == rows and raw[:1] == b"\t" and _md5_of(plain) == digest:
        return plain
    payload = _untabbed(raw, rows)
    return payload if payload is not None and _md5_of(payload) == digest else None


def _md5_of(payload: bytes) -> str:
    return hashlib.md5(payload, usedforsecurity=False).hexdigest()


def _payload(
    source: Source,
    body: Span,
    raw: bytes,
    digest: object,
    defects: Defects,
    place: str,
    *,
    last: bool,
) -> bytes | None:
    has_lines = raw.startswith(b"\t") or (body.prefix and raw.startswith(body.prefix + b"\t"))
    if digest is None:
        if has_lines:
            rows = raw.count(b"\n\t") + 1
            defects.add("orphan_payload", place, rows)
        return None
    if not has_lines:
        defects.add("truncated" if last else "payload_missing", place)
        return b""
    payload = payload_of(source, body)
    if not isinstance(digest, str) or not _MD5.match(digest):
        defects.add("payload_md5", place)
    elif _md5_of(payload) != digest:
        plain = payload.replace(b"\r\n", b"\n").removesuffix(b"\r")
        if _md5_of(plain) == digest:
            return plain
        defects.add("truncated" if last else "payload_md5", place)
    return payload


def _is_utf8(raw: bytes) -> bool:
    if not raw.isascii():
        try:
            raw.decode("utf-8")
        except UnicodeDecodeError:
            return False
    return True


# ---------------------------------------------------------------------------------- files


def find_logs(path: str | Path) -> list[str]:
    """Return the logs a path names: itself, stdin (`-`), or those in a directory.

    Raises:
        Unreadable: the directory holds no log.
    """
    if str(path) == STDIN:
        return [STDIN]
    where = Path(path)
    if not where.exists() and glob.has_magic(str(path)):
        found = sorted(glob.glob(str(path)))
        if not found:
            raise Unreadable(f"no file matches {path}")
        return [log for one in found for log in find_logs(one)]
    if not where.is_dir():
        return _in_archive(str(where)) if archives.is_archive(str(where)) else [str(where)]
    found = sorted(
        entry.name for entry in where.iterdir() if entry.is_file() and _is_log(entry.name)
    )
    dedicated = [name for name in found if name.startswith(TRACE_PREFIX)]
    if not found:
        below = sorted(p.name for p in where.iterdir() if p.is_dir() and _has_log(p))
        hint = (
            f"the logs are in {', '.join(below[:3])}: name one of these folders"
            if below
            else "run your program with TC_TRACE=<folder> or TORCH_TRACE=<folder> first"
        )
        raise Unreadable(f"no trace log in {where}; {hint}")
    return [str(where / name) for name in dedicated or found]


def _in_archive(path: str) -> list[str]:
    try:
        names = [name for name in archives.members(path) if _is_log(PurePosixPath(name).name)]
    except (OSError, EOFError, *archives.ERRORS) as error:
        raise Unreadable(f"cannot read {path}: {_reason(error)}") from error
    dedicated = [name for name in names if PurePosixPath(name).name.startswith(TRACE_PREFIX)]
    if not names:
        raise Unreadable(f"no trace log in {path}; pack the folder that TC_TRACE named")
    return [f"{path}{archives.SEPARATOR}{name}" for name in dedicated or names]


def _is_log(name: str) -> bool:
    stem = name.removesuffix(".gz").removesuffix(".zst")
    return stem.endswith(".log") or (stem.startswith(TRACE_PREFIX) and "." in stem)


def _has_log(folder: Path) -> bool:
    try:
        return any(_is_log(entry.name) for entry in folder.iterdir())
    except OSError:
        return False


def _open(path: str) -> IO[bytes]:
    if path == STDIN:
        return _unpack(sys.stdin.buffer, _packed_as(sys.stdin.buffer), "stdin", None)
    packed = archives.split(path)
    if packed and not Path(path).exists():
        try:
            with archives.stream(*packed) as (member, size):
                return _unpack(member, packed[1], path, size)
        except archives.ERRORS as error:
            raise Unreadable(f"cannot unpack {path}: {error}") from error
    with open(path, "rb") as raw:
        if packed_as := _packed_as(raw, path):
            name = path.removesuffix(packed_as) + packed_as
            return _unpack(raw, name, path, os.fstat(raw.fileno()).st_size)
    return open(path, "rb")


def _packed_as(stream: IO[bytes], path: str = "") -> str:
    """Return an ending that says how a stream is packed: by its first bytes, not by its name.

    Many a client unpacks a `.gz` on the way and leaves its name. What begins as neither a packed
    file nor a log is what its name says, so that messages name it.
    """
    peek = getattr(stream, "peek", None)
    head = peek(_FIRST_BYTES) if peek else b""
    found = next((end for magic, end in _MAGIC.items() if head.startswith(magic)), "")
    named = next((end for end in _MAGIC.values() if path.endswith(end)), "")
    return found or ("" if HEADER.search(head) else named)


def _unpack(raw: IO[bytes], name: str, path: str, size: int | None) -> IO[bytes]:
    """Copy a stream that may be packed, as its name says, to a temporary file.

    Args:
        path: what messages call it.
        size: its packed size, None where that is not known.

    Raises:
        Unreadable: it cannot be unpacked, or grows to far more than any trace does.
    """
    bounded = partial(_spool, path=path, size=size)
    if name.endswith(".gz"):
        with gzip.open(raw) as packed:
            return bounded(packed)
    if not name.endswith(".zst"):
        return bounded(raw)
    try:
        import zstandard
    except ImportError as error:
        raise Unreadable(
            f"cannot unpack {name}: the package zstandard is not installed; "
            "run `pip install zstandard` or `unzstd` the file"
        ) from error
    try:
        with zstandard.ZstdDecompressor().stream_reader(raw) as packed:
            return bounded(packed)
    except zstandard.ZstdError as error:
        raise Unreadable(f"cannot unpack {name}: {error}") from error


def _spool(stream: Any, path: str, size: int | None) -> IO[bytes]:
    """Copy a stream to a temporary file, so that records can be located by offset."""
    most = _MOST_PIPED if size is None else max(_MOST_UNPACKED, _MOST_TIMES * size)
    file = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as its Source)
    read = getattr(stream, "read1", stream.read)  # gives what it has before it fails
    begun, before = False, b""
    try:
        while chunk := read(1 << 16):
            file.write(chunk)
            if not begun:
                begun = HEADER.search(before + chunk) is not None
                before = chunk[-(1 << 12) :]
            limit = most if begun else min(most, _FIRST_RECORD)
            if file.tell() > limit:
                file.close()
                none = "" if begun else ", with no record of a trace among them"
                raise Unreadable(
                    f"cannot read {path}: "
                    + ("it is" if size is None else f"its {file_size(size)} unpack to")
                    + f" more than {file_size(limit)}{none}; unpack it to a file if it is a trace"
                )
    except (EOFError, gzip.BadGzipFile):
        if not file.tell():
            raise
        # a truncated archive: what was unpacked is still worth reading
    file.flush()
    return file


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
