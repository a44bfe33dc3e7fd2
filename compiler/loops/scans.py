"""The table of scans: prefix sums and the like along a sequential loop.

In: nothing. Out: `SCANS`, read by the reference interpreters and the code generators. A row defines
how a value is combined with the accumulator, in scalar ops, so that all printers can spell it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from tc.compiler.core.table import Table
from tc.compiler.loops.expr import Expr, constant

BOOL = torch.bool


@dataclass(frozen=True)
class ScanKind:
    """One kind of scan.

    Attributes:
        python: ``(values, dim) -> totals``, the semantics of all spellings.
        start: the initial accumulator of a type.
        combine: the accumulator after one more value, both in the accumulator's type. For kinds
            that return positions it is the best value so far.
        takes: for kinds that choose one of the values: whether the newer one is chosen.
        position: whether the result is the position of the chosen value.
    """

    python: Callable[[torch.Tensor, int], torch.Tensor]
    start: Callable[[torch.dtype], Expr]
    combine: Callable[[Expr, Expr], Expr]
    takes: Callable[[Expr, Expr], Expr] | None = None
    position: bool = False


SCANS: Table[str, ScanKind] = Table("scans")


def _binary(op: str) -> Callable[[Expr, Expr], Expr]:
    return lambda total, value: Expr(op, (total, value), value.dtype)


def _takes(test: str) -> Callable[[Expr, Expr], Expr]:
    """Return the newer of equals wins, and NaN over all that is none, as in torch."""

    def takes(total: Expr, value: Expr) -> Expr:
        better = Expr(test, (value, total), BOOL)
        if not value.dtype.is_floating_point:
            return better
        return Expr("or", (better, Expr("isnan", (value,), BOOL)), BOOL)

    return takes


def _chosen(test: str) -> Callable[[Expr, Expr], Expr]:
    takes = _takes(test)
    return lambda total, value: Expr("where", (takes(total, value), value, total), value.dtype)


def _log_of_sum(total: Expr, value: Expr) -> Expr:
    """``log(exp(total) + exp(value))``, with equal infinities left as they are."""
    dtype = value.dtype
    low, high = (Expr(op, (total, value), dtype) for op in ("minimum", "maximum"))
    gap = Expr("exp", (Expr("sub", (low, high), dtype),), dtype)
    summed = Expr("add", (Expr("log1p", (gap,), dtype), high), dtype)
    same = Expr("eq", (low, high), BOOL)
    alone = Expr("and", (same, Expr("isinf", (low,), BOOL)), BOOL)
    return Expr("where", (alone, value, summed), dtype)


def _least(dtype: torch.dtype) -> Expr:
    lowest = float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min
    return constant(lowest, dtype)


def _most(dtype: torch.dtype) -> Expr:
    highest = float("inf") if dtype.is_floating_point else torch.iinfo(dtype).max
    return constant(highest, dtype)


def _sum(values: torch.Tensor, dim: int) -> torch.Tensor:
    return values.cumsum(dim, dtype=values.dtype)


def _prod(values: torch.Tensor, dim: int) -> torch.Tensor:
    return values.cumprod(dim, dtype=values.dtype)


def _part(
    run: Callable[[torch.Tensor, int], Any], number: int, values: torch.Tensor, dim: int
) -> torch.Tensor:
    found: torch.Tensor = run(values, dim)[number]
    return found


SCANS.add("sum", ScanKind(_sum, lambda dtype: constant(0, dtype), _binary("add")))
SCANS.add("prod", ScanKind(_prod, lambda dtype: constant(1, dtype), _binary("mul")))
SCANS.add("logsumexp", ScanKind(torch.logcumsumexp, _least, _log_of_sum))
for _kind, _run, _test, _start in (
    ("max", torch.cummax, "ge", _least),
    ("min", torch.cummin, "le", _most),
):
    for _number, _name in enumerate((_kind, f"arg{_kind}")):
        SCANS.add(
            _name,
            ScanKind(
                partial(_part, _run, _number),
                _start,
                _chosen(_test),
                _takes(_test),
                position=_number == 1,
            ),
        )
