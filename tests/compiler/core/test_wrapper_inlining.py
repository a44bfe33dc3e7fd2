"""Functions of few lines are known by their lines, and only those."""

from __future__ import annotations

import ast
import functools

import pytest

from tc.compiler.core.wrapper_inlining import FEW, remember, wrapper_body

SIMPLE = "def call(args):\n    a, b = args\n    args.clear()\n    c = a + b\n    return (c, a)\n"


def made(source):
    space = {}
    tree = ast.parse(source)
    exec(compile(tree, "made", "exec"), space)
    remember(space["call"], tree)
    return space["call"]


def test_the_parts_of_a_function():
    lines = wrapper_body(made(f"import math\n{SIMPLE}"))
    assert lines.arguments == ("a", "b") and lines.line == 2
    assert [ast.unparse(step) for step in lines.steps] == ["c = a + b"]
    assert [ast.unparse(value) for value in lines.results] == ["c", "a"]
    assert lines.names() == {"a", "b", "c"}


@pytest.mark.parametrize(
    "source",
    [
        SIMPLE.replace("    args.clear()\n", ""),
        SIMPLE.replace("(c, a)", "c"),
        SIMPLE.replace("a, b = args", "a, b = 1, 2"),
        SIMPLE.replace("    c = a + b\n", "    c = a + b\n" * FEW),
    ],
)
def test_other_functions_are_not_known(source):
    assert wrapper_body(made(source)) is None


def test_a_function_around_another_is_not_that_one():
    call = made(SIMPLE)

    @functools.wraps(call)
    def around(args):
        return call([*args, 1])

    assert wrapper_body(call) is not None
    assert wrapper_body(around) is None
    assert wrapper_body(print) is None
