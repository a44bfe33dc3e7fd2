"""`make demo`: the GPT of gpt.py under tc, checked against eager, traced, reported, summed up.

    python examples/demo.py --out demo_out
    python examples/demo.py --compiler torch     # PyTorch's compiler, PyTorch's trace, our report

Everything after `--` goes to gpt.py.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tc.trace.findings import diagnose
from tc.trace.session import load

HERE = Path(__file__).resolve().parent


def fresh(folder: Path) -> Path:
    """An empty folder for the trace; only one that an earlier run left is removed."""
    if folder.is_dir():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def print_findings(trace: Path) -> int:
    """Print each break and recompile of a trace, one a line; 1 if it lacks either."""
    diagnosis = diagnose(load(trace))
    for broke in diagnosis.breaks:
        print(f"break      [{broke.compiled.id}] {broke.where.short}: {broke.title}")
    for again in diagnosis.recompiles:
        place = f"{Path(again.compiled.file).name}:{again.compiled.line} in {again.compiled.title}"
        for cause in again.causes:
            print(f"recompile  [{again.compiled.id}] {place}: {cause}; guard: {cause.guard}")
    print(flush=True)
    if diagnosis.breaks and diagnosis.recompiles:
        return 0
    print(f"demo: {trace} should hold a graph break and a recompile", file=sys.stderr)
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("demo_out"), help="%(default)s")
    parser.add_argument("--compiler", choices=("tc", "torch"), default="tc")
    parser.add_argument("rest", nargs="*", help="arguments of gpt.py, after --")
    options = parser.parse_args()
    trace = fresh(options.out / "trace")
    report = options.out / "report.html"
    prefix = options.compiler.upper()
    logs = os.environ.get(f"{prefix}_LOGS", "graph_breaks,recompiles")
    environment = {**os.environ, f"{prefix}_TRACE": str(trace), f"{prefix}_LOGS": logs}

    start = time.perf_counter()
    program = [sys.executable, str(HERE / "gpt.py"), "--compiler", options.compiler]
    done = subprocess.run([*program, *options.rest], env=environment)
    if done.returncode:
        print(f"demo: {' '.join(program)} failed; its error is above", file=sys.stderr)
        return done.returncode
    print(f"took       {time.perf_counter() - start:.0f} s\n", flush=True)
    status = print_findings(trace)
    tool = [sys.executable, "-m", "tc.tlparse", str(trace), "-o", str(report)]
    return subprocess.run(tool).returncode or status


if __name__ == "__main__":
    sys.exit(main())
