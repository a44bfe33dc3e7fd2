"""Every syntax tree that the tools get of a program can be walked, printed and changed."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from tc.trace import branches
from tc.trace.syntax import DEEPEST, tree_of

ROOT = Path(__file__).resolve().parent.parent.parent
#: ways in which a program gets deep, each of so many levels
DEEP: dict[str, Callable[[int], str]] = {
    "sum": lambda n: " + ".join(["x"] * n),
    "power": lambda n: "**".join(["x"] * n),
    "sign": lambda n: "-" * n + "1",
    "methods": lambda n: "x" + ".a()" * n,
    "items": lambda n: "x" + "[0]" * n,
    "choice": lambda n: "a if b else " * n + "c",
    "lambda": lambda n: "lambda: " * n + "c",
    "branches": lambda n: "\n".join(f"{'el' if i else ''}if k == {i}: a" for i in range(n)),
    "brackets": lambda n: "[" * n + "]" * n,
    "blocks": lambda n: "\n".join(" " * i + "with a:" for i in range(n)) + " b",
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("deep", DEEP.values(), ids=DEEP)
def test_a_tree_can_be_printed_and_changed_or_is_none(deep: Callable[[int], str]) -> None:
    made = [tree_of(deep(levels)) for levels in (3, 50, 99, 150, 190, 250, 400, 1000, 3000)]
    for tree in made:
        if tree is not None:
            ast.unparse(ast.NodeTransformer().visit(tree))
    assert made[0] is not None and made[1] is not None
    assert made[-1] is None and made[-2] is None


def test_the_limit_is_on_levels_not_on_length() -> None:
    assert tree_of("x = 1\n" * 5000) is not None
    assert tree_of("-" * (DEEPEST + 1) + "1") is None
    assert tree_of(b"\xff") is None and tree_of("x = ") is None and tree_of("\0") is None


def test_a_branch_in_a_file_with_a_deep_line_is_not_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "deep.py"
    path.write_text(f"TABLE = {DEEP['sum'](900)}\nif TABLE:\n    print(1)\n")
    assert branches.tree_at(str(path)) is None


def test_programs_of_others_are_parsed_in_one_place() -> None:
    """`ast.parse` alone gives trees on which a visitor dies."""
    parsing = {
        str(path.relative_to(ROOT))
        for package in ("trace", "tlparse", "tui")
        for path in (ROOT / package).rglob("*.py")
        if "ast.parse(" in path.read_text()
    }
    assert parsing == {"trace/syntax.py"}
