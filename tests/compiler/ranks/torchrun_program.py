"""A script that torchrun starts: DDP trains a model compiled and by eager, to the same parameters.

``torchrun --nproc-per-node N torchrun_program.py tc|backend``
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tc

ENTRANCES = {"tc": tc.compile, "backend": lambda model: torch.compile(model, backend="tc")}


def trained(compiled: Any) -> Any:
    """Return the losses and parameters of six steps over two sizes of batches."""
    torch.manual_seed(0)
    layers = [nn.Linear(20, 640), nn.LayerNorm(640), nn.GELU(), nn.Linear(640, 640), nn.ReLU()]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(640, 5)), bucket_cap_mb=2)
    call, losses = compiled(model), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for number in range(6):
        own = torch.Generator().manual_seed(100 * number + dist.get_rank())
        loss = call(torch.randn(4 + number % 2, 20, generator=own)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, [parameter.detach() for parameter in model.parameters()]


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.testing.assert_close(
        trained(ENTRANCES[sys.argv[1]]), trained(lambda model: model), rtol=1e-4, atol=1e-5
    )
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: equal", flush=True)
    dist.destroy_process_group()
