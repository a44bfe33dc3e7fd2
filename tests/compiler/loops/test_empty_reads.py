"""Positions in a dimension without elements: an error as in eager, and no read of memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import tc

AT, FIRST = torch.tensor([0, -1]), torch.tensor([0, 1])
PROGRAMS: dict[str, Any] = {
    "index": lambda x: x[AT],
    "index_select": lambda x: x.index_select(0, FIRST),
    "gather": lambda x: x.gather(0, FIRST),
    "embedding": lambda x: F.embedding(FIRST, x[:, None]),
    "fused": lambda x: (x + 1).abs()[AT] * 2,
    "listed": lambda x: x.expand(4, len(x))[:, [0, 0, -1]],
    "cat": lambda x: torch.cat([x, x * 2])[AT].sum(),
    "no_position": lambda x: (x * 2)[AT[:0]],
    "two": lambda x: x[:, None].expand(len(x), 2)[AT, AT],
}


def outcome(f: Any, n: int) -> Any:
    try:
        return f(torch.arange(float(n))).tolist()
    except (IndexError, RuntimeError):
        return "refused"


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name: str) -> None:
    f = PROGRAMS[name]
    for dynamic in (None, True):
        compiled = tc.compile(f, dynamic=dynamic)
        for n in (0, 3, 5, 0):
            assert outcome(compiled, n) == outcome(f, n), (dynamic, n)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_whole_numbers_have_no_variance(dtype: torch.dtype) -> None:
    x = torch.ones(3, dtype=dtype)
    with pytest.raises(RuntimeError, match="only support floating point"):
        tc.compile(lambda x: x.var(0))(x)
