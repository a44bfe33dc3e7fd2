"""Special methods, in whichever way a class defines them, do in traced code what they do in Python.

The cases are drawn from all special methods, ways to define them, places of the definition, kinds
of classes, and uses: see `special_methods`.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from special_methods import RESULTS, USES, WAYS, cases, outcomes

import tc

#: (special method, way) of which single cases differ, with the reason
DIFFER = {
    ("__hash__", "generator"): "a class that has no hash cannot be kept in a table",
}


def compiled(program: Any) -> Any:
    return tc.compile(program, backend="eager")


def test_every_special_method_is_used() -> None:
    assert USES.keys() == RESULTS.keys()


@pytest.mark.sample(60)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "way"), [pair for pair in itertools.product(USES, WAYS) if pair not in DIFFER]
)
def test_special_methods_are_as_in_eager(name: str, way: str) -> None:
    for case in cases(name, way, 0, 4):
        try:
            want = outcomes(case, lambda program: program)
        except (TypeError, RuntimeError, AttributeError):  # no such class can be made
            continue
        tc.reset()
        assert outcomes(case, compiled) == want, str(case)
