"""What is stored was read before the container that it was in changed."""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
import types
from typing import Any

import pytest
import torch

import tc

MODULE: Any = types.ModuleType("module")
SPACE = types.SimpleNamespace()
FOUND: Any = None
TABLE: dict[str, Any] = {}
KEPT: list[Any] = []


def to_global(x, items):
    global FOUND  # noqa: PLW0603 - what is tested
    FOUND = items.pop()
    return x + 1


def first_to_global(x, items):
    global FOUND  # noqa: PLW0603 - what is tested
    FOUND = items.pop(0)
    return x + 1


def to_module(x, items):
    MODULE.found = items.pop(0)
    return x + 1


def to_several(x, items):
    SPACE.found, MODULE.found = items.pop(0), items.pop(0)
    return x + 1


def to_containers(x, items):
    TABLE["found"] = items.pop(0)
    KEPT.append(items.pop())
    return x + 1


def swapped_with_global(x, items):
    global FOUND
    FOUND, items[0] = items[0], items[1]
    return x + 1


FUNCTIONS = [
    to_global, first_to_global, to_module, to_several, to_containers, swapped_with_global,
]  # fmt: skip
MAKERS = [object, io.StringIO, lambda: torch.ones(2), lambda: [1], dict, types.SimpleNamespace]


def state_after(run, objects):
    global FOUND  # noqa: PLW0603 - what is tested
    FOUND = MODULE.found = SPACE.found = None
    TABLE.clear()
    KEPT.clear()
    items = list(objects)
    run(torch.ones(1), items)
    left = [FOUND, MODULE.found, SPACE.found, *TABLE.values(), *KEPT, *items]
    return [id(one) for one in left]


@pytest.mark.sample(8)
@pytest.mark.parametrize(("function", "make"), itertools.product(FUNCTIONS, MAKERS))
def test_what_is_stored_is_the_object_that_was_read(function, make):
    tc.reset()
    compiled = tc.compile(function)
    for _ in range(2):
        objects = [make() for _ in range(3)]
        assert state_after(compiled, objects) == state_after(function, objects)


def redirected(x):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        print("inside")
    return x * 2, text.getvalue()


def test_output_is_redirected_for_a_block_only():
    before = sys.stdout
    _, text = tc.compile(redirected)(torch.ones(1))
    assert (text, sys.stdout) == ("inside\n", before)
