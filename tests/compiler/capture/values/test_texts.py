"""Texts that numbers, sizes and objects are written in: eager's, without breaks, for every size."""

from __future__ import annotations

import collections
import dataclasses
import enum
import types
import typing

import pytest
import torch

import tc
from tc import trace
from tc.compiler import api


class Own:
    def __init__(self, v):
        self.v = v

    def __format__(self, spec):
        return f"F<{self.v}:{spec}>"

    def __str__(self):
        return f"str{self.v}"

    def __repr__(self):
        return f"repr{self.v}"


class Keys:
    def __getitem__(self, key):
        return ("keys", key)


class Missing(dict):
    def __missing__(self, key):
        return f"<{key}>"


class Member(enum.Enum):
    A = 1

    def __str__(self):
        return "member"


class Pair(typing.NamedTuple):
    a: object
    b: object


class OwnPair(collections.namedtuple("OwnPair", "a b")):
    def __repr__(self):
        return f"pair of {self.a}"


@dataclasses.dataclass
class Data:
    a: object
    b: object = None


SPACE = {
    name: value
    for name, value in globals().items()
    if isinstance(value, type | types.ModuleType) and name != "tc"
}
#: expressions of a size n, the half h of it, and a tensor x of that size
KEEP_SYMBOLS = [
    "f'{n}'",
    "f'{n:05d}|{n!r:>4}|{n!s}|{x.shape[1]:{x.shape[1]}d}'",
    "f'{x.shape} {x.shape!r:>30}'",
    "f'{h:.2f} {h:%} {h}'",
    "f'{[n]} {(n,)} {{n!r: (n, 1)}} {Pair(n, [n])}'",
    "f'{Own(n)} {Own(n):abc} {Own(n)!r} {Own(n)!s:>8}'",
    "f'{OwnPair(n, 1)} {[OwnPair(n, 1)]}'",
    "f'{Data(n, Data([n]))}'",
    "str(n) + repr(h) + '|' + hex(n) + bin(n) + oct(n)",
    "str(x.shape) + str([x.shape]) + str({'a': n}) + str(collections.OrderedDict(a=n))",
    "str(collections.deque([n, 1], maxlen=3)) + str(()) + str([]) + str({})",
    "format(n, '05d') + format(h, '.1f') + format(x.shape)",
    "'{:d} {} {!r:>5} {:{}d}'.format(n, x.shape, n, n, 5)",
    "'{0[0]} {0[1]} {a.v} {a.v:>5} {b[k]}'.format(x.shape, a=Own(n), b={'k': n})",
    "'{.shape} {}'.format(x, x.dtype)",
    "'{} {:abc} {!r} {!s:>8} {}'.format(Own(1), Own(n), Own(3), Own(n), [Own(4), 1])",
    "'{a} {b[0]} {c.v:>4}'.format_map({'a': n, 'b': [n], 'c': Own(2)})",
    "'{a} {b}'.format_map(Missing(a=n))",
    "'%d %s %5d %-5d| %+d %x %g %.2f' % (n, n, n, n, n, n, n, h)",
    "'%s %d' % x.shape + '%s' % (x.shape,) + '%d' % n",
    "'%(k)d %(k)5s %(a)r %%' % {'k': n, 'a': [n]}",
    "'%(a)s' % Keys() + '%(a)s %(b)s' % Missing(a=n)",
    "'%*d|%-*.*f' % (5, n, 8, 2, 1.5)",
    "'%s %r %a' % (Own(n), Own(2), Own(3)) + '%s' % Own(n)",
    "str.format('{} {}', n, Own(2)) + str.__mod__('%s', Own(n))",
    "','.join(str(s) for s in x.shape) + 'x'.join(map(str, x.shape)) + ''.join([])",
    "f'{Member.A} {n}' + '{} {!r} {}'.format(Member.A, Member.A, n) + '%s' % Member.A",
]


def called_for_sizes(f, sizes=(4, 5, 6, 7)):
    """Call a function of a tensor compiled and as it is; return the graphs that were made."""
    tc.reset()
    compiled = tc.compile(f, backend="eager")
    with trace.capture_events() as events:
        for n in sizes:
            x = torch.ones(n, 3)
            found, wanted = compiled(x), f(x)
            torch.testing.assert_close(found[0], wanted[0])
            assert found[1:] == wanted[1:]
    assert not events.of(trace.GraphBreak)
    return api.graph_stats()["graphs"]


@pytest.mark.sample(7)
@pytest.mark.parametrize("text", KEEP_SYMBOLS)
def test_a_size_that_is_written_stays_a_symbol(text):
    space = dict(SPACE)
    exec(
        "def f(x):\n"
        "    n = x.shape[0]\n"
        "    h = n / 2\n"
        f"    s = {text}\n"
        "    return x.sin() * n, s\n",
        space,
    )
    assert called_for_sizes(space["f"]) == 2  # the first size, and all others


LOOKS = [
    "len(s)",
    "s.upper()",
    "s == 'n=5'",
    "s in ('n=5', 'n=6')",
    "'5' in s",
    "{s: 1}",
    "{s}",
    "s[2:]",
    "s * 2",
    "s < 'n=6'",
    "list(s)",
    "int(s[2:])",
    "hash(s) == hash('n=5')",
    "bool(s) and s is not None",
    "(isinstance(s, str), type(s))",
    "dict(**{s: 1})",
    "s.encode()",
    "f'{s:>8.3}'",
    "'-'.join(s)",
    "s.format() + s % ()",
]


@pytest.mark.sample(7)
@pytest.mark.parametrize("look", LOOKS)
def test_what_looks_at_a_text_sees_the_one_of_the_call(look):
    space = {}
    exec(
        "def f(x):\n"
        "    s = f'n={x.shape[0]}'\n"
        f"    r = {look}\n"
        "    return x.sin(), r, s, s + '!', [s]\n",
        space,
    )
    called_for_sizes(space["f"])


def test_a_text_is_of_the_time_when_it_was_written():
    def f(x):
        numbers = [x.shape[0]]
        named = {"a": numbers}
        s = f"{numbers} {named}"
        numbers.append(1)
        named["b"] = 2
        return x.sin(), s, numbers, named

    assert called_for_sizes(f) == 2


def test_a_number_of_an_object_is_written_before_the_object_changes():
    def f(x, o):
        s = f"{o.n}"
        o.n += 1
        o.s = s + "!"
        return x.sin() + o.n, s

    tc.reset()
    compiled = tc.compile(f, backend="eager")
    for n in (4, 5, 6, 7):
        mine, theirs = types.SimpleNamespace(n=n), types.SimpleNamespace(n=n)
        x = torch.ones(3)
        assert compiled(x, mine)[1] == f(x, theirs)[1]
        assert mine == theirs
    assert api.graph_stats()["graphs"] == 2


def test_a_text_goes_over_a_graph_break():
    def f(x):
        s = f"{x.shape[0]}"
        y = x.sin()
        tc.graph_break()
        return y.cos(), s, f"{s}{x.shape}"

    compiled = tc.compile(f, backend="eager")
    for n in (4, 5, 6):
        x = torch.ones(n, 3)
        assert compiled(x)[1:] == f(x)[1:]


def test_the_text_of_a_number_out_of_data_needs_no_guard():
    def f(x):
        i = x.sum().int().item()
        return x.sin(), f"{i} {i:4d}", "%d" % i, "{}".format(i)  # noqa: UP031, UP032

    with tc.config.patch(capture_scalar_outputs=True):
        assert called_for_sizes(f) == 2


def test_the_text_of_an_exception_is_that_of_the_call():
    def f(x):
        try:
            raise ValueError(f"bad {x.shape[0]}", x.shape[0])
        except ValueError as error:
            return x.sin(), str(error), error.args

    called_for_sizes(f)


FORMATS = [
    *("{", "}", "{0}{}", "{}{0}", "{:{:{}}}", "{!x}", "{!r:{}}", "{0.}", "{0[}", "{0[a}", "{a b}"),
    *("{{}}", "{{{}}}", "{0[0]}", "{-1}", "{:}", "{!}", "{0!rr}", "{1}", "{:q}", "{:c}"),
    "{0.real} {0.imag}",
]
FIELDS = [
    *("%", "%d %", "%q", "%(a)d", "%(a", "%d %d", "", "a", "%%", "%5%", "%(a)%", "%*d", "%.*d"),
    *("%ld", "%5.2q", "%s%%", "%c", "%i", "%r", "%(a)s%s", "% ", "%()s", "%d%(a)s"),
]
OPERANDS = ["n", "(n,)", "{'a': n}", "[n]", "(n, 1)", "'s'", "Own(n)", "None"]
REFUSED = [
    *(f"{text!r}.format(n)" for text in FORMATS),
    *(f"{text!r}.format_map({{'a': n}})" for text in FORMATS),
    *(f"{text!r} % {operand}" for text in FIELDS for operand in OPERANDS),
    "'{} {}'.format(Own(n))",
    "'{a}'.format(b=Own(n))",
    "'{a.zz}'.format(a=Own(n))",
    "f'{[n]:>3}'",
    "','.join([f'{n}', 3])",
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("part", range(4))
def test_what_does_not_fit_a_format_string_raises_as_in_eager(part, drawn):
    for text in drawn(REFUSED[part::4], 25):
        space = dict(SPACE)
        exec(
            "def f(x):\n"
            "    n = x.shape[0]\n"
            "    try:\n"
            f"        r = {text}\n"
            "    except Exception as error:\n"
            "        r = type(error).__name__, str(error)\n"
            "    return x.sin(), r\n",
            space,
        )
        f = space["f"]
        tc.reset()
        compiled = tc.compile(f, backend="eager", dynamic=True)
        x = torch.ones(5, 3)
        assert compiled(x)[1] == f(x)[1], text


def test_fields_are_taken_one_after_the_other():
    asked = []

    class Noted(Own):
        def __format__(self, spec):
            asked.append(self.v)
            return ""

    def f(x):
        try:
            "{} {} {missing}".format(Noted(1), Noted(2))  # noqa: F524
        except KeyError as error:
            return x.sin(), str(error)

    x = torch.ones(3)
    assert tc.compile(f, backend="eager")(x)[1] == f(x)[1]
    assert asked == [1, 2, 1, 2]
