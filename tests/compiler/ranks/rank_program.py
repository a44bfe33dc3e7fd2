"""A job of a few ranks, each with its plan: what a rank does otherwise than the others.

``python rank_program.py WORLD PLAN [ENTRANCE]`` starts the ranks; the plans are the functions at
the end of this file. Each rank prints its result as a line ``rank N: …``.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import tc
from tc import trace

Compile = Callable[[Any], Any]


def healthy(rank: int, compile: Compile) -> None:
    """Data, batches and recompiles differ; rank 0 logs by a compiled function; all collectives meet."""

    @compile
    def step(x):
        return (x.sin() * 2).sum()

    @compile
    def logged(x):
        return x.mean() + 1

    for number in range(8):
        size = 4 + (number % 3 if rank == 1 else 0)
        loss = step(torch.ones(size))
        if rank == 0 and number % 3 == 1:
            logged(torch.ones(3 + number))
        if rank == 1 and number == 4:
            time.sleep(0.5)
        dist.all_reduce(loss)
        if rank == 0:
            dist.broadcast(loss, 0)
        else:
            dist.broadcast(torch.zeros(()), 0)
    dist.barrier()


def other_collective(rank: int, compile: Compile) -> None:
    """After a recompile, rank 1 takes another branch, with another collective."""

    @compile
    def step(x):
        y = x.sin()
        if x.shape[0] > 4:
            y = y + y.mean()
        return y

    for number in range(3):
        out = step(torch.ones(5 if rank == 1 and number == 2 else 4))
        if out.shape[0] == 4:
            dist.all_reduce(out)
        else:
            dist.all_gather([torch.zeros(5) for _ in range(dist.get_world_size())], out)


def missing_collective(rank: int, compile: Compile) -> None:
    """Rank 1 leaves out the last collective and ends."""

    @compile
    def step(x):
        y = x.sin()
        if float(y.sum()) > 100:
            y = y + 1
        else:
            y = y * 2
        return y

    out = step(torch.full((1000,), 1.0 if rank == 0 else 0.01))
    dist.all_reduce(out)
    if rank == 0:
        dist.all_reduce(out)


def late(rank: int, compile: Compile) -> None:
    """Rank 1 comes late: a sentence says so, and nothing ends."""
    step = compile(lambda x: x.sin())
    out = step(torch.ones(3))
    dist.all_reduce(out)
    if rank == 1:
        time.sleep(2.5)
    dist.all_reduce(out)


def without_compile(rank: int, compile: Compile) -> None:
    """The last collective differs long after the last compile."""
    step = compile(lambda x: x.sin())
    for _ in range(4):
        out = step(torch.ones(3))
        dist.all_reduce(out)
    if rank == 1:
        dist.broadcast(out, 0)
    else:
        dist.all_reduce(out)


PLANS = (healthy, other_collective, missing_collective, late, without_compile)


def work(rank: int, world: int, port: int, plan: str, entrance: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    compile = tc.compile if entrance == "tc" else torch.compile(backend="tc")
    with trace.capture_events() as events:
        began = time.monotonic()
        try:
            {one.__name__: one for one in PLANS}[plan](rank, compile)
        except tc.exc.RanksDiverged as error:
            print(f"rank {rank}: {error}", flush=True)
            raise SystemExit(3) from None
        finally:
            seconds = time.monotonic() - began
            for one in events.of(trace.RanksApart):
                print(f"rank {rank} event: {one}", flush=True)
    print(f"rank {rank}: done in {seconds:.1f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        chosen = free.getsockname()[1]
    world, plan, *entrance = sys.argv[1:]
    mp.spawn(work, args=(int(world), chosen, plan, *(entrance or ["tc"])), nprocs=int(world))
