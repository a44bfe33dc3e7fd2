"""Types that kernels do not have: what moves or converts them is left to ATen, none is a crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tc
from tc.compiler.loops.ops import C_TYPES

SHAPE = (4, 8)
TYPES = [t for t in vars(torch).values() if isinstance(t, torch.dtype) and t not in C_TYPES]
OPERATIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "cat": lambda x: torch.cat([x, x]),
    "stack": lambda x: torch.stack([x, x]),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, 0),
    "where": lambda x: torch.where(torch.ones(SHAPE, dtype=torch.bool), x, x),
    "transposed": lambda x: x.t().contiguous(),
    "expanded": lambda x: x[None].expand(2, -1, -1).clone(),
    "index": lambda x: x[torch.tensor([1, 0])],
    "index_select": lambda x: torch.index_select(x, 0, torch.tensor([1])),
    "gather": lambda x: x.gather(0, torch.zeros(1, 8, dtype=torch.long)),
    "scatter": lambda x: x.scatter(0, torch.zeros(1, 8, dtype=torch.long), x[:1]),
    "masked_fill": lambda x: x.masked_fill(torch.ones(SHAPE, dtype=torch.bool), 1),
    "to int": lambda x: x.to(torch.int32),
    "to float": lambda x: x.float() + 1,
    "from float": lambda x: (x.to(torch.float32) * 2).to(x.dtype),
    "triangle": lambda x: x.tril(),
    "zeros_like": lambda x: torch.zeros_like(x),
    "full": lambda x: torch.full((3,), 2, dtype=x.dtype),
    "pad": lambda x: F.pad(x, (1, 1)),
    "sum": lambda x: x.float().sum(),
    "equal": lambda x: x == x,
    "add": lambda x: x + x,
    "multiply": lambda x: x * 3,
    "fill": lambda x: x.clone().fill_(3),
    "copy": lambda x: torch.empty_like(x).copy_(x),
    "chunks": lambda x: [part.clone() for part in x.chunk(2)],
    "repeat": lambda x: x.repeat(2, 1),
    "bytes": lambda x: x.view(torch.uint8).clone(),
}


def parts(found: Any) -> list[torch.Tensor]:
    """Return results as bytes that can be compared."""
    tensors = [found] if isinstance(found, torch.Tensor) else found
    return [t.reshape(-1).contiguous().view(torch.uint8) for t in tensors]


def cases() -> list[tuple[str, torch.dtype]]:
    """Return operations and types that eager takes together."""
    found = []
    for dtype in dict.fromkeys(TYPES):
        for name, operation in OPERATIONS.items():
            try:
                parts(operation(sample(dtype)))
            except Exception:
                continue
            found.append((name, dtype))
    return found


def sample(dtype: torch.dtype) -> torch.Tensor:
    """Return small numbers of a type."""
    return torch.arange(32).reshape(SHAPE).float().to(dtype)


@pytest.mark.sample(15)
@pytest.mark.parametrize(
    ("name", "dtype"), [pytest.param(*case, id=f"{case[1]}-{case[0]}") for case in cases()]
)
def test_as_eager(name: str, dtype: torch.dtype) -> None:
    x, operation = sample(dtype), OPERATIONS[name]
    for mine, theirs in zip(parts(tc.compile(operation)(x)), parts(operation(x)), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_neighbours_of_numbers_are_those_of_their_type(dtype):
    x, towards = torch.linspace(-2, 2, 33).to(dtype), torch.zeros((), dtype=dtype)
    torch.testing.assert_close(
        tc.compile(lambda x, y: torch.nextafter(x, y))(x, towards),
        torch.nextafter(x, towards),
        rtol=0,
        atol=0,
    )
