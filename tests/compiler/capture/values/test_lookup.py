"""Code of the program that runs where an attribute is read runs as often as in eager."""

from __future__ import annotations

import decimal
import functools
import io
import operator
import types
from typing import Any

import pytest
import torch

import tc

LOG: list[str] = []
X = torch.ones(2)


class Computed:
    @property
    def given(self) -> int:
        LOG.append("given")
        return 3

    @property
    def absent(self) -> int:
        LOG.append("absent")
        raise AttributeError("absent")

    @property
    def refused(self) -> int:
        raise ValueError("refused")


class Falling:
    def __getattr__(self, name: str) -> int:
        LOG.append(name)
        if name == "given":
            return 3
        raise (ValueError if name == "refused" else AttributeError)(name)


class Overriding:
    def __getattribute__(self, name: str) -> Any:
        if name in ("given", "absent", "refused"):
            return Falling.__getattr__(self, name)  # type: ignore[arg-type]
        return object.__getattribute__(self, name)


class Metaclass(type):
    __getattr__ = Falling.__getattr__  # type: ignore[assignment]


class ComputedMetaclass(type):
    given, absent, refused = Computed.given, Computed.absent, Computed.refused


class OfMetaclass(metaclass=Metaclass):
    pass


class OfComputedMetaclass(metaclass=ComputedMetaclass):
    pass


MIXINS = (Computed, Falling)
BASES = (object, int, str, list, dict, set, decimal.Decimal, io.StringIO, Exception)
OWNERS = [
    *(type(f"{m.__name__}_{base.__name__}", (m, base), {})() for m in MIXINS for base in BASES),
    Overriding(), OfMetaclass, OfComputedMetaclass,
]  # fmt: skip


def read(x: Any, owner: Any) -> Any:
    return x * owner.given


def read_or_default(x: Any, owner: Any) -> Any:
    return x * getattr(owner, "given", 5) + getattr(owner, "absent", 7)


def ask(x: Any, owner: Any) -> Any:
    return x + (hasattr(owner, "given") + 2 * hasattr(owner, "absent"))


def refused(x: Any, owner: Any) -> Any:
    return x * owner.refused


def handled(x: Any, owner: Any) -> Any:
    try:
        return x * owner.refused
    except ValueError:
        return x + 1


def outcome(run: Any, owner: Any) -> Any:
    LOG.clear()
    try:
        return run(X, owner).tolist(), [*LOG]
    except ValueError as error:
        return str(error), [*LOG]


@pytest.mark.sample(8)
@pytest.mark.parametrize("function", [read, read_or_default, ask, refused, handled])
@pytest.mark.parametrize("owner", OWNERS, ids=lambda o: getattr(type(o), "__name__", ""))
def test_reading_an_attribute_runs_its_code_once(function: Any, owner: Any) -> None:
    tc.reset()
    compiled = tc.compile(function)
    for _ in range(3):
        assert outcome(compiled, owner) == outcome(function, owner)


class Registry(type):
    table: dict[str, int] = {}  # noqa: RUF012 - one for all classes

    def __getattr__(cls, name: str) -> int:
        if name not in Registry.table:
            raise AttributeError(name)
        return Registry.table[name]


class Registered(metaclass=Registry):
    pass


def looked_up(x: Any) -> Any:
    return x * getattr(Registered, "entry", 1)


def test_what_a_metaclass_looks_up_may_change(monkeypatch: Any) -> None:
    compiled = tc.compile(looked_up)
    for table in ({}, {"entry": 2}, {"entry": 3}, {}):
        monkeypatch.setattr(Registry, "table", table)
        torch.testing.assert_close(compiled(X), looked_up(X))


class Number:
    def __index__(self) -> int:
        return 2

    def __format__(self, spec: str) -> str:
        return f"number {spec}"

    def __str__(self) -> str:
        return "text"


def converted(x: Any, number: Any) -> Any:
    numbers = operator.index(number), int(number), float(number)
    return x + numbers[0], numbers, format(number), f"{number:spec} {number} {number!s}"


def largest(x: Any, limit: float) -> Any:
    size = x.shape[0]
    found = max(size, 5.0), min(size, limit), max(limit, size), min(size, 4)
    return x + 1, found, [type(one) for one in found]


def test_objects_are_converted_by_their_methods() -> None:
    assert str(tc.compile(converted)(X, Number())) == str(converted(X, Number()))


def test_the_largest_number_keeps_its_type() -> None:
    compiled = tc.compile(largest, dynamic=True)
    for size, limit in ((4, 2.5), (7, 2.5), (5, 5.0), (3, 9.0)):
        x = torch.ones(size)
        assert str(compiled(x, limit)) == str(largest(x, limit))


class Kept:
    """Has an attribute that is made of what the object holds when it is first read."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[int] = []

    def make(self) -> int:
        LOG.append("made")
        return len(self.held)


class KeptByFallback(Kept):
    def __getattr__(self, name: str) -> int:
        if name != "made":
            raise AttributeError(name)
        self.made = self.make()
        return self.made


class KeptInSlot(KeptByFallback):
    __slots__ = ("made",)


class KeptInModule(Kept, torch.nn.Module):
    def __getattr__(self, name: str) -> Any:
        if name != "made":
            return super().__getattr__(name)
        self.made = self.make()
        return self.made


class KeptByProperty(Kept):
    @functools.cached_property
    def made(self) -> int:
        return self.make()


class KeptByPropertyOfModule(KeptByProperty, torch.nn.Module):
    pass


class Keeping:
    def __get__(self, owner: Any, cls: type) -> int:
        owner.__dict__["made"] = owner.make()
        return owner.__dict__["made"]


class KeptByDescriptor(Kept):
    made = Keeping()


KEPT = (
    KeptByFallback,
    KeptInSlot,
    KeptInModule,
    KeptByProperty,
    KeptByPropertyOfModule,
    KeptByDescriptor,
)


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", KEPT, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("asked", (False, True))
def test_no_guard_makes_an_attribute_that_is_kept(kind, asked):
    def grown(x, given):
        given.held.append(1)
        if asked and not hasattr(given, "made"):
            return x
        return x + given.made

    def calls(function):
        given, seen = kind(), []
        LOG.clear()
        for i in range(5):
            seen.append((function(X, given).tolist(), list(LOG)))
            if i in (1, 2):
                del given.made
        return seen

    assert calls(tc.compile(grown)) == calls(grown)


class Falls(type):
    def __getattr__(cls, name: str) -> int:
        LOG.append(name)
        return len(LOG)


def lazy_class() -> Any:
    return Falls("Lazy", (), {})


def lazy_module() -> Any:
    module = types.ModuleType("lazy_module")

    def fall(name: str) -> int:
        LOG.append(name)
        return len(LOG)

    module.__getattr__ = fall
    return module


@pytest.mark.parametrize("make", (lazy_class, lazy_module))
def test_no_guard_runs_the_fallback_of_a_namespace(make):
    def calls(compile):
        LOG.clear()
        namespace, seen = make(), []
        function = compile(lambda x: (x + namespace.given, namespace.stored))
        for i in range(6):
            total, stored = function(X)
            seen.append((total.tolist(), stored, list(LOG)))
            if i == 1:
                namespace.stored = 10
            elif i == 3:
                del namespace.stored
        return seen

    assert calls(tc.compile) == calls(lambda function: function)
