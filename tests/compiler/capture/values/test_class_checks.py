"""`isinstance` and `issubclass` where classes of the program decide."""

from __future__ import annotations

import abc
import functools
import numbers
from typing import Any, ClassVar

import pytest
import torch

import tc


class Other:
    pass


class Config:
    names: ClassVar = {"width": "d_model"}

    def __init__(self) -> None:
        self.d_model = 3

    def __getattribute__(self, key: str) -> Any:
        if key != "names" and key in super().__getattribute__("names"):
            key = super().__getattribute__("names")[key]
        return super().__getattribute__(key)


class Pretends(Config):
    def __getattribute__(self, key: str) -> Any:
        return Other if key == "__class__" else super().__getattribute__(key)


@pytest.mark.parametrize("kind", [Config, Pretends])
@pytest.mark.parametrize("inside", [False, True])
def test_the_object_is_asked_for_its_class_as_python_does(kind: type, inside: bool) -> None:
    def asks(x: torch.Tensor, config: Any) -> tuple[torch.Tensor, list[bool]]:
        config = kind() if inside else config
        found = [
            isinstance(config, Other), isinstance(config, Config), isinstance(config, (int, kind)),
            isinstance(config, (str, Other)), isinstance(config, object),
            isinstance(config, (str, (int, kind))),
        ]  # fmt: skip
        return x * config.width, found

    x, config = torch.ones(2), kind()
    compiled = tc.compile(asks, fullgraph=True)
    for _ in range(2):
        expected, found = asks(x, config), compiled(x, config)
        assert torch.equal(found[0], expected[0]) and found[1] == expected[1]


class Listed(type):
    """Classes that say which classes are theirs: those on a list."""

    known: ClassVar[list[type]] = [int]
    asked = 0

    def __subclasscheck__(cls, other: type) -> bool:
        Listed.asked += 1
        return other in cls.known or super().__subclasscheck__(other)

    def __instancecheck__(cls, instance: object) -> bool:
        return super().__instancecheck__(instance) or type(instance) in cls.known


class Number(metaclass=Listed):
    pass


class Made(Number):
    pass


def test_a_metaclass_is_asked_for_subclasses() -> None:
    def asks(x: torch.Tensor) -> tuple[torch.Tensor, list[bool]]:
        found = [
            issubclass(int, Number), issubclass(Number, Number), issubclass(str, (float, Number)),
            issubclass(int, (int, Number)), issubclass(bool, (str, (Number, int))),
            issubclass(Made, Number), issubclass(float, Number), isinstance(Made(), Number),
            isinstance(x, Number), isinstance(3, (str, (Number,))),
            type.__subclasscheck__(Number, Made), type.__subclasscheck__(Number, int),
            type.__instancecheck__(Number, Made()),
        ]  # fmt: skip
        return x * Listed.asked, found

    x = torch.ones(2)
    compiled = tc.compile(asks, fullgraph=True)
    for known in ([int], [int], [str, float]):
        Listed.known = known
        Listed.asked = 0
        expected = asks(x)
        Listed.asked = 0
        found = compiled(x)
        assert torch.equal(found[0], expected[0]) and found[1] == expected[1]


@pytest.mark.parametrize("name", ["__instancecheck__", "__subclasscheck__"])
def test_checks_of_type_refuse_what_type_refuses(name: str) -> None:
    check = getattr(type, name)

    def asks(x: torch.Tensor, cls: object, other: object) -> Any:
        try:
            return x * check(cls, other)
        except TypeError as error:
            return str(error)

    x = torch.ones(2)
    for cls, other in [(3, 3), (Made, 3), (Made, Made), (Number, Made), (int, bool), (int, True)]:
        expected, found = asks(x, cls, other), tc.compile(asks)(x, cls, other)
        assert str(found) == str(expected)


class Measured(type):
    @property
    def width(cls) -> int:
        return 5 + len(cls.__name__)


class Base(metaclass=Measured):
    width = 1
    held: int = 3


class Inherits(Base):
    pass


def test_data_descriptors_of_the_metaclass_come_before_what_a_class_defines() -> None:
    def reads(x: torch.Tensor, cls: type, instance: Base) -> tuple[torch.Tensor, list[Any]]:
        names = [cls.__class__.__name__, Base.__class__.__name__, int.__class__.__name__]
        noted = [len(cls.__annotations__), len(Base.__annotations__)]
        return x * Inherits.width + Base.width * instance.width, [*names, *noted]

    x = torch.ones(2)
    compiled = tc.compile(reads, fullgraph=True)
    for cls, width in ((Base, 1), (Inherits, 1), (torch.Tensor, 1), (Base, 2)):
        Measured.width = property(lambda cls, width=width: width)  # type: ignore[assignment]
        expected, found = reads(x, cls, Inherits()), compiled(x, cls, Inherits())
        assert torch.equal(found[0], expected[0]) and found[1] == expected[1]


def test_generic_functions():
    @functools.singledispatch
    def shown(value):
        return value

    @shown.register
    def _(value: int):
        return value + 1

    @shown.register(torch.Tensor)
    def _(value):
        return value * 2

    @shown.register(numbers.Number)
    def _(value):
        return value * 3

    class Holder:
        @functools.singledispatchmethod
        def scaled(self, value):
            return value

        @scaled.register(torch.Tensor)
        def _(self, value):
            return value * 5

        @functools.singledispatchmethod
        @classmethod
        def made(cls, value):
            return value

        @made.register
        @classmethod
        def _(cls, value: float):
            return value + 5

    def dispatches(x, value):
        y = shown(x) + shown(value) + Holder().scaled(x) + Holder().scaled(2.5)
        return y + Holder.made(value), shown.dispatch(bool) is shown.dispatch(int)

    compiled = tc.compile(dispatches, fullgraph=True, backend="eager")
    x = torch.ones(2)

    def agree():
        for value in (2, 2.5, True, 3, 2.5):
            assert str(compiled(x, value)) == str(dispatches(x, value))

    agree()
    shown.register(float, lambda value: value - 100)
    agree()
    numbers.Integral.register(_Own)
    shown.register(numbers.Integral, lambda value: 11)
    own = _Own()
    assert str(compiled(x, own)) == str(dispatches(x, own))


class _Own:
    def __radd__(self, other):
        return other + 1

    def __add__(self, other):
        return other + 2


def test_an_abstract_class_that_gets_another_subclass():
    class Shape(abc.ABC):  # noqa: B024
        pass

    class Square:
        pass

    @functools.singledispatch
    def corners(value):
        return 0

    @corners.register(Shape)
    def _(value):
        return 4

    def counted(x, value):
        return x + corners(value)

    compiled = tc.compile(counted, fullgraph=True, backend="eager")
    assert compiled(torch.zeros(1), Square()) == 0
    Shape.register(Square)
    assert compiled(torch.zeros(1), Square()) == 4
