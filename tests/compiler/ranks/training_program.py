"""Ranks train models compiled and by eager, under DDP and FSDP2: the parameters are the same.

``python training_program.py WORLD KIND…`` forks the ranks for each kind, a function here.
"""

from __future__ import annotations

import copy
import os
import socket
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import tc
from tc import trace

Model = Callable[..., Any]


class Net(nn.Module):
    """Layers of 60 × 60, one of which is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(60, 60) for _ in range(4)])

    def forward(self, x):
        for layer in (*self.layers, self.layers[1]):
            x = torch.relu(layer(x)) + x
        return x


class Normed(nn.Module):
    """Batch norm writes to its buffers, each in one part of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(60, 60), nn.BatchNorm1d(60), nn.ReLU(), nn.Linear(60, 60)
        )

    def forward(self, x):
        return self.layers(x)


class Broken(Net):
    """A graph break in the middle."""

    def forward(self, x):
        x = self.layers[0](x)
        print(end="")
        return self.layers[1](self.layers[2](self.layers[3](x))).tanh()


def ddp(model: nn.Module, **settings: Any) -> nn.Module:
    """Buckets of one layer each."""
    return DistributedDataParallel(model, bucket_cap_mb=60 * 60 * 8 / 2**20, **settings)


def sharded(model: nn.Module) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def in_place(model: nn.Module) -> nn.Module:
    """Each layer compiled by itself, before it is sharded."""
    for layer in model.layers:
        layer._compiled_call_impl = tc.compile(layer._call_impl)
    return sharded(model)


def one_by_one(model: nn.Module) -> nn.Module:
    """Each layer a compiled module, before it is sharded."""
    for number, layer in enumerate(model.layers):
        model.layers[number] = tc.compile(layer)
    return sharded(model)


#: kind -> model, how it is spread, how it is compiled
KINDS: dict[str, tuple[Any, Model, Model]] = {
    "ddp": (Net, ddp, tc.compile),
    "ddp_inside": (Net, lambda m: ddp(tc.compile(m)), lambda m: m),
    "ddp_normed": (Normed, ddp, tc.compile),
    "ddp_broken": (Broken, ddp, tc.compile),
    "ddp_dynamic": (Net, ddp, lambda m: tc.compile(m, dynamic=True)),
    "ddp_static": (Net, lambda m: ddp(m, static_graph=True), tc.compile),
    "fsdp": (Net, sharded, tc.compile),
    "fsdp_in_place": (Net, in_place, lambda m: m),
    "fsdp_one_by_one": (Net, one_by_one, lambda m: m),
    "fsdp_normed": (Normed, sharded, tc.compile),
}


def whole(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {
        name.replace("module.", "").replace("_orig_mod.", ""): (
            value.full_tensor() if hasattr(value, "full_tensor") else value
        )
        for name, value in state.items()
    }


def train(kind: str, rank: int) -> str:
    """Train both for a few steps; returns what the graphs were split into."""
    made, spread, compiled = KINDS[kind]
    torch.manual_seed(0)
    plain = made().double()
    twin = copy.deepcopy(plain)
    plain = (sharded if kind.startswith("fsdp") else ddp)(plain)
    spread_twin = spread(twin)
    pairs = [(plain, plain), (spread_twin, compiled(spread_twin))]
    steps = [torch.optim.SGD(m.parameters(), lr=0.05) for m, _ in pairs]
    losses: list[list[float]] = [[], []]
    with trace.capture_events() as events:
        for number, size in enumerate((5, 5, 5, 3 + rank)):
            data = torch.Generator().manual_seed(10 * number + rank)
            x = torch.randn(size, 60, generator=data, dtype=torch.float64)
            for (model, call), step, seen in zip(pairs, steps, losses, strict=True):
                quiet = number == 1 and hasattr(model, "no_sync")
                with model.no_sync() if quiet else nullcontext():  # gradients add up
                    loss = call(x).tanh().mean()
                    loss.backward()
                seen.append(loss.item())
                if not quiet:
                    step.step()
                    step.zero_grad()
    torch.testing.assert_close(losses[1], losses[0])
    torch.testing.assert_close(whole(spread_twin.state_dict()), whole(plain.state_dict()))
    split = [str(one.payload) for one in events.of(trace.Artifact) if one.name == "tc_ddp_buckets"]
    return "; ".join(sorted({one.partition(" graphs")[0] for one in split})) or "1"


def work(rank: int, world: int, port: int, kind: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    print(f"{kind} rank {rank}: {train(kind, rank)} graphs", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    tc.compile(lambda x: (x @ x).sum())(torch.ones(2, 2, requires_grad=True)).backward()
    for one in sys.argv[2:] or KINDS:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            chosen = free.getsockname()[1]
        world = int(sys.argv[1])
        try:
            mp.start_processes(work, (world, chosen, one), world, start_method="fork")
        except Exception as error:
            print(f"{one}: FAILED {error}", flush=True)
