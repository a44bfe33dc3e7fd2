"""Many logs: read side by side, by a cluster, packed, and more than files may be open."""

from __future__ import annotations

import gzip
import json
import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from real_traces import unpacked
from support import succeed
from torch_log import job_of

from tc.tlparse.__main__ import main
from tc.trace.reader import Source
from tc.trace.session import load


@pytest.fixture
def summary(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    def run(trace: Path, *options: str) -> dict[str, Any]:
        assert main(["summary", str(trace), "--json", *options]) == 0
        report: dict[str, Any] = json.loads(capsys.readouterr().out)
        return {key: value for key, value in report.items() if key != "name"}

    return run


def test_side_by_side_is_as_one_after_the_other(
    tmp_path: Path, summary: Callable[..., dict[str, Any]]
) -> None:
    job = job_of(tmp_path, 5)
    report = summary(job, "--jobs", "1")
    assert (report["ranks"], report["compiles"], report["recompiles"]) == (5, 7, 2)
    assert summary(job, "--jobs", "2") == report
    pages = []
    for jobs in ("1", "2"):
        main([str(job), "-o", str(tmp_path / f"{jobs}.html"), "--jobs", jobs])
        pages.append((tmp_path / f"{jobs}.html").read_bytes())
    assert pages[0] == pages[1]


def test_batches_are_taken_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tc.trace.session._LEAST_BATCHES", 2)
    monkeypatch.setattr("tc.trace.session._MOST_AHEAD", 1)
    job = job_of(tmp_path, 5)
    with ThreadPoolExecutor(2) as pool:
        together, alone = load(job, executor=pool), load(job)
    assert [one.slug for one in together.compiles] == [one.slug for one in alone.compiles]
    assert [one.frames for one in together.compiles] == [one.frames for one in alone.compiles]
    together.close()
    alone.close()


@pytest.mark.sample(1)
@pytest.mark.parametrize("end", [".gz", ".zst"])
def test_packed_rank_files(
    tmp_path: Path, summary: Callable[..., dict[str, Any]], end: str
) -> None:
    pack: Callable[[bytes], bytes] = gzip.compress
    if end == ".zst":
        pack = pytest.importorskip("zstandard").compress
    report = summary(job_of(tmp_path, 2, pack, end), "--jobs", "2")
    assert (report["ranks"], report["records"], report["defects"]) == (2, 440, {})


def test_few_files_are_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tc.trace.reader._MOST_OPEN", 4)
    session = load(job_of(tmp_path, 9))
    most = len(Source._open)
    texts = [session.text(one) for c in session.compiles for one in c.artifacts]
    assert most <= 4 and len(Source._open) <= 4
    assert texts.count(texts[0]) >= 1 and all(texts[:3])
    session.close()


@pytest.mark.slow
def test_more_ranks_than_files_may_be_open(
    tmp_path: Path, summary: Callable[..., dict[str, Any]]
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (260, hard))
    try:
        report = summary(job_of(tmp_path, 400), "--jobs", "2")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (report["ranks"], report["compiles"], report["recompiles"]) == (400, 600, 200)


@pytest.mark.slow
def test_a_cluster_reads_the_logs(tmp_path: Path, summary: Callable[..., dict[str, Any]]) -> None:
    distributed = pytest.importorskip("distributed")
    job = job_of(tmp_path, 6)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        report = summary(job, "--cluster", cluster.scheduler_address)
    assert report == summary(job, "--jobs", "1")


def test_no_cluster_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("tc.tlparse.pool._PATIENCE", "200ms")
    code = main(["summary", str(unpacked() / "two_rank"), "--cluster", "tcp://127.0.0.1:9"])
    output = capsys.readouterr()
    assert (code, output.out) == (2, "")
    assert output.err.startswith("tc-report: no Dask cluster answers at tcp://127.0.0.1:9")
    assert main(["summary", "x", "--jobs", "0"]) == 2


def test_completion_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    assert main(["--completion", "bash"]) == 0
    assert "--write-baseline" in capsys.readouterr().out
    assert main(["--completion", "ed"]) == 2


def test_help_loads_no_pool() -> None:
    said = succeed("-c", "import sys, tc.tlparse.__main__ as m; m.main(['--version']); "
                   "print([n for n in ('multiprocessing', 'distributed', 'jinja2', 'torch') "
                   "if n in sys.modules])")  # fmt: skip
    assert said.endswith("[]\n")
