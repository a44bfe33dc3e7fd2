"""Members and classes of enumerations: what the program defines for them is traced, not folded."""

import enum
import functools
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

import tc

X = torch.arange(6.0).reshape(2, 3)
#: what the methods below read, which changes between two calls
STATE = SimpleNamespace(n=2)


class Every(enum.Enum):
    """Each special method reads what may change."""

    A = "a"
    B = "b"

    def __call__(self, x):
        return x * STATE.n

    def __add__(self, other):
        return other + STATE.n

    __mul__ = __rmul__ = __matmul__ = __and__ = __add__

    def __neg__(self):
        return STATE.n

    __abs__ = __invert__ = __index__ = __int__ = __len__ = __round__ = __neg__

    def __float__(self):
        return float(STATE.n)

    def __bool__(self):
        return STATE.n > 2

    def __lt__(self, other):
        return STATE.n > 2

    __eq__ = __lt__

    def __hash__(self):
        return STATE.n

    def __getitem__(self, key):
        return STATE.n + key

    def __iter__(self):
        yield STATE.n
        yield 1

    def __reversed__(self):
        return iter((STATE.n,))

    def __contains__(self, item):
        return item == STATE.n

    def __str__(self):
        return f"s{STATE.n}"

    def __repr__(self):
        return f"r{STATE.n}"

    def __format__(self, spec):
        return f"f{STATE.n}{spec}"

    def __getattr__(self, name):
        if name == "made":
            return STATE.n
        raise AttributeError(name)

    def __enter__(self):
        return STATE.n

    def __exit__(self, *error):
        STATE.n += 1

    @property
    def number(self):
        return STATE.n


def entered(x, a):
    with a as n:
        return x * n


def matched(x, a):
    match a:
        case Every.B:
            return x * 2
        case _:
            return x * 3


def attempted(x, a):
    try:
        return a(x)
    except TypeError:
        return x - 1


OPERATIONS = {
    "call": lambda x, a: a(x),
    "attempted call": attempted,
    "operator": lambda x, a: x * (a + 1),
    "reflected": lambda x, a: x * (2 * a),
    "with a tensor": lambda x, a: a * x,
    "reflected by a tensor": lambda x, a: x * a,
    "unary": lambda x, a: x * -a + ~a,
    "abs": lambda x, a: x * abs(a),
    "round": lambda x, a: x * round(a),
    "index": lambda x, a: x * [0, 1, 2, 3, 4, 5][a],
    "range": lambda x, a: x * len(range(a)),
    "int": lambda x, a: x * int(a),
    "float": lambda x, a: x * float(a),
    "len": lambda x, a: x * len(a),
    "truth": lambda x, a: x * 2 if a else x,
    "not": lambda x, a: x * 2 if not a else x,
    "bool": lambda x, a: x * bool(a),
    "less": lambda x, a: x * (a < 3),
    "sorted": lambda x, a: x * (sorted([a, Every.B])[0].value == "a"),
    "equal": lambda x, a: x * (a == 3) + (a != 7),
    "unequal": lambda x, a: x * (a != 3),
    "in a list": lambda x, a: x * (a in [1, 2]),
    "in a tuple": lambda x, a: x * ((a, 1) == (3, 1)),
    "match": matched,
    "hash": lambda x, a: x * hash(a),
    "key": lambda x, a: x * {a: 2, 7: 3}[a],
    "item": lambda x, a: x * a[1],
    "iteration": lambda x, a: x * sum(a),
    "unpacked": lambda x, a: x * [*a, 3][0],
    "reversed": lambda x, a: x * next(reversed(a)),
    "contains": lambda x, a: x * (2 in a),
    "str": lambda x, a: (x * 2, str(a)),
    "repr": lambda x, a: (x * 2, repr(a), f"{a!r}"),
    "format": lambda x, a: (x * 2, f"{a:q}", format(a)),
    "percent": lambda x, a: (x * 2, "%s" % a, "%s-%d" % (a, 1)),  # noqa: UP031
    "str.format": lambda x, a: (x * 2, "{}".format(a)),  # noqa: UP032
    "getattr": lambda x, a: x * a.made + getattr(a, "made"),  # noqa: B009
    "hasattr": lambda x, a: x * hasattr(a, "absent"),
    "property": lambda x, a: x * a.number,
    "with": entered,
}


def plain(result):
    if isinstance(result, torch.Tensor):
        return result.dtype, result.tolist()
    return [plain(one) for one in result] if isinstance(result, tuple) else result


def compared(function, *calls):
    """Compare calls of a function with eager, before and after a change."""
    found = []
    for run in (function, tc.compile(function)):
        results = []
        for STATE.n in (2, 4):
            results += [plain(run(X, *call)) for call in calls]
        found.append(results)
    STATE.n = 2
    assert found[1] == found[0]


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", OPERATIONS)
def test_what_a_member_does_follows_what_its_methods_read(name):
    compared(OPERATIONS[name], (Every.A,))


class Text(str, enum.Enum):  # noqa: UP042
    A = "a"
    B = "b"

    def __str__(self):
        return f"{self.value}{STATE.n}"

    @property
    def size(self):
        return STATE.n

    def other(self):
        return Text.B if self is Text.A else Text.A


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2

    def __add__(self, other):
        return int(self) + other + STATE.n

    __radd__ = __add__

    @property
    def half(self):
        return self / STATE.n


class Bits(enum.Flag):
    R = 1
    W = 2

    def __len__(self):
        return STATE.n


@functools.total_ordering
class Ordered(enum.Enum):
    LOW = 1
    HIGH = 2

    def __lt__(self, other):
        return self.value * STATE.n < other.value


MIXED = {
    "text": (
        lambda x, a: (
            x * a.size, a == "a", {"a": 1, "b": 2}[a], str(a), f"{a}", f"{a:>5}", a + "q",
            a.upper(), a.other(), Text("a") is a, a in ("a",), "-".join([a, a]), a < "b", len(a),
        ),
        Text.A, Text.B,
    ),
    "number": (
        lambda x, a: (
            x + a, a + 1, 1 + a, a - 1, a.half, x[a - 1], range(a), [1, 2, 3][a], x.sum(a - 1),
            float(a), f"{a}", a < 2, max(a, 3), torch.full((a,), a), {1: 2, 2: 3}[a], divmod(a, 2),
        ),
        Number.ONE, Number.TWO,
    ),
    "flags": (
        lambda x, a: (x * len(a), bool(a), a | Bits.W, a & Bits.W, Bits.R in a, ~a, Bits(2)),
        Bits.R, Bits.W,
    ),
    "ordered": (
        lambda x, a: (x * 2, a >= Ordered.LOW, a <= Ordered.LOW, max(a, Ordered.HIGH)),
        Ordered.LOW, Ordered.HIGH,
    ),
}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", MIXED)
def test_what_a_member_inherits_from_its_data_stays_as_it_was(name):
    function, *members = MIXED[name]
    compared(function, *((member,) for member in members))
    tc.compile(function, fullgraph=True)(X, members[0])


class Action(enum.Enum):
    RELU = functools.partial(F.relu)
    GELU = functools.partial(F.gelu, approximate="tanh")
    TANH = (torch.tanh,)

    def __call__(self, x):
        return self.value[0](x) if isinstance(self.value, tuple) else self.value(x)

    @property
    def function(self):
        return {Action.RELU: torch.relu, Action.GELU: F.gelu, Action.TANH: torch.tanh}[self]


@pytest.mark.parametrize("member", Action)
def test_members_that_hold_functions_are_called_in_the_graph(member):
    def act(x, a):
        return a(x) + a.function(x)

    torch.testing.assert_close(tc.compile(act, fullgraph=True)(X, member), act(X, member))


class Holds(enum.Enum):
    ITEMS = [1, 2]  # noqa: RUF012
    TABLE = {"k": 1}  # noqa: RUF012


def test_what_a_member_holds_may_be_changed():
    def grow(x, a):
        if isinstance(a.value, list):
            a.value.append(len(a.value))
        else:
            a.value[len(a.value)] = 0
        return x * len(a.value)

    compiled = tc.compile(grow, fullgraph=True)
    for member in (Holds.ITEMS, Holds.TABLE):
        held = len(member.value)
        for grown in (1, 2, 3):
            torch.testing.assert_close(compiled(X, member), X * (held + grown))
        assert len(member.value) == held + 3


class Lenient(enum.Enum):
    A = "a"
    B = "b"

    @classmethod
    def _missing_(cls, value):
        return cls.B if STATE.n > 2 else cls.A


class Meta(enum.EnumMeta):
    def __contains__(cls, item):
        return STATE.n > 2

    def __getitem__(cls, name):
        return super().__getitem__(name.upper())

    def __iter__(cls):
        return iter(list(super().__iter__())[: STATE.n])

    def __len__(cls):
        return STATE.n

    def __call__(cls, value):
        return super().__call__(value if STATE.n > 2 else "c")

    @property
    def count(cls):
        return STATE.n


class Own(enum.Enum, metaclass=Meta):
    A = "a"
    B = "b"
    C = "c"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "function",
    [
        lambda x, key: (x * 2, Lenient(key)),
        lambda x, key: (x * 2, key in Own),
        lambda x, key: (x * 2, Own[key]),
        lambda x, key: (x * 2, list(Own), [member.name for member in Own]),
        lambda x, key: x * len(Own),
        lambda x, key: x * Own.count,
        lambda x, key: (x * 2, Own(key)),
    ],
    ids=["_missing_", "contains", "getitem", "iter", "len", "property", "call"],
)
def test_what_a_class_of_members_does_follows_what_its_methods_read(function):
    compared(function, ("a",), ("b",))


def test_a_value_that_no_member_has():
    compared(lambda x, key: (x * 2, Lenient(key)), ("z",), ("a",))
    assert tc.compile(lambda x: (x * 2, Lenient("z")), fullgraph=True)(X)[1] is Lenient.A
