"""The sentinel on healthy models: what it costs, and whether it ever cries wolf.

    python bench/sentinel.py cost                    steps of a GPT with and without, interleaved
    python bench/sentinel.py healthy --seconds 600   every call compared, random sizes and types

`cost` trains two copies of one model, one with the sentinel at 1/1000, in turns; it prints the
ratio of their CPU times, the seconds of one compared step, and what 1/1000 of that is. `healthy`
calls small models of random sizes in float32 and bfloat16, forward and backward, with every call
compared, and prints how many calls were; any difference ends it with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import tc
from tc import trace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
from gpt import GPT

DTYPES = (torch.float32, torch.bfloat16)


def step_of(rate: str, batch: int, length: int) -> Callable[[], None]:
    """Return a training step of a GPT that is compiled with the sentinel at a rate."""
    torch.manual_seed(0)
    model = GPT()
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    tokens = torch.randint(0, 256, (batch, length + 1))

    def run(tokens: torch.Tensor) -> torch.Tensor:
        return model(tokens)

    run.__code__ = run.__code__.replace()  # models do not share compiled code
    compiled = tc.compile(run)

    def step() -> None:
        logits = compiled(tokens[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    with tc.config.patch(sentinel=rate):
        step()
    return step


def seconds(step: Callable[[], None], times: int) -> float:
    """Return how much CPU time some steps take, which other processes change little."""
    began = time.process_time()
    for _ in range(times):
        step()
    return time.process_time() - began


def cost(steps: int, batch: int, length: int) -> dict[str, Any]:
    """Time steps with and without the sentinel, in turns of ten."""
    names = ("off", "1/1000", "1")
    made = {}
    for name in names:
        made[name] = step_of(name if name != "off" else "0", batch, length)
    times = dict.fromkeys(names, 0.0)
    best = dict.fromkeys(names, float("inf"))
    turns = max(1, steps // 10)
    for turn in range(turns):
        for name in ("off", "1/1000"):
            took = seconds(made[name], 10)
            times[name] += took
            best[name] = min(best[name], took / 10)
        if turn < 3:
            best["1"] = min(best["1"], seconds(made["1"], 1))
    return {
        "steps": turns * 10,
        "off ms": round(1000 * times["off"] / turns / 10, 3),
        "1/1000 ms": round(1000 * times["1/1000"] / turns / 10, 3),
        "ratio of sums": round(times["1/1000"] / times["off"], 4),
        "ratio of best": round(best["1/1000"] / best["off"], 4),
        "compared step ms": round(1000 * best["1"], 1),
        "share at 1/1000": round((best["1"] - best["off"]) / best["off"] / 1000, 5),
        "compared": dict(tc.counters["sentinel"]),
    }


# -- no false alarms -----------------------------------------------------------------------------
def small(dtype: torch.dtype, source: random.Random) -> torch.nn.Module:
    """Return a small GPT of a random width."""
    torch.manual_seed(source.randrange(10**6))
    width = source.choice((16, 32))
    return GPT(width, source.choice((2, 4)), source.choice((1, 2))).to(dtype)


def healthy(limit: float, seed: int) -> dict[str, Any]:
    """Train a healthy model of each type until the time is over, or something is accused."""
    source = random.Random(seed)
    calls = dict.fromkeys(map(str, DTYPES), 0)
    accused: list[str] = []
    for dtype in DTYPES:
        tc.reset()
        with trace.capture_events() as events:
            until = time.monotonic() + limit / len(DTYPES)
            calls[str(dtype)] = trained(small(dtype, source), source, until)
            accused += [one.message for one in events.of(trace.SentinelDifference)]
    counts = dict(tc.counters["sentinel"])
    return {"calls": calls, "accused": accused, "counts": counts, "seed": seed}


def trained(model: torch.nn.Module, source: random.Random, until: float) -> int:
    """Train a model by steps of random sizes until some time; return how many there were."""
    compiled, steps = tc.compile(model, dynamic=True), 0
    with tc.config.patch(sentinel=1, sentinel_bisect=False):
        while time.monotonic() < until:
            tokens = torch.randint(0, 256, (source.randint(1, 4), source.randint(2, 24)))
            compiled(tokens).float().square().mean().backward()
            steps += 1
            with torch.no_grad():
                for parameter in model.parameters():
                    assert parameter.grad is not None
                    parameter -= 0.01 * parameter.grad
                    parameter.grad = None
    return steps


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("cost", "healthy"))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.what == "cost":
        found = cost(given.steps, given.batch, given.length)
    else:
        found = healthy(given.seconds, given.seed)
    print(json.dumps(found))
    return 1 if found.get("accused") else 0


if __name__ == "__main__":
    raise SystemExit(main())
