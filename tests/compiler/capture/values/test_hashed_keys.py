"""Objects whose classes define a hash and equality are keys of dicts and items of sets."""

from __future__ import annotations

import random
import reprlib
from dataclasses import dataclass
from typing import Any

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
