"""Programs with facts of the job and collectives: two ranks run each by eager and compiled.

``python collective_programs.py ENTRANCE NAME…`` prints ``NAME rank N: GRAPHS`` where both agree.
The entrances are ``tc`` and ``torch``, which count graphs, ``full``, which compiles them, and
``sizes``, which compiles them for all sizes.
"""

from __future__ import annotations

import os
import socket
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
import torch.multiprocessing as mp
from torch import Tensor

import tc

Program = Callable[[Tensor], Any]
#: name -> a program, and how many graphs torch.compile makes of it
PROGRAMS: dict[str, tuple[Program, int]] = {}
GROUPS: list[Any] = []  # one of both ranks, and one of each rank
functional = torch.ops._c10d_functional


def program(graphs: int = 1) -> Callable[[Program], Program]:
    """Take a program into the table."""

    def add(function: Program) -> Program:
        PROGRAMS[function.__name__] = function, graphs
        return function

    return add


# -- facts ---------------------------------------------------------------------------------------
@program()
def rank_and_size(x):
    return x * (dist.get_rank() + 1) / dist.get_world_size()


@program()
def of_a_group(x):
    group, own = dist.group.WORLD, GROUPS[1 + dist.get_rank()]
    ranks = dist.get_process_group_ranks(group)
    x = x * (group.rank() + group.size() + len(ranks) + dist.get_global_rank(GROUPS[0], 1))
    return x + dist.get_rank(own) + dist.get_world_size(own)


@program()
def started(x):
    return x + 1 if dist.is_initialized() and dist.get_backend() == "gloo" else x


@program()
def shard(x):
    rows = x.shape[0] // dist.get_world_size()
    return x[dist.get_rank() * rows :][:rows] * 2


# -- collectives that write ----------------------------------------------------------------------
@program()
def reduced(x):
    y, z = x.sin(), (x * 10).long()
    dist.all_reduce(y)
    dist.all_reduce(tensor=z, op=dist.ReduceOp.BAND, async_op=False)
    dist.all_reduce(y, dist.ReduceOp.MAX, GROUPS[0])
    return y * 2 + z


@program()
def reduced_in_place(x):
    y = x.sin()
    dist.all_reduce(y[1:3])
    y.mul_(0.5)
    dist.all_reduce(y, dist.ReduceOp.PRODUCT)
    dist.all_reduce(x)
    return y.view(2, 2) + 1, x


@program()
def reduced_by_kinds(x):
    y, z = torch.complex(x, x + 1), x.bfloat16()
    dist.all_reduce(y)
    dist.all_reduce(z, group=GROUPS[1 + dist.get_rank()])
    return y * 2, z.float()


@program()
def gathered(x):
    parts = [torch.empty_like(x) for _ in range(2)]
    dist.all_gather(parts, x.sin())
    out = torch.zeros(3, 8)
    dist.all_gather_into_tensor(out[1], x.cos())
    return torch.cat(parts), out


@program()
def scattered(x):
    out = torch.empty(1, 2)
    dist.reduce_scatter_tensor(out, x.sin().view(2, 2), op=dist.ReduceOp.MAX)
    return out.cos()


@program()
def exchanged(x):
    rank = dist.get_rank()
    out = torch.empty((3, 5)[rank])
    dist.all_to_all_single(out, x.sin(), [(1, 2), (3, 2)][rank], [(1, 3), (2, 2)][rank])
    same = torch.empty(4)
    dist.all_to_all_single(same, x)
    return out * 2, same + 1


@program()
def statistics(x):
    both = torch.stack([x.mean(), (x * x).mean()])
    dist.all_reduce(both)
    mean, square = both / dist.get_world_size()
    return (x - mean) / (square - mean**2 + 1e-5).sqrt()


# -- functional ones -----------------------------------------------------------------------------
@program()
def functional_ones(x):
    group = dist.group.WORLD
    y = fc.all_reduce(x.sin(), "sum", group) + fc.broadcast(x.cos(), 0, group)
    a, b = fc.all_reduce_coalesced([y, y.cos()], "max", GROUPS[0])
    return fc.all_to_all_single(a * b, None, None, group), fc.wait_tensor(y)


@program()
def functional_gathers(x):
    group = dist.group.WORLD
    y = fc.all_gather_tensor(x.view(2, 2).sin(), 1, group)
    return fc.reduce_scatter_tensor(y * 2, "sum", 0, group)


@program()
def used_by_one_rank(x):
    y, z = x.sin(), x.cos()
    dist.all_reduce(y)
    dist.all_reduce(z)
    fc.all_reduce(x * 3, "sum", dist.group.WORLD)
    return y if dist.get_rank() == 0 else x + z


@program()
def overlapped(x):
    m = torch.outer(x, x).repeat(16, 16).double() / 500
    own = m.sin()
    whole = functional.all_gather_into_tensor(own, 2, dist.group.WORLD.group_name)
    y = (m @ m).cos()
    z = ((y @ m).sin() @ y).cos()
    return functional.wait_tensor(whole) * 2, z @ y


# -- where torch.compile breaks, and tc too ------------------------------------------------------
@program(2)
def asynchronous(x):
    y = x.sin()
    work = dist.all_reduce(y, async_op=True)
    work.wait()
    return y * 2


@program(2)
def others(x):
    y = x.sin()
    dist.broadcast(y, 0)
    return y * 2


def gradient_is_not_seen(x):
    """Return what eager does: autograd sees no collective."""
    x = x.clone().requires_grad_()
    y = x.sin()
    dist.all_reduce(y)
    (y * 2).sum().backward()
    return x.grad


def functional_gradient(x):
    """Return a gradient through a functional collective that has one."""
    x = x.clone().requires_grad_()
    (fc.all_gather_tensor_autograd(x.sin(), 0, dist.group.WORLD) * 2).sum().backward()
    return x.grad


def output_does_not_fit(x):
    """Raise an error, as a collective with an output of another type does."""
    try:
        dist.all_gather_into_tensor(torch.empty(8, dtype=torch.float64), x)
    except (RuntimeError, ValueError, TypeError):
        return x + 1
    return x


BY_TC_ALONE: dict[str, tuple[Program, int]] = {
    one.__name__: (one, -1)
    for one in (gradient_is_not_seen, functional_gradient, output_does_not_fit)
}


def tensors(out: Any) -> list[Tensor]:
    """Return the results of a program as a list."""
    return list(out) if isinstance(out, tuple) else [out]


def work(rank: int, port: int, entrance: str, names: list[str]) -> None:
    """Be one rank."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    GROUPS.extend(dist.new_group(ranks) for ranks in ([0, 1], [0], [1]))
    graphs: list[Any] = []

    def count(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    compile: Callable[[Program], Program] = {
        "tc": lambda f: tc.compile(f, backend=count),
        "full": tc.compile,
        "sizes": lambda f: tc.compile(f, dynamic=True),
        "torch": lambda f: torch.compile(f, backend=count),
    }[entrance]
    for name in names:
        function, _ = {**PROGRAMS, **BY_TC_ALONE}[name]
        graphs.clear()
        compiled = compile(function)
        for size in (4, 4) if entrance == "tc" else (4,):
            x = torch.arange(float(size)) + rank
            for got, want in zip(
                tensors(compiled(x.clone())), tensors(function(x.clone())), strict=True
            ):
                torch.testing.assert_close(got, want)
        print(f"{name} rank {rank}: {len(graphs)}\n", end="", flush=True)
    dist.barrier()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] == "torch":
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))  # loads it before the fork
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        at = free.getsockname()[1]
    mp.start_processes(work, (at, sys.argv[1], sys.argv[2:]), 2, start_method="fork")
