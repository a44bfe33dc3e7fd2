"""Facts and sizes behind reads that print alike, or that do not print as Python."""

from __future__ import annotations

import contextvars
import enum
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tc


class Level(enum.Enum):
    """Members that all print alike."""

    LOW = 1
    HIGH = 2

    def __repr__(self) -> str:
        return "a level"


def _other() -> Any:
    class Level(enum.Enum):
        LOW = 1

    return Level.LOW


class Plain:
    """Whatever attributes a test gives it."""


class Answers(type):
    """Answers for the attributes that its classes lack: guards must not ask it."""

    def __getattr__(cls, name: str) -> Any:
        raise AttributeError(name)


HELD: contextvars.ContextVar[Any] = contextvars.ContextVar("held")


def _attributes(one: str, other: str, kind: Callable[[], Any] = Plain) -> Any:
    box = kind()
    box.a = Plain()

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * getattr(box, one) + (box.a.b if other == "a.b" else getattr(box, other))

    def write(values: tuple[Any, Any]) -> None:
        setattr(box, one, values[0])
        if other == "a.b":
            box.a.b = values[1]
        else:
            setattr(box, other, values[1])

    return function, write


def _keys(one: Any, other: Any) -> Any:
    box: dict[Any, Any] = {}

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * box[one] + box[other]

    def write(values: tuple[Any, Any]) -> None:
        box[one], box[other] = values

    return function, write


def _proxied(one: Any, other: Any) -> Any:
    box: dict[Any, Any] = {}
    proxy = types.MappingProxyType(box)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * proxy[one] + proxy[other]

    def write(values: tuple[Any, Any]) -> None:
        box[one], box[other] = values

    return function, write


def _variables() -> Any:
    def function(x: torch.Tensor) -> torch.Tensor:
        one, other = HELD.get()
        return x * one + other

    return function, HELD.set


READS = {
    "a name with a dot, and a path": lambda: _attributes("a.b", "a.b"),
    "names of keywords": lambda: _attributes("class", "is not"),
    "names that the parser changes": lambda: _attributes("\ufb01", "fi"),
    "braces": lambda: _attributes("a{b}", "{}", lambda: Answers("Answered", (), {})),
    "a lone surrogate": lambda: _attributes("\ud800", "\n"),
    "members of one text": lambda: _keys(Level.LOW, Level.HIGH),
    "classes of one name": lambda: _keys(_other(), _other()),
    "two that are no numbers": lambda: _keys(float("nan"), float("nan")),
    "a shown dictionary": lambda: _proxied(Level.LOW, Level.HIGH),
    "a context variable": _variables,
}
VALUES = [
    (2.5, 3.5), (2.5, 4.5), (7.5, 4.5), (0.0, 4.5), (3, 4), (5, 4), (5, 9),
    *((torch.full((3,), 2.0), torch.full((b, 1), 3.0)) for b in (3, 4, 5, 1)),
    *((torch.full((a, 3), 2.0), torch.full((a, 1), 3.0)) for a in (2, 4, 5)),
]  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_each_read_is_guarded_for_itself(read: Callable[[], Any], dynamic: bool | None) -> None:
    function, write = read()
    compiled = tc.compile(function, dynamic=dynamic, fullgraph=True)
    x = torch.linspace(0, 1, 3)
    for values in VALUES:
        write(values)
        torch.testing.assert_close(compiled(x), function(x), rtol=0, atol=0)
