"""tc-report against the real tlparse on one large log, made by replicating real ones.

    python bench/report.py --megabytes 200
    python bench/report.py --megabytes 1000 --rounds 1 --only tc

CPU seconds (user + system), peak memory and size of the output; each tool in a process of its own,
taking turns in one run; a row has medians. `make_log` gives every copy frames, strings and a time
of its own, so nothing is merged that a real log would hold apart.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from real_traces import unpacked

ROOT: Final = Path(__file__).resolve().parent.parent
_HEAD: Final = re.compile(rb"^(V\d{4} [\d:.]+ )\d+( [^:\n]+:\d+\] )(\{.*\})$")
_TAKEN: Final = ("graph_break", "recompile", "simple", "train", "transformer", "dynamic",
                 "backend_crash")  # fmt: skip
_COMPILE: Final = re.compile(rb'("(?:compile_id|frame_key)": ")(\d+)(?=[/"])')
_STAMP: Final = re.compile(rb'("(?:ts|start_time_us|end_time_us)": )(\d+)')
_FILENAME: Final = re.compile(rb'("filename": )(\d+)')
Row = dict[str, float]


def make_log(folder: Path, target: Path, size: int) -> int:
    """Write a log of at least `size` bytes; return how many frames it holds."""
    logs = [next((folder / name).glob("*.log")).read_bytes() for name in _TAKEN]
    frames = strings = number = 0
    with target.open("wb") as out:
        while out.tell() < size:
            text = logs[number % len(logs)]
            used = [0, 0]
            for piece in _renamed(text, frames, strings, number * 10**9, used):
                out.write(piece)
            frames, strings, number = frames + used[0] + 1, strings + used[1] + 1, number + 1
    return frames


def _renamed(text: bytes, frame: int, string: int, later: int, used: list[int]) -> Iterator[bytes]:
    """Yield the records of one log, its ids moved on; `used` becomes the largest of them."""
    for record in re.split(rb"\n(?=V\d{4} )", text.rstrip(b"\n")):
        head, _, payload = record.partition(b"\n")
        found = _HEAD.match(head)
        assert found, head[:80]
        envelope: dict[str, Any] = json.loads(found[3])
        if "frame_id" in envelope:
            used[0] = max(used[0], envelope["frame_id"])
            envelope["frame_id"] += frame
        if "str" in envelope:
            used[1] = max(used[1], envelope["str"][1])
            envelope["str"][1] += string
        line = json.dumps(envelope).encode()
        line = _FILENAME.sub(lambda m: m[1] + b"%d" % (int(m[2]) + string), line)
        line = _moved(line, frame, later)
        if payload:
            body = _moved(payload[1:].replace(b"\n\t", b"\n"), frame, later)
            digest = hashlib.md5(body, usedforsecurity=False).hexdigest().encode()
            line = re.sub(rb'"has_payload": "\w+"', b'"has_payload": "' + digest + b'"', line)
            line += b"\n\t" + body.replace(b"\n", b"\n\t")
        yield found[1] + b"4711" + found[2] + line + b"\n"


def _moved(text: bytes, frame: int, later: int) -> bytes:
    text = _COMPILE.sub(lambda m: m[1] + b"%d" % (int(m[2]) + frame), text)
    return _STAMP.sub(lambda m: m[1] + b"%d" % (int(m[2]) + later), text)


_CHILD: Final = (
    "import json, resource, subprocess, sys; code = subprocess.call(sys.argv[1:], "
    "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL); "
    "u = resource.getrusage(resource.RUSAGE_CHILDREN); "
    "print(json.dumps([code, u.ru_utime, u.ru_stime, u.ru_maxrss]))"
)


def measure(command: Sequence[str], output: Path) -> Row:
    """Run one tool in a process of its own and weigh what it wrote."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, *command], capture_output=True, text=True, check=True
    )
    code, user, system, resident = json.loads(done.stdout)
    files = [one for one in output.rglob("*") if one.is_file()] if output.is_dir() else [output]
    if code or not files:
        raise SystemExit(f"{command[0]} failed with exit code {code}")
    written = sum(one.stat().st_size for one in files)
    return {"cpu_s": user + system, "user_s": user, "peak_mb": resident * 1024 / 1e6,
            "output_mb": written / 1e6, "files": len(files)}  # fmt: skip


def compare(log: Path, scratch: Path, rounds: int, only: str) -> dict[str, Row]:
    """Measure both tools in turns."""
    page, folder = scratch / "report.html", scratch / "tl_out"
    tools = {
        "tc": ([sys.executable, "-m", "tc.tlparse", str(log), "-o", str(page)], page),
        "tlparse": ([shutil.which("tlparse", path=str(Path(sys.executable).parent)) or "tlparse",
                     str(log), "-o", str(folder), "--overwrite", "--no-browser"], folder),
    }  # fmt: skip
    rows: dict[str, list[Row]] = {name: [] for name in tools if only in ("", name)}
    for _ in range(rounds):
        for name, taken in rows.items():
            taken.append(measure(*tools[name]))
    return {
        name: {key: median(row[key] for row in taken) for key in taken[0]}
        for name, taken in rows.items()
    }


def main() -> None:
    """Make the log, measure, print a table and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--traces", type=Path, help="other logs than those of traces.tar.xz")
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("", "tc", "tlparse"), default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "dedicated_log_torch_trace_bench.log"
        frames = make_log(options.traces or unpacked(), log, options.megabytes * 10**6)
        rows = compare(log, Path(scratch), options.rounds, options.only)
        print(f"{log.stat().st_size / 1e6:.0f} MB, {frames} frames, medians of {options.rounds}")
    for name, row in rows.items():
        print(f"{name:8}", "  ".join(f"{key} {value:.2f}" for key, value in row.items()))
    if len(rows) == 2:
        ratios = [f"{key} {rows['tc'][key] / max(rows['tlparse'][key], 1e-9):.3f}"
                for key in rows["tc"]]  # fmt: skip
        print("ratio   ", "  ".join(ratios))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
