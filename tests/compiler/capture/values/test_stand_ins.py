"""Methods of builtin types called with the wrong number of arguments: Python's errors, in words."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch

import tc

KINDS: dict[str, Any] = {
    "list": lambda: [1, 2],
    "tuple": lambda: (1, 2),
    "dict": lambda: {"a": 1},
    "set": lambda: {1, 2},
    "frozenset": lambda: frozenset({1}),
    "str": lambda: "ab",
    "bytes": lambda: b"ab",
    "deque": lambda: collections.deque([1, 2]),
    "OrderedDict": lambda: collections.OrderedDict(a=1),
    "defaultdict": lambda: collections.defaultdict(int, a=1),
}
#: whose order of checks, or type of result, depends on what is in the arguments
LEFT_OUT = ("fromkeys", "maketrans", "fromhex")


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_number_of_arguments_is_refused_as_by_python(kind):
    make = KINDS[kind]
    calls = [
        (name, count, named)
        for name in dir(make())
        if name[0] != "_" and callable(getattr(make(), name)) and name not in LEFT_OUT
        for count, named in ((0, {}), (1, {}), (2, {}), (4, {}), (0, {"q": 1}), (1, {"q": 1}))
    ]

    def program(x):
        found = []
        for name, count, named in calls:
            made = make()
            try:
                getattr(made, name)(*[7] * count, **named)
                found.append((name, count, made))
            except Exception as error:
                found.append((name, count, type(error), str(error)))
        return x + 1, found

    found, wanted = tc.compile(program, backend="eager")(torch.ones(1)), program(torch.ones(1))
    differences = [pair for pair in zip(found[1], wanted[1], strict=True) if pair[0] != pair[1]]
    assert not differences
