"""A routine is one row and its C file: every reader knows one that a test adds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tc.compiler import routines
from tc.compiler.codegen import wrapper
from tc.compiler.loops import interpret
from tc.compiler.routines import ROUTINES, Routine, attention, products, row, sorting
from tc.compiler.runtime.load import wrapper_globals
from tc.compiler.runtime.routines import source_of

ROWS = [one for _, one in ROUTINES.rows()]
by_name = pytest.mark.parametrize("one", ROWS, ids=lambda one: one.name)

C = """/* Doubles each element. */
/* limits */
int twice_f32(const float* x, float* out, long long count) {
  for (long long i = 0; i < count; i++) out[i] = FACTOR * x[i];
  return 0;
}
"""


def _by_torch(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Routine]:
    """The one place: a row, with its C file."""
    (tmp_path / "twice.c").write_text(C)
    made = Routine("twice", lambda count: "" if count else "nothing to double",
                   {"double": _by_torch}, tmp_path / "twice.c", {torch.float32: "twice_f32"},
                   ("p", "p", "i64"), {"FACTOR": 2})  # fmt: skip
    monkeypatch.setitem(ROUTINES._rows, "twice", made)
    yield made
    row.opened.cache_clear()


def test_a_new_routine_is_built_of_its_row_and_its_file(planted: Routine) -> None:
    kernel = planted.kernel(torch.float32)
    assert kernel is not None and planted.kernel(torch.float64) is None
    x, out = torch.randn(7), torch.empty(7)
    kernel(x, out, 7)
    assert torch.equal(out, planted.reference["double"](x))


def test_wrappers_find_a_new_routine_under_its_name(
    planted: Routine, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("twice")
    monkeypatch.setitem(routines.modules.__globals__, "import_module", lambda name: module)
    assert wrapper_globals()["twice"] is module
    assert planted.calls == ("twice.double",)


def test_a_name_has_one_row() -> None:
    with pytest.raises(ValueError, match="'sorting' has a row already"):
        row.routine(sorting.ROUTINE)


@by_name
def test_a_row_is_whole(one: Routine) -> None:
    assert one.c_file.is_file()
    assert bool(one.functions) == bool(one.calls) == bool(one.signature)
    text = source_of(one.c_file, tuple(one.limits.items()))
    for name in one.functions.values():
        assert re.search(rf"\b{name}\b", text) or name.rpartition("_")[2] in text
    for name, value in one.limits.items():
        assert text.count(f"#define {name} ") == 1 and f"#define {name} {value}\n" in text


@by_name
def test_readers_take_names_and_references_from_the_rows(one: Routine) -> None:
    for call in one.calls:
        module, _, function = call.partition(".")
        assert getattr(interpret.NAMES[module], function) is one.reference[function]
        assert callable(getattr(wrapper_globals()[module], function))
        assert call in wrapper.EXACT


def test_limits_are_those_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, f32 = torch.device("cpu"), torch.float32
    q = torch.empty(1, 1, attention.QUERIES, attention.LANES)
    assert attention.refusal(q, q, q, None, False) == ""
    assert "fewer than" in attention.refusal(q[:, :, 1:], q, q, None, False)
    assert attention.refusal(q, q, q, None, True) == "it drops no weights"
    long = torch.empty(1, 1, attention.KEYS + 1, attention.LANES)
    assert "more than" in attention.refusal(q, long, long, None, False)
    deep = torch.empty(1, 1, attention.QUERIES, attention.DEPTH + attention.LANES)
    assert "elements" in attention.refusal(deep, deep, deep, None, False)
    assert sorting.refusal(cpu, f32, 2, sorting.SHORT, sorting.FEW, False) == ""
    assert sorting.refusal(cpu, f32, 2, sorting.SHORT - 1, None, True)
    assert sorting.refusal(cpu, f32, 2, sorting.CROWDED + 1, None, False)
    assert sorting.refusal(cpu, f32, 2, sorting.CROWDED + 1, None, True) == ""
    rows, depth = products.MOST_ROWS, products.LANES
    assert products.refusal(rows, depth, 64, (depth, 1), (1, depth)) == ""
    assert products.refusal(rows + 1, depth, 64, (depth, 1), (1, depth))
