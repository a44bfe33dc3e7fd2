"""Subclasses of int, float, str and bytes: constants with methods and attributes of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tc


class Size(int):
    """Has a tag beside its number."""

    unit = 7

    def __new__(cls, number: int, tag: str = "") -> Size:
        made = super().__new__(cls, number)
        made.tag = tag
        return made

    def double(self) -> int:
        return self * 2

    @property
    def after(self) -> int:
        return self + 1

    @classmethod
    def of_class(cls) -> int:
        return cls.unit

    def __add__(self, other: int) -> int:
        return super().__add__(other) + 100

    def __mul__(self, other: int) -> int:
        return int.__mul__(self, other) + 1000


class Title(str):
    """Compares as it likes."""

    def shout(self) -> str:
        return self.upper() + "!"

    def upper(self) -> str:
        return super().upper() + str.lower(self)

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


class Rate(float):
    """Is written as no expression of Python's."""

    def __repr__(self) -> str:
        return "<a rate>"


class Data(bytes):
    """Adds nothing."""


def check(program: Callable[..., Any], *numbers: Any) -> Any:
    """Compare with eager and return the compiled function."""
    compiled = tc.compile(program, fullgraph=True)
    same(compiled, program, *numbers)
    return compiled


def same(compiled: Callable[..., Any], program: Callable[..., Any], *numbers: Any) -> None:
    got, want = compiled(torch.ones(3), *numbers), program(torch.ones(3), *numbers)
    for n, (one, other) in enumerate(zip(got, want, strict=True)):
        assert type(one) is type(other), n
        if isinstance(one, torch.Tensor):
            assert torch.equal(one, other), n
        else:
            assert repr(one) == repr(other), n


def integers(x: torch.Tensor, size: Size) -> tuple[Any, ...]:
    return (
        x * size.double() + size, torch.zeros(size), x.expand(size, -1), size,
        size.after, size.of_class(), size.unit, size.tag, size.real, size.bit_length(),
        size + 1, 1 + size, -size, divmod(size, 2), size == 3, size < 4, hash(size), bool(size),
        f"{size:03d}", [*range(9)][size], size in (1, 3), {3: "three"}[size],
        type(size), isinstance(size, int), int(size),
    )  # fmt: skip


def texts(x: torch.Tensor, title: Title) -> tuple[Any, ...]:
    return (
        x, title.shout(), title == "ab", title + "c", len(title), title[0], list(title), title,
        f"{title}", {"ab": 1}.get(title), title in ("ab",), title.join(["a", "b"]),
        hasattr(title, "tag"),
    )  # fmt: skip


def rates(x: torch.Tensor, rate: Rate) -> tuple[Any, ...]:
    return (
        x * rate, rate * x, x.clamp(max=rate), torch.full((2,), rate), rate,
        rate + 1, rate.is_integer(), round(rate), float(rate), max(rate, 1.0),
        f"{rate:.2f} {rate!r}",
    )  # fmt: skip


def data(x: torch.Tensor, some: Data) -> tuple[Any, ...]:
    return x * some[0], some.hex(), some + b"c", len(some), b"a" in some


@pytest.mark.parametrize(
    ("program", "number"),
    [(integers, Size(3, "t")), (texts, Title("ab")), (rates, Rate(2.5)), (data, Data(b"ab"))],
)
def test_as_eager(program: Callable[..., Any], number: Any) -> None:
    check(program, number)


def test_contents_attributes_and_class_are_guarded() -> None:
    def program(x: torch.Tensor, size: Size) -> tuple[Any, ...]:
        return x + size.double(), size.tag, size.unit, hasattr(size, "late")

    one, two = Size(3, "a"), Size(4, "b")
    compiled = check(program, one)
    same(compiled, program, two)
    one.tag = "c"
    same(compiled, program, one)
    one.late = 1  # type: ignore[attr-defined]
    same(compiled, program, one)
    Size.unit = 8
    try:
        same(compiled, program, one)
    finally:
        Size.unit = 7


def test_equal_contents_share_code() -> None:
    def program(x: torch.Tensor, size: Size) -> tuple[Any, ...]:
        return (x + size.real, size)

    compiled = check(program, Size(3))
    again = Size(3)
    with tc.config.patch(error_on_recompile=True):
        assert compiled(torch.ones(3), again)[1] is again


def test_attributes_set_inside() -> None:
    def program(x: torch.Tensor, size: Size) -> tuple[Any, ...]:
        size.tag = "inside"
        return x * 2, size.tag

    size = Size(3)
    same(tc.compile(program), program, size)
    assert size.tag == "inside"
