"""Special methods, in whichever way a class defines them, do in traced code what they do in Python.

The cases are drawn from all special methods, ways to define them, places of the definition, kinds
of classes, and uses: see `special_methods`.
"""

from __future__ import annotations

import itertools
import operator
import types
from typing import Any

import pytest
import torch
from special_methods import RESULTS, USES, WAYS, cases, outcomes

import tc

#: (special method, way) of which single cases differ, with the reason
DIFFER = {
    ("__hash__", "generator"): "a class that has no hash cannot be kept in a table",
    ("__ror__", "super"): "a union of a string and a subclass of dict is no operator of values",
    ("__ior__", "super"): "a tensor refuses the operator before its subclass's method has run",
    ("__rxor__", "in C"): "a tensor refuses the operator before its subclass's method has run",
}


def compiled(program: Any) -> Any:
    return tc.compile(program, backend="eager")


def test_every_special_method_is_used() -> None:
    assert USES.keys() == RESULTS.keys()


@pytest.mark.sample(15)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "way"), [pair for pair in itertools.product(USES, WAYS) if pair not in DIFFER]
)
def test_special_methods_are_as_in_eager(name: str, way: str) -> None:
    for case in cases(name, way, 0, 4):
        try:
            want = outcomes(case, lambda program: program)
        except (TypeError, ValueError, RuntimeError, AttributeError):  # no such class can be made
            continue
        tc.reset()
        assert outcomes(case, compiled) == want, str(case)


LOG: list[Any] = []


class Restarting:
    """Begins again whenever it is asked for an iterator."""

    def __iter__(self) -> Restarting:
        self.at = 0
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at > 4:
            raise StopIteration
        return self.at


class Counted:
    def __index__(self) -> int:
        LOG.append("index")
        return 2

    def __float__(self) -> float:
        return 1.5


class Scaled(torch.Tensor):
    def __truediv__(self, other: Any) -> Any:
        LOG.append("divided")
        return 7


class Whole(int):
    def __str__(self) -> str:
        return "W" + getattr(super(Whole, self), "__str__")()  # noqa: B009, UP008


class Kept(dict):  # type: ignore[type-arg]
    def __new__(cls) -> Kept:
        LOG.append("new")
        return super().__new__(cls)


class Open:
    def __enter__(self) -> int:
        return 1

    def __exit__(self, *error: object) -> None:
        LOG.append("left")


class Meta(type):
    def __instancecheck__(cls, other: object) -> bool:
        LOG.append("checked")
        return False

    __add__ = staticmethod(lambda other: other * 3)


class Made(metaclass=Meta):
    pass


def hiding() -> Open:
    made = Open()
    made.__dict__["__enter__"] = lambda: 2
    made.__dict__["__exit__"] = lambda *error: LOG.append("hidden")
    return made


WHOLE, SCALED, HIDING, INSTANCE = Whole(3), torch.ones(2).as_subclass(Scaled), hiding(), Made()
#: text -> whether all of it is in one graph
PROGRAMS = {
    "a, *b = Restarting(); r = a, b": True,
    "*a, b = Restarting(); r = a, b": True,
    "a, b, c, d, e, *f = Restarting(); r = a": False,
    "r = [x] * Counted(), 'a' * Counted(), Counted() * (1,)": True,
    "r = '%d %x %f %s' % (Counted(), Counted(), Counted(), 1)": True,
    "r = f'{types.SimpleNamespace(a=x.shape[0], b=[1])}', LOG.append(1)": True,
    "r = str(SCALED / SCALED), SCALED / 2": True,
    "r = str(WHOLE)": False,
    "r = Kept(); r['a'] = x": True,
    "with HIDING as r: x = x + r": True,
    "r = isinstance(INSTANCE, Made), isinstance(3, Made), isinstance(3, (int, Made))": True,
    "r = Made + x": True,
    "LOG.append(1); r = super(None, x)": False,
    "r = object.__new__()": False,
    "r = operator.length_hint(iter([1, 2]), 5)": False,
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("text", PROGRAMS)
def test_programs_are_as_in_eager(text: str) -> None:
    space: dict[str, Any] = {**globals(), "operator": operator, "types": types}
    exec(f"def program(x):\n    {text}\n    return x + 1, r\n", space)
    found: list[Any] = []
    for function in (
        space["program"],
        tc.compile(space["program"], backend="eager", fullgraph=PROGRAMS[text]),
    ):
        for size in (2, 3, 5):
            LOG.clear()
            try:
                result = function(torch.ones(size))
            except Exception as error:
                result = error
            found.append((repr(result), [*LOG]))
    assert found[3:] == found[:3]
