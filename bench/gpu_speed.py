"""Speed on a GPU: kernels of tc against torch.compile and eager, and against a copy's bandwidth.

    python bench/gpu_speed.py
    python bench/gpu_speed.py --cases add,softmax --size 64 --rounds 20 --json gpu.json

Compilers take turns; a row has the least time of the rounds by the device's clock. "of copy" is the
share of the bandwidth of ``y.copy_(x)`` at that size, for what is read and written at least once.
Kernel caches should be full: the first run of all cases compiles them.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMPILERS = ("eager", "tc", "torch")


@dataclass(frozen=True)
class Case:
    """A function of tensors of one shape.

    Attributes:
        inputs: how many tensors it takes.
        written: how many tensors of their size it writes; a reduction to rows counts none.
    """

    name: str
    run: Callable[..., Any]
    inputs: int
    written: int


def cases() -> list[Case]:
    """The bandwidth-bound cases."""
    import torch.nn.functional as F

    return [
        Case("add", lambda x, y: x + y, 2, 1),
        Case("gelu", lambda x: F.gelu(x) * 2 + 1, 1, 1),
        Case("add_relu_mul", lambda x, y: F.relu(x + y) * x, 2, 1),
        Case("sum_rows", lambda x: x.sum(-1), 1, 0),
        Case("sum_columns", lambda x: x.sum(0), 1, 0),
        Case("sum_all", lambda x: x.sum(), 1, 0),
        Case("softmax", lambda x: F.softmax(x, -1), 1, 1),
        Case("layer_norm", lambda x: F.layer_norm(x, x.shape[-1:]), 1, 1),
        Case("cumsum", lambda x: x.cumsum(-1), 1, 1),
        Case("transpose", lambda x: x.t().contiguous() + 1, 1, 1),
    ]


def least(call: Callable[[], Any], rounds: int) -> float:
    """Seconds of one call on the current GPU."""
    import torch

    for _ in range(3):
        call()
    best = math.inf
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(10):
            call()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) / 1e4)
    return best


def measure(case: Case, inputs: list[Any], rounds: int, copied: float) -> dict[str, Any]:
    """Times of a case, and its share of the bandwidth of a copy."""
    import torch

    import tc

    tc.reset()
    torch.compiler.reset()
    compilers = {
        "eager": case.run,
        "tc": tc.compile(case.run),
        "torch": torch.compile(case.run),
    }
    given = inputs[: case.inputs]
    best = dict.fromkeys(COMPILERS, math.inf)
    with torch.no_grad():
        for _ in range(2):  # in turns, so that a change of clocks meets all of them
            for name, call in compilers.items():
                best[name] = min(best[name], least(lambda call=call: call(*given), rounds))
    moved = (case.inputs + case.written) / 2  # a copy reads one and writes one
    return {"case": case.name, **best, "of_copy": moved * copied / best["tc"]}


def conclude(found: list[dict[str, Any]], file: Path | None) -> None:
    """Print how the times of all rows compare, and keep the rows if a file is asked for."""
    mean = math.exp(sum(math.log(row["torch"] / row["tc"]) for row in found) / len(found))
    print(f"geometric mean: {mean:.2f}x of torch.compile's speed")
    if file is not None:
        file.write_text(json.dumps(found, indent=1) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Print a row a case; 2 where there is no GPU, or no such case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", default="", help="names, separated by commas; all by default")
    parser.add_argument("--size", type=int, default=256, help="MiB of a tensor")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    known = {case.name: case for case in cases()}
    names = [name for name in options.cases.split(",") if name] or list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        print(
            f"gpu_speed.py: no case {', '.join(unknown)}; there are {', '.join(known)}",
            file=sys.stderr,
        )
        return 2
    import torch

    if not torch.cuda.is_available():
        print(
            "gpu_speed.py: torch sees no GPU here, so there is nothing to measure", file=sys.stderr
        )
        return 2
    columns = 4096
    rows = max(options.size * (1 << 20) // 4 // columns, 1)
    inputs = [torch.randn(rows, columns, device="cuda") for _ in range(2)]
    target = torch.empty_like(inputs[0])
    copied = least(lambda: target.copy_(inputs[0]), options.rounds)
    found = []
    for name in names:
        row = measure(known[name], inputs, options.rounds, copied)
        found.append(row)
        times = "  ".join(f"{c} {row[c] * 1e6:9.1f} us" for c in COMPILERS)
        ratio = row["torch"] / row["tc"]
        print(
            f"{name:14}{times}  {ratio:5.2f}x of torch  {row['of_copy']:4.0%} of copy", flush=True
        )
    conclude(found, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
