"""Positions of the best values: rows of all lengths, ties, infinite values and NaNs."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

import tc

#: exact in all types, so that equal elements stay equal
VALUES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "read": lambda x: x,
    "cheap": lambda x: x * 2,
    "expensive": lambda x: torch.remainder(torch.fmod(x * 4, 7).abs() - x, 5) * 2 - x.sign() * x,
    "backwards": lambda x: x.flip(-1).abs(),
    "gathered": lambda x: x[..., torch.arange(x.shape[-1] - 1, -1, -1)] + 1,
    "transposed": lambda x: x.transpose(-1, 0) + 1,
    "in place": lambda x: x.mul_(2),
    "cut": lambda x: torch.where(torch.arange(x.shape[-1]) % 3 == 1, x, -x),
}
FOUND: dict[str, Callable[[torch.Tensor, int | None], object]] = {
    "argmax": lambda x, dim: x.argmax(dim),
    "min": lambda x, dim: tuple(x.min(dim)) if dim is not None else x.argmin(),
    "both": lambda x, dim: (x.argmin(dim), x.argmax(dim), x.sum(dim) if dim is not None else x),
    "of rows scaled": lambda x, dim: (x - x.amax(-1, keepdim=True)).argmax(dim),
}
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64)
LENGTHS = (1, 2, 3, 5, 8, 10, 15, 16, 17, 24, 31, 33, 63, 64, 65, 100, 257, 4095, 4097, 9000)


def drawn(source: random.Random, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return numbers with many ties, or one best value, or none but infinite ones and NaNs."""
    torch.manual_seed(source.randrange(1 << 30))
    x = torch.randint(-9, 9, shape).to(dtype)
    kind = source.choice(("ties", "one", "infinite", "nan", "mixed"))
    if kind == "one":
        x.view(-1)[source.randrange(x.numel())] = 33
    elif dtype.is_floating_point and kind != "ties":
        special = {"infinite": (-torch.inf,), "nan": (torch.nan,)}.get(
            kind, (torch.inf, -torch.inf, torch.nan, 0.0, -0.0)
        )
        share = source.choice((0.001, 0.1, 1.0))
        chosen = torch.rand(shape) < share
        x[chosen] = torch.tensor(special, dtype=dtype)[torch.randint(len(special), shape)][chosen]
    return x


def check(found: str, value: str, dtype: torch.dtype, dim: int | None, dynamic: bool) -> None:
    def find(x: torch.Tensor) -> object:
        return FOUND[found](VALUES[value](x), dim)

    source = random.Random(random.randrange(1 << 30))
    compiled = tc.compile(find, dynamic=dynamic)
    for _ in range(3):
        length = source.choice(LENGTHS)
        rows = source.choice((1, 3, 70)) if length < 1000 else 2
        between = source.choice(((), (4,), (17,))) if length < 300 else ()
        x = drawn(source, (rows, *between, length), dtype)
        given, wanted = compiled(x.clone()), find(x.clone())
        torch.testing.assert_close(given, wanted, rtol=0.1, atol=1, equal_nan=True)
        for mine, place in zip(flat(given), flat(wanted), strict=True):
            assert place.dtype is not torch.int64 or torch.equal(mine, place), x.shape


def flat(found: object) -> list[torch.Tensor]:
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.sample(6)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("dim", [None, 0, 1, -1])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("found", FOUND)
def test_the_position_is_the_first_of_the_best(
    found: str, value: str, dtype: torch.dtype, dim: int | None, dynamic: bool
) -> None:
    check(found, value, dtype, dim, dynamic)
