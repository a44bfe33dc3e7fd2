"""Builtin functions of numbers that ask methods of the program's classes."""

import pytest
import torch

import tc

X = torch.ones(2)


class Divides:
    def __divmod__(self, other):
        return "divmod", other

    def __rdivmod__(self, other):
        return "rdivmod", other

    def __floordiv__(self, other):
        return "floordiv"

    __mod__ = __rmod__ = __rfloordiv__ = __floordiv__


class DividesInParts:
    __floordiv__ = __mod__ = Divides.__floordiv__


@pytest.mark.parametrize("cls", [Divides, DividesInParts])
def test_divmod_has_a_method_of_its_own(cls):
    def divides(x, a, left):
        try:
            return x * 2, divmod(a, 2) if left else divmod(2, a)
        except TypeError as error:
            return x * 3, str(error)

    for left in (True, False):
        got = tc.compile(divides, fullgraph=True)(X, cls(), left)
        want = divides(X, cls(), left)
        torch.testing.assert_close(got[0], want[0])
        assert got[1] == want[1]
