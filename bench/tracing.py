"""What a trace costs: CPU seconds of compiles with and without TC_TRACE, in turns, with intervals.

    python bench/tracing.py --blocks 6 --rounds 60 --cases warm,cold,train
    python bench/tracing.py --cases step --rounds 40 --dim 256 --rows 16

One process compiles the same model again in every round, without and with an open trace, one after
the other in changing order. ``cold`` begins with an empty cache folder each time (the C compiler's
seconds count, too), ``warm`` finds its graphs there, ``train`` is a warm forward and backward.
``step`` is what running costs: training steps of the model compiled without a trace and with one,
in turns of `TURN`, behind the first calls, which are measured more often than later ones. A round
is `STEPS` of each, so that the calls which are measured line by line have their share in it, and
compiles again: two compiles of one model may differ by 2 % in where their memory lies.

What is reported is the median of the rounds' differences, in percent of the median without a trace,
and the interval that holds it at 95 %: two order statistics, which ask nothing of how the noise is
distributed (Conover, "Practical Nonparametric Statistics", 1999, 3.2). A limit (`LIMITS`) is kept
if the whole interval is below it and missed if all is above; else more rounds are needed.

Each trace is removed after its round, unless ``--keep`` is given: a virtual machine may take five
times as long for a page of the disk's cache that it never had before as for one that was freed.

Exit code 1 if a limit is missed, 2 if one is open.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

#: percent that a trace may cost, for each case
LIMITS = {"warm": 3.0, "cold": 3.0, "train": 3.0, "step": 1.0}
CASES = tuple(LIMITS)
#: steps of a round, of a turn in it, and before the first
STEPS, TURN, BEFORE = 1024, 32, 600


Turn = Callable[[int], float]


def seconds() -> float:
    """Return the CPU seconds of this process and of those it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def model(blocks: int, dim: int, rows: int) -> tuple[Callable[[bool], float], Callable[[], Turn]]:
    """Return what compiles a stack of transformer blocks and gives the seconds of that call.

    And what compiles it and returns what runs a turn of training steps, and gives their seconds.
    """
    import torch

    import tc

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.LayerNorm(dim), torch.nn.LayerNorm(dim)
            self.qkv, self.out = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)
            self.up, self.down = torch.nn.Linear(dim, 4 * dim), torch.nn.Linear(4 * dim, dim)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(self.first(x)).view(2, rows, 3, 4, dim // 4).permute(2, 0, 3, 1, 4)
            weights = torch.softmax(q @ k.transpose(-1, -2) * 0.35, -1)
            x = x + self.out((weights @ v).transpose(1, 2).reshape(2, rows, dim))
            return x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))

    net = torch.nn.Sequential(*[Block() for _ in range(blocks)])
    x = torch.randn(2, rows, dim)

    def fresh(train: bool) -> float:
        tc.reset()
        compiled = tc.compile(net)
        gc.collect()
        begun = seconds()
        with torch.set_grad_enabled(train):
            result = compiled(x)
            if train:
                result.sum().backward()
        return seconds() - begun

    def running() -> Turn:
        compiled = tc.compile(lambda x: net(x).square().mean())

        def turn(steps: int) -> float:
            begun = time.thread_time()
            for _ in range(steps):
                compiled(x).backward()
            return time.thread_time() - begun

        turn(BEFORE)
        return turn

    return fresh, running


def steps(running: Callable[[], Turn], count: int) -> dict[bool, list[float]]:
    """Return the seconds of a step in each round, without a trace and with one."""
    import tc
    from tc.trace import add_sink, remove_sink
    from tc.trace.writer import TraceWriter

    found: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(prefix="tc-tracing-") as folder:
        writer = TraceWriter(f"{folder}/trace")
        for number in range(count):
            tc.reset()
            turns: dict[bool, Turn] = {}
            for traced in (False, True) if number % 2 else (True, False):
                if traced:
                    add_sink(writer)
                try:
                    turns[traced] = running()
                finally:
                    remove_sink(writer)
            spent = {False: 0.0, True: 0.0}
            for part in range(STEPS // TURN):
                for traced in (False, True) if (number + part) % 2 else (True, False):
                    spent[traced] += turns[traced](TURN)
            for traced, used in spent.items():
                found[traced].append(used / STEPS)
        writer.close()
    return found


def rounds(
    case: str, fresh: Callable[[bool], float], count: int, keep: bool
) -> dict[bool, list[float]]:
    """Return the seconds of each round, without a trace and with one."""
    from tc.trace import add_sink, remove_sink
    from tc.trace.writer import TraceWriter

    found: dict[bool, list[float]] = {False: [], True: []}
    size = 0
    with tempfile.TemporaryDirectory(prefix="tc-tracing-") as folder:
        os.environ["TC_CACHE_DIR"] = f"{folder}/cache"
        for number in range(-2, count):
            for traced in (False, True) if number % 2 else (True, False):
                if case == "cold":
                    os.environ["TC_CACHE_DIR"] = f"{folder}/cache{number}{traced}"
                writer = TraceWriter(f"{folder}/trace")
                if traced:
                    add_sink(writer)
                try:
                    used = fresh(case == "train")
                finally:
                    remove_sink(writer)
                    writer.close()
                if writer.path is not None:
                    size = os.path.getsize(writer.path)
                    if not keep:
                        os.remove(writer.path)
                if number >= 0:
                    found[traced].append(used)
    print(f"{case}: trace of a compile {size / 1e3:.0f} kB")
    return found


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the order statistics between which the median of the population is at 95 %.

    The number of values below the median is binomial. With fewer than six the interval that all of
    them span holds it less often than that.
    """
    ordered, count = sorted(values), len(values)
    outside, below = 0.0, 0
    while (outside := outside + math.comb(count, below) / 2**count) <= 0.025:
        below += 1
    at = max(below - 1, 0)
    return ordered[at], ordered[count - 1 - at]


def verdict(case: str, found: dict[bool, list[float]]) -> tuple[str, int]:
    """Return a line about a case, and 0 if its limit is kept, 1 if missed, 2 if that is open."""
    off = statistics.median(found[False])
    pairs = zip(found[False], found[True], strict=True)
    more = [100 * (with_it - without) / off for without, with_it in pairs]
    low, high = interval(more)
    limit = LIMITS[case]
    code = 0 if high <= limit else 1 if low > limit else 2
    said = ("kept", "missed", "open: more rounds are needed")[code]
    line = (
        f"{case:6} off {1e3 * off:.3f} ms  on {1e3 * statistics.median(found[True]):.3f} ms  "
        f"{statistics.median(more):+.2f} %, at 95 % in {low:+.2f} to {high:+.2f} "
        f"({len(more)} rounds); limit {limit:.0f} %: {said}"
    )
    return line, code


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--blocks", type=int, default=6, help="blocks of the model")
    parser.add_argument("--rounds", type=int, default=60, help="rounds of each case")
    parser.add_argument("--cases", default="warm,cold,train", help="comma-separated")
    parser.add_argument("--dim", type=int, default=32, help="width of the model (%(default)s)")
    parser.add_argument("--rows", type=int, default=8, help="length of a text (%(default)s)")
    parser.add_argument("--keep", action="store_true", help="keep all traces until the end")
    args = parser.parse_args()
    cases = args.cases.split(",")
    if not set(cases) <= set(CASES) or args.rounds < 1 or args.blocks < 1:
        parser.error(f"cases are {', '.join(CASES)}; blocks and rounds at least 1")
    fresh, running = model(args.blocks, args.dim, args.rows)
    codes = []
    for case in cases:
        if case == "step":
            found = steps(running, args.rounds)
        else:
            found = rounds(case, fresh, args.rounds, args.keep)
        line, code = verdict(case, found)
        print(line, flush=True)
        codes.append(code)
    sys.exit(1 if 1 in codes else max(codes))


if __name__ == "__main__":
    main()
