"""The large log of the benchmark of tc-report: as sound as the logs it is made of."""

from __future__ import annotations

from pathlib import Path

from real_traces import unpacked
from report import make_log

from tc.trace.findings import diagnose
from tc.trace.session import load


def test_copies_are_sound_and_kept_apart(tmp_path: Path) -> None:
    log = tmp_path / "dedicated_log_torch_trace_x.log"
    make_log(unpacked(), log, 1_300_000 + 2_200_000 + 300_000)
    diagnosis = diagnose(load(log))
    session = diagnosis.session
    assert session.defects.counts == {}
    assert session.records == 571 + 916 + 151
    assert len(session.compiles) == 5 + 7 + 1
    assert session.frames == 5 + 1 + 1
    assert (len(diagnosis.breaks), diagnosis.recompile_count) == (3, 6)
    assert all(one.seconds > 0 for one in session.compiles)
