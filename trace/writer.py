"""The trace file: stamped events in, one TORCH_TRACE log per process out."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import string
import sys
import threading
from datetime import datetime
from typing import Any

from tc.trace.emit import after_fork_in_child
from tc.trace.events import Artifact, Record, StackFrame, Stamped, plain, to_json
from tc.trace.ids import process_rank

_ALPHABET = string.ascii_lowercase + string.digits + "_"
_UTF8 = ("utf-8", "backslashreplace")
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
        records = stamped.event.to_records()
        with self._lock:
            first = self._file is None
            if first:
                self._file = self._open()
            if first:
                records = (*records, *_versions())
            header = _header(stamped)
            lines = [part for one in records for part in self._lines(one, stamped, header)]
            self._append(b"".join(lines))
            self._drop_lines()

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
        self._drop_lines()
        self._header = b""
        self._encoder = json.JSONEncoder(default=self._encode, allow_nan=False)

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

    def _drop_lines(self) -> None:
        self._defined: list[bytes] = []

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        rest = memoryview(data)
        while rest:  # a full disk or a signal may cut a write short
            rest = rest[os.write(self._file, rest) :]

    def _lines(self, record: Record, stamped: Stamped, header: bytes) -> list[bytes]:
        """Return the lines of one record, definitions of its new strings before it."""
        lines: list[bytes] = []
        envelope: dict[str, Any] = {record.key: record.metadata}
        compile_id = stamped.compile_id
        if record.in_compile and compile_id is not None:
            envelope["frame_id"] = compile_id.frame
            envelope["frame_compile_id"] = compile_id.compile
            envelope["attempt"] = compile_id.attempt
        if self._rank is not None:
            envelope["rank"] = self._rank  # on every record: tlparse takes one without for foreign
        # What UTF-8 cannot hold is spelled out.
        payload = None if record.payload is None else record.payload.encode(*_UTF8)
        if payload is not None:
            digest = hashlib.md5(payload, usedforsecurity=False)
            envelope["has_payload"] = digest.hexdigest()
        self._defined, self._header = lines, header
        lines += (header, to_json(envelope, self._encoder).encode(), b"\n")
        if payload is not None:
            lines += (b"\t", payload.replace(b"\n", b"\n\t"), b"\n")
        return lines

    def _encode(self, value: object) -> Any:
        """Encode stack frames with interned file names; new names are defined before the record."""
        if not isinstance(value, StackFrame):
            return plain(value)
        number = self._strings.get(value.file)
        if number is None:
            number = self._strings[value.file] = len(self._strings)
            text = to_json({"str": [value.file, number]}).encode()
            self._defined += (self._header, text, b"\n")
        return {"line": value.line, "name": value.name, "filename": number, "loc": value.loc}


def _header(stamped: Stamped) -> bytes:
    moment = datetime.fromtimestamp(stamped.time_ns / 1e9).strftime("%m%d %H:%M:%S.%f")
    file = stamped.origin_file.removeprefix(_ROOT).replace(":", "_").replace("\n", "_")
    return f"V{moment} {os.getpid()} {file}:{stamped.origin_line}] ".encode(*_UTF8)


def _versions() -> list[Record]:
    """Who wrote this file: PyTorch's own record first, then ours."""
    torch = sys.modules.get("torch")
    commit = getattr(getattr(torch, "version", None), "git_version", None)
    version = None if torch is None else str(getattr(torch, "__version__", "unknown"))
    theirs = {"pytorch_version": version, "commit": commit, "oss": True}
    ours = {
        "tc_version": getattr(sys.modules.get("tc"), "__version__", None),
        "python_version": sys.version.split()[0],
        "platform": sys.platform,
    }
    facts = (("torch_version", theirs), ("tc_version", ours))
    records = [Artifact(name, to_json(fact), "json").to_records()[0] for name, fact in facts]
    return [record._replace(in_compile=False) for record in records]
