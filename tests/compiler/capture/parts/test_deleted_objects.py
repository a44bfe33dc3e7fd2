"""Objects with `__del__` that a compiled function makes are deleted when eager deletes them."""

from __future__ import annotations

import pytest
import torch

import tc

seen: list[str] = []


class Deleted:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        seen.append(self.name)


class Inherits(Deleted):
    pass


class DeletedError(Exception):
    def __del__(self):
        seen.append("error")


def temporaries(x):
    Deleted("first")
    seen.append("after")
    held = Inherits("second")
    held = None  # noqa: F841
    seen.append("end")
    return x + 1


def by_statement(x):
    held = Deleted("held")
    y = x + len(held.name)
    del held
    seen.append("end")
    return y


def make_inside(x):
    Deleted("inner")
    held = Deleted("local")
    return x * len(held.name)


def in_a_callee(x):
    y = x + 1
    z = make_inside(y)
    seen.append("end")
    return z * 3


def an_error(x):
    try:
        raise DeletedError
    except DeletedError:
        seen.append("handled")
    seen.append("end")
    return x + 1


@pytest.mark.parametrize("program", [temporaries, by_statement, in_a_callee, an_error])
def test_objects_are_deleted_when_eager_deletes_them(program):
    x = torch.ones(2)
    seen.clear()
    wanted = program(x)
    expected = list(seen)
    compiled = tc.compile(program)
    for _ in range(2):
        seen.clear()
        assert torch.equal(compiled(x), wanted)
        assert seen == expected
