"""How the cost of a compile grows with its graph: CPU seconds of first calls by operations.

    python bench/growth.py --sizes 200,800,3200 --compilers tc,torch

Each size is compiled in a process of its own, after a first small compile there, so that imports
and other costs that come once are left out. The exponent is that of the least-squares line through
the logarithms: 1 is linear growth.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import resource, sys
import torch
import {compiler} as compiler

def seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)

def chain(x, y):
    for _ in range({n} // 4):
        x = torch.relu(x * 1.01 + y) - 0.1
    return x

layers = [f() for _ in range({n} // 2) for f in (lambda: torch.nn.Linear(16, 16), torch.nn.ReLU)]
graphs = {{
    "chain": (chain, (torch.randn(64, 64), torch.randn(64, 64))),
    "layers": (torch.nn.Sequential(*layers).eval(), (torch.randn(4, 16),)),
}}
function, arguments = graphs["{graph}"]
with torch.no_grad():
    compiler.compile(lambda x: torch.softmax(x * 2, -1))(torch.randn(16, 64))
    begun = seconds()
    compiler.compile(function)(*arguments)
    print("seconds", seconds() - begun)
"""


def cost(compiler: str, graph: str, n: int) -> float:
    """Return the CPU seconds of compiling a graph of ``n`` operations, and of one call."""
    with tempfile.TemporaryDirectory(prefix="tc-growth-") as caches:
        program = Path(caches, "program.py")
        program.write_text(PROGRAM.format(compiler=compiler, graph=graph, n=n))
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TC_CACHE_DIR": f"{caches}/tc",
            "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
        }
        done = subprocess.run(
            [sys.executable, str(program)], env=environment, capture_output=True, text=True
        )
    if done.returncode:
        raise SystemExit(
            f"growth: {graph} of {n} operations failed under {compiler}:\n{done.stderr}"
        )
    return float(done.stdout.split()[-1])


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Return the slope of the line through the logarithms."""
    x, y = [math.log(n) for n in sizes], [math.log(c) for c in costs]
    middle = sum(x) / len(x)
    spread = sum((a - middle) ** 2 for a in x)
    return sum((a - middle) * b for a, b in zip(x, y, strict=True)) / spread


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="200,800,3200", help="%(default)s")
    parser.add_argument("--compilers", default="tc", help="tc, torch; %(default)s")
    parser.add_argument("--graphs", default="chain,layers", help="%(default)s")
    options = parser.parse_args()
    sizes = [int(n) for n in options.sizes.split(",") if n.isdigit()]
    compilers = [name for name in options.compilers.split(",") if name in ("tc", "torch")]
    if len(set(sizes)) < 2 or min(sizes) < 4 or not compilers:
        parser.error("--sizes takes at least two numbers from 4 on, --compilers tc or torch")
    print(f"CPU seconds of a first call{'':8}" + "".join(f"{n:>9}" for n in sizes) + "  exponent")
    for graph in options.graphs.split(","):
        for compiler in compilers:
            costs = [cost(compiler, graph, n) for n in sizes]
            row = "".join(f"{seconds:9.2f}" for seconds in costs)
            print(f"{graph:10} {compiler:24}{row}{exponent(sizes, costs):10.2f}", flush=True)


if __name__ == "__main__":
    main()
