"""The sentinel at 1/1000 on faults that are planted in a running program: how soon each is seen.

    python bench/sentinel_faults.py --count 40     # a seed is drawn, and printed
    python bench/sentinel_faults.py --healthy 1000000 --rate 1/100    # nothing may be seen

Five kinds, in turn: a lane of a result is wrong; a guard lets through what it has to refuse; a race
spoils one element in half of the calls; a NaN appears for some inputs; the code is another
graph's, as a wrong hit of a cache. Model, type, lane, guard, size of the error and the call with
which the fault begins are drawn. A fault counts if there is a finding within 5,000 calls after
it begins, of that graph and after it has begun.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import operator
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F

import tc
from tc import trace
from tc.compiler.backends.registry import lookup_backend
from tc.compiler.capture.guards import rows as guard_rows

KINDS = ("lane", "guard", "race", "nan", "cache")
DTYPES = (torch.float32, torch.float32, torch.bfloat16)
CALLS, RATE = 5000, "1/1000"
EACH = 20_000  # calls of a sound model
LATEST = 2000  # call with which a fault begins, at most
LEVELS = {"extra": 0}
Spoil = Callable[[torch.Tensor], None]


class Model(torch.nn.Module):
    """A model with state that its guards are about.

    Attributes:
        shape: of its layers: a perceptron, one of convolutions, attention.
    """

    def __init__(self, shape: str) -> None:
        super().__init__()
        self.shape, self.mode, self.scale = shape, "narrow", 2.0
        self.a, self.b = torch.nn.Linear(16, 48), torch.nn.Linear(48, 16)
        self.norm, self.conv = torch.nn.LayerNorm(16), torch.nn.Conv1d(1, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.shape == "perceptron":
            h = self.norm(x + self.b(F.silu(self.a(x))))
        elif self.shape == "convolutions":
            h = F.gelu(self.conv(x.unsqueeze(1))).mean(1)
        else:
            q, k, v = self.a(x).chunk(3, -1)
            h = x + (q @ k.t() / 4).softmax(-1) @ v
        if self.mode == "wide":
            h = h * 0.5
        return h * self.scale + LEVELS["extra"]


SHAPES = ("perceptron", "convolutions", "attention")
#: the source in a guard -> the change that it has to notice
CHANGES: dict[str, Callable[[Model], object]] = {
    "L['self'].mode": lambda model: setattr(model, "mode", "wide"),
    "L['self'].scale": lambda model: setattr(model, "scale", 3.0),
    "G['LEVELS']['extra']": lambda model: LEVELS.update(extra=1),
}


@contextmanager
def without_guard(source: str) -> Iterator[None]:
    """Leave the guards on a source out of what is checked, not out of what is printed."""
    rows = guard_rows.GUARDS._rows
    before = dict(rows)
    for kind, row in before.items():

        def install(tree: Any, guard: Any, real: Any = row.install) -> None:
            if source not in guard.source.name:
                real(tree, guard)

        rows[kind] = dataclasses.replace(row, install=install)
    try:
        yield
    finally:
        rows.update(before)


def lane(dice: random.Random) -> Spoil:
    """Return what makes one lane in some, or one element, of a result wrong."""
    width, number = dice.choice((4, 8, 16)), dice.randrange(4)
    factor = dice.choice((0.0, 0.75, 1.25, -1.0))

    def spoil(value: torch.Tensor) -> None:
        flat = value.view(-1)
        flat[number::width] = flat[number::width] * factor + 0.5

    return spoil


def race(dice: random.Random) -> Spoil:
    """Return what adds to an element in half of the calls, as an update that is made twice."""

    def spoil(value: torch.Tensor) -> None:
        if dice.random() < 0.5:
            value.view(-1)[dice.randrange(value.numel())] += value.abs().amax()

    return spoil


def nan(dice: random.Random) -> Spoil:
    """Return what makes a NaN of the largest value, for the half of inputs with some order."""
    first, second = dice.sample(range(100), 2)

    def spoil(value: torch.Tensor) -> None:
        if value.view(-1)[first] > value.view(-1)[second]:
            value.masked_fill_(value == value.amax(), torch.nan)

    return spoil


def other_graph(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return the graph of another program: it adds where this one multiplies last."""
    twin = copy.deepcopy(gm)
    products = [node for node in twin.graph.nodes if node.target in (operator.mul, torch.mul)]
    products[-1].target = torch.add
    twin.recompile()
    return twin


@dataclasses.dataclass
class Fault:
    """A fault in a compiled model.

    Attributes:
        begins: how many calls are right; at least one, in which a guard's fact is captured.
        call: how many calls there were.
    """

    kind: str
    dice: random.Random
    begins: int
    call: int = 0

    def backend(self, gm: torch.fx.GraphModule, inputs: Any) -> Any:
        """Compile a graph, and spoil what it computes once the fault has begun."""
        right = wrong = lookup_backend("tc")(gm, inputs)
        if self.kind == "cache":
            wrong = lookup_backend("tc")(other_graph(gm), inputs)
        spoil = {"lane": lane, "race": race, "nan": nan}.get(self.kind, lambda dice: id)(self.dice)

        def run(*args: Any) -> Any:
            began = self.call >= self.begins
            made = (wrong if began else right)(*args)
            for value in made if began else ():
                if isinstance(value, torch.Tensor):
                    spoil(value)
            return made

        return run


def seen_after(kind: str, dice: random.Random) -> tuple[str, int | None]:
    """Plant a fault; return what it is, and how many of its calls there were until it was seen."""
    tc.reset()
    LEVELS["extra"] = 0
    shape, dtype = dice.choice(SHAPES), dice.choice(DTYPES)
    torch.manual_seed(dice.randrange(10**6))
    source = dice.choice(sorted(CHANGES)) if kind == "guard" else "nothing"
    model, fault = Model(shape).to(dtype), Fault(kind, dice, dice.randrange(1, LATEST))
    what = f"{kind} {shape} {dtype} from call {fault.begins} {source if kind == 'guard' else ''}"
    patched = tc.config.patch(sentinel=RATE, sentinel_bisect=False)
    with patched, without_guard(source), trace.capture_events() as events, torch.no_grad():
        compiled = tc.compile(model, backend=fault.backend, dynamic=False)
        while fault.call < fault.begins + CALLS:
            if kind == "guard" and fault.call == fault.begins:
                CHANGES[source](model)
            compiled(torch.randn(8, 16, dtype=dtype))
            fault.call += 1
            if events.of(trace.SentinelDifference):
                after = fault.call - fault.begins
                return what, after if after > 0 else None  # before it began: a false alarm
    return what, None


def false_alarms(calls: int, rate: str, dice: random.Random) -> int:
    """Call sound models so often, each 20,000 times; returns how many findings there were."""
    done = accused = compared = 0
    while done < calls:
        tc.reset()
        tc.counters["sentinel"].clear()
        shape, dtype = dice.choice(SHAPES), dice.choice(DTYPES)
        torch.manual_seed(dice.randrange(10**6))
        scale, rows = 10 ** dice.uniform(-3, 3), dice.randint(1, 12)
        patched = tc.config.patch(sentinel=rate, sentinel_bisect=False)
        with patched, trace.capture_events() as events, torch.no_grad():
            compiled = tc.compile(Model(shape).to(dtype), dynamic=False)
            for _ in range(min(EACH, calls - done)):
                compiled((torch.randn(rows, 16) * scale).to(dtype))
                done += 1
        found = events.of(trace.SentinelDifference)
        accused, compared = accused + len(found), compared + tc.counters["sentinel"]["compared"]
        print(f"{done:>8} {shape} {dtype} {rows} rows of {scale:.2g}: {compared} compared, "
              f"{accused} findings", flush=True)  # fmt: skip
    return accused


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--healthy", type=int, metavar="CALLS", help="plant no fault")
    parser.add_argument("--rate", default=RATE, help="of compared calls, with --healthy")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    dice, began, found = random.Random(options.seed), time.monotonic(), []
    if options.healthy:
        return 1 if false_alarms(options.healthy, options.rate, dice) else 0
    for number in range(options.count):
        what, after = seen_after(KINDS[number % len(KINDS)], dice)
        found += [] if after is None else [after]
        print(f"{'NOT' if after is None else after:>5} {what}", flush=True)
    print(f"{len(found)} of {options.count} seen within {CALLS} calls; median "
          f"{statistics.median(found or [0]):g}, {time.monotonic() - began:.0f} s")  # fmt: skip
    return 0 if len(found) >= 0.95 * options.count else 1


if __name__ == "__main__":
    raise SystemExit(main())
