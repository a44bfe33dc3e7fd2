"""Cold start: a fresh process with empty caches, to the first compiled result of a two-op function;
and warm: a second process, with the caches that the first left.

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
# not tighter: on a loaded machine eager's own first sin of a process was once off by 1.5e-4
torch.testing.assert_close(result, two_ops(x, y), rtol=0, atol=1e-3)
"""
COMPILERS = {
    "eager": ("", "(lambda function: function)"),  # what importing torch alone costs
    "tc": ("import tc", "tc.compile"),
    "torch": ("", "torch.compile"),
}


#: caches: empty, and as the first process left them
KINDS = ("cold", "warm")


@dataclass(frozen=True)
class Cost:
    """Seconds of one cold start."""

    wall: float
    cpu: float


def starts(name: str) -> tuple[Cost, Cost]:
    """Run the program in a new process with caches of its own, and again in another."""
    with tempfile.TemporaryDirectory(prefix="tc-coldstart-") as caches:
        return start(name, caches), start(name, caches)


def start(name: str, caches: str) -> Cost:
    """Run the program once, in a new process."""
    prepare, call = COMPILERS[name]
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
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, env=environment, text=True
    ) as child:
        assert child.stdout is not None
        said = child.stdout.readline()
        wall = time.perf_counter() - began
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
    costs: dict[tuple[str, str], list[Cost]] = {}
    for turn in range(options.rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            for kind, cost in zip(KINDS, starts(name), strict=True):
                costs.setdefault((name, kind), []).append(cost)
    print(f"to the first result of two ops in a fresh process, medians of {options.rounds}")
    print(f"{'':14}{'wall s':>8}{'CPU s':>8}{'least wall':>12}{'most':>8}")
    for (name, kind), found in costs.items():
        walls = [cost.wall for cost in found]
        row = (median(walls), median(cost.cpu for cost in found))
        print(f"{name:6} {kind:6} {row[0]:8.2f}{row[1]:8.2f}{min(walls):12.2f}{max(walls):8.2f}")
    if {"tc", "torch"} <= set(names):
        for kind in KINDS:
            print(f"tc / torch.compile, {kind}: {compared(costs, kind)}")


def compared(costs: dict[tuple[str, str], list[Cost]], kind: str) -> str:
    """Return the ratios of the medians, as a sentence."""
    wall, cpu = (
        median(map(of, costs["tc", kind])) / median(map(of, costs["torch", kind]))
        for of in (lambda cost: cost.wall, lambda cost: cost.cpu)
    )
    return f"{wall:.2f} wall, {cpu:.2f} CPU"


if __name__ == "__main__":
    main()
