"""The trace file: stamped events in, one TORCH_TRACE log per process out."""

from __future__ import annotations

import os
import secrets
import string
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from tc.trace.emit import after_fork_in_child
from tc.trace.events import Artifact, Span, Stamped
from tc.trace.ids import CompileId, process_rank
from tc.trace.places import StackFrame
from tc.trace.wire import UTF8, Payload, Record, plain, strict_encoder, to_json

_ALPHABET = string.ascii_lowercase + string.digits + "_"
_MOST_PARTS = 1024  # of one write: IOV_MAX of Linux and macOS
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


class TraceWriter:
    """Writes events to ``DIR/dedicated_log_torch_trace_[rank_N_]XXXXXXXX.log``.

    The file appears with the first event. Each event is one write to the disk, so that a crash
    loses nothing before it. A forked child starts a file of its own, with its own string table.
    """

    takes_records = True

    def __init__(self, directory: str) -> None:
        self.directory = os.path.abspath(directory)  # the program may change its folder
        self.path: str | None = None
        self._file: int | None = None
        self._start_over()
        after_fork_in_child(self._leave_parent)

    def __str__(self) -> str:
        return f"trace to {self.directory!r} (TC_TRACE)"

    def write(self, stamped: Stamped) -> None:
        """Append one event to the file, opening it if need be."""
        self.write_all((stamped,))

    def write_all(self, events: Sequence[Stamped]) -> None:
        """Append several events of one time, place and compile at once."""
        records = [record for stamped in events for record in stamped.event.records]
        with self._lock:
            self._write(records, *events[0][1:])

    def mark(
        self, text: str, compile_id: CompileId | None, time_ns: int, file: str, line: int
    ) -> None:
        """Append a mark on the timeline; as `write` of a `Span`, but faster: there are many."""
        payload = Payload.of(text)
        with self._lock:
            if self._file is None:
                self._write([Record(Span.wire, {}, payload)], compile_id, time_ns, file, line)
                return
            start = self._line_start(time_ns, file, line)
            ids = self._context_of(compile_id)
            envelope = f'{{"{Span.wire}": {{}}{ids}{self._ending(payload)}'.encode()
            self._append(self._file, (start, envelope, payload.lines, b"\n"))

    def _write(
        self,
        records: list[Record],
        compile_id: CompileId | None,
        time_ns: int,
        file: str,
        line: int,
    ) -> None:
        if self._file is None:
            self._file = self._open()
            records += _versions()
        self._header = self._line_start(time_ns, file, line)
        context = self._context_of(compile_id)
        for record in records:
            self._add(record, context)
        self._append(self._file, self._lines)
        self._lines.clear()

    def close(self) -> None:
        """Close the file; a later event opens a new one."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
            self._start_over()

    def _leave_parent(self) -> None:
        """In a forked child: drop the parent's file, strings, and its lock, which may be held."""
        if self._file is not None:
            os.close(self._file)
        self._start_over()

    def _start_over(self) -> None:
        self._lock = threading.RLock()
        self._file = None
        self._rank: int | None = None
        self._strings: dict[str, int] = {}
        self._lines: list[bytes | memoryview] = []
        self._header = b""
        self._context: tuple[CompileId | None, str] | None = None
        self._second = -1
        self._places: dict[tuple[str, int], str] = {}
        self._encoder = strict_encoder(default=self._encode)

    def _open(self) -> int:
        os.makedirs(self.directory, exist_ok=True)
        self._rank = process_rank()
        rank = "" if self._rank is None else f"rank_{self._rank}_"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        while True:
            name = "".join(secrets.choice(_ALPHABET) for _ in range(8))
            path = os.path.join(self.directory, f"dedicated_log_torch_trace_{rank}{name}.log")
            try:
                file = os.open(path, flags, 0o600)
            except FileExistsError:
                continue
            self.path = path
            return file

    def _append(self, file: int, parts: Sequence[bytes | memoryview]) -> None:
        if len(parts) > _MOST_PARTS:
            parts = (b"".join(parts),)
        done, size = os.writev(file, parts), sum(map(len, parts))
        if done < size:  # a full disk or a signal may cut a write short
            rest = memoryview(b"".join(parts))[done:]
            while rest:
                rest = rest[os.write(file, rest) :]

    def _context_of(self, compile_id: CompileId | None) -> str:
        """Return what stands behind the event of a record that belongs to a compile."""
        if self._context is None or self._context[0] is not compile_id:
            one = compile_id
            ids = (
                ""
                if one is None
                else (
                    f', "frame_id": {one.frame}, "frame_compile_id": {one.compile}, '
                    f'"attempt": {one.attempt}'
                )
            )
            self._context = one, ids
        return self._context[1]

    def _add(self, record: Record, context: str) -> None:
        """Add the parts of one record, definitions of its new strings before it."""
        value = record.metadata
        envelope = f'{{"{record.key}": {to_json(value, self._encoder) if value != {} else "{}"}'
        if record.in_compile:
            envelope += context
        payload = record.payload
        if isinstance(payload, str):
            payload = Payload.of(payload)
        envelope += self._ending(payload)
        self._lines += (self._header, envelope.encode())
        if payload is not None:
            self._lines += (payload.lines, b"\n")

    def _ending(self, payload: Payload | None) -> str:
        """Return the last keys of a record, and what stands between it and its text."""
        # The rank is on every record: tlparse takes one without for foreign.
        rank = "" if self._rank is None else f', "rank": {self._rank}'
        if payload is None:
            return f"{rank}}}\n"
        return f'{rank}, "has_payload": "{payload.digest}"}}\n\t'

    def _line_start(self, time_ns: int, file: str, line: int) -> bytes:
        """Return what stands before the JSON of a record: time, process, place in the code."""
        second, rest = divmod(time_ns, 10**9)
        if second != self._second:
            self._second = second
            self._moment = time.strftime("V%m%d %H:%M:%S", time.localtime(second))
        place = self._places.get((file, line))
        if place is None:
            name = file.removeprefix(_ROOT).replace(":", "_").replace("\n", "_")
            place = self._places[file, line] = f"{name}:{line}"
        return f"{self._moment}.{rest // 1000:06d} {os.getpid()} {place}] ".encode(*UTF8)

    def _encode(self, value: object) -> Any:
        """Encode stack frames with interned file names; new names are defined before the record."""
        if not isinstance(value, StackFrame):
            return plain(value)
        number = self._strings.get(value.file)
        if number is None:
            number = self._strings[value.file] = len(self._strings)
            text = to_json({"str": [value.file, number]}).encode()
            self._lines += (self._header, text, b"\n")
        return {"line": value.line, "name": value.name, "filename": number, "loc": value.loc}


def _versions() -> list[Record]:
    """Who wrote this file: PyTorch's own record first, then tc's."""
    torch = sys.modules.get("torch")
    commit = getattr(getattr(torch, "version", None), "git_version", None)
    version = None if torch is None else str(getattr(torch, "__version__", "unknown"))
    of_torch = {"pytorch_version": version, "commit": commit, "oss": True}
    of_tc = {
        "tc_version": getattr(sys.modules.get("tc"), "__version__", None),
        "python_version": sys.version.split()[0],
        "platform": sys.platform,
    }
    facts = (("torch_version", of_torch), ("tc_version", of_tc))
    records = [Artifact(name, to_json(fact), "json").to_records()[0] for name, fact in facts]
    return [record._replace(in_compile=False) for record in records]
