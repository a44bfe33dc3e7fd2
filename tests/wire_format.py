"""A plain reader of the wire format, written from its description alone, for tests."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CONTEXT = {"frame_id", "frame_compile_id", "attempt", "rank", "has_payload", "stack"}
HEADER = re.compile(
    r"([VIWEC])(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6}) (\d+) ([^:]+):(\d+)\] (.*)", re.DOTALL
)


@dataclass
class WireRecord:
    key: str
    metadata: Any
    payload: str | None
    context: dict[str, Any]
    pid: int
    path: str


@dataclass
class WireLog:
    records: list[WireRecord] = field(default_factory=list)
    strings: dict[int, str] = field(default_factory=dict)

    def all(self, key: str) -> list[WireRecord]:
        return [record for record in self.records if record.key == key]

    def artifacts(self, name: str) -> list[WireRecord]:
        return [record for record in self.all("artifact") if record.metadata["name"] == name]

    def frames(self, stack: list[dict[str, Any]]) -> list[tuple[str, int, str, str | None]]:
        return [
            (self.strings[frame["filename"]], frame["line"], frame["name"], frame["loc"])
            for frame in stack
        ]


def read_wire(path: Path) -> WireLog:
    """Read a log; fails on anything that is not exactly as described."""
    data = path.read_bytes()
    assert data.endswith(b"\n")
    lines = data[:-1].split(b"\n")
    log = WireLog()
    position = 0
    while position < len(lines):
        line = lines[position]
        position += 1
        payload_lines = []
        while position < len(lines) and lines[position].startswith(b"\t"):
            payload_lines.append(lines[position][1:])
            position += 1
        assert line.isascii(), line
        header = HEADER.fullmatch(line.decode())
        assert header is not None, line
        envelope = json.loads(header[11], parse_constant=lambda name: 1 / 0)
        keys = [key for key in envelope if key not in CONTEXT]
        assert len(keys) == 1, keys
        context = {key: value for key, value in envelope.items() if key in CONTEXT}
        payload = None
        if "has_payload" in envelope:
            raw = b"\n".join(payload_lines)
            assert payload_lines, "an empty payload is a line with one TAB"
            assert hashlib.md5(raw).hexdigest() == envelope["has_payload"]
            payload = raw.decode()
        else:
            assert not payload_lines
        record = WireRecord(keys[0], envelope[keys[0]], payload, context, int(header[8]), header[9])
        if record.key == "str":
            text, number = record.metadata
            assert number not in log.strings
            log.strings[number] = text
        log.records.append(record)
    return log
