"""Index-set splitting: a pointwise kernel that selects by position becomes one loop for each range.

In: a kernel, for example of a concatenation, whose values `select` between pieces. Out: the same
kernel with a section for each range, in which the selects are resolved. Where the selects test
every second or third position (the gradient of ``x[:, 1::2]``), the loop is unrolled by so many,
after which they are resolved as well ("unrolling to remove a periodic condition").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import torch

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, constant, substitute, transform, walk
from tc.compiler.loops.index import Index
from tc.compiler.schedule.plan import Kernel, Let, Section, Statement, Store

MAX_RANGES = 64
#: most copies of a loop's statements
MAX_PERIOD = 8
COMPARISONS = ("lt", "ge")


def split(kernel: Kernel) -> Kernel:
    """Split a pointwise kernel along the variable that its outermost select tests."""
    if kernel.inner or kernel.tile is not None or not kernel.outer or kernel.bases():
        return kernel
    for variable in kernel.outer:
        ranges = _ranges(kernel, variable)
        sections = [made for r in ranges for made in _over(kernel.statements(), variable, *r)]
        if any(section.over != (variable, ix.ZERO, ix.extent(variable)) for section in sections):
            return replace(kernel, sections=tuple(sections))
    return kernel


def _over(
    statements: Sequence[Statement], variable: Index, low: Index, high: Index
) -> list[Section]:
    """Return the statements for a range of a variable, unrolled if their selects are periodic.

    What is left after the last whole period keeps its selects.
    """
    decided = [replace(s, value=_decided(s.value, variable, low, high)) for s in statements]
    period = _period(decided, variable)
    if period == 1 or low.constant is None:
        return [Section("row", tuple(decided), (variable, low, high))]
    periods = ix.floordiv(high - low, ix.const(period))
    rest = low + periods * period
    copies = [
        copy
        for offset in range(period)
        for copy in _moved(decided, variable, variable * period + low + offset, f"_{offset}")
    ]
    sections = [Section("row", tuple(copies), (variable, ix.ZERO, periods))]
    if rest is not high:
        sections.append(Section("row", tuple(decided), (variable, rest, high)))
    return sections


def _period(statements: Iterable[Statement], variable: Index) -> int:
    """Return after how many positions the selects choose alike again; 1 if they are not periodic.

    Only tests of the remainder of the position are: ``(variable + offset) % period == constant``.
    """
    periods = set()
    for statement in statements:
        for node in walk(statement.value):
            for test in _conjuncts(node.args[0]) if node.op == "select" else ():
                if test.op == "eq":
                    periods |= {_modulus(arg, variable) for arg in test.args}
    found = periods - {1}
    return found.pop() if len(found) == 1 else 1


def _modulus(value: Expr, variable: Index) -> int:
    """Return the modulus of a remainder of a variable plus something fixed; 1 for all else."""
    place = _as_index(value)
    atom = ix.atom_of(place) if place is not None else None
    if atom is None or atom.kind != "mod":
        return 1
    position, modulus = atom.args[0], atom.args[1].constant or 1
    fixed = (position - variable).constant is not None
    return modulus if fixed and modulus <= MAX_PERIOD else 1


def _moved(
    statements: Iterable[Statement], variable: Index, place: Index, suffix: str
) -> Iterator[Statement]:
    """Yield the statements for another position, with values renamed and tests resolved."""
    atom = ix.atom_of(variable)
    assert atom is not None
    moves = {atom: place}
    names = {s.name for s in statements if isinstance(s, Let)}

    def change(node: Expr) -> Expr:
        if node.op == "local" and node.data[0] in names:
            return Expr("local", (), node.dtype, (node.data[0] + suffix,))
        return _resolved(node)

    for statement in statements:
        value = transform(substitute(statement.value, moves), change)
        if isinstance(statement, Let):
            yield Let(statement.name + suffix, value)
        elif isinstance(statement, Store):
            yield replace(statement, index=ix.substitute(statement.index, moves), value=value)


def _ranges(kernel: Kernel, variable: Index) -> list[tuple[Index, Index]]:
    """Return the ranges between positions where a select changes; one range if they are unknown."""
    end = ix.extent(variable)
    points: list[Index] = [ix.ZERO, end]
    for statement in kernel.statements():
        for node in walk(statement.value):
            if node.op != "select":
                continue
            for test in _conjuncts(node.args[0]):
                point = _turning_point(test, variable)
                if point is not None and not _insert(points, point):
                    return []
    if len(points) > MAX_RANGES + 1:
        return []
    return list(pairwise(points))


def _conjuncts(condition: Expr) -> list[Expr]:
    if condition.op == "and":
        return [test for arg in condition.args for test in _conjuncts(arg)]
    return [condition]


def _as_index(value: Expr) -> Index | None:
    if value.op == "index":
        index: Index = value.data[0]
        return index
    is_whole = value.op == "const" and type(value.data[0]) is int
    return ix.const(value.data[0]) if is_whole else None


def _turning_point(test: Expr, variable: Index) -> Index | None:
    """Return the value of ``variable`` at which a test on it changes."""
    if test.op not in COMPARISONS:
        return None
    left, right = (_as_index(arg) for arg in test.args)
    if left is None or right is None or ix.coefficient(left, variable) is not ix.ONE:
        return None
    point = right - (left - variable)
    return None if point.variables() else point


def _insert(points: list[Index], point: Index) -> bool:
    """Insert a point in order; return False if its order is unknown."""
    for position, other in enumerate(points):
        if point is other:
            return True
        if ix.is_at_least(other - point, 0):
            if position:
                points.insert(position, point)
            return True
        if not ix.is_at_least(point - other, 0):
            return False
    return True


def _decided(value: Expr, variable: Index, low: Index, high: Index) -> Expr:
    """Return the value for positions from ``low`` to before ``high``, with its selects resolved."""

    def change(node: Expr) -> Expr:
        point = _turning_point(node, variable)
        if point is not None:
            below = ix.is_at_least(point - high, 0)
            if below or ix.is_at_least(low - point, 0):
                return constant(below == (node.op == "lt"), torch.bool)
        return _resolved(node)

    return transform(value, change)


def _resolved(node: Expr) -> Expr:
    """Return what a test or a select of constants gives; another node as it is."""
    if node.op == "eq":
        left, right = map(_as_index, node.args)
        if left is not None and right is not None and (left - right).constant is not None:
            return constant(left is right, torch.bool)
    elif node.op == "and" and any(arg.op == "const" for arg in node.args):
        plain, other = node.args if node.args[0].op == "const" else node.args[::-1]
        if plain.dtype is torch.bool:
            return other if plain.data[0] else plain
    elif node.op == "select" and node.args[0].op == "const":
        return node.args[1] if node.args[0].data[0] else node.args[2]
    return node
