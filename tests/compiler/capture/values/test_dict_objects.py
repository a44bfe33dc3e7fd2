"""Subclasses of dict and OrderedDict that replace methods: which of them Python calls."""

import collections
import operator

import pytest
import torch

import tc

X = torch.ones(2)
ORDERED = collections.OrderedDict
#: methods that a subclass may replace, each with what nothing else returns
REPLACED = {
    "keys": lambda self: ["zz"],
    "__iter__": lambda self: iter(["yy"]),
    "__getitem__": lambda self, key: dict.get(self, key, 0) + 1,
    "items": lambda self: [("it", 5)],
    "__missing__": lambda self, key: 8,
    "update": lambda self, *args, **named: dict.__setitem__(self, "up", 1),
    "__setitem__": lambda self, key, value: (
        ORDERED.__setitem__(self, key, value * 10)
        if isinstance(self, ORDERED)
        else dict.__setitem__(self, key, value * 10)
    ),
    "__contains__": lambda self, key: key == "c",
    "get": lambda self, key, default=None: 77,
}
CLASSES = [
    (),
    ("keys",),
    ("__iter__",),
    ("__getitem__",),
    ("items",),
    ("keys", "__iter__", "__missing__"),
    ("__iter__", "__getitem__"),
    ("__setitem__",),
    ("update",),
    ("__contains__", "get"),
]


def named(**named):
    return named


def merged(target, a):
    target.update(a)
    return target


def matched(a):
    match a:
        case {"k": value, **rest}:
            return value, rest
        case _:
            return "other"


def inside(a):
    return list(dict.items(a)), type(a).__name__


OPERATIONS = {
    "dict": lambda a: dict(a, q=1),
    "unpacked": lambda a: {**a},
    "keywords": lambda a: named(**a),
    "update": lambda a: merged({"u": 1}, a),
    "update of an ordered": lambda a: merged(ORDERED(u=1), a),
    "ordered": lambda a: ORDERED(a),
    "or": lambda a: {"u": 1} | dict(a),
    "reflected or": lambda a: inside({"u": 1} | a),
    "own or": lambda a: inside(a | {"u": 1}),
    "counter": lambda a: collections.Counter(a),
    "default": lambda a: collections.defaultdict(int, a),
    "copy": lambda a: inside(a.copy()),
    "setdefault": lambda a: (a.setdefault("s", 4), a.setdefault("k", 4), inside(a)),
    "own update": lambda a: (a.update(x=3), inside(a)),
    "class": lambda a: inside(type(a)(a)),
    "class of pairs": lambda a: inside(type(a)([("p", 1)], q=2)),
    "fromkeys": lambda a: inside(type(a).fromkeys(["f", "g"], 1)),
    "match": matched,
    "views": lambda a: (list(a.items()), list(a.values()), list(a.keys()), list(a)),
    "view that is returned": lambda a: dict.items(a),
}


def outcome(function, *args):
    try:
        found = function(*args)[1]
    except Exception as error:
        return type(error)
    return list(found) if type(found).__name__.endswith("_items") else found


@pytest.mark.sample(3)
@pytest.mark.parametrize("base", [dict, ORDERED], ids=["dict", "OrderedDict"])
@pytest.mark.parametrize("names", CLASSES, ids="-".join)
def test_methods_that_a_subclass_replaces_are_called_where_python_calls_them(base, names):
    cls = type("Own", (base,), {name: REPLACED[name] for name in names})
    compiled = tc.compile(backend="eager")
    different = {}
    for name, operation in OPERATIONS.items():
        tc.reset()
        # one that exists, and one that traced code makes
        given = [outcome(lambda x, a, do=operation: (x * 2, do(a)), X, cls(k=1))]
        given.append(outcome(lambda x, do=operation: (x * 2, do(cls(k=1))), X))
        there = cls(k=1)
        found = [outcome(compiled(lambda x, a, do=operation: (x * 2, do(a))), X, there)]
        found.append(outcome(compiled(lambda x, do=operation: (x * 2, do(cls(k=1)))), X))
        if found != given:
            different[name] = given, found
    assert not different


class Merged(dict):
    """Adds nothing."""


class MergedInOrder(collections.OrderedDict):
    """Adds nothing."""


MERGES = {
    "two": lambda x, d: d | {"z": 4},
    "itself": lambda x, d: d | d,
    "from the right": lambda x, d: {"z": 1} | d,
    "in place": lambda x, d: operator.ior(d, {"z": x.shape[0]}),
    "pairs in place": lambda x, d: operator.ior(d, [("z", 3)]),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("merge", MERGES.values(), ids=MERGES)
@pytest.mark.parametrize("kind", [Merged, MergedInOrder])
def test_dicts_are_merged(kind, merge):
    def program(x, given):
        return x + 1, merge(x, given), merge(x, kind(a=1))

    x = torch.ones(2)
    want = program(x, kind(b=2))
    got = tc.compile(program, backend="eager", fullgraph=True)(x, kind(b=2))
    assert repr(got) == repr(want)
    assert [type(one) for one in got] == [type(one) for one in want]
