"""Explanations of refused calls run no code of the user that the guards do not run."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm

import tc
from tc.compiler.capture.guards import guard_list
from tc.compiler.capture.guards.guard_list import GuardList, Predicate
from tc.compiler.core.sources import AttrSource, CallSource, ItemSource, LocalSource, Scope

A = LocalSource("a")
T = torch.ones(2)


def frame(a):
    """Stand in for the code of a compiled frame."""


def build(wanted, a):
    return guard_list.build(wanted, None, frame.__code__, {"a": a}, {"__builtins__": {}}, "0/0")


class Plain:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Computes:
    """An object whose attributes, items and length run code of the user, which is recorded."""

    def __init__(self):
        self.ran = []

    @property
    def width(self):
        self.ran.append("width")
        return 3

    def __getattr__(self, name):
        if name == "ran":
            raise AttributeError(name)
        self.ran.append(name)
        return 3

    def __getitem__(self, key):
        self.ran.append(key)
        return 3

    def __len__(self):
        self.ran.append("len")
        return 1

    def __iter__(self):
        self.ran.append("iter")
        return iter((1,))


@pytest.mark.parametrize("older", [False, True], ids=["newest entry", "older entry"])
@pytest.mark.parametrize(
    ("value", "kind", "source", "expected"),
    [
        (Plain(width=3), "EQUALS", AttrSource(A, "width"), 3),
        (Plain(depth=3), "EQUALS", AttrSource(A, "depth"), 3),
        (Plain(width=T), "TENSOR", AttrSource(A, "width"), T),
        (Plain(width=3), "HASATTR", A, "width"),
        (Plain(), "NO_ATTR", A, "width"),
        ([3], "EQUALS", ItemSource(A, 0), 3),
        ([3], "EQUALS", CallSource(A, len, "len({})"), 1),
        ({1}, "ITEMS", A, {1}),
        ((1,), "CUSTOM", A, Predicate("len({}) == 1", lambda value: len(value) == 1)),
        (Plain(inner=[3]), "EQUALS", ItemSource(AttrSource(A, "inner"), 0), 3),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_refusal_runs_no_code_of_another_type(value, kind, source, expected, older):
    """What a guard reads by name may be a property elsewhere, which writes (a power iteration)."""
    wanted = GuardList()
    wanted.add("TYPE", A, value)
    wanted.add(kind, source, expected)
    asked = Computes()
    other = asked
    if "inner" in source.name:
        wanted.add("TYPE", AttrSource(A, "inner"), [])  # behind the guard on its item
        other = Plain(inner=asked)
    checked = build(wanted, value)
    locals = {"a": other}
    assert not checked.check(locals)
    if older:
        assert checked.differs([source.name], Scope(locals, {}))
    else:
        (failure,) = checked.explain(locals, {})
        assert failure.source.startswith("type(a")
    assert not asked.ran


def test_a_norm_that_iterates_when_it_is_read_iterates_once():
    """`parametrize` makes the weight a property, which updates vectors where it is read."""
    x = torch.ones(3, 4)
    tc.compile(spectral_norm(nn.Linear(4, 6)))(x)
    states = []
    for compiled in (False, True):
        torch.manual_seed(0)
        net = parametrizations.spectral_norm(nn.Linear(4, 6), n_power_iterations=1)
        norm = net.parametrizations.weight[0]
        with torch.no_grad():
            norm._u.copy_(torch.eye(6)[0])
        (tc.compile(net) if compiled else net)(x)
        states.append(norm._u.clone())
    torch.testing.assert_close(states[1], states[0])


def test_what_a_shorter_list_no_longer_has_is_no_cause_of_its_own():
    wanted, items = GuardList(), (1, 2)
    wanted.add("LENGTH", A, items)
    for place in (0, 1):
        wanted.add("EQUALS", ItemSource(A, place), items[place])
    checked = build(wanted, items)
    seen = [(f.source, f.old, f.new) for f in checked.explain({"a": (5,)}, {})]
    assert seen == [("len(a)", "2", "1"), ("a[0]", "1", "5")]


def test_what_cannot_be_reached_is_a_cause_where_nothing_above_it_changed():
    wanted = GuardList()
    wanted.add("EQUALS", AttrSource(A, "width"), 3)
    failures = build(wanted, Plain(width=3)).explain({"a": Plain()}, {})
    assert [f.new for f in failures] == [
        "cannot be reached: AttributeError: 'Plain' object has no attribute 'width'"
    ]


def test_a_comprehension_has_items_and_not_an_iterator_without_a_name():
    source = CallSource(LocalSource(".0"), lambda iterator: iterator, "{}.read()", "{}'s items")
    assert str(ItemSource(source, 0)) == "the comprehension's items[0]"
    assert ItemSource(source, 0).name == "L['.0'].read()[0]"
