"""Why entries of a code object refuse a call: all of it for the newest, enough for the others."""

import dataclasses
import enum
from types import CodeType

import numpy
import pytest
import torch

from tc.compiler.capture.guards import guard_list
from tc.compiler.capture.guards.facts import brief
from tc.compiler.capture.guards.guard_list import GuardList
from tc.compiler.core.sources import ItemSource, LocalSource

A, B = LocalSource("a"), LocalSource("b")


def code() -> CodeType:
    def frame(a, b):
        """Stand in for the code of a compiled frame."""

    return frame.__code__


def pair(a, b):
    wanted = GuardList()
    wanted.add("EQUALS", A, a)
    wanted.add("EQUALS", B, b)
    scope = {"__builtins__": {}}
    return guard_list.build(wanted, None, code(), {"a": a, "b": b}, scope, "0/0")


def test_of_many_entries_only_the_newest_are_explained(monkeypatch):
    asked = []
    explain = guard_list.CheckedGuards.explain
    monkeypatch.setattr(
        guard_list.CheckedGuards,
        "explain",
        lambda self, *a: asked.append(self) or explain(self, *a),
    )
    entries = [pair(n, 0) for n in range(40)]
    asked.clear()
    nearest, failures = guard_list.refusals(entries, {"a": 99, "b": 0}, {})
    assert nearest == 0 and [str(f) for f in failures] == ["a: 0 -> 99"]
    assert asked == entries[: guard_list.EXPLAINED]
    assert guard_list.refusals([], {}, {}) == (0, [])


def test_items_that_change_alike_count_once():
    """The tensors of a cache grow together; the entry without a cache differs in two ways."""

    def grown(ids, *sizes):
        wanted = GuardList()
        wanted.add("EQUALS", A, ids)
        for number, size in enumerate(sizes):
            wanted.add("EQUALS", ItemSource(B, number), size)
        if not sizes:
            wanted.add("NONE", B, None)
        frame = {"a": ids, "b": sizes or None}
        return guard_list.build(wanted, None, code(), frame, {"__builtins__": {}}, "0/0")

    entries = [grown(1, 5, 5, 5, 5), grown(9)]
    nearest, failures = guard_list.refusals(entries, {"a": 1, "b": (6, 6, 6, 6)}, {})
    assert (nearest, len(failures)) == (0, 4)


class Written:
    """Counts how often it is written."""

    times = 0

    def __repr__(self):
        Written.times += 1
        return "written"


class Act(str, enum.Enum):  # noqa: UP042 - as programs have it
    TANH = "tanh"


@dataclasses.dataclass
class Data:
    number: int


@pytest.mark.parametrize(
    "value, text",
    [
        ([Written()], "[<Written object>]"),
        ({"data": Data(3)}, "{'data': Data(number=3)}"),
        (Act.TANH, "<Act.TANH: 'tanh'>"),  # whose class has a `__repr__` that Python put there
        ((torch.ones(2, 3), None), "(Tensor float32[2, 3], None)"),
        ({"k": [torch.ones(1)]}, "{'k': [Tensor float32[1]]}"),
        (["a\n  b"], r"['a\n  b']"),
        (numpy.zeros((2, 1)), "array([[0.], [0.]])"),
    ],
)
def test_values_are_reported_in_a_line_at_any_depth(value, text):
    assert brief(value) == text
    assert Written.times == 0


def test_an_old_entry_that_differs_elsewhere_is_still_distinguished():
    entries = [*(pair(n, 0) for n in range(guard_list.EXPLAINED)), pair(99, 7), pair(98, 8)]
    guard_list.refusals(entries, {"a": 99, "b": 0}, {})
    assert entries[0].failing == {"L['a']"}
    assert [one.failing for one in entries[guard_list.EXPLAINED :]] == [{"L['b']"}, set()]


def test_a_call_is_compared_with_the_entry_that_it_differs_from_least():
    entries = [pair(3, True), pair(2, False), pair(1, True)]
    nearest, failures = guard_list.refusals(entries, {"a": 5, "b": False}, {})
    assert (nearest, [str(f) for f in failures]) == (1, ["a: 2 -> 5"])
    nearest, failures = guard_list.refusals(entries, {"a": 5, "b": None}, {})
    assert (nearest, len(failures)) == (0, 2)
