"""What a place held before the frame changed it, kept by something new, in every combination.

A program reads a place, hands the value to a holder, puts something else into the place, and
returns or breaks its graph. The residual code has to read all places before it changes any.
"""

from __future__ import annotations

import dataclasses
import functools  # noqa: F401 - in the table of holders
import types
from collections import OrderedDict, deque
from typing import Any, NamedTuple

import pytest
import torch

import tc


class Holder:
    def __init__(self, held: Any) -> None:
        self.held = held


@dataclasses.dataclass(frozen=True)
class Frozen:
    held: Any


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held


class Named(NamedTuple):
    held: Any


class Kept(list[Any]):
    pass


def closure(held: Any) -> Any:
    return lambda: held


def _generator(held: Any) -> Any:
    yield held


class Counter:
    def __init__(self, held: Any) -> None:
        self.items = [held]

    def __call__(self) -> Any:
        return self.items[0]


#: expression that hands `old` to something new -> expression that asks `new` for it
HOLDERS = {
    "Holder(old)": "new.held",
    "Frozen(old)": "new.held",
    "Slotted(old)": "new.held",
    "Named(old)": "new.held",
    "Kept([old])": "new[0]",
    "Counter(old)": "new()",
    "closure(old)": "new()",
    "(lambda value=old: value)": "new()",
    "functools.partial(closure, old)": "new()()",
    "[old]": "new[0]",
    "(0, (old,))": "new[1][0]",
    "{'a': [old]}": "new['a'][0]",
    "deque([old])": "new[0]",
    "types.SimpleNamespace(held=old)": "new.held",
    "ValueError(old)": "new.args[0]",
    "Holder(closure(Holder(old)))": "new.held().held",
    "closure(closure(old))": "new()()",
    "iter([old])": "next(new)",
    "zip([old], [1])": "next(new)[0]",
    "Holder([old]).held.__getitem__": "new(0)",
    "slice(old)": "new.stop",
}

#: name of a place -> the place, and statements that change it
PLACES = {
    "item of a dict": ("d['k']", "d['k'] = {}"),
    "updated item": ("d['k']", "d.update(k={})"),
    "deleted item": ("d['k']", "del d['k']"),
    "popped item": ("d['k']", "d.pop('k'); d['j'] = {}"),
    "item of an ordered dict": ("o['k']", "o['k'] = {}"),
    "item of a list": ("l[0]", "l[0] = {}"),
    "inserted before": ("l[0]", "l.insert(0, {})"),
    "cleared list": ("l[0]", "l.clear()"),
    "item of a deque": ("q[0]", "q.append({})"),
    "attribute": ("s.h", "s.h = {}"),
    "attribute, deleted": ("s.h", "del s.h"),
    "attribute of what is replaced": ("s.n.held", "s.n = Holder({})"),
    "item of what is replaced": ("s.items[0]", "s.items = [{}]"),
    "attribute of a module": ("m.h", "m.h = {}"),
    "variable of a closure": ("cell", "cell = {}"),
    "argument": ("argument", "argument = {}; inner = lambda: argument"),
    "global": ("PLACE", "PLACE = {}"),
    "item of a global": ("TABLE['k']", "TABLE['k'] = {}"),
}

TEMPLATE = """
def make(d, o, l, q, s, m, cell):
    def program(argument, x):
        nonlocal cell
        global PLACE
        old = {place}
        new = {holder}
        {change}
        {middle}
        return new, x + 1, (argument, lambda: argument), {now}
    return program
"""


class Place:
    """The world of one program."""

    def __init__(self, value: Any) -> None:
        self.d, self.o, self.l = {"k": value}, OrderedDict(k=value), [value, torch.full((2,), 5.0)]
        self.q = deque([value, torch.full((2,), 6.0)], maxlen=2)
        self.s = types.SimpleNamespace(h=value, n=Holder(value), items=[value])
        self.m = torch.nn.Identity()
        self.m.h = value
        self.globals = {**globals(), "PLACE": value, "TABLE": {"k": value}}

    def program(self, holder: str, place: str, middle: str, cell: Any) -> Any:
        read, change = PLACES[place]
        now = "0" if "delete" in place or "clear" in place or "popped" in place else read
        source = TEMPLATE.format(
            place=read,
            holder=holder,
            change=change.replace("{}", "x * 2"),
            middle=middle,
            now=now,
        )
        scope = self.globals
        exec(source, scope)
        return scope["make"](self.d, self.o, self.l, self.q, self.s, self.m, cell)


@pytest.mark.sample(3)
@pytest.mark.parametrize("middle", ["pass", "print(end='')"], ids=["returns", "breaks"])
@pytest.mark.parametrize("place", PLACES)
def test_what_a_place_held_before_it_was_changed(place: str, middle: str) -> None:
    first = list(PLACES).index(place) + (middle == "pass")
    for holder, ask in list(HOLDERS.items())[first % 3 :: 3]:
        found = []
        for compiled in (False, True):
            # no value is in two places: a place that stays would be read in place of the other
            value, argument, cell, x = (torch.full((2,), float(n)) for n in range(4))
            argument = value if place == "argument" else argument
            cell = value if place == "variable of a closure" else cell
            program = Place(value).program(holder, place, middle, cell)
            if compiled:
                program = tc.compile(program, backend="eager")
            new, _, (now, inner), place_now = program(argument, x)
            held = eval(ask, {"new": new, "next": next})
            assert held is value, (place, holder, held)
            found.append(str([held, now, inner(), place_now]))
        assert found[0] == found[1], (place, holder)
