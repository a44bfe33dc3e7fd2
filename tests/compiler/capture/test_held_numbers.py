"""Numbers that objects, modules and globals hold, and that change between calls."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import tc
from tc.compiler import api

GLOBAL: Any = 2


@dataclass
class Record:
    """An object with a number, and others that lead to it."""

    number: Any = 2


class Kind:
    """A class with a number."""

    number: Any = 2


class Module(torch.nn.Module):
    """A module that holds a number, and an object that holds one."""

    def __init__(self) -> None:
        super().__init__()
        self.number: Any = 2
        self.table = {"number": 2}
        self.record = Record()

    def forward(self, x: torch.Tensor, how: str) -> torch.Tensor:
        """Multiply by one of them."""
        if how == "own":
            return x * self.number
        return x * (self.table["number"] if how == "table" else self.record.number)


Held = tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[Any], None]]


def _attribute(holder: Any) -> Held:
    return lambda x: x * holder.number, lambda number: setattr(holder, "number", number)


def _item(holder: Any, key: Any) -> Held:
    box = Record(holder)
    return lambda x: x * box.number[key], lambda number: holder.__setitem__(key, number)


def _tuple() -> Held:
    box = Record((2,))
    return lambda x: x * box.number[0], lambda number: setattr(box, "number", (number,))


def _class() -> Held:
    holder = Kind()
    return lambda x: x * holder.number, lambda number: setattr(Kind, "number", number)


def _module(how: str) -> Held:
    module = Module()

    def write(number: Any) -> None:
        if how == "own":
            module.number = number
        elif how == "table":
            module.table["number"] = number
        else:
            module.record.number = number

    return lambda x: module(x, how), write


def _global() -> Held:
    def read(x: torch.Tensor) -> torch.Tensor:
        return x * GLOBAL

    return read, lambda number: globals().__setitem__("GLOBAL", number)


HOLDERS: dict[str, Callable[[], Held]] = {
    "object": lambda: _attribute(Record()),
    "namespace": lambda: _attribute(types.SimpleNamespace(number=2)),
    "list": lambda: _item([2], 0),
    "dict": lambda: _item({"a": 2}, "a"),
    "tuple": _tuple,
    "class": _class,
    "module": lambda: _module("own"),
    "table of a module": lambda: _module("table"),
    "object of a module": lambda: _module("record"),
    "global": _global,
}
#: whose integers configure: each value has a graph
CONFIGURE = ("module", "table of a module", "object of a module", "global")


@pytest.mark.sample(10)
@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("first", [2, 2.5])
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_number_that_changed_has_one_graph_more(
    holder: str, first: float, dynamic: bool | None
) -> None:
    tc.reset()
    function, write = HOLDERS[holder]()
    compiled = tc.compile(function, dynamic=dynamic, backend="eager")
    x = torch.linspace(0, 1, 3)
    for step in range(5):
        write(first + step)
        assert torch.equal(compiled(x), function(x))
    constant = dynamic is False or (isinstance(first, int) and holder in CONFIGURE)
    assert api.graph_stats()["graphs"] == (5 if constant else 2)


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_counter_that_the_program_moves(dynamic: bool | None) -> None:
    """An optimizer written by hand: powers of constants by the number of the step."""

    def step(state: Any, p: torch.Tensor) -> torch.Tensor:
        state.number += 1
        rate = (1 - 0.9**state.number) / (1 - 0.999**state.number) * 0.5**state.number
        return p * rate

    tc.reset()
    compiled, one, other = tc.compile(step, dynamic=dynamic), Record(0), Record(0)
    p = torch.linspace(0, 1, 5, dtype=torch.float64, requires_grad=True)
    for _ in range(70):  # past the fast path's threshold
        torch.testing.assert_close(compiled(one, p), step(other, p), rtol=1e-14, atol=0)
        assert one == other
    for number in (3, 400, 8000, 0, -5, 7):
        one.number = other.number = number
        torch.testing.assert_close(compiled(one, p), step(other, p), rtol=1e-14, atol=0)
    assert api.graph_stats()["graphs"] <= 5


@pytest.mark.sample(3)
@pytest.mark.parametrize("base", [0.0, 1.0, 1.5, -0.5, 2, 0.25])
def test_powers_of_a_symbolic_exponent(base: float) -> None:
    def power(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * base**n

    compiled = tc.compile(power)
    x = torch.linspace(1, 2, 3, dtype=torch.float64)
    for n in (1, 2, 3, 0, 5, -1, -2, 700, 4, 2000):
        try:
            expected = power(x, n)
        except (ZeroDivisionError, OverflowError) as error:
            with pytest.raises(type(error)):
                compiled(x, n)
        else:
            torch.testing.assert_close(compiled(x, n), expected, rtol=1e-14, atol=0)


@pytest.mark.sample(2)
@pytest.mark.parametrize("fix", [hash, bin, lambda n: "abcdefg"[n]], ids=["hash", "bin", "index"])
def test_quotients_of_sizes_that_become_constants(fix: Callable[[int], int]) -> None:
    def halves(x: torch.Tensor) -> Any:
        half = x.shape[0] / 3
        return x * half, fix(x.shape[0]), -half, half * 2 + 1, half

    compiled = tc.compile(halves, dynamic=True)
    for size in (4, 5, 6):
        x = torch.ones(size)
        assert repr(compiled(x)) == repr(halves(x))
