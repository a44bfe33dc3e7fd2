"""Many threads call many compiled functions, while compiles run; each result must be eager's.

    python bench/threads.py --calls 1000000 --threads 16 --chunk 50000

Each chunk is a process of its own, with a time limit (a deadlock is a failure), its own seed, and
in every other chunk a switch interval of a microsecond. The last line of output is a JSON object.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch

import tc
from tc.compiler.api import graph_stats

SIZES = (1, 2, 3, 4, 5, 7, 8, 12)
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bfloat16)
DYNAMIC = (None, True, False)
#: of so many calls, one forgets all compiled code, or puts a new function in the place of another
RESETS, FRESH = 50_000, 5_000


class Scaled(torch.nn.Module):
    """A module with a parameter, a buffer and a number."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, width)
        self.register_buffer("shift", torch.arange(4.0))
        self.scale = 1.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute."""
        return (self.inner(x.float() + self.shift) * self.scale).relu().sum(-1)


def pointwise(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Nothing but loops."""
    return x * 2 + y - x.shape[0]


def reduced(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A reduction that depends on the size."""
    return (x.float() * y.float()).sum(-1) + x.shape[0]


def several(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Several results, a view among them."""
    z = x + y
    return z, z.t(), x.float().mean()


def broken(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A break, and a branch on the mode."""
    z = x * 3
    torch._C._len_torch_dispatch_stack()
    print(end="")
    return z - y if torch.is_grad_enabled() else z + y


def numbers(x: torch.Tensor, y: torch.Tensor, k: int = 3) -> torch.Tensor:
    """A number from outside, and a mutation of what it made."""
    z = x.clone()
    z.add_(k)
    return z * y


def products(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A product of matrices."""
    return x.float() @ y.float().t() + 1


FUNCTIONS = (pointwise, reduced, several, broken, numbers, products)


@dataclass
class Board:
    """What the threads have found so far.

    Attributes:
        wrong: a line on each result that was not eager's, the first ones.
    """

    calls: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def report(self, line: str) -> None:
        """Add a result that was wrong."""
        with self.lock:
            self.wrong.append(line)


class Pool:
    """The compiled functions that all threads call, and some of the sizes and types there are."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        drawn = random.Random(seed)
        self.sizes, self.dtypes = drawn.sample(SIZES, 4), drawn.sample(DTYPES, 2)
        self.pairs: list[tuple[Callable[..., Any], Callable[..., Any]]] = []
        for function in FUNCTIONS:
            dynamic = drawn.choice(DYNAMIC)
            self.pairs.append((function, tc.compile(function, dynamic=dynamic)))
        for width in (2,):
            module = Scaled(width)
            self.pairs.append(
                (lambda x, y, m=module: m(x), tc.compile(lambda x, y, m=module: m(x)))
            )
            compiled = tc.compile(module)
            self.pairs.append((lambda x, y, m=module: m(x), lambda x, y, m=compiled: m(x)))

    def refill(self, random: random.Random) -> None:
        """Put a function that nobody has compiled in the place of another."""
        a, b = random.randint(2, 9), random.randint(2, 9)
        made: dict[str, Any] = {}
        exec(f"def fresh(x, y):\n    return x * {a} + y * {b} - x.shape[0]", made)
        pair = made["fresh"], tc.compile(made["fresh"], dynamic=random.choice(DYNAMIC))
        self.pairs[random.randrange(len(self.pairs))] = pair


def same(found: Any, expected: Any) -> bool:
    """Return whether two results are equal up to rounding."""
    if isinstance(expected, tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    if expected is None or found is None:
        return found is expected
    alike = found.shape == expected.shape and found.dtype == expected.dtype
    if not alike or found.requires_grad != expected.requires_grad:
        return False
    rough = expected.dtype == torch.bfloat16
    tolerance = {"rtol": 3e-2, "atol": 3e-1} if rough else {"rtol": 1e-4, "atol": 1e-4}
    return torch.allclose(found.detach(), expected.detach(), equal_nan=True, **tolerance)


def gradients(result: Any, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
    """Differentiate the sum of all floating results."""
    results = result if isinstance(result, tuple) else (result,)
    total: Any = sum(r.float().sum() for r in results if r.requires_grad)
    return torch.autograd.grad(total, list(inputs), allow_unused=True)


def one_call(pool: Pool, board: Board, random: random.Random) -> None:
    """Call one of the functions, and its twin in eager, and compare."""
    eager, compiled = pool.pairs[random.randrange(len(pool.pairs))]
    size, dtype = random.choice(pool.sizes), random.choice(pool.dtypes)
    # Small integers: their sums are exact in all these types, in any order.
    x = torch.randint(-4, 5, (size, 4)).to(dtype)
    y = torch.randint(-4, 5, (size, 4)).to(dtype)
    mode = random.choice(("grad", "no_grad", "inference", "plain"))
    trains = mode == "grad" and dtype.is_floating_point
    if trains:
        x.requires_grad_()
        y.requires_grad_(random.random() < 0.5)
    with ExitStack() as modes:
        if mode == "no_grad":
            modes.enter_context(torch.no_grad())
        elif mode == "inference":
            modes.enter_context(torch.inference_mode())
        expected, found = eager(x, y), compiled(x, y)
        good = same(found, expected)
        if good and trains and random.random() < 0.3:
            wanted = [t for t in (x, y) if t.requires_grad]
            results = found if isinstance(found, tuple) else (found,)
            if any(r.requires_grad for r in results):
                mode = "backward"
                good = same(gradients(found, wanted), gradients(expected, wanted))
    board.kinds[mode] += 1
    board.calls += 1
    if not good:
        name = getattr(eager, "__name__", "")
        board.report(f"{name} {mode} {size} {dtype}: {found} where eager has {expected}")


def work(pool: Pool, board: Board, calls: int, seed: int) -> None:
    """Call functions of the pool, many times."""
    drawn = random.Random(seed)
    for _ in range(calls):
        if drawn.randrange(FRESH) == 0:
            pool.refill(drawn)
        if drawn.randrange(RESETS) == 0:
            tc.reset()
        try:
            one_call(pool, board, drawn)
        except Exception as error:
            board.report(f"{type(error).__name__}: {error}"[:500])


def run_chunk(threads: int, calls: int, seed: int, switch: float | None) -> dict[str, Any]:
    """Run one chunk in this process."""
    if switch:
        sys.setswitchinterval(switch)
    torch.set_num_threads(1)
    tc.config.recompile_limit = 40
    pool, board, began = Pool(seed), Board(), time.monotonic()
    share = [calls // threads + (i < calls % threads) for i in range(threads)]
    workers = [
        threading.Thread(target=work, args=(pool, board, n, seed * 1000 + i), daemon=True)
        for i, n in enumerate(share)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return {
        "calls": sum(share), "wrong": len(board.wrong), "first": board.wrong[:3],
        "graphs": graph_stats()["graphs"], "seconds": round(time.monotonic() - began, 1),
        "kinds": dict(board.kinds), "switch": switch,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all chunks; the exit status says whether any result was wrong, or never came."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--chunk", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=900, help="seconds a chunk may take")
    parser.add_argument("--switch", type=float, help="of one chunk, in this process")
    parser.add_argument("--here", action="store_true", help="one chunk, in this process")
    given = parser.parse_args(arguments)
    if given.here:
        faulthandler.dump_traceback_later(max(given.limit - 10, 5))
        print(json.dumps(run_chunk(given.threads, given.calls, given.seed, given.switch)))
        return 0
    total: Counter[str] = Counter()
    chunks = -(-given.calls // given.chunk)
    for number in range(chunks):
        calls = min(given.chunk, given.calls - number * given.chunk)
        command = [sys.executable, __file__, "--here", "--calls", str(calls), "--threads",
                   str(given.threads), "--seed", str(given.seed + number), "--limit",
                   str(given.limit), *(["--switch", "1e-6"] if number % 2 else [])]  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=given.limit, check=False
            )
            found = json.loads(done.stdout.splitlines()[-1])
        except (subprocess.TimeoutExpired, IndexError, ValueError) as error:
            total["stuck or crashed"] += 1
            print(f"chunk {number}: {error!r}\n{getattr(error, 'stderr', '')}", file=sys.stderr)
            print(getattr(locals().get("done"), "stderr", ""), file=sys.stderr)
            continue
        print(f"chunk {number}: {json.dumps(found)}", flush=True)
        total.update({name: found[name] for name in ("calls", "wrong", "graphs", "seconds")})
    print(json.dumps({**total, "threads": given.threads, "chunks": chunks}))
    return int(bool(total["wrong"] or total["stuck or crashed"]))


if __name__ == "__main__":
    sys.exit(main())
