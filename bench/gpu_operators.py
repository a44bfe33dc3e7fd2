"""PyTorch's own operator database on a GPU: tc against eager, with gradients.

    python bench/gpu_operators.py --sample 300 --jobs 8
    python bench/gpu_operators.py --only softmax --dtypes float32,bfloat16 --seed 7 --json out.json

An operator and dtype is one row: its first samples are compiled with ``fullgraph=True``, run and
compared with eager's results and, where the operator has them, gradients. What has at most twice
eager's error against float64 is equal, too: eager rounds each intermediate value, coarsely in 16
bits. What eager itself does otherwise with other random numbers is compared by shape and dtype
only. Processes run rows side by side; one that dies, or that spoils its GPU context, is replaced.
Without ``--seed`` one is drawn.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import queue
import random
import select
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: their results are uninitialised memory
UNINITIALISED = ("empty", "new_empty", "resize_")
#: times of `torch.testing.assert_close`'s tolerance by dtype: kernels sum in other orders
TIMES = 10.0


def operators() -> dict[str, Any]:
    """The database, by name and variant."""
    from torch.testing._internal import common_methods_invocations as database

    # Some samples set the seed inside of the operator: here that is done outside.
    database.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    return {f"{op.name}.{op.variant_test_name}".rstrip("."): op for op in database.op_db}


# ---------------------------------------------------------------- a row, in a process of its own


def leaves_of(value: Any) -> list[Any]:
    """The tensors in a value that gradients are asked for."""
    import torch
    from torch.utils import _pytree as pytree

    found = pytree.tree_leaves(value)
    return [leaf for leaf in found if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def run(call: Any, sample: Any, seed: int) -> tuple[Any, Any]:
    """Results of a call and its gradients, on copies of a sample's tensors."""
    import torch
    from torch.utils import _pytree as pytree

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return value
        size, step = value.size(), value.stride()
        made = torch.empty_strided(size, step, dtype=value.dtype, device=value.device)
        return made.copy_(value.detach()).requires_grad_(value.requires_grad)

    given = pytree.tree_map(copied, ((sample.input, *sample.args), sample.kwargs))
    asked = leaves_of(given)
    args, kwargs = pytree.tree_map(
        lambda x: x * 1 if isinstance(x, torch.Tensor) and x.requires_grad else x, given
    )
    torch.manual_seed(seed)
    results = call(*args, **kwargs)
    sums = [one.abs().sum() if one.is_complex() else one.sum() for one in leaves_of(results)]
    grads = torch.autograd.grad(sums, asked, allow_unused=True) if sums and asked else ()
    return results, grads


def difference(got: Any, wanted: Any, values: bool) -> str:
    """What differs; empty if nothing does."""
    import torch
    from torch.testing._comparison import default_tolerances
    from torch.utils import _pytree as pytree

    actual, our_spec = pytree.tree_flatten(got)
    theirs, spec = pytree.tree_flatten(wanted)
    if our_spec != spec:
        return f"structure {our_spec}, eager {spec}"
    for one, other in zip(actual, theirs, strict=True):
        if not isinstance(other, torch.Tensor):
            if values and one != other and not (one != one and other != other):
                return f"{one}, eager {other}"
            continue
        facts = [(x.shape, x.dtype, x.device, x.layout) for x in (one, other)]
        if facts[0] != facts[1]:
            return f"{facts[0]}, eager {facts[1]}"
        if values:
            inexact = other.is_floating_point() or other.is_complex()
            rtol, atol = default_tolerances(other) if inexact else (0.0, 0.0)
            try:
                torch.testing.assert_close(
                    one, other, rtol=TIMES * rtol, atol=TIMES * atol, equal_nan=True
                )
            except AssertionError as error:
                return " ".join(str(error).split())
    return ""


def nearer(got: Any, wanted: Any, operator: Any, sample: Any) -> bool:
    """Whether results and gradients have at most twice eager's error against float64.

    A NaN where eager has none is no such error.
    """
    import torch
    from torch.utils import _pytree as pytree

    def double(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return value.detach().double().requires_grad_(value.requires_grad)

    exact = copy.copy(sample)
    exact.input, exact.args, exact.kwargs = pytree.tree_map(
        double, (sample.input, sample.args, sample.kwargs)
    )
    try:
        truth = run(operator, exact, 0)
    except Exception:
        return False
    for one, other, true in zip(*map(pytree.tree_leaves, (got, wanted, truth)), strict=True):
        if isinstance(one, torch.Tensor) and one.is_floating_point():
            if bool((one.isnan() & ~other.isnan()).any()):
                return False
            actual, theirs = ((x.double() - true).abs().nan_to_num(0.0) for x in (one, other))
            rounding = torch.finfo(one.dtype).eps * true.abs().nan_to_num(0.0)
            if actual.numel() and bool(actual.max() > 2 * theirs.max() + rounding.max()):
                return False
        elif difference(one, other, values=True):
            return False
    return True


def judge(op: Any, sample: Any) -> tuple[str, str]:
    """The outcome of one sample, and why."""
    import tc

    operator = op.get_op()
    try:
        wanted = run(operator, sample, 0)
    except Exception as error:
        return "eager refuses", str(error)
    fixed = not op.name.startswith(UNINITIALISED)
    fixed = fixed and not difference(run(operator, sample, 1), wanted, values=True)
    tc.reset()
    try:
        got = run(tc.compile(lambda *a, **k: operator(*a, **k), fullgraph=True), sample, 0)
    except Exception as error:
        return type(error).__name__, " ".join(str(error).split())
    why = difference(got, wanted, fixed)
    only_values = fixed and not difference(got, wanted, values=False)
    if why and only_values and nearer(got, wanted, operator, sample):
        return "equal", "as near to float64 as eager"
    return ("wrong", why) if why else ("equal", "")


def row_of(op: Any, dtype: Any, samples: int) -> dict[str, Any]:
    """The outcome of an operator and dtype: that of the first sample that is not equal."""
    import torch

    torch.manual_seed(1)
    grad = op.supports_autograd and dtype.is_floating_point
    outcomes: list[tuple[str, str]] = []
    for sample in itertools.islice(op.sample_inputs("cuda", dtype, requires_grad=grad), samples):
        outcomes.append(judge(op, sample))
        torch.cuda.synchronize()
    bad = [one for one in outcomes if one[0] not in ("equal", "eager refuses")]
    outcome, why = (bad or outcomes or [("no sample", "")])[0]
    return {"outcome": outcome, "why": why[:600]}


def work(samples: int) -> None:
    """Answer the rows named on standard input; end where the GPU's context is spoiled."""
    sys.path.insert(0, str(ROOT))
    import torch

    known = operators()
    for line in sys.stdin:
        name, _, dtype = line.strip().rpartition(":")
        try:
            row = row_of(known[name], getattr(torch, dtype), samples)
        except Exception as error:
            row = {"outcome": type(error).__name__, "why": str(error)[:600]}
        print(json.dumps(row), flush=True)
        if "CUDA error" in row["why"]:
            return


# ---------------------------------------------------------------- the processes


class Worker:
    """A process that judges rows."""

    def __init__(self, samples: int, seconds: float) -> None:
        self.seconds = seconds
        self.command = [sys.executable, __file__, "--work", "--samples", str(samples)]
        self.process: subprocess.Popen[str] | None = None

    def ask(self, row: str) -> dict[str, Any]:
        """The outcome of a row; a process that does not answer in time is ended."""
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(row + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:  # it ended after the last row
            self.close()
            return self.ask(row)
        ready, _, _ = select.select([self.process.stdout], [], [], self.seconds)
        answer = self.process.stdout.readline() if ready else ""
        if answer:
            return dict(json.loads(answer))
        outcome = "process died" if ready else f"over {self.seconds:.0f} s"
        self.close()
        return {"outcome": outcome, "why": ""}

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def judged(rows: list[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rows' outcomes, as they come, until the time is up."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for row in rows:
        waiting.put(row)
    found: list[dict[str, Any]] = []
    end = time.monotonic() + options.seconds

    def serve() -> None:
        worker = Worker(options.samples, options.timeout)
        while time.monotonic() < end:
            try:
                row = waiting.get_nowait()
            except queue.Empty:
                break
            found.append({"row": row, **worker.ask(row)})
            if found[-1]["outcome"] not in ("equal", "eager refuses", "no sample"):
                print("{row}: {outcome}: {why:.160}".format(**found[-1]), flush=True)
        worker.close()

    threads = [threading.Thread(target=serve) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print what differs and a count of outcomes; 1 if something differs, 2 without a GPU."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sample", type=int, help="so many rows, drawn; all by default")
    parser.add_argument("--only", default="", help="operators with this in their name")
    parser.add_argument("--dtypes", default="float32,bfloat16,int64,bool")
    parser.add_argument("--samples", type=int, default=3, help="inputs of a row")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="ends the run")
    parser.add_argument("--timeout", type=float, default=120, help="seconds that a row may take")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.work:
        work(options.samples)
        return 0
    import torch

    if not torch.cuda.is_available():
        print("gpu_operators.py: torch sees no GPU here, so nothing can be run", file=sys.stderr)
        return 2
    rows = [
        f"{name}:{dtype}"
        for name, op in operators().items()
        if options.only in name
        for dtype in options.dtypes.split(",")
        if getattr(torch, dtype) in op.supported_dtypes("cuda")
    ]
    random.Random(options.seed).shuffle(rows)
    print(f"seed {options.seed}, {len(rows)} rows", flush=True)
    found = judged(rows[: options.sample], options)
    counts = Counter(row["outcome"] for row in found)
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(not counts.keys() <= {"equal", "eager refuses", "no sample"})


if __name__ == "__main__":
    sys.exit(main())
