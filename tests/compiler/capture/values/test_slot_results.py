"""What special methods return is what Python's slots make of it, or the error that they raise."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

import tc
from tc.compiler.capture.values.slot_results import SLOTS


class Whole(int):
    pass


class Text(str):
    __slots__ = ()


RESULTS = {
    "negative": -1,
    "zero": 0,
    "two": 2,
    "true": True,
    "none": None,
    "float": 1.5,
    "text": "ab",
    "int subclass": Whole(3),
    "str subclass": Text("q"),
    "huge": 2**70,
    "list": [1],
    "not implemented": NotImplemented,
    "bytes": b"x",
    "iterator": iter(()),
    "complex": 1j,
    "tuple": (1, 2),
}
#: special method -> what calls it
USES = {
    "__bool__": [
        "bool(o)",
        "1 if o else 2",
        "not o",
        "o and 3",
        "any([o])",
        "[1 for _ in 'a' if o]",
    ],
    "__bytes__": ["bytes(o)"],
    "__complex__": ["complex(o)"],
    "__float__": ["float(o)", "'%f' % o"],
    "__format__": ["format(o)", "f'{o:x}'", "'{:3}'.format(o)"],
    "__fspath__": ["os.fspath(o)"],
    "__hash__": ["hash(o)", "o in {1: 2}", "len({o})"],
    "__index__": [
        "[1, 2, 3, 4][o]",
        "operator.index(o)",
        "range(o)",
        "'ab' * o",
        "int(o)",
        "float(o)",
    ],
    "__init__": ["type(o)()"],
    "__int__": ["int(o)", "'%d' % o"],
    "__iter__": ["list(o)", "[a for a in o]", "tuple(o)", "sum(o)", "dict(o)", "[*o]", "sorted(o)"],
    "__len__": ["len(o)", "bool(o)", "1 if o else 2", "not o"],
    "__length_hint__": ["operator.length_hint(o)", "operator.length_hint(o, 4)"],
    "__repr__": ["repr(o)", "str(o)", "f'{o!r}'", "ascii(o)"],
    "__str__": ["str(o)", "f'{o}'", "'%s' % o", "format(o)"],
    "__trunc__": ["int(o)"],
}
CASES = [(n, use, r) for n, uses in USES.items() for use, r in itertools.product(uses, RESULTS)]


def test_every_slot_is_used():
    assert set(USES) == {*SLOTS, "__iter__"}


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_results_are_checked_as_python_does(seed):
    for name, use, result in random.Random(f"slots {seed}").sample(CASES, 20):
        made = type("O", (), {name: lambda self, *args, r=RESULTS[result]: r})
        space = {"O": made, "os": __import__("os"), "operator": __import__("operator")}
        if name == "__init__":
            space["O"] = type("O", (), {})
            use = "New()"
            space["New"] = made
        exec(
            "def f(x):\n"
            "    o = O()\n"
            "    try:\n"
            f"        r = {use}\n"
            "    except Exception as e:\n"
            "        r = type(e).__name__, str(e)\n"
            "    return x + 1, r\n",
            space,
        )
        x = torch.ones(2)
        tc.reset()
        found, expected = tc.compile(space["f"], backend="eager")(x)[1], space["f"](x)[1]
        assert type(found) is type(expected), (name, use, result)
        assert found == expected or hasattr(found, "__next__"), (name, use, result)
