"""What guards remember of values: no more of them than C++ compares, and nothing kept alive."""

from __future__ import annotations

import torch
from torch import nn

from tc.compiler.capture import guard_values, guards
from tc.compiler.capture.guards import GuardList
from tc.compiler.core.sources import LocalSource


class Plain:
    pass


def frame(a):
    return a


def test_object_refs_are_weak_where_they_can_be():
    assert guard_values.ObjectRef.of(Plain).is_weak
    assert not guard_values.ObjectRef.of(5).is_weak
    assert guard_values.ObjectRef.of(Plain) == guard_values.ObjectRef.of(Plain)


def test_requires_grad_counts_as_cpp_counts_it():
    weight = nn.Parameter(torch.ones(2))
    with torch.no_grad():
        wanted = GuardList()
        wanted.add("TENSOR", LocalSource("a"), weight)
        space = {"__builtins__": {}}
        checked = guards.build(wanted, None, frame.__code__, {"a": weight}, space, "0/0")
        assert checked.check({"a": weight})
