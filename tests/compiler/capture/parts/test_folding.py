"""Builtin functions that call methods of the program: each call runs them, a capture never does.

Every program reads a global number and counts its own calls; the number changes between calls of
the compiled function, so a result that a capture computed would be stale, and a method that a
capture ran would be counted.
"""

from __future__ import annotations

import abc
import cProfile
import enum
import operator
import re
import struct
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import tc

#: what methods read, and how often they were called
STATE = {"number": 1, "calls": 0}


def number() -> int:
    STATE["calls"] += 1
    return STATE["number"]


class Meta(type):
    def __len__(cls) -> int:
        return number()

    def __getitem__(cls, key: int) -> int:
        return key * number()

    def __contains__(cls, item: int) -> bool:
        return item == number()

    def __bool__(cls) -> bool:
        return number() > 1

    def __subclasscheck__(cls, other: type) -> bool:
        return number() > 1

    def __instancecheck__(cls, other: object) -> bool:
        return number() > 1

    def __add__(cls, other: int) -> int:
        return number() + other

    def __lt__(cls, other: int) -> bool:
        return number() > 1

    def __neg__(cls) -> int:
        return -number()

    def __str__(cls) -> str:
        return f"{number()}"

    def __repr__(cls) -> str:
        return f"repr {number()}"

    def __format__(cls, spec: str) -> str:
        return f"format {number()}"

    def __dir__(cls) -> list[str]:
        return ["name"] * number()

    def __reversed__(cls) -> Iterator[int]:
        return iter([number()])

    def __int__(cls) -> int:
        return number()

    def __index__(cls) -> int:
        return number()


class Class(metaclass=Meta):
    """Asks its metaclass."""


class Items(type):
    def __iter__(cls) -> Iterator[int]:
        return iter([number(), 2])


class Iterated(metaclass=Items):
    """Has items."""


class Keyed:
    def __class_getitem__(cls, key: int) -> int:
        return key * number()


class Mode(enum.Enum):
    ONE = 1

    @classmethod
    def _missing_(cls, value: object) -> Mode:
        number()
        return cls.ONE

    @property
    def scale(self) -> int:
        return number()

    def __str__(self) -> str:
        return f"{number()}"

    def __bool__(self) -> bool:
        return number() > 1

    def __lt__(self, other: object) -> bool:
        return number() > 1

    def __call__(self, more: int) -> int:
        return number() + more


class Count(enum.IntEnum):
    ONE = 1

    def __add__(self, other: int) -> int:
        return number()

    def __radd__(self, other: int) -> int:
        return number()

    def __int__(self) -> int:
        return number()


class Name(str, enum.Enum):  # noqa: UP042 - StrEnum has another __str__
    ONE = "a"

    def __eq__(self, other: object) -> bool:
        return number() > 1

    __hash__ = str.__hash__

    def __format__(self, spec: str) -> str:
        return f"{number()}"


@typing.runtime_checkable
class Measured(typing.Protocol):
    size: int


class MeasuredLate:
    @property
    def size(self) -> int:
        if number() > 1:
            return 1
        raise AttributeError


MEASURED = MeasuredLate()
READS: dict[str, Callable[[], Any]] = {
    "len": lambda: len(Class),
    "subscript": lambda: Class[3],
    "in": lambda: 1 in Class,
    "bool": lambda: bool(Class),
    "branch": lambda: 1 if Class else 2,
    "issubclass": lambda: issubclass(int, Class),
    "isinstance": lambda: isinstance(3, Class),
    "isinstance of several": lambda: isinstance(3, (str, Class)),
    "+": lambda: Class + 1,
    "<": lambda: Class < 3,
    "-": lambda: -Class,
    "str": lambda: str(Class),
    "repr": lambda: repr(Class),
    "format": lambda: f"{Class}",
    "%": lambda: "%s" % (Class,),  # noqa: UP031
    "dir": lambda: dir(Class),
    "reversed": lambda: list(reversed(Class)),
    "int": lambda: int(Class),
    "range": lambda: list(range(Class)),
    "list": lambda: list(Iterated),
    "unpack": lambda: [*Iterated],
    "max": lambda: max(Iterated),
    "sorted": lambda: sorted(Iterated),
    "sum": lambda: sum(Iterated),
    "class_getitem": lambda: Keyed[2],
    "enum missing": lambda: Mode(77),
    "enum property": lambda: Mode.ONE.scale,
    "enum attrgetter": lambda: operator.attrgetter("scale")(Mode.ONE),
    "enum str": lambda: str(Mode.ONE),
    "enum format": lambda: f"{Mode.ONE:>3}",
    "enum bool": lambda: not Mode.ONE,
    "enum <": lambda: Mode.ONE < Mode.ONE,
    "enum >": lambda: Mode.ONE > Mode.ONE,
    "enum call": lambda: Mode.ONE(2),
    "int enum +": lambda: Count.ONE + 1,
    "+ int enum": lambda: 1 + Count.ONE,
    "int enum int": lambda: int(Count.ONE),
    "int enum sum": lambda: sum([Count.ONE]),
    "str enum ==": lambda: Name.ONE == "a",
    "== str enum": lambda: Name.ONE == "a",
    "str enum in": lambda: "z" in (Name.ONE,),
    "str enum format": lambda: f"{Name.ONE}",
    "protocol": lambda: isinstance(MEASURED, Measured),
}


def outcomes(function: Callable[[torch.Tensor], Any]) -> list[tuple[Any, int]]:
    """Return what calls give and how often methods ran, over changes of what they read."""
    STATE.update(number=1, calls=0)
    found = []
    for now in (1, 1, 2, 1):
        STATE["number"] = now
        found.append((function(torch.ones(2))[1], STATE["calls"]))
    return found


def program_of(read: Callable[[], Any]) -> Callable[[torch.Tensor], Any]:
    """Return a program with code of its own, so that others do not use up its recompiles."""
    names: dict[str, Any] = {"read": read}
    exec("def program(x):\n    found = read()\n    return x + 1, found\n", names)
    return names["program"]  # type: ignore[no-any-return]


@pytest.mark.sample(10)
@pytest.mark.parametrize("name", READS)
def test_each_call_runs_them(name: str) -> None:
    program = program_of(READS[name])
    want = outcomes(program)
    assert want[0][0] != want[2][0] or name in ("enum missing", "max")
    assert outcomes(tc.compile(program, backend="eager")) == want


INLINED = [
    "len", "subscript", "in", "branch", "+", "<", "-", "str", "repr", "format", "unpack",
    "class_getitem", "enum property", "enum str", "enum format", "enum bool", "enum <", "enum call",
    "int enum +", "+ int enum", "str enum ==", "== str enum", "str enum format",
]  # fmt: skip


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", INLINED)
def test_what_operators_call_is_traced(name: str) -> None:
    compiled = tc.compile(program_of(READS[name]), backend="eager", fullgraph=True)
    assert outcomes(compiled) == outcomes(program_of(READS[name]))


def test_subclass_hooks_run_when_python_asks() -> None:
    class Hooked(metaclass=abc.ABCMeta):  # noqa: B024
        @classmethod
        def __subclasshook__(cls, other: type) -> bool:
            return number() > 0

    STATE.update(number=1, calls=0)
    compiled = tc.compile(program_of(lambda: issubclass(int, Hooked)), backend="eager")
    assert compiled(torch.ones(2))[1]
    assert STATE["calls"] == 1


class AsksClass(type):
    def __subclasscheck__(cls, other: type) -> bool:
        return getattr(cls, "open", False)


def test_what_the_frame_changed_is_seen() -> None:
    class Open(metaclass=AsksClass):
        pass

    def program(x: torch.Tensor) -> Any:
        Open.open = True  # type: ignore[attr-defined]
        return x + 1, issubclass(int, Open)

    assert tc.compile(program, backend="eager")(torch.ones(2))[1]


def test_a_protocol_made_in_the_frame() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        @typing.runtime_checkable
        class Sized(typing.Protocol):
            def size(self) -> int: ...

        class Three:
            def size(self) -> int:
                return 3

        return x * isinstance(Three(), Sized)

    assert tc.compile(program, backend="eager")(torch.ones(2)).tolist() == [1.0, 1.0]


def test_a_profiler_stays_at_work() -> None:
    profiler = cProfile.Profile()
    program = program_of(lambda: [str(Mode), issubclass(bool, int)])
    with profiler:
        found = tc.compile(program, backend="eager")(torch.ones(2))[1]
    assert found == [str(Mode), True]
    assert any(entry.callcount for entry in profiler.getstats())


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "make",
    [
        lambda: [found.group() for found in re.finditer(".", "ab")],
        lambda: re.compile(".").scanner("ab").match().group(),
        lambda: next("ab".__iter__()),
        lambda: list(b"ab".__iter__()),
        lambda: list(frozenset((1, 2)).__iter__()),
        lambda: list(struct.iter_unpack("B", b"ab")),
        lambda: list(make_three.__code__.co_lines()),
        lambda: changed(bytearray.fromhex("aa")),
    ],
)
def test_an_object_that_a_folded_call_makes_is_made_in_each_call(make: Callable[[], Any]) -> None:
    def program(x: torch.Tensor) -> Any:
        return x + 1, make()

    compiled = tc.compile(program, backend="eager")
    assert [compiled(torch.ones(2))[1] for _ in range(3)] == [make()] * 3


def make_three() -> int:
    return 3


def changed(data: bytearray) -> int:
    data.append(1)
    return len(data)
