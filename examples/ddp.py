"""Data-parallel training: two processes share a data set, and average their gradients with gloo.

    TC_TRACE=tc_trace python examples/ddp.py             # then: tc-report summary tc_trace
    TC_TRACE=tc_trace python examples/ddp.py --cured

Finding: the data set has an odd number of sequences, so that the last batch of rank 1 is shorter.
That rank compiles the network again, while rank 0 waits for it in the all-reduce (TC601, TC201).
Cure: give all ranks batches of one size, as `DistributedSampler` does: wrap around to the start.
"""

from __future__ import annotations

import argparse
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import tc

RANKS, COUNT, BATCH = 2, 47, 8


def waves(count: int) -> tuple[Tensor, Tensor]:
    """Make noisy waves (count, 32), and the frequency of each, (count,)."""
    generator = torch.Generator().manual_seed(1)
    frequency = 1 + 3 * torch.rand(count, generator=generator)
    x = (frequency[:, None] * torch.linspace(0, 6, 32)).sin()
    return x + 0.05 * torch.randn(count, 32, generator=generator), frequency


def share(rank: int, cured: bool) -> Tensor:
    """Return which waves a rank trains on."""
    if cured:
        per_rank = -(-COUNT // RANKS)
        return torch.arange(rank * per_rank, (rank + 1) * per_rank) % COUNT
    return torch.arange(COUNT).chunk(RANKS)[rank]


def train(rank: int, port: int, cured: bool, epochs: int) -> None:
    """Train one rank; rank 0 prints the loss of the first and the last epoch."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    store = dist.TCPStore("127.0.0.1", port, RANKS, is_master=rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    network = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1), nn.Flatten(0))
    model = DistributedDataParallel(tc.compile(network))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, frequency = waves(COUNT)
    losses = []
    for _ in range(epochs):
        for batch in share(rank, cured).split(BATCH):
            loss = F.mse_loss(model(x[batch]), frequency[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    check(model, rank)
    if rank == 0:
        print(f"loss      {losses[0]:.3f} at first, {losses[-1]:.3f} after {epochs} epochs")
        print(f"matches   all {RANKS} ranks hold the same weights")
    dist.destroy_process_group()


def check(model: nn.Module, rank: int) -> None:
    """Compare the weights of this rank with those of rank 0.

    Raises:
        AssertionError: they differ.
    """
    for parameter in model.parameters():
        other = parameter.detach().clone()
        dist.broadcast(other, src=0)
        torch.testing.assert_close(parameter.detach(), other, msg=f"rank {rank} has other weights")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cured", action="store_true", help="with batches of one size")
    parser.add_argument("--epochs", type=int, default=20, help="%(default)s")
    options = parser.parse_args(arguments)
    if options.epochs < 1:
        parser.error("--epochs must be 1 or more")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(train, (port, options.cured, options.epochs), nprocs=RANKS)


if __name__ == "__main__":
    main()
