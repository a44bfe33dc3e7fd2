"""Jobs of a few ranks, one after the other: what a rank does otherwise than the others.

``python rank_program.py WORLD ENTRANCE PLAN…`` runs a job a plan; the plans are the functions here.
Each rank prints what became of it as a line ``plan rank N: …``.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tc
from tc import trace
from tc.compiler.backends.torch_compile import tc as backend

Compile = Callable[[Any], Any]


def healthy(rank: int, compile: Compile) -> None:
    """Data and recompiles differ, rank 0 logs by a compiled function; all collectives meet."""

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
            return y + 1
        return y * 2

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


def in_a_graph(rank: int, compile: Compile) -> None:
    """The collective of a compiled graph is another one on rank 1."""

    @compile
    def step(x, last):
        y = x.sin()
        if last:
            return fc.all_gather_tensor(y, 0, dist.group.WORLD).sum()
        return fc.all_reduce(y, "sum", dist.group.WORLD).sum()

    for number in range(3):
        float(step(torch.ones(4), rank == 1 and number == 2))


def in_backward(rank: int, compile: Compile) -> None:
    """Under DDP, rank 1 ends before the last step; its reducer is C++."""
    model = DistributedDataParallel(nn.Linear(3, 3))
    step = compile(model)
    for number in range(3 - rank):
        step(torch.ones(2 + number, 3)).sum().backward()


def silent(rank: int, compile: Compile) -> None:
    """Rank 1 ends without a word before the last collective, as one that is killed does."""
    step = compile(lambda x: x.sin())
    for _ in range(2):
        out = step(torch.ones(3))
        dist.all_reduce(out)
    if rank == 1:
        os._exit(0)
    dist.all_reduce(out)


def caught(rank: int, compile: Compile) -> None:
    """Rank 1 ends; rank 0 catches the error of its last collective and continues."""
    step = compile(lambda x: x.sin())
    out = step(torch.ones(3))
    dist.all_reduce(out)
    if rank == 1:
        return
    with suppress(RuntimeError):
        dist.all_reduce(out)
    time.sleep(3)
    os._exit(0)  # what is reported now is reported while the job runs


def left(rank: int, compile: Compile) -> None:
    """Rank 1 destroys its groups and lives on."""
    step = compile(lambda x: x.sin())
    out = step(torch.ones(3))
    dist.all_reduce(out)
    if rank == 1:
        dist.destroy_process_group()
        time.sleep(4)
    else:
        dist.all_reduce(out)


def again(rank: int, compile: Compile) -> None:
    """A second job in the same processes, with other collectives: nothing to report."""
    step = compile(lambda x: x.sin())
    dist.all_reduce(step(torch.ones(3)))
    dist.destroy_process_group()
    time.sleep(0.5 * rank)
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), is_master=False)
    store = dist.PrefixStore("again", store)  # as PyTorch itself needs it
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    dist.broadcast(step(torch.ones(4)), 0)
    dist.barrier()


def unwaited(rank: int, compile: Compile) -> None:
    """Rank 0 ends while its last collective is under way, for which rank 1 comes later."""
    step = compile(lambda x: x.sin())
    out = step(torch.ones(3))
    if rank == 1:
        time.sleep(1.5)
    work = dist.all_reduce(out, async_op=True)
    if rank == 1:
        work.wait()


def training(rank: int, compile: Compile) -> None:
    """DDP with other batches on each rank, the last one uneven: nothing to report."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)))
    step = compile(model)
    for size in (4, 4, 3 + 2 * rank, 4, 2 + rank):
        step(torch.ones(size, 3) * rank).sum().backward()


PLANS = (
    healthy, other_collective, missing_collective, late, without_compile, in_a_graph, in_backward,
    silent, caught, left, again, unwaited, training,
)  # fmt: skip


class Printed:
    """Prints the events that the guard emits, at once: the process may end without warning."""

    def __init__(self, name: str) -> None:
        self.name = name

    def write(self, stamped: trace.Stamped) -> None:
        """See `Sink`."""
        one = stamped.event
        if isinstance(one, trace.RanksApart):
            print(f"{self.name}: {one.kind} {one.line} {one.other_line}: {one.message}", flush=True)


def work(rank: int, world: int, port: int, plan: str, entrance: str) -> None:
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="True"
    )
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    compile = {
        "tc": tc.compile(backend="eager"), "full": tc.compile,
        "torch": torch.compile(backend=backend),
    }[entrance]  # fmt: skip
    name = f"{plan} rank {rank}"
    trace.add_sink(Printed(name))
    try:
        {one.__name__: one for one in PLANS}[plan](rank, compile)
    except Exception as error:
        print(f"{name}: raised {type(error).__name__}", flush=True)
        raise SystemExit(3) from None
    print(f"{name}: done", flush=True)


def run(world: int, entrance: str, plan: str) -> None:
    """Run one job as torchrun does: the store is the parent's, and one that fails ends all."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    context = mp.start_processes(
        work, (world, port, plan, entrance), world, join=False, start_method="fork"
    )
    assert context is not None
    until, failed = time.monotonic() + 60, False
    while any(p.is_alive() for p in context.processes) and time.monotonic() < until:
        if not failed and any(p.exitcode for p in context.processes):
            until, failed = time.monotonic() + 2, True  # the others may report as well
        time.sleep(0.05)
    if not failed and not any(p.exitcode for p in context.processes):
        hung = any(p.is_alive() for p in context.processes)
        print(f"{plan}: {'hung' if hung else 'ended well'}", flush=True)
    for process in context.processes:
        process.kill()
    del store


if __name__ == "__main__":
    tc.config.rank_check = 1.0
    tc.compile(lambda x: x + 1, backend="eager")(torch.ones(2))  # what all ranks load, once
    for one in sys.argv[3:]:
        run(int(sys.argv[1]), sys.argv[2], one)
