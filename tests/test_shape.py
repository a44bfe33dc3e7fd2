"""What was untangled stays so: no figure of the code's shape grows."""

from __future__ import annotations

import ast

import pytest
from shape import figures, files_with_c, largest_cycle, members

#: as they are; lower one when it falls
LIMITS = {
    "modules in the largest cycle of imports": 71,
    "public members of Tracer": 117,
    "imports inside of functions": 12,
    "tokens a line in capture": 9.3,
    "lookups of attributes by name in capture": 222,
    "files with C in strings": 0,
    "loose files of the compiler": 12,
}
FIGURES = figures()


@pytest.mark.parametrize("what", FIGURES)
def test_no_figure_grows(what: str) -> None:
    assert FIGURES[what] <= LIMITS[what], f"{what}: {FIGURES[what]}, was {LIMITS[what]}"


@pytest.mark.parametrize("what", FIGURES)
def test_limits_are_those_measured(what: str) -> None:
    assert FIGURES[what] >= LIMITS[what] * 0.9, f"{what} is {FIGURES[what]} now: lower its limit"


def test_a_cycle_is_found_through_imports_for_type_checkers() -> None:
    texts = {
        "tc.a": "from tc import b",
        "tc.b": "if TYPE_CHECKING:\n    from tc.c import C",
        "tc.c": "def f():\n    import tc.a",
        "tc.d": "import tc.a",
    }
    modules = {name: ast.parse(text) for name, text in texts.items()}
    assert largest_cycle(modules) == ["tc.a", "tc.b", "tc.c"]


def test_members_are_those_of_bases_as_well() -> None:
    text = "class A:\n x: int\n def f(self): self.y = 1\nclass B(A):\n def _g(self): self._z = 1"
    assert members({"tc.a": ast.parse(text)}, "B") == {"x", "y", "f"}


def test_strings_that_hold_c_are_found() -> None:
    c = "A = '''\nstatic int f(int a) {\n    return a;\n}\n'''"
    modules = {"tc.a": ast.parse(c), "tc.b": ast.parse("B = 'return a;'")}
    assert list(files_with_c(modules)) == ["tc.a"]
