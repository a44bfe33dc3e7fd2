"""Peak memory of one training step (forward, loss, backward) of the demo GPT, in processes of their
own: tc and torch.compile against eager.

    python bench/memory.py
    python bench/memory.py --rounds 5 --width 256 --batch 8 --length 128 --json memory.json

"tensors" is the most that torch's allocator held at a time beyond what was alive before the step;
"resident" is how far the process grew, so that memory from elsewhere shows too. Compilers take
turns; a row has medians. Gradients are made in each step, so they count. For tc it has the
predictions of plans (``tc_memory``), to compare with the measured tensors of the same step; with
``--loss-inside`` the loss is part of the compiled function, so that the plans know all of the step.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COMPILERS = ("eager", "tc", "torch")
KEYS = ("tensors", "resident", "step")
MIB = 1 << 20
Row = dict[str, Any]
Step = Callable[[], None]


def child(compiler: str, shape: argparse.Namespace) -> Row:
    """Measure one compiler; called in a process of its own."""
    sys.path.insert(0, str(ROOT / "examples"))
    import gpt
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = gpt.GPT(shape.width, shape.heads, shape.layers)
    tokens = torch.randint(gpt.BYTES, (shape.batch, shape.length + 1))
    compiled = gpt.compiler(compiler)

    def loss_of(tokens: torch.Tensor, logits: Any) -> Any:
        return F.cross_entropy(logits(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    if shape.loss_inside:
        inside = compiled(lambda tokens: loss_of(tokens, model))
    else:
        call = compiled(model)

    def step() -> None:
        loss = inside(tokens) if shape.loss_inside else loss_of(tokens, call)
        loss.backward()

    model.zero_grad()
    predicted = predicted_peak(step) if compiler == "tc" else 0
    for _ in range(3):
        model.zero_grad()
        step()
    gradients = sum(float(p.grad.double().abs().sum()) for p in model.parameters())
    clear: Step = model.zero_grad
    return {
        "tensors": tensor_peak(step, clear),
        "resident": resident_peak(step, clear),
        "step": median(seconds(step, clear) for _ in range(shape.repeat)),
        "gradients": gradients,
        "predicted": predicted,
    }


def predicted_peak(step: Step) -> int:
    """Return the bytes that tc's plans say a step takes; it is compiled while this runs."""
    import dataclasses

    from tc import trace
    from tc.trace.memory import step_memory

    with trace.capture_events() as events:
        step()
    return step_memory([dataclasses.asdict(one) for one in events.of(trace.MemoryPlan)]).peak


def tensor_peak(step: Step, clear: Step) -> int:
    """Return the most bytes of torch's CPU allocator that a step holds at a time."""
    from torch.profiler import ProfilerActivity, profile

    clear()
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    results: Any = profiled.profiler
    events = [e for e in results.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(accumulate(event.nbytes() for event in events))


def resident_peak(step: Step, clear: Step) -> int:
    """Return how many bytes more a step has in memory at its peak than before it."""
    clear()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is in memory now
    before = _status("VmHWM")
    step()
    return _status("VmHWM") - before


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def seconds(step: Step, clear: Step) -> float:
    """Return the CPU seconds of a step."""
    clear()
    before = time.process_time()
    step()
    return time.process_time() - before


def measure(compiler: str, options: argparse.Namespace) -> Row:
    """Run `child` in a new process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    # Freed memory goes back to the system, so that what is resident is what is in use.
    environment |= {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, __file__, "--child", compiler]
    for name in ("width", "heads", "layers", "batch", "length", "repeat"):
        command += [f"--{name}", str(getattr(options, name))]
    if options.loss_inside:
        command.append("--loss-inside")
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    for line in done.stdout.splitlines():
        if line.startswith('{"tensors"'):
            row: Row = json.loads(line)
            return row
    raise SystemExit(f"memory: {compiler} failed\n{done.stderr}")


def compare(options: argparse.Namespace) -> dict[str, list[Row]]:
    """Measure each compiler, in turns."""
    rows: dict[str, list[Row]] = {name: [] for name in options.compilers}
    for turn in range(options.rounds):
        for name in options.compilers[:: -1 if turn % 2 else 1]:
            rows[name].append(measure(name, options))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in (("width", 256), ("heads", 8), ("layers", 8), ("batch", 8)):
        parser.add_argument(f"--{name}", type=int, default=default, help="(%(default)s)")
    parser.add_argument("--length", type=int, default=128, help="bytes of a text (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="timed steps (%(default)s)")
    parser.add_argument(
        "--compilers", nargs="+", choices=COMPILERS, default=COMPILERS, help="beside eager"
    )
    parser.add_argument(
        "--loss-inside", action="store_true", help="the loss is in the compiled function"
    )
    parser.add_argument("--json", help="also write all numbers here")
    parser.add_argument("--child", choices=COMPILERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options.child, options)))
        return
    options.compilers = tuple(dict.fromkeys(("eager", *options.compilers)))
    rows = compare(options)
    middle = {
        name: {key: median(run[key] for run in runs) for key in runs[0]}
        for name, runs in rows.items()
    }
    print(f"{'':8}{'tensors MiB':>13}{'resident MiB':>14}{'step ms':>10}{'':4}of eager's")
    for name, row in middle.items():
        parts = [row[key] / (middle["eager"][key] or math.nan) for key in KEYS]
        print(
            f"{name:8}{row['tensors'] / MIB:13.1f}{row['resident'] / MIB:14.1f}"
            f"{row['step'] * 1000:10.1f}    " + "  ".join(f"{part:.2f}" for part in parts)
        )
    if {"tc", "torch"} <= set(middle):
        ratios = {k: middle["tc"][k] / (middle["torch"][k] or math.nan) for k in KEYS}
        print("tc / torch: " + ", ".join(f"{key} {v:.3f}" for key, v in ratios.items()))
    if "tc" in middle:
        row = middle["tc"]
        print(
            f"tc predicted {row['predicted'] / MIB:.1f} MiB of tensors: "
            f"{row['predicted'] / row['tensors']:.3f} of what was measured"
        )
    worst = max(abs(r["gradients"] / middle["eager"]["gradients"] - 1) for r in middle.values())
    print(f"gradients' sum of magnitudes differs from eager's by at most {worst:.1e}")
    if options.json:
        Path(options.json).write_text(json.dumps({"medians": middle, "rounds": rows}, indent=1))


if __name__ == "__main__":
    main()
