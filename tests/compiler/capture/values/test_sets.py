"""Random programs over sets: items, their order and their types are Python's own."""

from __future__ import annotations

import random

import pytest
import torch

import tc
from tc.compiler.errors import Unsupported

STATEMENTS = (
    "s.add({i})",
    "s.discard({i})",
    "s.pop() if s else 0",
    "s.update({c})",
    "s |= set({c})",
    "s &= set({c})",
    "s -= set({c})",
    "s ^= set({c})",
    "s = s.union({c})",
    "s = s | set({c})",
    "s = set({c}) & s",
    "s = s.intersection({c})",
    "s = s.difference({c}, {c})",
    "s = s.symmetric_difference({c})",
    "s.intersection_update({c})",
    "s.difference_update({c})",
    "s.symmetric_difference_update({c})",
    "s = set(s)",
    "s = s.copy()",
    "s = {{v for v in s if v != {i}}}",
    "s = set(frozenset(s))",
    "s.clear() if len(s) > 12 else 0",
    "out.append(list(s))",
    "out.append([v for v in s])",
    "out.append(next(iter(s), None))",
    "out.append((s.isdisjoint({c}), s.issuperset({c}), s.issubset({c}), {i} in s))",
    "out.append(list(frozenset({c})))",
    "out.append(repr(s))",
    "out.append(tuple(s | {{{i}}}))",
)


def _container(rng: random.Random) -> str:
    items = ", ".join(_item(rng) for _ in range(rng.randrange(7)))
    if not items:
        return "()"
    kinds = ("[{}]", "{{{}}}", "frozenset([{}])", "(v for v in [{}])", "dict.fromkeys([{}])")
    return rng.choice(kinds).format(items)


def _item(rng: random.Random) -> str:
    if rng.random() < 0.2:
        return repr(rng.choice(["a", "bb", "z", "q1", True, 1.0, 2.5, None, (1, 2)]))
    return str(rng.randrange(rng.choice((10, 40, 1000))))


def _program(rng: random.Random) -> str:
    lines = [f"s = {{{_item(rng)}, {_item(rng)}, {_item(rng)}}}"]
    if rng.random() < 0.3:
        lines = ["s = given"]
    for _ in range(rng.randrange(3, 14)):
        text = rng.choice(STATEMENTS)
        lines.append(text.format(i=_item(rng), c=_container(rng)))
    body = "\n    ".join(["out = []", *lines, "return x + 1, out, list(s)"])
    return f"def f(x, given):\n    {body}\n"


def _typed(value):
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(_typed, value)]
    return type(value).__name__, value


@pytest.mark.sample(20)
@pytest.mark.parametrize("seed", range(40))
def test_sets_are_pythons(seed):
    rng = random.Random(f"sets {seed}")
    source = _program(rng)
    space: dict = {}
    exec(source, space)
    items = [rng.randrange(50) for _ in range(rng.randrange(6))]
    expected_set, found_set = set(items), set(items)
    expected = space["f"](torch.zeros(2), expected_set)
    try:
        found = tc.compile(space["f"], backend="eager", fullgraph=True)(torch.zeros(2), found_set)
    except Unsupported as error:
        assert "the order of an input set" in str(error)
        return
    assert _typed(found[1:]) == _typed(expected[1:]), source
    assert found_set == expected_set, source
