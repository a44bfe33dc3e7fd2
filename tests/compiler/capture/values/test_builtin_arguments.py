"""Builtins refuse the arguments that Python refuses, and raise its TypeError."""

from __future__ import annotations

import collections
import copy
import functools
import inspect
import itertools
import math
import operator
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

import tc
from tc.compiler.capture.values.builtin_arguments import PARAMETERS, signature_of
from tc.compiler.capture.values.builtins import BUILTINS

#: made inside of torch, by its own code
INTERNAL = (torch._C._SDPAParams,)


def _handled() -> dict[int, Any]:
    """Return the builtins that have a handler, found in the modules that are loaded."""
    found = {}
    for module in list(sys.modules.values()):
        for obj in list(getattr(module, "__dict__", {}).values()):
            if id(obj) in BUILTINS and obj not in INTERNAL:
                found[id(obj)] = obj
    return found


def test_each_builtin_that_is_traced_has_a_signature():
    assert not [obj for obj in _handled().values() if signature_of(obj) is None]


@pytest.mark.sample(60)
@pytest.mark.parametrize("function", PARAMETERS, ids=lambda function: function.__qualname__)
@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_the_table_refuses_what_python_refuses(function, count):
    given = [(1,), "a", 2, 3, 4][:count]

    def program(x):
        try:
            function(*given)
        except TypeError:
            return x + 1
        except Exception:
            return x - 1
        return x

    x = torch.ones(2)
    assert torch.equal(tc.compile(program, backend="eager")(x), program(x))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: divmod(x, 2),
        lambda x: divmod(2, x),
        lambda x: round(x),
        lambda x: list(x, 2),
        lambda x: tuple(x, 2),
        lambda x: filter(x),
        lambda x: isinstance(x),
        lambda x: str(b"a", "nope", "strict", 2),
    ],
)
def test_calls_that_tensors_do_not_allow(call):
    x = torch.ones(2)
    with pytest.raises(TypeError):
        call(x)
    with pytest.raises(TypeError):
        tc.compile(call, backend="eager")(x)


def test_reversed_tensors_are_tensors():
    for x in (torch.arange(3), torch.tensor(2)):
        assert torch.equal(tc.compile(lambda x: reversed(x), fullgraph=True)(x), reversed(x))


CALLS = (Path(__file__).parent / "builtin_calls.txt").read_text().splitlines()


def _attempt(call):
    try:
        return call()
    except Exception as error:
        return type(error).__name__


def _after(name):
    def call(owner, *args, **kwargs):
        getattr(owner, name)(*args, **kwargs)
        return owner

    return call


SPACE = {
    **{m.__name__: m for m in (collections, copy, functools, inspect, itertools, math, operator)},
    "attempt": _attempt,
    "types_ns": types.SimpleNamespace,
    "srt": _after("sort"),
    "upd": _after("update"),
    "mte": _after("move_to_end"),
    "popi": _after("popitem"),
}


def _shown(value):
    text = list(value) if hasattr(value, "__next__") else value
    return type(value).__name__, re.sub(r" at 0x[0-9a-f]+", "", repr(text))


@pytest.mark.sample(2)
@pytest.mark.parametrize("at", range(0, len(CALLS), 20))
def test_arguments_find_their_places(at):
    for call in CALLS[at : at + 20]:
        space = dict(SPACE)
        exec(f"def f(x):\n    return x + 1, ({call})\n", space)
        x = torch.ones(2)
        tc.reset()
        found = _shown(tc.compile(space["f"], backend="eager")(x)[1])
        assert found == _shown(space["f"](x)[1]), call
