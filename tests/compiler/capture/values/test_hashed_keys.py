"""Objects whose classes define a hash and equality are keys of dicts and items of sets."""

from __future__ import annotations

import collections
import random
import re
import reprlib
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch

import tc


@dataclass(frozen=True)
class Key:
    """Hashed and compared by its fields."""

    a: int
    b: object = None


@dataclass(frozen=True, slots=True)
class Slotted:
    """As `Key`, in another class and with slots."""

    a: int


class Own:
    """Half of these have one hash, and each equals a number too."""

    def __init__(self, a: int) -> None:
        self.a = a

    def __hash__(self) -> int:
        return self.a % 2

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, Own) and self.a == other.a) or other == self.a + 100


class Odd:
    """Its hash is an error."""

    def __hash__(self) -> int:
        return "x"  # type: ignore[return-value]


KEYS = [
    "Key({n})",
    "Slotted({n})",
    "Own({n})",
    "({n}, 1)",
    "{n}",
    "Key({n}, Key(1))",
    "(Own({n}), 2)",
]
NUMBERS = ["0", "1", "2", "101", "n", "k.a"]
LINES = [
    "d[{k}] = x + {j}", "out.append(d.get({k}))", "out.append({k} in d)", "s.add({k})",
    "out.append({k} in s)", "s.discard({k})", "out.append(d.pop({k}, None))",
    "out.append(hash({k}) == hash({o}))", "out.append(d.setdefault({k}, x * 2))",
    "out.append(dict.fromkeys([{k}, {o}], 1)[{k}])", "d[k] = x", "out.append(k in d)",
    "out.append(frozenset([{k}, {o}]) == frozenset([{o}, {k}]))", "out.append({k} == {o})",
    "out.append(len({{{k}, {o}}}))", "tc.graph_break()", "out.append(str(Key({j})))",
]  # fmt: skip


def draw(dice: random.Random) -> str:
    def key() -> str:
        return dice.choice(KEYS).format(n=dice.choice(NUMBERS))

    lines = [
        dice.choice(LINES).format(k=key(), o=key(), j=dice.randint(0, 9))
        for _ in range(dice.randint(2, 7))
    ]
    first = dice.choice(["d = {}", "d = given"])
    lines = [first, "s, out = set(), []", *lines, "return out, x + len(d), [*d.values()], len(s)"]
    return "def f(x, n, k, given):\n" + "".join(f"    {line}\n" for line in lines)


@pytest.mark.sample(1)
@pytest.mark.parametrize("part", range(6))
def test_drawn_programs_are_as_in_eager(part: int, drawn: Any) -> None:
    for seed in drawn(range(25), 10):
        source = draw(random.Random(f"{part} {seed}"))
        space: dict[str, Any] = {**globals()}
        exec(source, space)
        compiled = tc.compile(space["f"], backend="eager")
        for n, a in ((1, 1), (2, 1), (0, 101), (1, 1)):

            def run(fn: Any, n: int = n, a: int = a) -> Any:
                given = {Key(1): torch.ones(2), Own(1): torch.ones(2) * 3}
                found = fn(torch.ones(2), n, Key(a), given)
                return repr((found, [*given.values()], [type(key) for key in given]))

            assert run(compiled) == run(space["f"]), source


def test_what_users_write_needs_no_break() -> None:
    def f(x, k):
        seen = {Key(1): 3, k: 4}
        return x + seen[Key(1)] + len({Key(1), Key(1), Slotted(1)}), f"{k} {Own(3) in {Own(3)}}"

    found = tc.compile(f, backend="eager", fullgraph=True)(torch.ones(2), Key(5))
    wanted = f(torch.ones(2), Key(5))
    assert torch.equal(found[0], wanted[0]) and found[1] == wanted[1]


def test_a_change_after_hashing_is_left_to_python() -> None:
    def f(x):
        one = Own(2)
        seen = {one: x}
        one.a = 3
        return x + 1, one in seen, Own(3) in seen, next(iter(seen)).a

    assert tc.compile(f, backend="eager")(torch.ones(1))[1:] == f(torch.ones(1))[1:]


def test_a_hash_that_is_no_number_is_an_error() -> None:
    def f(x):
        try:
            return x + len({Odd()})
        except TypeError as error:
            return x - 1, str(error)

    assert tc.compile(f, backend="eager")(torch.ones(1))[1] == f(torch.ones(1))[1]


class Ring:
    """Holds itself, and says so."""

    def __init__(self) -> None:
        self.inner = self

    @reprlib.recursive_repr("<...>")
    def __repr__(self) -> str:
        return f"Ring({self.inner!r})"


def test_text_of_an_object_that_holds_itself() -> None:
    def f(x, ring):
        return x + 1, repr(ring), repr(Ring())

    ring = Ring()
    found = tc.compile(f, backend="eager", fullgraph=True)(torch.ones(1), ring)
    assert found[1:] == f(torch.ones(1), ring)[1:] == ("Ring(<...>)", "Ring(<...>)")


class Logged:
    """Of a given hash; logs what it is compared with."""

    log: ClassVar[list] = []

    def __init__(self, name, hashed=0):
        self.name, self.hashed = name, hashed

    def __hash__(self):
        return self.hashed

    def __eq__(self, other):
        Logged.log.append((self.name, getattr(other, "name", other)))
        return self.name == getattr(other, "name", other)


def _logged(*names):
    return [Logged(name) for name in names]


#: what is done to a dict and to another
OF_DICTS = [
    "d[Logged(2)]", "d.get(Logged(3))", "d.__setitem__(Logged(2), 5)", "d.__delitem__(Logged(3))",
    "d.pop(Logged(3))", "d.pop(Logged(9), 0)", "d.setdefault(Logged(3), 4)", "len(d.popitem())",
    "d == e", "e == d", "len({**d, **e})", "len(d | e)", "len(dict(d))", "2 in d",
    "Logged(0) in {0: 1}",
    "len(list(d.items()))", "d.copy() == 1", "d.clear()", "d.move_to_end(Logged(2))",
    "d.move_to_end(Logged(1), False)", "d.update(e)",
]  # fmt: skip
#: what is done to a set and to another
OF_SETS = [
    "s.add(Logged(2))", "s.add(Logged(3))", "s.remove(Logged(2))", "s.discard(Logged(2))",
    "s.discard(Logged(5))", "len(s | t)", "len(s & t)", "len(s - t)", "len(s ^ t)", "s == t",
    "s <= t",
    "s >= t", "s.isdisjoint(t)", "s.update(t)", "len(set(s))", "len(s.copy())", "Logged(2) in s",
    "s.intersection_update(t)", "s.symmetric_difference_update(t)", "len({*s, *t})", "s.clear()",
]  # fmt: skip


@pytest.mark.sample(8)
@pytest.mark.parametrize("done", [*OF_DICTS, *OF_SETS])
def test_keys_are_compared_as_often_as_by_python(done):
    def program(x):
        d, e = ({key: key.name for key in _logged(*names)} for names in ((1, 2, 3), (2, 4)))
        if "move_to_end" in done:
            d = collections.OrderedDict(d)
        s, t = {Logged(2)}, {Logged(2) if "Logged(2)" in done else Logged(3)}
        Logged.log.clear()
        try:
            result = does(d, e, s, t)
        except KeyError:
            result = "KeyError"
        return x + 1, result, list(Logged.log), list(d.values()), len(s), len(t)

    does = eval(f"lambda d, e, s, t: {done}")
    tc.reset()
    assert tc.compile(program, backend="eager")(torch.ones(1))[1:] == program(torch.ones(1))[1:]


class Refusing(Logged):
    """Its comparisons raise, or empty a set, once it is armed."""

    armed: Any = None

    def __hash__(self):
        return 0

    def __eq__(self, other):
        if Refusing.armed is not None:
            Refusing.armed.clear()
            raise ZeroDivisionError
        return self is other


def test_what_a_comparison_changes_and_raises_is_pythons():
    def program(x):
        Refusing.armed = None
        s, t, u = {Refusing(1), Refusing(2)}, {Refusing(n) for n in range(9)}, {0}
        Refusing.armed = t
        found = []
        for merge in (s.update, s.union, s.symmetric_difference_update, s.__eq__, u.update):
            try:
                merge(t)
                found.append("merged")
            except ZeroDivisionError:
                found.append("refused")
        s.clear()
        return x + 1, found, len(t), len(u)

    tc.reset()
    assert tc.compile(program, backend="eager")(torch.ones(1))[1:] == program(torch.ones(1))[1:]


def test_containers_that_outlive_the_frame_are_not_compared_again():
    def program(x, kept):
        kept.append({Logged(1), Logged(2)})
        kept.append({Logged(1): 2, Logged(2): 3})
        Logged.log.clear()
        return x + 1

    compiled = tc.compile(program, backend="eager")
    for _ in range(2):
        kept: list = []
        compiled(torch.ones(1), kept)
        assert not Logged.log and [len(one) for one in kept] == [2, 2]


class Matching:
    """A class that is a key, with an attribute that means nothing to dictionaries."""

    match: ClassVar[list[int]] = []


def test_attributes_of_a_key_are_its_own_affair():
    pattern = re.compile("a")

    def program(x):
        held = {Matching: 1, pattern: 2, (Matching, pattern): 3}
        found = held[Matching], held[pattern], held[Matching, pattern], held.get(Matching)
        return x + sum(found), found, Matching in held

    compiled = tc.compile(program, backend="eager", fullgraph=True)
    assert str(compiled(torch.ones(1))) == str(program(torch.ones(1)))
