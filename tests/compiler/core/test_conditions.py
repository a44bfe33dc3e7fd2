"""Conditions on symbolic sizes: what one environment was asked is asked of another."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tc.compiler.capture.shapes import Shapes
from tc.compiler.core.conditions import Condition, Sizes, sizes_of, text_of
from tc.compiler.core.frozen import NotPlain, dumps, loads
from tc.compiler.core.sources import LocalSource

ASKED = {
    "order": lambda a, b: a > b,
    "equal": lambda a, b: a == 2 * b,
    "unequal": lambda a, b: a != b + 1,
    "whole part": lambda a, b: a // 4 >= 3,
    "divisible": lambda a, b: a % 4 == 0,
    "power": lambda a, b: a**2 > b,
    "largest": lambda a, b: torch.sym_max(a, b + 3) < 40,
    "smallest": lambda a, b: torch.sym_min(a, 15) == 12,
    "factor": lambda a, b: math.floor(a * 1.5) == 3 * b,
    "both": lambda a, b: torch.sym_not(a < b) & (b < 9),
}


def sized(*sizes: int) -> Any:
    """A fake tensor with a symbol for each dimension, in an environment of its own."""
    return Shapes(data_dependent=True).fake(
        torch.empty(sizes), LocalSource("x"), frozenset(range(len(sizes)))
    )


def taken(x: torch.Tensor) -> Sizes:
    found = sizes_of([x])
    assert found is not None
    return found


def guards(sizes: Sizes) -> list[str]:
    return [str(guard.expr) for guard in sizes.env.guards[sizes.before :]]


@pytest.mark.sample(4)
@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_the_same_is_asked_again(asked: Any) -> None:
    x = sized(12, 6)
    first = taken(x)
    assert bool(asked(*x.shape))
    conditions = loads(dumps(first.asked()), [Condition])
    assert conditions == first.asked() != ()
    for a, b in ((12, 6), (13, 12), (16, 11), (9, 8), (48, 9), (3, 40)):
        again = taken(sized(a, b))
        assert again.known == taken(sized(12, 6)).known
        assert again.ask(conditions) is bool(asked(a, b))
        assert guards(again) == (guards(first) if asked(a, b) else [])


def test_what_is_known_before_is_reported() -> None:
    x = sized(12, 6)
    before = taken(x).known
    assert bool(x.shape[0] > 7)
    assert taken(x).known != before


def test_numbers_need_nothing() -> None:
    assert sizes_of([torch.empty(3), 4, [None]]) is None


def test_sizes_out_of_data_are_refused() -> None:
    x = sized(12, 6)
    sizes = taken(x)
    with x.fake_mode:
        assert text_of((x > 0).nonzero().shape[0]).startswith("SymInt(u")
    with pytest.raises(NotPlain, match="depend on data"):
        sizes_of([x])
    with pytest.raises(NotPlain, match="depend on data"):
        sizes.asked()
