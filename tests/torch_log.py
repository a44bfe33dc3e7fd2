"""Records in PyTorch's words go in; a log of them, and what is found in it, come out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from real_traces import unpacked

from tc.trace.findings import Diagnosis, diagnose
from tc.trace.session import load

PREFIX = "dedicated_log_torch_trace"
IDS = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
START = ({"dynamo_start": {"stack": [{"line": 1, "name": "f", "filename": -1}]}, **IDS}, None)


def torch_log(folder: Path, *records: tuple[dict[str, Any], str | None]) -> Diagnosis:
    text = ""
    for envelope, payload in records:
        if payload is not None:
            envelope = {**envelope, "has_payload": hashlib.md5(payload.encode()).hexdigest()}
        text += "V1120 09:14:22.968000 1 torch/x.py:1] " + json.dumps(envelope) + "\n"
        if payload is not None:
            text += "".join(f"\t{line}\n" for line in payload.split("\n"))
    (folder / "dedicated_log_torch_trace_x.log").write_text(text)
    return diagnose(load(folder))


def ids(frame: int, number: int = 0) -> dict[str, Any]:
    """Return what a record says of its compile."""
    return {"frame_id": frame, "frame_compile_id": number, "attempt": 0}


def start(frame: int, number: int = 0, name: str = "f") -> tuple[dict[str, Any], None]:
    """Return the record that begins a compile."""
    stack = [{"line": 3, "name": name, "filename": -1, "loc": ""}]
    return {"dynamo_start": {"stack": stack}, **ids(frame, number)}, None


def spent(
    frame: int, name: str, begin: float, seconds: float, number: int = 0
) -> list[tuple[dict[str, Any], str]]:
    """Return the two records of a step that took so long."""
    args = {"compile_id": f"{frame}/{number}"}
    event = {"name": name, "pid": 1, "tid": 1, "args": args}
    marks = (("B", begin), ("E", begin + seconds))
    return [({"chromium_event": {}}, json.dumps({**event, "ph": ph, "ts": at * 1e6}))
            for ph, at in marks]  # fmt: skip


def artifact(frame: int, name: str, text: str, number: int = 0) -> tuple[dict[str, Any], str]:
    """Return a record that holds a text."""
    return {"artifact": {"name": name, "encoding": "string"}, **ids(frame, number)}, text


def job_of(folder: Path, ranks: int, pack: Callable[[bytes], bytes] = bytes, end: str = "") -> Path:
    """Make a job of many ranks out of the real one of two: all odd ones do as rank 1."""
    logs = [next((unpacked() / "two_rank").glob(f"*rank_{n}_*")).read_bytes() for n in (0, 1)]
    for rank in range(ranks):
        text = logs[rank % 2].replace(b'"rank": %d' % (rank % 2), b'"rank": %d' % rank)
        (folder / f"{PREFIX}_rank_{rank}_x.log{end}").write_bytes(pack(text))
    return folder
