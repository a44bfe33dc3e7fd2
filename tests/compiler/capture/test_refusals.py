"""Why entries of a code object refuse a call: all of it for the newest, enough for the others."""

from types import CodeType

from tc.compiler.capture import guards
from tc.compiler.capture.guards import GuardList
from tc.compiler.core.sources import LocalSource

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
    return guards.build(wanted, None, code(), {"a": a, "b": b}, scope, "0/0")


def test_of_many_entries_only_the_newest_are_explained(monkeypatch):
    asked = []
    explain = guards.CheckedGuards.explain
    monkeypatch.setattr(
        guards.CheckedGuards, "explain", lambda self, *a: asked.append(self) or explain(self, *a)
    )
    entries = [pair(n, 0) for n in range(40)]
    asked.clear()
    failures = guards.refusals(entries, {"a": 99, "b": 0}, {})
    assert [str(f) for f in failures] == ["a: 0 -> 99"]
    assert asked == entries[: guards.EXPLAINED]
    assert guards.refusals([], {}, {}) == []


def test_an_old_entry_that_differs_elsewhere_is_still_told_apart():
    entries = [*(pair(n, 0) for n in range(guards.EXPLAINED)), pair(99, 7), pair(98, 8)]
    guards.refusals(entries, {"a": 99, "b": 0}, {})
    assert entries[0].telling == {"L['a']"}
    assert [one.telling for one in entries[guards.EXPLAINED :]] == [{"L['b']"}, set()]
