"""What a trace costs: CPU seconds of compiles with and without TC_TRACE, in turns, medians.

    python bench/tracing.py --blocks 6 --rounds 15 --cases warm,cold,train

One process compiles the same model anew in every round, without and with an open trace, one after
the other in changing order. ``cold`` begins with an empty cache folder each time (the C compiler's
seconds count, too), ``warm`` finds its graphs there, ``train`` is a warm forward and backward.

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
from collections.abc import Callable

CASES = ("warm", "cold", "train")


def seconds() -> float:
    """Return the CPU seconds of this process and of those it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def model(blocks: int) -> Callable[[bool], float]:
    """Return what compiles a stack of transformer blocks and gives the seconds of that call."""
    import torch

    import tc

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.LayerNorm(32), torch.nn.LayerNorm(32)
            self.qkv, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)
            self.up, self.down = torch.nn.Linear(32, 128), torch.nn.Linear(128, 32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(self.first(x)).view(2, 8, 3, 4, 8).permute(2, 0, 3, 1, 4)
            weights = torch.softmax(q @ k.transpose(-1, -2) * 0.35, -1)
            x = x + self.out((weights @ v).transpose(1, 2).reshape(2, 8, 32))
            return x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))

    net = torch.nn.Sequential(*[Block() for _ in range(blocks)])
    x = torch.randn(2, 8, 32)

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

    return fresh


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
    parser.add_argument("--keep", action="store_true", help="keep all traces until the end")
    args = parser.parse_args()
    cases = args.cases.split(",")
    if not set(cases) <= set(CASES) or args.rounds < 1 or args.blocks < 1:
        parser.error(f"cases are {', '.join(CASES)}; blocks and rounds at least 1")
    fresh = model(args.blocks)
    for case in cases:
        found = rounds(case, fresh, args.rounds, args.keep)
        off, on = statistics.median(found[False]), statistics.median(found[True])
        pairs = zip(found[False], found[True], strict=True)
        more = statistics.median(with_it - without for without, with_it in pairs)
        print(
            f"{case:6} off {off:.4f} s  on {on:.4f} s  {100 * (on / off - 1):+.1f} %  "
            f"(median difference of a round {1000 * more:+.1f} ms, {100 * more / off:+.1f} %)"
        )


if __name__ == "__main__":
    main()
