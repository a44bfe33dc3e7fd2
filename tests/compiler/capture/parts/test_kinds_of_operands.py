"""Operators and conversions between kinds of operands give what Python gives, or raise the same.

The table has a kind for each way in which capture represents an object; a run draws some of its
pairs, and what differed once is listed.
"""

from __future__ import annotations

import collections
import decimal
import enum
import fractions
import math
import operator
import random

import pytest
import torch

import tc


class Number:
    """Defines operators in Python."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return f"Number({self.value})"

    def __add__(self, other):
        return Number((self.value, "add", type(other).__name__))

    def __radd__(self, other):
        return Number((self.value, "radd", type(other).__name__))

    def __mul__(self, other):
        return NotImplemented

    def __rmul__(self, other):
        return Number((self.value, "rmul", type(other).__name__))

    def __iadd__(self, other):
        self.value = (self.value, "iadd")
        return self

    def __eq__(self, other):
        return isinstance(other, Number) and self.value == other.value

    def __hash__(self):
        return 5

    def __lt__(self, other):
        return True

    def __contains__(self, other):
        return other == 3

    def __index__(self):
        return 2

    def __bool__(self):
        return False


class OwnInt(int):
    def __add__(self, other):
        return ("add", int(self), isinstance(other, int))


class OwnFloat(float):
    def __mul__(self, other):
        return "mul"


class OwnList(list):
    def __getitem__(self, key):
        return ("item", key)


class OwnDict(dict):
    def __missing__(self, key):
        return "missing"


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 2


class Bits(enum.Flag):
    ONE = 1
    TWO = 2


# fmt: off
KINDS = {
    "tensor": lambda: torch.tensor([1.0, 2.0]), "scalar": lambda: torch.tensor(3),
    "int": lambda: 3, "negative": lambda: -2, "zero": lambda: 0, "float": lambda: 2.5,
    "infinite": lambda: math.inf, "bool": lambda: True, "complex": lambda: 1 + 2j,
    "none": lambda: None, "str": lambda: "ab", "bytes": lambda: b"ab", "list": lambda: [1, 2],
    "tuple": lambda: (1, 2), "dict": lambda: {1: 2}, "set": lambda: {1, 2},
    "frozenset": lambda: frozenset({1, 3}), "keys": lambda: {1: 2}.keys(),
    "deque": lambda: collections.deque([1, 2]),
    "range": lambda: range(3), "size": lambda: torch.Size([1, 2]), "number": lambda: Number(1),
    "own int": lambda: OwnInt(4), "own float": lambda: OwnFloat(1.5),
    "own list": lambda: OwnList([1]), "own dict": lambda: OwnDict(), "enum": lambda: Colour.RED,
    "int enum": lambda: Level.HIGH, "flag": lambda: Bits.ONE,
    "fraction": lambda: fractions.Fraction(1, 3), "decimal": lambda: decimal.Decimal("1.5"),
}
BINARY = (
    "a + b", "a - b", "a * b", "a / b", "a // b", "a % b", "a ** b", "a & b", "a | b", "a ^ b",
    "a << b", "a == b", "a != b", "a < b", "a >= b", "a in b", "a[b]", "a @ b", "divmod(a, b)",
)
UNARY = (
    "-a", "+a", "~a", "not a", "abs(a)", "round(a)", "int(a)", "float(a)", "bool(a)", "len(a)",
    "str(a) if not isinstance(a, torch.Tensor) else 0", "list(a)", "tuple(a)", "set(a)", "dict(a)",
    "sum(a)", "sorted(a)", "list(reversed(a))", "f'{a:5}'", "any(a)", "type(a).__name__",
    "operator.index(a)", "iter(a) is iter(a)", "{a: 1}[a]", "a in {1: 2}", "[1, 2, 3, 4, 5][a]",
    "[0] * a", "(lambda **named: named)(**a)", "(lambda *given: given)(*a)", "[*a]", "{**a}",
    "pow(a, 2)", "max(a, a)", "y * a", "y[a]", "hasattr(a, 'upper')", "a or 5", "math.floor(a)",
)
IN_PLACE = ("+=", "-=", "*=", "|=", "**=", "//=", "%=", "&=")
#: what differed when this table was drawn from first
DIFFERED = (
    ("negative", "a ** b", "tensor"), ("negative", "**=", "tensor"), ("int", "*=", "list"),
    ("set", "a - b", "dict"), ("set", "a < b", "own dict"), ("set", "a == b", "tuple"),
    ("set", "a | b", "number"), ("set", "|=", "list"), ("set", "&=", "own dict"),
    ("list", "a == b", "deque"), ("deque", "a < b", "list"),
    ("dict", "|=", "str"), ("dict", "a | b", "number"), ("dict", "|=", "number"),
    ("tensor", "a == b", "own int"), ("own float", "a != b", "scalar"),
    ("own int", "a + b", "number"), ("own float", "a * b", "number"),
    ("number", "a * b", "number"), ("own list", "a in b", "set"), ("own dict", "a in b", "dict"),
    ("own dict", "a[b]", "own list"), ("tensor", "operator.index(a)", "int"),
    ("list", "operator.index(a)", "int"), ("int", "(lambda **named: named)(**a)", "int"),
    ("dict", "(lambda **named: named)(**a)", "int"), ("range", "iter(a) is iter(a)", "int"),
    ("flag", "list(reversed(a))", "int"), ("fraction", "f'{a:5}'", "int"),
)
# fmt: on
#: what CPython refuses by accident: in place, it asks only the left operand for a repetition
ACCIDENTS = {("int enum", "*=")}


def _outcome(fn, first, second):
    """What can be seen of a call: results with their types, or the error's, and the operands."""
    given = KINDS[first](), KINDS[second]()
    try:
        result = fn(torch.arange(4.0), *given)
    except Exception as error:
        result = type(error).__name__
    return _seen(result), _seen(given)


def _seen(value):
    if isinstance(value, torch.Tensor):
        return "tensor", str(value.dtype), tuple(value.shape), repr(value.tolist())
    if type(value) in (list, tuple, torch.Size):
        return type(value).__name__, [_seen(item) for item in value]
    if isinstance(value, Number):
        return "Number", value.value
    if isinstance(value, set | frozenset):
        return type(value).__name__, sorted(map(repr, value))
    return type(value).__name__, repr(value)


def _program(text):
    in_place = text in IN_PLACE
    text = f"c = a; a {text} b; result = a, c" if in_place else f"result = {text}"
    space = {"math": math, "operator": operator, "torch": torch}
    exec(f"def program(x, a, b):\n    y = x + 1\n    {text}\n    return y, result\n", space)
    return space["program"]


def _drawn(seed, count):
    rng = random.Random(seed)
    for _ in range(count):
        text = rng.choice((*BINARY, *UNARY, *IN_PLACE))
        yield rng.choice(list(KINDS)), text, rng.choice(list(KINDS))


def _check(first, text, second):
    program = _program(text)
    tc.reset()
    got, expected = (
        _outcome(fn, first, second) for fn in (tc.compile(program, backend="eager"), program)
    )
    assert got == expected, (first, text, second)


@pytest.mark.parametrize(("first", "text", "second"), DIFFERED)
def test_what_differed_once(first, text, second):
    _check(first, text, second)


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(8))
def test_drawn_pairs(seed):
    for first, text, second in _drawn(seed, 40):
        if (first, text) not in ACCIDENTS:
            _check(first, text, second)
