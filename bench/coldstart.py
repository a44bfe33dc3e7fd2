"""Cold start: a fresh process with empty caches, to the first compiled result of a two-op function.

    python bench/coldstart.py --rounds 5

Compilers take turns within each round, so a busy machine disturbs them alike; the ratio is that of
the medians. Wall time ends when the child says that it has its result; CPU time is that of the
whole child and of the children that it waited for (the C++ compiler).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import torch
{prepare}

def two_ops(x, y):
    return torch.sin(x) + y

x, y = torch.randn(64, 64), torch.randn(64, 64)
result = {compile}(two_ops)(x, y)
print("result", flush=True)
torch.testing.assert_close(result, two_ops(x, y))
"""
COMPILERS = {
    "eager": ("", "(lambda function: function)"),  # what importing torch alone costs
    "tc": ("import tc", "tc.compile"),
    "torch": ("", "torch.compile"),
}


@dataclass(frozen=True)
class Cost:
    """Seconds of one cold start."""

    wall: float
    cpu: float


def cold_start(name: str) -> Cost:
    """Run the program once, in a new process, with caches of its own."""
    prepare, call = COMPILERS[name]
    with tempfile.TemporaryDirectory(prefix="tc-coldstart-") as caches:
        program = Path(caches, "two_ops.py")
        program.write_text(PROGRAM.format(prepare=prepare, compile=call))
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TC_CACHE_DIR": f"{caches}/tc",
            "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
            "TRITON_CACHE_DIR": f"{caches}/triton",
        }
        for name_of_log in ("TC_TRACE", "TC_LOGS", "TORCH_TRACE", "TORCH_LOGS"):
            environment.pop(name_of_log, None)
        start = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, str(program)], stdout=subprocess.PIPE, env=environment, text=True
        ) as child:
            assert child.stdout is not None
            said = child.stdout.readline()
            wall = time.perf_counter() - start
            child.stdout.read()
            _, status, used = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        if said != "result\n" or child.returncode:
            raise SystemExit(f"coldstart: the program failed under {name} (its error is above)")
    return Cost(wall, used.ru_utime + used.ru_stime)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compilers", default="eager,tc,torch", help="%(default)s")
    options = parser.parse_args()
    names = [name for name in options.compilers.split(",") if name in COMPILERS]
    if not names or options.rounds < 1:
        parser.error(f"--compilers takes some of {', '.join(COMPILERS)}; --rounds at least 1")
    costs: dict[str, list[Cost]] = {name: [] for name in names}
    for turn in range(options.rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            costs[name].append(cold_start(name))
    print(f"cold start to the first result of two ops, medians of {options.rounds}")
    print(f"{'':8}{'wall s':>8}{'CPU s':>8}{'least wall':>12}{'most':>8}")

    def middle(name: str, of: Callable[[Cost], float]) -> float:
        return median(of(cost) for cost in costs[name])

    for name in names:
        walls = [cost.wall for cost in costs[name]]
        row = (middle(name, lambda c: c.wall), middle(name, lambda c: c.cpu))
        print(f"{name:8}{row[0]:8.2f}{row[1]:8.2f}{min(walls):12.2f}{max(walls):8.2f}")
    if {"tc", "torch"} <= set(names):
        wall = middle("tc", lambda c: c.wall) / middle("torch", lambda c: c.wall)
        cpu = middle("tc", lambda c: c.cpu) / middle("torch", lambda c: c.cpu)
        print(f"tc / torch.compile: {wall:.2f} wall, {cpu:.2f} CPU")


if __name__ == "__main__":
    main()
