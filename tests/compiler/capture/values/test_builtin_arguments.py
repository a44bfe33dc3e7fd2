"""Builtins refuse the arguments that Python refuses, and raise its TypeError."""

from __future__ import annotations

import sys
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
