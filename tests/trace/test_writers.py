"""Who writes to a log: by what the system shows, else by its growth."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tc.trace.writers import CUT_OFF, ENDED, QUIET, RUNNING, Job, Writers

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows who writes")


@needs_proc
def test_a_process_that_writes_is_found_and_missed(tmp_path: Path) -> None:
    log = tmp_path / "a b.log"
    code = "import sys; f = open(sys.argv[1], 'ab'); print(flush=True); input()"
    job = subprocess.Popen(
        [sys.executable, "-c", code, str(log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert job.stdout is not None
    job.stdout.readline()
    writers = Writers()
    assert writers.look([str(log)]) == {str(log)}
    assert writers.look([str(log)]) == {str(log)}
    job.kill()
    job.communicate()
    assert writers.look([str(log)]) == frozenset()
    assert writers.sees([str(log)])


@needs_proc
def test_who_only_reads_is_no_writer(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"x")
    with log.open("rb"):
        assert Writers().look([str(log)]) == frozenset()


@needs_proc
def test_a_log_that_grows_without_a_writer_here_is_written_elsewhere(tmp_path: Path) -> None:
    log, now = tmp_path / "a.log", [0.0]
    log.write_bytes(b"x")
    writers = Writers(clock=lambda: now[0])
    assert not writers.look([str(log)])  # the system would show one
    with log.open("ab") as file:
        file.write(b"y")
    now[0] = os.stat(log).st_mtime + 1
    assert writers.look([str(log)]) and not writers.sees([str(log)])
    now[0] += QUIET
    assert not writers.look([str(log)])


def test_where_the_system_does_not_show_growth_decides(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"x")
    written = os.stat(log).st_mtime
    now = [written + QUIET / 2]
    writers = Writers(proc="", clock=lambda: now[0])
    assert writers.look([str(log)]) == {str(log)}
    assert not writers.sees([str(log)])
    now[0] = written + QUIET
    assert writers.look([str(log)]) == frozenset()


@needs_proc
def test_logs_of_a_network_are_judged_by_growth(tmp_path: Path) -> None:
    log, proc = tmp_path / "a.log", tmp_path / "proc"
    log.write_bytes(b"x")
    device = os.stat(log).st_dev
    row = f"1 0 {os.major(device)}:{os.minor(device)} / / rw - nfs4 server:/home rw\n"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "mountinfo").write_text(row)
    writers = Writers(str(proc), clock=lambda: os.stat(log).st_mtime)
    assert writers.look([str(log)]) == {str(log)}
    assert not writers.sees([str(log)])


def test_a_log_that_is_gone_has_no_writer(tmp_path: Path) -> None:
    assert Writers().look([str(tmp_path / "a.log")]) == frozenset()


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (Job(RUNNING, 3.2, open=1), "running, last event 3 s ago"),
        (
            Job(RUNNING, 90.0, open=1, logs=2, under_way=("f [0/0]",)),
            "running, last event 1m30s ago, compiling f [0/0], 1 of 2 logs are written",
        ),
        (Job(ENDED, 0.0), "ended 0 s ago"),
        (Job(CUT_OFF, 5.0), "cut off, last event 5 s ago"),
        (Job(ENDED, 61.0, seen=False), "ended 1m01s ago, judged by 60 s without a new event"),
    ],
)
def test_a_job_in_words(job: Job, words: str) -> None:
    assert str(job) == words
