"""Fields of named tuples have the names by which the code reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tc.trace.findings.model import Cause
from tc.trace.findings.remedies import remedy
from tc.trace.naming import with_field_named
from tc.trace.positions import is_used_whole

TEXT = """\
from collections import namedtuple
from typing import NamedTuple
class Rays(NamedTuple):
    origin: object
    far: float
Step = namedtuple("Step", "state action")
Other = namedtuple("Other", ["left", "right"])
def march(rays, step, other, rows):
    x = rays.origin * rays.far + step.action
    return x + rows[0] + other.left + other.state
"""


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("rays[1]", "rays.far"),
        ("rays[0].shape[1]", "rays.origin.shape[1]"),
        ("len(rays[0])", "len(rays.origin)"),
        ("step[1]", "step.action"),
        ("step[0]", "step[0]"),  # which the function does not read
        ("other[0]", "other[0]"),  # two tuples have a first field that it reads
        ("rows[0]", "rows[0]"),
        ("x.shape[1]", "x.shape[1]"),
    ],
)
def test_a_field_has_its_name(tmp_path: Path, source: str, named: str) -> None:
    file = tmp_path / "model.py"
    file.write_text(TEXT)
    assert with_field_named(str(file), 9, source) == named
    assert with_field_named(str(tmp_path / "away.py"), 9, source) == source


def test_a_number_of_a_named_tuple_is_reported_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(TEXT)
    cause = Cause("rays[1]", "4.0", "2.5", "constant", now_dynamic=True)
    title, _, fixes = remedy(cause, "tc", "march", at=(str(file), 9))
    assert title == "rays.far was a constant in the graph"
    assert fixes[-1] == "make rays.far a 0-d tensor where it is set: torch.tensor(4.0)"
    assert not is_used_whole(str(file), 9, "rays")  # its fields are read, not all that it holds
