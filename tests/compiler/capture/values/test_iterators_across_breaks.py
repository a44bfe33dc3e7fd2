"""Iterators over containers that a frame changed before a graph break continue as Python's."""

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
    "itertools.tee(c)[1]", "itertools.tee(itertools.tee(iter(c))[0])[0]",
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


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", CONTAINERS)
def test_drawn_programs_see_what_eager_sees(kind: str, drawn: Any) -> None:
    make = CONTAINERS[kind][0]
    for seed in drawn(range(40), 15):
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


# -- generators that have not started -------------------------------------------------------------
log: list[str] = []


def endless(n):
    while True:
        n += 1
        yield n


def with_names(a, *rest, b=2, **more):
    yield from (a, rest, b, more)


def with_effects(x):
    log.append("start")
    yield x + 1
    log.append("end")


def that_is_sent_to():
    got = yield 1
    while True:
        got = yield got


class Rows:
    """Iterated by index, and by a method."""

    factor = 3

    def rows(self, count):
        for i in range(count):
            yield i * self.factor

    def __getitem__(self, i):
        if i > 3:
            raise IndexError
        return i * 2


#: made before the break -> used after it
GENERATORS = {
    "g = endless(3)": "next(g), next(g)",
    "g = endless(1); h = (v * 2 for v in g)": "[*itertools.islice(h, 3)], next(g)",
    "g = with_names(1, 2, 3, b=5, q=x)": "[*g]",
    "g = with_effects(x)": "log.append('mid'), [*g], [*log]",
    "g = with_effects(x); made = [*g]": "made, [*g], [*log]",
    "g = that_is_sent_to()": "next(g), g.send(5), g.send(7)",
    "o = Rows(); g = o.rows(3)": "setattr(o, 'factor', 5), [*g]",
    "g = iter(Rows()); first = next(g)": "first, [*g], [*g]",
    "k = 2; g = (i * k for i in range(4)); k = 3": "[*g]",
    "g = (t * 2 for t in [x, x + 1])": "x.add_(5), [*g]",
    "held.append(endless(4))": "next(held[-1])",
    "it = iter([1, 2, 3]); g = (v for v in it); next(it)": "next(it), [*g]",
    "g = (v for v in held)": "held.append(7), [*g]",
    "d = {'a': endless(1), 'b': (v for v in [x])}": "next(d['a']), next(d['b'])",
    "g = endless(3); next(g)": "next(g)",
}


@pytest.mark.parametrize("made", GENERATORS)
def test_generators_run_when_they_are_asked(made: str) -> None:
    space: dict[str, Any] = {**globals()}
    body = f"    {made}\n    tc.graph_break()\n    return {GENERATORS[made]}, x + 1\n"
    exec(f"def f(x, held):\n{body}", space)

    def run(fn: Any) -> str:
        log.clear()
        held = [1]
        return repr((fn(torch.ones(2), held), len(held)))

    assert run(tc.compile(space["f"], backend="eager")) == run(space["f"])


def windows(x):
    copies = itertools.tee((x * i for i in range(5)), 3)
    for i, one in enumerate(copies):
        for _ in range(i):
            next(one, None)
    return [a + b * c for a, b, c in zip(*copies, strict=False)]


def shared_with_its_source(x):
    source = iter([1, 2, 3, 4])
    first, second = itertools.tee(source)
    seen = [next(first), next(source), next(first), next(second)]
    third, fourth = itertools.tee(second)
    return x, seen, third is second, list(fourth), list(first), list(third), itertools.tee("", 0)


@pytest.mark.parametrize("program", [windows, shared_with_its_source])
def test_copies_of_iterators_share_what_was_read(program: Any) -> None:
    x = torch.ones(2)
    assert str(tc.compile(program, backend="eager", fullgraph=True)(x)) == str(program(x))


class Fields:
    """Has attributes in its ``__dict__``, and one that is not there."""

    __slots__ = ("__dict__", "apart")

    def __init__(self):
        self.apart, self.a, self.b, self.c = 0, 1, 2, 3


#: what is iterated over is filled when the code after the graph has made it
FILLED_LATE = (
    "vars(Fields())", "Fields().__dict__.items()", "Fields().__dict__.values()", "vars(old)",
    "enumerate(vars(Fields()))", "zip(vars(Fields()), vars(old).values())", "iter(vars(old))",
    "itertools.chain(vars(Fields()), vars(old))", "map(str, vars(Fields()))",
    "setattr(old, 'd', 4) or vars(old)", "[*vars(Fields())]",
)  # fmt: skip


@pytest.mark.parametrize("made", FILLED_LATE)
def test_a_loop_over_attributes_goes_on_after_a_break(made: str) -> None:
    space: dict[str, Any] = {**globals()}
    lines = [f"for v in {made}:", "    tc.graph_break()", "    seen.append(v)", "    x = x + 1"]
    body = "".join(f"    {line}\n" for line in ["seen = []", *lines, "return x, seen"])
    exec(f"def f(x, old):\n{body}", space)
    wanted, found = (
        str(run(torch.ones(2), Fields()))
        for run in (space["f"], tc.compile(space["f"], backend="eager"))
    )
    assert found == wanted
