"""Each mode that the guard on global state is said to cover fails it when it is another."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._C._dynamo.guards import GlobalStateGuard  # type: ignore[attr-defined]

from tc.compiler.core.modes import MODES

#: another value for a mode that has more than two
OTHER: dict[str, Any] = {
    "default_dtype": torch.float64,
    "deterministic": (True, False),
}
#: what the guard lacks while autocast is off: readers guard the types (tests/facts/modes.py), and
#: the number of open blocks decides no result
LACKING = {"autocast.depth", *(name for name in MODES if name.endswith(".dtype"))}
COVERED = [name for name, mode in MODES.rows() if mode.guarded and name not in LACKING]


@pytest.mark.parametrize("name", COVERED)
def test_another_value_fails_the_guard(name: str) -> None:
    mode = MODES[name]
    before = mode.read()
    guard = GlobalStateGuard()
    write, arguments = mode.setting(OTHER.get(name, not before))
    try:
        write(*arguments)
        assert not guard.check()
    finally:
        write, arguments = mode.setting(before)
        write(*arguments)
    assert guard.check()
