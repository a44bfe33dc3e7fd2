"""What guards remember of values: no more of them than C++ compares, and nothing kept alive."""

from __future__ import annotations

import torch
from torch import nn

from tc.compiler.capture.guards import facts, guard_list
from tc.compiler.capture.guards.guard_list import GuardList
from tc.compiler.core.sources import LocalSource


class Plain:
    pass


def frame(a):
    return a


def test_object_refs_are_weak_where_they_can_be():
    assert facts.ObjectRef.of(Plain).is_weak
    assert not facts.ObjectRef.of(5).is_weak
    assert facts.ObjectRef.of(Plain) == facts.ObjectRef.of(Plain)


def test_a_class_without_a_module_has_a_label():
    space = {}
    exec("made = type('Made', (), {})", space)
    assert "Made" in facts.label_of(space["made"])
    assert "Made" in facts.label_of(space["made"]())


def test_requires_grad_counts_as_cpp_counts_it():
    weight = nn.Parameter(torch.ones(2))
    with torch.no_grad():
        wanted = GuardList()
        wanted.add("TENSOR", LocalSource("a"), weight)
        space = {"__builtins__": {}}
        checked = guard_list.build(wanted, None, frame.__code__, {"a": weight}, space, "0/0")
        assert checked.check({"a": weight})
