"""Capture time: the first call of each model with a backend that only counts graphs, in processes
of their own, tc against torch.compile.

    python bench/capture.py --quick
    python bench/capture.py --rounds 3 --train --json capture.json

The models are the `hf` list of the performance harness (``--perf``, a folder with ``perfkit``).
Compilers take turns; a row has the median CPU seconds of each, graphs and graph breaks. "once" is
what the very first compile of a process costs before the model's own: imports and such.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
QUICK = ("bert", "gpt2", "llama", "t5", "vit")
Row = dict[str, Any]


def child(compiler: str, name: str, perf: str, *, train: bool) -> Row:
    """Compile and run one model; called in a process of its own."""
    sys.path.insert(0, perf)
    import torch
    from perfkit import hf

    torch.set_num_threads(1)
    model, inputs = hf.model(name)
    model.train(train)
    graphs: list[int] = []

    def count(gm: Any, examples: Any, **_: Any) -> Any:
        graphs.append(sum(node.op.startswith("call_") for node in gm.graph.nodes))
        return gm.forward

    before = time.process_time()
    compile = _compiler(compiler)
    compile(lambda x: x + 1, backend="eager")(torch.ones(3))
    once = time.process_time() - before
    with torch.set_grad_enabled(train):
        eager = _run(model, model, inputs)
        graphs.clear()
        compiled = compile(model, backend=count)
        before = time.process_time()
        got = _run(compiled, model, inputs)
        first = time.process_time() - before
        seen = tuple(graphs)
        again = _run(compiled, model, inputs)
    return {
        "once": once,
        "first": first,
        "graphs": len(seen),
        "nodes": sum(seen),
        "recompiles": len(graphs) - len(seen),
        "equal": _same(eager, got) and _same(eager, again),
    }


def _compiler(name: str) -> Any:
    if name == "tc":
        import tc

        return tc.compile
    import torch

    return torch.compile


def _run(call: Any, model: Any, inputs: dict[str, Any]) -> list[Any]:
    """Return the outputs, and in training the gradients; random numbers start again."""
    import torch

    torch.manual_seed(7)
    model.zero_grad()
    outputs = [v for v in call(**inputs).to_tuple() if isinstance(v, torch.Tensor)]
    if not model.training:
        return outputs
    sum(v.float().pow(2).mean() for v in outputs if v.requires_grad).backward()
    return [v.detach() for v in outputs] + [
        p.grad.clone() for p in model.parameters() if p.grad is not None
    ]


def _same(left: list[Any], right: list[Any]) -> bool:
    import torch

    pairs = zip(left, right, strict=False)
    close = all(torch.allclose(a, b, 1e-4, 1e-5, equal_nan=True) for a, b in pairs)
    return len(left) == len(right) and close


def measure(compiler: str, name: str, options: argparse.Namespace) -> Row:
    """Run `child` in a new process."""
    command = [sys.executable, __file__, "--perf", options.perf, "--child", compiler, name]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command + ["--train"] * options.train, capture_output=True, text=True, env=environment
    )
    for line in done.stdout.splitlines():
        if line.startswith('{"once"'):
            row: Row = json.loads(line)
            return row
    return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1]}


def compare(name: str, options: argparse.Namespace) -> dict[str, Row]:
    """Measure one model under both compilers and print its row."""
    rows: dict[str, list[Row]] = {"tc": [], "torch": []}
    for turn in range(options.rounds):
        for compiler in sorted(rows, reverse=bool(turn % 2)):
            rows[compiler].append(measure(compiler, name, options))
    best: dict[str, Row] = {}
    for compiler, runs in rows.items():
        good = [run for run in runs if "error" not in run]
        best[compiler] = {**runs[0], **{k: median(r[k] for r in good) for k in ("once", "first")}
                          } if good else runs[0]  # fmt: skip
    tc, torch = best["tc"], best["torch"]
    if "error" in tc or "error" in torch:
        print(f"{name:14}{tc.get('error', '')[:90]} | {torch.get('error', '')[:90]}", flush=True)
        return best
    notes = ["" if row["equal"] else f"{who} differs from eager" for who, row in best.items()]
    notes += [f"{who} recompiles" for who, row in best.items() if row["recompiles"]]
    print(
        f"{name:14}{tc['first']:8.2f}{torch['first']:8.2f}{tc['first'] / torch['first']:8.2f}"
        f"{tc['graphs']:8d}{torch['graphs']:6d}{tc['nodes']:8d}{torch['nodes']:7d}  "
        + ", ".join(filter(None, notes)),
        flush=True,
    )
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--perf", default=str(ROOT.parent / "shared" / "perf"), help="%(default)s")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--only", default="", help="names of models, with commas")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--train", action="store_true", help="training mode, with gradients")
    parser.add_argument("--json", help="also write all numbers here")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(*options.child, options.perf, train=options.train)))
        return
    sys.path.insert(0, options.perf)
    from perfkit import hf

    names = options.only.split(",") if options.only else QUICK if options.quick else list(hf.SPECS)
    print(f"{'model':14}{'tc s':>8}{'torch s':>8}{'ratio':>8}{'graphs':>14}{'nodes':>15}")
    all_rows = {name: compare(name, options) for name in names}
    if options.json:
        Path(options.json).write_text(json.dumps(all_rows, indent=1))
    good = [rows for rows in all_rows.values() if not any("error" in r for r in rows.values())]
    if not good:
        raise SystemExit("capture: no model ran under both compilers")
    ratio = geometric_mean(r["tc"]["first"] / r["torch"]["first"] for r in good)
    once = {who: median(r[who]["once"] for r in good) for who in ("tc", "torch")}
    cold = geometric_mean(
        (r["tc"]["first"] + r["tc"]["once"]) / (r["torch"]["first"] + r["torch"]["once"])
        for r in good
    )
    print(f"tc / torch.compile, geometric mean of {len(good)} models: {ratio:.2f}")
    print(f"with what is paid once ({once['tc']:.2f} and {once['torch']:.2f} s): {cold:.2f}")


if __name__ == "__main__":
    main()
