"""What a trace costs: CPU seconds of compiles with and without TC_TRACE, in turns, medians.

    python bench/tracing.py --blocks 6 --rounds 15 --cases warm,cold,train
    python bench/tracing.py --cases step --rounds 60 --dim 256 --rows 16

One process compiles the same model anew in every round, without and with an open trace, one after
the other in changing order. ``cold`` begins with an empty cache folder each time (the C compiler's
seconds count, too), ``warm`` finds its graphs there, ``train`` is a warm forward and backward.
``step`` is what running costs: training steps of the model compiled without a trace and with one,
in turns of `STEPS`, far behind the first calls, which are measured more often than later ones.

Each trace is removed after its round, unless ``--keep`` is given: a virtual machine may take five
times as long for a page of the disk's cache that it never had before as for one that was freed.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable

CASES = ("warm", "cold", "train", "step")
#: steps of a turn, and before the first
STEPS, BEFORE = 128, 512


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
            return (time.thread_time() - begun) / steps

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
        tc.reset()
        without = running()
        writer = TraceWriter(f"{folder}/trace")
        add_sink(writer)
        try:
            turns = {False: without, True: running()}
            for number in range(count):
                for traced in (False, True) if number % 2 else (True, False):
                    found[traced].append(turns[traced](STEPS))
        finally:
            remove_sink(writer)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--blocks", type=int, default=6, help="blocks of the model")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each case")
    parser.add_argument("--cases", default="warm,cold,train", help="comma-separated")
    parser.add_argument("--dim", type=int, default=32, help="width of the model (%(default)s)")
    parser.add_argument("--rows", type=int, default=8, help="length of a text (%(default)s)")
    parser.add_argument("--keep", action="store_true", help="keep all traces until the end")
    args = parser.parse_args()
    cases = args.cases.split(",")
    if not set(cases) <= set(CASES) or args.rounds < 1 or args.blocks < 1:
        parser.error(f"cases are {', '.join(CASES)}; blocks and rounds at least 1")
    fresh, running = model(args.blocks, args.dim, args.rows)
    for case in cases:
        if case == "step":
            found = steps(running, args.rounds)
        else:
            found = rounds(case, fresh, args.rounds, args.keep)
        off, on = statistics.median(found[False]), statistics.median(found[True])
        pairs = zip(found[False], found[True], strict=True)
        more = statistics.median(with_it - without for without, with_it in pairs)
        print(
            f"{case:6} off {1e3 * off:.3f} ms  on {1e3 * on:.3f} ms  {100 * (on / off - 1):+.1f} %"
            f"  (median difference of a round {1e3 * more:+.3f} ms, {100 * more / off:+.2f} %)"
        )


if __name__ == "__main__":
    main()
