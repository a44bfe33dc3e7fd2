"""Programs for `tc.precompile`: each with inputs described, and the calls that are to follow."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F


class Block(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x, past=None):
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)))), (k, v)


class GPT(torch.nn.Module):
    """A GPT with a cache of keys and values."""

    def __init__(self, layers: int = 2, width: int = 32) -> None:
        super().__init__()
        self.token, self.place = torch.nn.Embedding(64, width), torch.nn.Embedding(128, width)
        self.blocks = torch.nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.head = torch.nn.Linear(width, 64)

    def forward(self, ids, pasts=None):
        start = 0 if pasts is None else pasts[0][0].shape[2]
        x = self.token(ids) + self.place(torch.arange(start, start + ids.shape[1]))
        found = []
        for number, block in enumerate(self.blocks):
            x, kept = block(x, None if pasts is None else pasts[number])
            found.append(kept)
        return self.head(x), found


class Convolutional(torch.nn.Module):
    """Buffers (of batch norm) are written in training."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
        self.last = torch.nn.Linear(8, 4)

    def forward(self, x):
        return self.last(F.relu(self.norm(self.first(x))).mean((2, 3)))


class Counting(torch.nn.Module):
    """Writes an attribute, a buffer and a list."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))
        self.linear, self.seen, self.shapes = torch.nn.Linear(8, 8), torch.zeros(1), []

    def forward(self, x):
        self.total += x.sum().detach()
        self.last = x.shape[0]
        return self.linear(F.dropout(x, 0.5)).tanh()


def branches(x, w):
    y = x @ w
    if x.shape[0] > 10:
        y = y * 2
    return y.relu().sum(1)


def scale(x, factor, bias=0.0):
    return x * factor + bias


@torch.no_grad()
def frozen(x):
    return x.sin().cumsum(0) / 2


def two(batch):
    return {"sum": batch["a"] + batch["b"], "length": batch["a"].shape[0]}


class Polynomial:
    """A callable object."""

    def __init__(self) -> None:
        self.weights = [torch.ones(()), torch.ones(()) * 2]

    def __call__(self, x):
        return sum(w * x**n for n, w in enumerate(self.weights))

    def method(self, x):
        return self(x).exp()


def printing(x):
    y = x.sin() + 1
    print("a break")
    return y.cos() * 2


def on_value(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


def loss_of(model, x, target):
    return F.cross_entropy(model(x), target)


def step_of(model, optimizer):
    def step(x, target):
        optimizer.zero_grad()
        loss = loss_of(model, x, target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def in_place(x, y):
    x.add_(y)
    x[0] = 0
    return x.mul(y)


@dataclass(frozen=True)
class Program:
    """A function, what its inputs will be, and calls.

    Attributes:
        make: returns the function.
        inputs: as `tc.precompile` takes them.
        calls: yields inputs.
        train: whether calls run backward.
        complete: whether nothing is left to the calls.
        sizes: what names of sizes in the inputs may be.
    """

    make: Callable[[], Any]
    inputs: Any
    calls: Callable[[], Iterator[tuple[Any, ...]]]
    train: bool = False
    complete: bool = True
    sizes: tuple[tuple[str, str], ...] = ()


def _tensors(*shapes: tuple[int, ...]) -> Iterator[tuple[Any, ...]]:
    for shape in shapes:
        yield (torch.randn(shape),)


def _tokens(*shapes: tuple[int, int]) -> Iterator[tuple[Any, ...]]:
    for shape in shapes:
        yield (torch.randint(0, 64, shape),)


def _past(length: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randn(2, 4, length, 8), torch.randn(2, 4, length, 8)) for _ in range(2)]


def _decoding() -> Iterator[tuple[Any, ...]]:
    for length in (4, 8, 16):
        yield torch.randint(0, 64, (2, 1)), _past(length)


def _examples() -> list[Any]:
    return [(torch.zeros(2, 1, dtype=torch.int64), _past(length)) for length in (4, 8, 16)]


def _images() -> Iterator[tuple[Any, ...]]:
    return _tensors((2, 3, 8, 8), (4, 3, 8, 8), (2, 3, 16, 16))


def _labelled() -> Iterator[tuple[Any, ...]]:
    for batch in (2, 4):
        yield torch.randn(batch, 3, 8, 8), torch.randint(0, 4, (batch,))


def _evaluated() -> Any:
    return GPT().eval().requires_grad_(False)


def _a_step() -> Any:
    model = Convolutional()
    return step_of(model, torch.optim.AdamW(model.parameters()))


PROGRAMS = {
    "branches": Program(
        lambda: branches, "x=1..64,16 w=16,4",
        lambda: ((torch.randn(n, 16), torch.randn(16, 4)) for n in (1, 2, 9, 33, 64)),
    ),
    "values": Program(
        lambda: scale, "x=4|8,3 factor:=3 bias:=0.5",
        lambda: ((torch.randn(n, 3), 3, 0.5) for n in (4, 8)),
    ),
    "no_grad": Program(lambda: frozen, "x=3|5|2..16", lambda: _tensors((3,), (5,), (16,))),
    "dict": Program(
        lambda: two, [({"a": torch.zeros(n, 2), "b": torch.zeros(n, 2)},) for n in (2, 3, 4)],
        lambda: (({"a": torch.randn(n, 2), "b": torch.randn(n, 2)},) for n in (2, 3, 4)),
    ),
    "object": Program(Polynomial, "x=2..32", lambda: _tensors((2,), (7,), (32,))),
    "method": Program(lambda: Polynomial().method, "x=4|6", lambda: _tensors((4,), (6,))),
    "partial": Program(
        lambda: functools.partial(scale, factor=2), "x=2..32,3", lambda: _tensors((2, 3), (32, 3))
    ),
    "MLP, training": Program(
        lambda: torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 2)
        ),
        "input=2|4|8,8", lambda: _tensors((2, 8), (4, 8), (8, 8)), train=True,
    ),
    "CNN, training": Program(
        Convolutional, [(torch.zeros(s),) for s in ((2, 3, 8, 8), (4, 3, 8, 8), (2, 3, 16, 16))],
        _images, train=True,
    ),
    "GPT, prefill": Program(
        _evaluated, "ids=2,4|8|16:int64", lambda: _tokens((2, 4), (2, 8), (2, 16))
    ),
    "GPT, decoding": Program(_evaluated, _examples(), _decoding),
    "GPT, training": Program(
        GPT, "ids=B,T:int64", lambda: _tokens((2, 8), (3, 20), (4, 32)), train=True,
        sizes=(("B", "2..4"), ("T", "2..32")),
    ),
    "writes": Program(Counting, "x=4|8,8", lambda: _tensors((4, 8), (8, 8)), train=True),
    "in place": Program(
        lambda: in_place, "x=N,2 y=N,2",
        lambda: ((torch.randn(n, 2), torch.randn(n, 2)) for n in (2, 3, 16)),
        sizes=(("N", "2..16"),),
    ),
    "break": Program(lambda: printing, "x=4|8", lambda: _tensors((4,), (8,)), complete=False),
    "break on a value": Program(
        lambda: on_value, "x=4|8", lambda: _tensors((4,), (8,)), complete=False
    ),
    "training step": Program(
        _a_step, ["x=2,3,8,8 target=2:int64", "x=4,3,8,8 target=4:int64"], _labelled, complete=False
    ),
}  # fmt: skip
