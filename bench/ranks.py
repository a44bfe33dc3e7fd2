"""tc-report on a job of many ranks, made by replicating the two of a real job.

    python bench/ranks.py --ranks 10000 --jobs 1,2
    python bench/ranks.py --ranks 1000 --cluster

Every `--odd`-th rank is a copy of the rank that did otherwise. One row a way of reading: wall and
CPU seconds (workers included), peak memory of the largest process, size of the page.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from real_traces import unpacked

_PREFIX: Final = "dedicated_log_torch_trace"
_CHILD: Final = (
    "import json, resource, subprocess, sys; code = subprocess.call(sys.argv[1:], "
    "stdout=subprocess.DEVNULL); u = resource.getrusage(resource.RUSAGE_CHILDREN); "
    "print(json.dumps([code, u.ru_utime + u.ru_stime, u.ru_maxrss]))"
)


def make_job(traces: Path, folder: Path, ranks: int, odd: int) -> int:
    """Write a log a rank; return their size in bytes."""
    texts = [next((traces / "two_rank").glob(f"*rank_{n}_*")).read_bytes() for n in (0, 1)]
    written = 0
    for rank in range(ranks):
        which = int(rank % odd == odd - 1)
        text = texts[which].replace(b'"rank": %d' % which, b'"rank": %d' % rank)
        written += (folder / f"{_PREFIX}_rank_{rank}_x.log").write_bytes(text)
    return written


def measure(job: Path, page: Path, options: Sequence[str]) -> dict[str, Any]:
    """Run tc-report once in a process of its own."""
    command = [sys.executable, "-m", "tc.tlparse", str(job), "-o", str(page), *options]
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, *command], capture_output=True, text=True, check=True
    )
    wall = time.perf_counter() - begin
    code, cpu, resident = json.loads(done.stdout)
    if code:
        raise SystemExit(f"tc-report failed with exit code {code}: {done.stderr}")
    return {"wall_s": wall, "cpu_s": cpu, "peak_mb": resident * 1024 / 1e6,
            "page_mb": page.stat().st_size / 1e6}  # fmt: skip


def in_cluster(job: Path, page: Path, workers: int) -> dict[str, Any]:
    """Run tc-report with a Dask cluster of processes on this machine; its workers' CPU is extra."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster:
        return measure(job, page, ["--cluster", cluster.scheduler_address])


def main() -> None:
    """Make the job, measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--traces", type=Path, help="other logs than those of traces.tar.xz")
    parser.add_argument("--ranks", type=int, default=10_000)
    parser.add_argument("--odd", type=int, default=1_000)
    parser.add_argument("--jobs", default="1,2")
    parser.add_argument("--cluster", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        job, page = Path(scratch) / "job", Path(scratch) / "report.html"
        job.mkdir()
        size = make_job(options.traces or unpacked(), job, options.ranks, options.odd)
        print(f"{options.ranks} ranks, {size / 1e6:.0f} MB of logs")
        rows = {f"{n} processes": measure(job, page, ["--jobs", n]) for n in
                options.jobs.split(",") if n}  # fmt: skip
        if options.cluster:
            rows["Dask, 2 workers"] = in_cluster(job, page, 2)
    for name, row in rows.items():
        print(f"{name:16}", "  ".join(f"{key} {value:.1f}" for key, value in row.items()))


if __name__ == "__main__":
    main()
