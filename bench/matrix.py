"""PyTorch's own frontend tests on tc under several Pythons: shares that pass, side by side.

    python bench/matrix.py --python .venv/bin/python --python .venv-matrix/bin/python

Each interpreter brings its torch. The harness and the tests lie outside of this repository; `make
test-matrix` sets the environments up and names them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("null_fail", "capture")
TORCH = "import sys, torch; print(f'{sys.version.split()[0]} / {torch.__version__}')"


def shares(results: Path, harness: Path) -> dict[str, float]:
    """Return the share that passes of each kind of test, in percent, and of crashes.

    Raises:
        ValueError: no scored test has a result.
    """
    spec = importlib.util.spec_from_file_location("score", harness / "score.py")
    assert spec is not None and spec.loader is not None
    score: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(score)
    tests = json.loads((harness / "scored_set.json").read_text())["tests"]
    passed: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for name, result in score.read(results).items():
        entry = tests.get(name)
        if entry is None or not entry["scored"]:
            continue
        seen[entry["kind"]] += 1
        passed[entry["kind"]] += score.verdict(result, entry, 0.5)[1]
        passed["crash"] += result["outcome"] == "crash"
    if not seen:
        raise ValueError(f"{results}: no result of a scored test")
    found = {kind: 100 * passed[kind] / seen[kind] for kind in KINDS if seen[kind]}
    return {**found, "crash": 100 * passed["crash"] / seen.total()}


def run(
    python: str, harness: Path, sources: Path, out: Path, options: list[str]
) -> dict[str, float]:
    """Run the scored set under one interpreter and return its shares."""
    environment = {**os.environ, "PT_SRC": str(sources), "PYTHONPATH": str(ROOT)}
    command = [python, "run.py", "--adapter", "tc:eager", "--scored", "--out", str(out), *options]
    command.append("--no-warmup")  # a warm parent has threads of autograd, which forks lack
    subprocess.run(command, cwd=harness, env=environment, check=True, stdout=sys.stderr)
    return shares(out, harness)


def main(argv: list[str] | None = None) -> int:
    """Print a row an interpreter; return 1 if one lies further below the first than allowed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", required=True, help="the first is the measure")
    parser.add_argument("--harness", type=Path, default=ROOT.parent / "shared" / "conformance")
    parser.add_argument("--sources", type=Path, default=os.environ.get("PT_SRC"))
    parser.add_argument("--points", type=float, default=3.0, help="how far below the first is fine")
    parser.add_argument("options", nargs="*", help="for the harness's run.py, after --")
    args = parser.parse_args(argv)
    if not (args.harness / "run.py").is_file():
        print(f"matrix: no harness in {args.harness}; --harness names its folder", file=sys.stderr)
        return 2
    if args.sources is None or not (Path(args.sources) / "test").is_dir():
        print("matrix: --sources must name a folder with PyTorch's test/ in it", file=sys.stderr)
        return 2
    rows: list[dict[str, float]] = []
    print(f"{'Python / torch':28}" + "".join(f"{kind:>12}" for kind in (*KINDS, "crash")))
    with tempfile.TemporaryDirectory() as folder:
        for number, python in enumerate(args.python):
            version = subprocess.check_output([python, "-c", TORCH], text=True).strip()
            out = Path(folder) / f"{number}.jsonl"
            rows.append(run(python, args.harness, Path(args.sources), out, args.options))
            figures = "".join(f"{rows[-1].get(kind, 0):>11.1f}%" for kind in (*KINDS, "crash"))
            print(f"{version:28}{figures}", flush=True)
    below = any(
        row[kind] < rows[0][kind] - args.points for row in rows for kind in rows[0] if kind in KINDS
    )
    return int(below or any(row["crash"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
