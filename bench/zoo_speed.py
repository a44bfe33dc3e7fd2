"""How fast public models are, drawn at random: eager, torch.compile and tc in one process each.

    python bench/zoo_speed.py --family timm --sample 10 --minutes 30 --out speed.jsonl
    python bench/zoo_speed.py --only transformers:gpt2 --compilers eager,tc

The models are the zoo's (`zoo_vision.py`, `zoo_transformers.py`): of timm and torchvision the real
widths with repeated blocks taken out, of transformers a quarter to a half of the default width
where it fits. Each runs in a process of its own on one thread: inference under ``no_grad``, then
a training step (forward, a loss of all outputs, backward). Times are CPU time of the calling
thread, medians of rounds in which the sides take turns, so a busy machine disturbs them little.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweep import mean
from zoo import FAMILIES

ROOT = Path(__file__).resolve().parent.parent
#: the families that are timed unless others are named
USUAL = ("timm", "transformers")
MODES = ("inference", "training")
Row = dict[str, Any]
#: tokens of a text at both sizes, and divisors of default widths, widest first
LENGTHS, FACTORS = (96, 112), (2, 4, 8, 16, 1)
#: seconds of calls for each side of a measurement, and its rounds
SECONDS, ROUNDS = 2.0, 9


def built(family: str, name: str) -> Any:
    """Return the zoo's specimen of a model, at widths that are worth timing."""
    import zoo_families
    import zoo_tokens
    import zoo_transformers

    zoo_tokens.LENGTH = LENGTHS
    zoo_transformers.FACTORS = FACTORS
    return zoo_families.FAMILIES[family]().build(name, None)


def caller(model: Any, call: Callable[..., Any], inputs: Row, mode: str) -> Callable[[], None]:
    """Return a function that runs one step of a mode."""
    import torch
    import zoo_judge

    def infer() -> None:
        with torch.no_grad():
            call(**inputs)

    def train() -> None:
        model.zero_grad(set_to_none=True)
        found = dict(zoo_judge.tensors(call(**inputs), "result"))
        losses = [t.sum() for t in found.values() if t.requires_grad and t.is_floating_point()]
        torch.stack(losses).sum().backward()

    return infer if mode == "inference" else train


def rounds(calls: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Return the median milliseconds of each call; the sides take turns."""
    counts = {}
    for side, call in calls.items():
        began = time.thread_time()
        call()
        counts[side] = max(1, int(SECONDS / ROUNDS / max(time.thread_time() - began, 1e-5)))
    times: dict[str, list[float]] = {side: [] for side in calls}
    order = list(calls)
    gc.disable()
    for _ in range(ROUNDS):
        for side in order:
            began = time.thread_time()
            for _ in range(counts[side]):
                calls[side]()
            times[side].append((time.thread_time() - began) / counts[side] * 1e3)
        order = order[1:] + order[:1]
    gc.enable()
    return {side: statistics.median(found) for side, found in times.items()}


def compilers(names: list[str]) -> dict[str, Callable[[Any], Callable[..., Any]]]:
    """Return how each side makes a callable of a model."""
    import torch

    import tc

    known: dict[str, Callable[[Any], Callable[..., Any]]] = {
        "eager": lambda model: model,
        "tc": lambda model: tc.compile(model),
        "torch": lambda model: torch.compile(model),
    }
    return {name: known[name] for name in names}


def measured(family: str, name: str, sides: list[str]) -> Row:
    """Time a model in this process; a row of milliseconds by mode and side."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    row: Row = {"family": family, "name": name}
    try:
        specimen = built(family, name)
    except Exception as error:
        return {**row, "none": str(error)[:300]}
    for mode in MODES:
        calls = {}
        for side, compiled in compilers(sides).items():
            model = copy.deepcopy(specimen.model).train(mode == "training")
            call = caller(model, compiled(model), specimen.inputs(0), mode)
            try:
                for _ in range(3):
                    torch.manual_seed(0)
                    call()
            except Exception as error:
                row.setdefault("errors", {})[f"{mode} {side}"] = f"{error!r}"[:300]
                continue
            calls[side] = call
        row[mode] = rounds(calls)
    return row


def ratios(row: Row, mode: str) -> tuple[float, float] | None:
    """Return eager's and torch.compile's time over tc's; nan where one was not measured."""
    times = row.get(mode, {})
    if "tc" not in times or "eager" not in times:
        return None
    return times["eager"] / times["tc"], times.get("torch", math.nan) / times["tc"]


def report(rows: list[Row]) -> list[str]:
    """Return the table: means of each family and mode, then the slowest models."""
    lines = []
    listed = []
    for family in sorted({row["family"] for row in rows}):
        for mode in MODES:
            pairs = [(row["name"], found) for row in rows if row["family"] == family
                     and (found := ratios(row, mode)) is not None]  # fmt: skip
            if not pairs:
                continue
            sides = [[f[side] for _, f in pairs if not math.isnan(f[side])] for side in (0, 1)]
            over = [mean(found) for found in sides]
            least = [min(found, default=math.nan) for found in sides]
            lines.append(
                f"{family} {mode}, {len(pairs)} models: {over[0]:.2f} of eager (least "
                f"{least[0]:.2f}), {over[1]:.2f} of torch.compile (least {least[1]:.2f})"
            )
            listed += [(min(f), f, family, mode, name) for name, f in pairs]
    for _, found, family, mode, name in sorted(listed, key=lambda item: item[0])[:20]:
        lines.append(f"  {found[0]:.2f} {found[1]:.2f}  {family}:{name} {mode}")
    failed = [row for row in rows if row.get("errors") or row.get("died")]
    lines += [f"  {r['family']}:{r['name']}: {r.get('errors') or r['died']}" for r in failed]
    return lines


def drawn(options: argparse.Namespace) -> list[tuple[str, str]]:
    """Return the models to time, families in turns."""
    if options.only:
        return [(f, n) for f, _, n in (text.partition(":") for text in options.only.split(","))]
    import zoo_families

    source = random.Random(options.seed)
    found = []
    for family in options.family or USUAL:
        names = zoo_families.FAMILIES[family]().names()
        found.append([(family, n) for n in source.sample(names, min(options.sample, len(names)))])
    return [pair for turn in zip(*found, strict=False) for pair in turn]


def child(family: str, name: str, options: argparse.Namespace, cache: str) -> Row:
    """Time a model in a process of its own; a row also where that dies or takes too long."""
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TC_CACHE_DIR": f"{cache}/tc",
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/torch",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "bench")]),
    }  # fmt: skip
    command = [sys.executable, __file__, "--one", f"{family}:{name}", "--compilers",
               options.compilers]  # fmt: skip
    row: Row = {"family": family, "name": name}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True,
                              timeout=options.seconds)  # fmt: skip
    except subprocess.TimeoutExpired:
        return {**row, "died": f"over {options.seconds} s"}
    last = done.stdout.strip().splitlines()[-1:]
    if done.returncode or not last:
        return {**row, "died": f"status {done.returncode}: {done.stderr[-300:]}"}
    found: Row = json.loads(last[0])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--family", action="append", choices=FAMILIES)
    parser.add_argument("--sample", type=int, default=40, help="models of each family")
    parser.add_argument("--seed", type=int, help="by default a new one, which is printed")
    parser.add_argument("--only", metavar="FAMILY:NAME,...")
    parser.add_argument("--compilers", default="eager,tc,torch")
    parser.add_argument("--seconds", type=int, default=600, help="a model; 600")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--out", type=Path, help="JSON lines; what it has is not run again")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        family, _, name = options.one.partition(":")
        print(json.dumps(measured(family, name, options.compilers.split(","))))
        return 0
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 20)
    print(f"seed {options.seed}", flush=True)
    texts = options.out.read_text().splitlines() if options.out and options.out.exists() else []
    rows = [json.loads(text) for text in texts]
    done = {(row["family"], row["name"]) for row in rows}
    until = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="tc-zoo-speed-") as cache:
        for family, name in drawn(options):
            if (family, name) in done or time.monotonic() > until:
                continue
            rows.append(row := child(family, name, options, cache))
            if options.out:
                with open(options.out, "a") as file:
                    file.write(json.dumps(row) + "\n")
            shown = {mode: [f"{x:.2f}" for x in ratios(row, mode) or ()] for mode in MODES}
            print(f"{family}:{name} {shown if 'none' not in row else 'no specimen'}",
                  file=sys.stderr, flush=True)  # fmt: skip
    print("\n".join(report(rows)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
