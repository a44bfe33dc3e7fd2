"""Objects of classes that derive from one written in C do what they do in Python.

What such an object does is mostly its base's: operators, calls, items, texts. The cases are all
pairs of a base and an operation that ends, in a `try` statement, so that an error is a result.
"""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import fractions
import functools
import io
import itertools
import operator
import random
import re
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tc


class Held:
    """Holds what a program is given."""


HELD = Held()
#: a class, and what makes an object of it
BASES: dict[type, tuple[Any, ...]] = {
    functools.partial: (operator.add, 3),
    collections.deque: ([1, 2, 3],),
    array.array: ("i", [1, 2]),
    io.StringIO: ("a\nb",),
    io.BytesIO: (b"ab",),
    datetime.date: (2020, 1, 2),
    datetime.timedelta: (3,),
    fractions.Fraction: (1, 3),
    decimal.Decimal: ("1.5",),
    weakref.ref: (HELD,),
    types.ModuleType: ("module",),
    types.SimpleNamespace: (),
    zip: ([1], [2]),
    enumerate: ([3, 4],),
    itertools.count: (2,),
    itertools.chain: ([1], [2]),
    random.Random: (3,),
    property: (len,),
    staticmethod: (abs,),
    complex: (1, 2),
    bytes: (b"abc",),
    bytearray: (b"abc",),
    int: (5,),
    float: (2.5,),
    str: ("ab",),
    tuple: ((1, 2),),
    list: ([1, 2],),
    set: ({1, 2},),
    frozenset: ({1, 2},),
    dict: ({"a": 1},),
    ValueError: ("x",),
    collections.OrderedDict: ({"a": 1},),
    threading.local: (),
    torch.Generator: (),
}


def enters(one: Any) -> str:
    with one as entered:
        return type(entered).__name__


def stores(one: Any) -> Any:
    one[0] = 1
    return one[0]


def sets(one: Any) -> Any:
    one.added = 3
    return one.added


def two(first: Any, second: Any) -> tuple[Any, Any]:
    return first, second


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "called": lambda one: one(),
    "called with one": lambda one: one(4),
    "length": len,
    "iterated": lambda one: list(itertools.islice(iter(one), 3)),
    "item": lambda one: one[0],
    "key": lambda one: one["a"],
    "contains": lambda one: 1 in one,
    "sum": lambda one: one + one,
    "product": lambda one: one * 2,
    "difference": lambda one: one - one,
    "rest": lambda one: one % 2,
    "power": lambda one: one**2,
    "both": lambda one: divmod(one, one),
    "divided": lambda one: divmod(one, 2),
    "divides": lambda one: divmod(7, one),
    "equal": lambda one: one == one,
    "less": lambda one: one < one,
    "hash": lambda one: isinstance(hash(one), int),
    "true": bool,
    "false": lambda one: not one,
    "chosen": lambda one: 1 if one else 2,
    "int": int,
    "float": float,
    "negative": lambda one: -one,
    "absolute": abs,
    "next": next,
    "index": operator.index,
    "entered": enters,
    "stored": stores,
    "attribute": sets,
    "starred": lambda one: [*one],
    "arguments": lambda one: two(*one),
    "keywords": lambda one: dict(**one),
    "sorted": sorted,
    "reversed": lambda one: list(reversed(one)),
    "rounded": round,
    "callable": callable,
    "text": lambda one: len(f"{one}{one!r}") > 0,
}


#: what asks for all that an iterator gives, of which `itertools.count` has no end
EXHAUSTS = {"contains", "starred", "arguments", "sorted"}
CASES = [
    pytest.param(base, name, id=f"{base.__name__}-{name}")
    for base in BASES
    for name in OPERATIONS
    if base is not itertools.count or name not in EXHAUSTS
]


def shown(value: Any) -> str:
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return f"{type(value).__name__}{[shown(item) for item in value]}"
    plain = value is None or isinstance(value, int | float | str | bytes | complex)
    return re.sub(r"0x\w+", "", repr(value)) if plain else type(value).__name__


def outcome(program: Any, one: Any, operation: Callable[[Any], Any]) -> str:
    held = Held()
    held.one = one  # type: ignore[attr-defined]
    try:
        return shown(program(torch.ones(2), held, operation))
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"


def program(x: torch.Tensor, held: Any, operation: Callable[[Any], Any]) -> Any:
    y = x + 1
    try:
        result = operation(held.one)
    except Exception as error:
        result = f"{type(error).__name__}: {error}"
    return result, y.shape


def makers(base: type) -> list[Callable[[], Any]]:
    def prepared(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            base.__init__(self, *args, **kwargs)
        except TypeError:  # it takes none: `__new__` has done it
            base.__init__(self)
        self.prepared = True

    plain = type(f"Plain{base.__name__}", (base,), {})
    own = type(f"Own{base.__name__}", (base,), {"__init__": prepared})
    return [functools.partial(cls, *BASES[base]) for cls in (plain, own)]


@pytest.mark.sample(40)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("base", "name"), CASES)
def test_they_do_what_their_base_does(base: type, name: str) -> None:
    for make in makers(base):
        want = outcome(program, make(), OPERATIONS[name])
        tc.reset()
        assert outcome(tc.compile(program, backend="eager"), make(), OPERATIONS[name]) == want


class Answering(types.ModuleType):
    """A module with special methods."""

    def __call__(self, value: int) -> int:
        return value * 2

    def __len__(self) -> int:
        return 3

    def __bool__(self) -> bool:
        return False

    def __getitem__(self, key: int) -> int:
        return key


@pytest.mark.parametrize("name", ["called with one", "length", "true", "false", "chosen", "item"])
def test_modules_have_the_methods_of_their_class(name: str) -> None:
    compiled = tc.compile(program, backend="eager")
    module = Answering("module")
    assert outcome(compiled, module, OPERATIONS[name]) == outcome(program, module, OPERATIONS[name])
