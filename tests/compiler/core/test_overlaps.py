"""Writes to a part of the memory that the same call reads are refused where eager refuses them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tc
from tc.compiler.core import overlaps
from tc.compiler.core.fakes import EagerLayouts

CALLS = {
    "copy": lambda x: x[1:].copy_(x[:-1]),
    "add": lambda x: x[1:].add_(x[:-1]),
    "assignment": lambda x: x.__setitem__(slice(1, None), x[:-1]),
    "the same": lambda x: x.mul_(x),
    "between": lambda x: x[::2].add_(x[1::2]),
    "another shape": lambda x: x[:4].view(2, 2).add_(x[1:5].view(2, 2)),
    "apart": lambda x: x[4:8].add_(x[:4]),
    "expanded": lambda x: x[:1].expand(4).copy_(x[:4]),
    "expanded, in a list": lambda x: torch._foreach_mul_([x[:1].expand(4)], 2.0),
    "expanded, of two lists": lambda x: torch._foreach_add_([x[:1].expand(4)], [x[4:8].exp()]),
    "expanded by one, in a list": lambda x: torch._foreach_sqrt_([x[:4].expand(1, 4)]),
    "result": lambda x: torch.add(x[:-1], 1, out=x[1:]),
    "result in place": lambda x: torch.exp(x[:2], out=x[:2]),
    "mask": lambda x: x[1:].masked_fill_(x[:-1] > 0, 0),
    "windows": lambda x: x.unfold(0, 2, 1).add_(1),
    "three": lambda x: x[1:].addcmul_(x[:-1], x[1:]),
    "scan": lambda x: torch.cumsum(x[:-1], 0, out=x[1:]),
    "index_add": lambda x: x[1:].index_add_(0, torch.tensor([0]), x[:1]),
    "scatter": lambda x: x[1:].scatter_(0, torch.tensor([0, 1]), x[:2]),
    "index_put": lambda x: x[1:].index_put_((torch.tensor([0, 1]),), x[:2]),
    "index_add of all": lambda x: x.index_add_(0, torch.arange(len(x)), x),
    "index_copy of a view": lambda x: x.index_copy_(0, torch.arange(len(x)), x[: len(x)]),
    "index_put of all": lambda x: x.index_put_((torch.arange(len(x)),), x),
    "scatter of all": lambda x: x.scatter_(0, torch.zeros(8, dtype=torch.int64), x),
    "concatenation": lambda x: torch.cat([x], out=x),
    "scan in place": lambda x: torch.cumsum(x, 0, out=x),
    "copy of itself": lambda x: x.copy_(x),
    "list": lambda x: torch._foreach_add_([x[1:], x[:2]], [x[:-1], x[2:4]]),
}


@pytest.mark.sample(12)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_as_in_eager(name: str, dynamic: bool) -> None:
    call = CALLS[name]

    def f(x: torch.Tensor, log: list[int]) -> torch.Tensor:
        log.append(1)
        call(x)
        return x * 2

    def run(fn: Any, size: int) -> Any:
        log: list[int] = []
        x = torch.arange(float(size))
        try:
            return fn(x, log).tolist(), x.tolist(), log
        except RuntimeError:
            return "refused", x.tolist(), log

    compiled = tc.compile(f, dynamic=dynamic)
    for size in (8, 9):
        assert run(compiled, size) == run(f, size)


def test_eager_is_not_asked_where_no_memory_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(overlaps, "_ask_eager", lambda func, *_: asked.append(func))
    flat = torch.zeros(1000, 4)

    def step(rows: list[torch.Tensor]) -> None:
        torch._foreach_add_(rows[:500], rows[500:])
        rows[0].mul_(rows[0])

    mode = EagerLayouts()
    with mode, mode.asking_eager():
        step(list(mode.from_tensor(flat)))
        assert not asked
        fake = mode.from_tensor(flat)
        fake[1:].add_(fake[:-1])
    assert len(asked) == 1
