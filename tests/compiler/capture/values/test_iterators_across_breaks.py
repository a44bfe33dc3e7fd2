"""Iterators over containers that a frame changed before it breaks its graph go on as Python's."""

from __future__ import annotations

import collections
import itertools
import random
from typing import Any

import pytest
import torch

import tc

#: a container that exists before the frame, and changes of it
CONTAINERS: dict[str, tuple[Any, list[str]]] = {
    "list": (
        lambda: [1, 2],
        ["c.append(5)", "c[0] = 7", "c.insert(0, 8)", "c.extend([3, 4])", "c.pop()", "c.reverse()"],
    ),
    "dict": (lambda: {"a": 1, "b": 2}, ["c['z'] = 3", "c['a'] = 4", "c.pop('b')", "c.update(q=1)"]),
    "set": (lambda: {1, 2}, ["c.add(9)", "c.discard(2)", "c |= {3, 4}"]),
    "deque": (lambda: collections.deque([1, 2]), ["c.append(5)", "c.appendleft(3)", "c.pop()"]),
}
ITERATORS = [
    "iter(c)", "enumerate(c)", "zip(c, c)", "map(str, c)", "reversed(c)", "itertools.chain(c, [0])",
    "(v for v in c)", "iter(c.items())", "iter(c.values())", "itertools.islice(c, 3)", "passed",
]  # fmt: skip


def draw(kind: str, dice: random.Random) -> str:
    """Return a program: changes, an iterator that advances, breaks, and what is left of it."""
    changes = CONTAINERS[kind][1]
    lines = [dice.choice(changes) for _ in range(dice.randint(0, 2))]
    lines += [f"it = {dice.choice(ITERATORS)}", "held = [it, 0]"]
    for _ in range(dice.randint(1, 3)):
        lines += ["seen.append(next(it, None))"] * dice.randint(0, 3)
        if kind == "list" and dice.random() < 0.3:  # others refuse changes while one iterates
            lines.append(dice.choice(changes))
        lines.append(dice.choice(["tc.graph_break()", "seen.append(x.tolist())"]))
    lines += ["y = x + len(c)", "seen += list(held[0])", "return y, seen"]
    return "def f(x, c, passed):\n    seen = []\n" + "".join(f"    {line}\n" for line in lines)


@pytest.mark.parametrize("kind", CONTAINERS)
def test_drawn_programs_see_what_eager_sees(kind: str) -> None:
    make = CONTAINERS[kind][0]
    for seed in range(40):
        source = draw(kind, random.Random(f"{kind} {seed}"))
        space: dict[str, Any] = {"tc": tc, "itertools": itertools}
        exec(source, space)

        def run(fn: Any) -> Any:
            container = make()
            try:
                y, seen = fn(torch.ones(2), container, iter(container))
            except (AttributeError, IndexError, KeyError, RuntimeError, TypeError) as error:
                return type(error)
            return y.tolist(), seen, list(container)

        assert run(tc.compile(space["f"], backend="eager")) == run(space["f"]), source
