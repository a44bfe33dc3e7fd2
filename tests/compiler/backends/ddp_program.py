"""Two processes train one model under DDP, compiled with backend "tc": the same as without."""

from __future__ import annotations

import copy
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tc
from tc.compiler.backends.torch_compile import tc as backend


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(600, 600) for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def work(rank: int, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    graphs = []
    tc.on_graph(graphs.append)
    torch.manual_seed(0)
    theirs = Net()
    pair = [DistributedDataParallel(m, bucket_cap_mb=1.5) for m in (theirs, copy.deepcopy(theirs))]
    programs = [pair[0], torch.compile(pair[1], backend=backend)]
    steps = [torch.optim.SGD(m.parameters(), lr=0.1) for m in pair]
    for _ in range(2):
        x = torch.randn(5, 600, generator=torch.Generator().manual_seed(rank))
        for program, step in zip(programs, steps, strict=True):
            step.zero_grad()
            program(x).sin().sum().backward()
            step.step()
    torch.testing.assert_close(pair[1].state_dict(), pair[0].state_dict())
    print(f"rank {rank}: {len(graphs)} graphs", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        chosen = free.getsockname()[1]
    mp.spawn(work, args=(chosen,), nprocs=2)
