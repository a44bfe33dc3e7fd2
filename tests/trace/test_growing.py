"""A log that grows shows at each look what reading all of it would."""

from __future__ import annotations

import random
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

import pytest
from real_traces import unpacked

from tc.trace.growing import Growing
from tc.trace.reader import Unreadable
from tc.trace.session import Session, load
from tc.trace.writers import CUT_OFF, RUNNING, Writers

LOGS = sorted(unpacked().glob("*/*.log"))
HEAD = "V1120 09:14:22.968000 7 torch/x.py:1] "
SMALL = (
    HEAD + '{"str": ["m.py", 1]}\n' + HEAD + '{"dynamo_start": {"stack": [{"line": 3, "name": "f", '
    '"filename": 1}]}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}\n'
    + HEAD + '{"artifact": {"name": "recompile_reasons", "encoding": "json"}, "frame_id": 0, '
    '"frame_compile_id": 0, "has_payload": "x"}\n\t["a line",\n'
    '\t "V1120 09:14:22.968000 7 t:1] {}"]\n'
    + "what is this\n\tan orphan\n"
    + HEAD + '{"compilation_metrics": {"co_name": "g"}, "frame_id": 0, "frame_compile_id": 0}\n'
)  # fmt: skip


def facts(session: Session) -> dict[str, Any]:
    """All that a session says, but for the memory it lies in."""
    return {
        "compiles": [asdict(one) for one in session.compiles],
        "loose": [asdict(one) for one in session.loose],
        "events": session.events,
        "defects": session.defects.counts,
        "places": {kind: sorted(rows) for kind, rows in session.defects.places.items()},
        "lanes": session.lanes,
        "environment": session.environment,
        "first": session.first_time,
    }


def growing_at(path: Path) -> Growing:
    """Nobody writes, so what a log lacks at its end is lost."""
    return Growing(path, writers=Writers(proc="", clock=lambda: inf))


def seen(path: Path) -> dict[str, Any] | None:
    try:
        return facts(load(path))
    except Unreadable:
        return None


def looked(growing: Growing) -> dict[str, Any] | None:
    try:
        return facts(growing.look())
    except Unreadable:
        return None


def grow(path: Path, data: bytes, cuts: list[int]) -> None:
    growing = growing_at(path.parent)
    for cut in [*cuts, len(data)]:
        path.write_bytes(data[:cut])
        assert looked(growing) == seen(path.parent), f"{cut} of {len(data)} bytes"
        assert looked(growing) == seen(path.parent), "a second look shows the same"


def test_every_cut_of_a_small_log(tmp_path: Path) -> None:
    data = SMALL.encode()
    grow(tmp_path / "dedicated_log_torch_trace_a.log", data, list(range(1, len(data), 7)))


@pytest.mark.sample(3)
@pytest.mark.parametrize("log", LOGS, ids=lambda path: f"{path.parent.name}/{path.name[-12:]}")
def test_real_logs_cut_anywhere(log: Path, tmp_path: Path) -> None:
    data = log.read_bytes()[:400_000]
    dice = random.Random(7)
    cuts = sorted(dice.randrange(1, len(data)) for _ in range(4))
    grow(tmp_path / "dedicated_log_torch_trace_a.log", data, cuts)


def test_only_what_is_new_is_read(tmp_path: Path) -> None:
    path = tmp_path / "dedicated_log_torch_trace_a.log"
    path.write_text(SMALL * 500)
    growing = growing_at(tmp_path)
    growing.look()
    assert growing.bytes_read == path.stat().st_size
    with path.open("a") as file:
        file.write(SMALL)
    growing.look()
    assert growing.bytes_read < 2 * len(SMALL)
    growing.look()
    assert growing.bytes_read < len(SMALL)


def test_new_logs_and_logs_written_over_are_read_again(tmp_path: Path) -> None:
    first = tmp_path / "dedicated_log_torch_trace_rank_0_a.log"
    first.write_text(SMALL)
    growing = growing_at(tmp_path)
    assert looked(growing) == seen(tmp_path)
    (tmp_path / "dedicated_log_torch_trace_rank_1_b.log").write_text(SMALL.replace(" 7 t", " 8 t"))
    assert looked(growing) == seen(tmp_path)
    first.write_text(SMALL.replace("m.py", "n.py") * 2)
    assert looked(growing) == seen(tmp_path)
    first.write_text(SMALL[:200])
    assert looked(growing) == seen(tmp_path)
    first.unlink()
    assert looked(growing) == seen(tmp_path)


def test_a_log_that_is_written_is_not_cut_off(tmp_path: Path) -> None:
    log = tmp_path / "dedicated_log_torch_trace_a.log"
    growing = Growing(tmp_path)
    assert growing.job() is None
    whole = SMALL.encode()
    begun = whole.index(b"recompile_reasons") - 20  # a compile is under way, a record half written
    with log.open("wb", buffering=0) as file:
        file.write(whole[:begun])
        assert not growing.look().defects.counts
        job = growing.job()
        assert job is not None and (job.state, job.under_way) == (RUNNING, ("f [0/0]",))
        assert not growing.changed()
    assert growing.changed()  # it has not grown, but nobody writes any more
    assert growing.look().defects.counts == {"truncated": 1}
    job = growing.job()
    assert job is not None and job.state == CUT_OFF
    assert str(job) == "cut off while compiling f [0/0], last event 0 s ago"
    log.write_bytes(whole)
    growing.writers = Writers()
    growing.look()
    job = growing.job()
    assert job is not None and str(job) == "ended 0 s ago"
