"""The trace file: stamped events in, one TORCH_TRACE log per process out."""

from __future__ import annotations

import hashlib
import os
import secrets
import string
import sys
import threading
from datetime import datetime
from functools import partial
from typing import Any

from tc.trace.emit import after_fork_in_child
from tc.trace.events import Artifact, Record, StackFrame, Stamped, plain, to_json
from tc.trace.ids import process_rank

_ALPHABET = string.ascii_lowercase + string.digits + "_"
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


class TraceWriter:
    """Writes events to ``DIR/dedicated_log_torch_trace_[rank_N_]XXXXXXXX.log``.

    The file appears with the first event. Each event is one write to the disk, so that a crash
    loses nothing before it. A forked child starts a file of its own, with its own string table.
    """

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
            lines = [part for record in records for part in self._lines(record, stamped)]
            if first:
                lines += [part for record in _versions() for part in self._lines(record, stamped)]
            self._append("".join(lines).encode("utf-8", "backslashreplace"))

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

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        rest = memoryview(data)
        while rest:  # a full disk or a signal may cut a write short
            rest = rest[os.write(self._file, rest) :]

    def _lines(self, record: Record, stamped: Stamped) -> list[str]:
        """Return the lines of one record, definitions of its new strings before it."""
        lines: list[str] = []
        header = _header(stamped)
        envelope: dict[str, Any] = {record.key: record.metadata}
        compile_id = stamped.compile_id
        if record.in_compile and compile_id is not None:
            envelope["frame_id"] = compile_id.frame
            envelope["frame_compile_id"] = compile_id.compile
            envelope["attempt"] = compile_id.attempt
        if self._rank is not None:
            envelope["rank"] = self._rank  # on every record: tlparse takes one without for foreign
        payload = None if record.payload is None else _encodable(record.payload)
        if payload is not None:
            digest = hashlib.md5(payload.encode(), usedforsecurity=False)
            envelope["has_payload"] = digest.hexdigest()
        text = to_json(envelope, partial(self._encode, lines, header))
        lines.append(f"{header}{text}\n")
        if payload is not None:
            lines += [f"\t{line}\n" for line in payload.split("\n")]
        return lines

    def _encode(self, lines: list[str], header: str, value: object) -> Any:
        """Encode stack frames with interned file names; new names are defined in ``lines``."""
        if not isinstance(value, StackFrame):
            return plain(value)
        number = self._strings.get(value.file)
        if number is None:
            number = self._strings[value.file] = len(self._strings)
            lines.append(f"{header}{to_json({'str': [value.file, number]})}\n")
        return {"line": value.line, "name": value.name, "filename": number, "loc": value.loc}


def _header(stamped: Stamped) -> str:
    moment = datetime.fromtimestamp(stamped.time_ns / 1e9).strftime("%m%d %H:%M:%S.%f")
    file = stamped.origin_file.removeprefix(_ROOT).replace(":", "_").replace("\n", "_")
    return f"V{moment} {os.getpid()} {file}:{stamped.origin_line}] "


def _encodable(text: str) -> str:
    """Return the text with what UTF-8 cannot hold spelled out, so that digest and file agree."""
    return text.encode("utf-8", "backslashreplace").decode()


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
