"""A line that reads a value of a tensor goes in; what is decided by it later comes out.

`value = loss.item()` needs no number for arithmetic, but for `if value < self.best`,
`min(value, 1)` or `rows[:value]` further down. A graph break at the first line has the ways out
that the later ones leave. The source is read where the program's files are available.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from tc.trace.branches import (
    LONGER,
    READING,
    REPORTING,
    Does,
    as_written,
    branches_of,
    called_name,
    calls_at,
    function_at,
    names_of,
    reads,
    tree_at,
)
from tc.trace.positions import is_used_as_index

#: Python's own functions that compare what they are given
_LEAST: Final = ("min", "max")
_BETWEEN: Final = ("clamp", "clip", "clamp_", "clip_")
_IDENTITY: Final = (ast.Is, ast.IsNot)


def assigned(nodes: Sequence[ast.AST], line: int) -> set[str]:
    """Return the names that a line assigns to, or loops with."""
    targets = [
        target
        for one in nodes
        if isinstance(one, ast.Assign) and one.lineno <= line <= (one.end_lineno or line)
        for target in one.targets
    ]
    targets += [
        one.target
        for one in nodes
        if isinstance(one, ast.For | ast.comprehension)
        and one.iter.lineno <= line <= (one.iter.end_lineno or line)
    ]
    names = [one for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)]
    return {one.id for one in names if isinstance(one.ctx, ast.Store)}


def lines_of_stores(file: str, line: int, name: str) -> list[int]:
    """Return the lines at which the function at a line assigns to a variable."""
    function = function_at(file, line)
    return [
        one.lineno
        for one in (ast.walk(function) if function is not None else ())
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store) and one.id == name
    ]


def later_tests(file: str, line: int) -> list[tuple[ast.AST, ...]]:
    """Return the branches of the function at a line that test what the line has read.

    Each with all that is around it. What is appended to a list is read from there.
    """
    function = function_at(file, line)
    if function is None:
        return []
    names = _holding(function, line)
    return [
        parents
        for parents in branches_of(function)
        if (test := getattr(parents[-1], "test", None)) is not None
        and not test.lineno <= line <= (test.end_lineno or line)
        and _compares(test, names)
    ]


def _holding(function: ast.AST, line: int) -> set[str]:
    """Return the names of what has the value that is read at a line."""
    nodes = list(ast.walk(function))
    names = assigned(nodes, line)
    for one in nodes:
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute):
            here = one.lineno <= line <= (one.end_lineno or line)
            if here and one.func.attr in LONGER and isinstance(one.func.value, ast.Name):
                names.add(one.func.value.id)
    return names


def _compares(test: ast.AST, names: set[str]) -> bool:
    """Whether a test asks for the value of one of these, not how long it is, or whether it is."""
    waiting = [test]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call) and called_name(node) in ("len", "isinstance"):
            continue
        if isinstance(node, ast.Compare) and all(isinstance(o, _IDENTITY) for o in node.ops):
            continue
        if isinstance(node, ast.Attribute) and node.attr in ("shape", "dtype", "ndim"):
            continue
        if isinstance(node, ast.Name) and node.id in names:
            return True
        waiting += ast.iter_child_nodes(node)
    return False


def is_compared_by_python(file: str, line: int) -> bool:
    """Return whether Python's `min` or `max` is given what a line reads, there or later."""
    function = function_at(file, line)
    names = _holding(function, line) if function is not None else set()
    return any(
        _compares(value, names) or _has_reading(value, line)
        for one in (ast.walk(function) if function is not None else ())
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id in _LEAST
        if len(one.args) > 1
        for value in one.args
    )


def _has_reading(node: ast.AST, line: int) -> bool:
    return any(
        isinstance(one, ast.Call)
        and called_name(one) in READING
        and one.lineno <= line <= (one.end_lineno or line)
        for one in ast.walk(node)
    )


def bounds_slice(file: str, line: int) -> bool:
    """Return whether a number that a line reads out of a tensor is a bound of a slice there."""
    function = function_at(file, line)
    slices = (
        one for one in (ast.walk(function) if function is not None else ())
        if isinstance(one, ast.Slice)
    )  # fmt: skip
    return any(_has_reading(one, line) for one in slices)


def filters_items(file: str, line: int) -> bool:
    """Return whether a comprehension at a line leaves items out: how many are left is no tensor."""
    function = function_at(file, line)
    return any(
        one.lineno <= line <= (one.end_lineno or line)
        for around in (ast.walk(function) if function is not None else ())
        if isinstance(around, ast.comprehension)
        for one in around.ifs
    )


def takes_position(file: str, line: int) -> bool:
    """Return whether a line indexes with a tensor, and calls nothing that reads the number."""
    function = function_at(file, line)
    nodes = [
        one for one in (ast.walk(function) if function is not None else ())
        if isinstance(one, ast.Call | ast.Subscript)
        and one.lineno <= line <= (one.end_lineno or line)
    ]  # fmt: skip
    calls = (one for one in nodes if isinstance(one, ast.Call))
    items = (one.slice for one in nodes if isinstance(one, ast.Subscript))
    reading = any(called_name(one) in READING for one in calls)
    return not reading and any(isinstance(one, ast.Name) for one in items)


def other_readings(file: str, line: int) -> list[int]:
    """Return the other lines of the loop around a line that read a value, or report something."""
    function = function_at(file, line)
    loops = [
        one for one in (ast.walk(function) if function is not None else ())
        if isinstance(one, ast.For | ast.While) and one.lineno <= line <= (one.end_lineno or line)
    ]  # fmt: skip
    loop = max(loops, key=lambda one: one.lineno, default=None)
    return sorted({
        one.lineno
        for part in (loop.body if loop is not None else ())
        for one in ast.walk(part)
        if isinstance(one, ast.Call)
        and not one.lineno <= line <= (one.end_lineno or line)
        and (called_name(one) in REPORTING or ast.unparse(one.func).endswith(_READ_OUT))
    })  # fmt: skip


_READ_OUT: Final = (".item", ".tolist", ".numpy", ".nonzero")


def acts(branch: ast.AST, file: str, line: int) -> bool:
    """Return whether a branch does what no `torch.where` can choose, whatever else it does.

    It reports, appends, raises, leaves, or steps a number that the function indexes with.
    """
    return any(
        isinstance(one, ast.Raise | ast.Return | ast.Delete)
        or (isinstance(one, ast.Expr) and _is_act(one.value))
        or (isinstance(one, ast.AugAssign) and _steps(one, file, line))
        for one in _statements(branch)
    )


def _is_act(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and called_name(node) in REPORTING | LONGER


def _steps(node: ast.AugAssign, file: str, line: int) -> bool:
    constant = isinstance(node.value, ast.Constant) and isinstance(node.value.value, int)
    return constant and is_used_as_index(file, line, ast.unparse(node.target))


def _statements(branch: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of both sides of a branch, those of blocks in them as well."""
    bodies = [*branch.body, *branch.orelse] if isinstance(branch, ast.If) else []
    for body in bodies:
        yield from (one for one in ast.walk(body) if isinstance(one, ast.stmt))


def is_given_to_least(file: str, line: int, name: str) -> bool:
    """Return whether the function at a line gives an input of that name to `min` or `max`.

    Or to `clamp`, which takes two numbers or two tensors.
    """
    names = names_of(as_written(name))
    return any(
        len(given := [*one.args, *(of.value for of in one.keywords)]) > 1
        and (
            (isinstance(one.func, ast.Name) and one.func.id in _LEAST)
            or (isinstance(one.func, ast.Attribute) and one.func.attr in _BETWEEN)
        )
        and any(reads(value, names) for value in given)
        for one in calls_at(file, line)
    )


def is_given_to_math(file: str, line: int, name: str) -> bool:
    """Return whether the function at a line gives an input of that name to a function of `math`.

    Such a function reads the number out of a tensor.
    """
    names = names_of(as_written(name))
    return any(
        isinstance(one.func, ast.Attribute)
        and ast.unparse(one.func.value) == "math"
        and any(reads(value, names) for value in one.args)
        for one in calls_at(file, line)
    )


def is_read_back(file: str, line: int, name: str) -> bool:
    """Return whether the function at a line does something else with a list than append to it."""
    function = function_at(file, line)
    names = names_of(as_written(name))
    nodes = list(ast.walk(function)) if function is not None else []
    appended = {
        id(one.func.value)
        for one in nodes
        if isinstance(one, ast.Call)
        and isinstance(one.func, ast.Attribute)
        and one.func.attr in LONGER
    }
    return any(
        isinstance(one, ast.Name | ast.Attribute)
        and isinstance(one.ctx, ast.Load)
        and id(one) not in appended
        and ast.unparse(one) in names
        for one in nodes
    )


def is_plain_class(file: str, name: str) -> bool:
    """Return whether a class of a file, or what it derives from there, is known to be no module."""
    tree = tree_at(as_written(file))
    classes = {
        one.name: one
        for one in (ast.walk(tree) if tree is not None else ())
        if isinstance(one, ast.ClassDef)
    }
    waiting, seen = [name], set[str]()
    while waiting:
        this = waiting.pop()
        if this in seen:
            continue
        seen.add(this)
        if this not in classes:
            return this in _PLAIN_BASES
        waiting += [ast.unparse(base) for base in classes[this].bases]
    return True


_PLAIN_BASES: Final = ("object", "NamedTuple", "typing.NamedTuple", "ABC", "abc.ABC", "Enum")


#: what a branch on a value that was read before does, where only a look at it is needed
AFTERWARDS: Final = frozenset((Does.REPORTS, Does.COLLECTS, Does.RAISES, Does.LEAVES))
