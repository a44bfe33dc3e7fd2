"""Index-set splitting: a pointwise kernel that selects by position becomes one loop for each range.

In: a kernel, for example of a concatenation, whose values `select` between pieces. Out: the same
kernel with a section for each range, in which the selects are resolved.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import torch

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, constant, transform, walk
from tc.compiler.loops.index import Index
from tc.compiler.schedule.plan import Kernel, Section

MAX_RANGES = 64
COMPARISONS = ("lt", "ge")


def split(kernel: Kernel) -> Kernel:
    """Split a pointwise kernel along the variable that its outermost select tests."""
    if kernel.inner or kernel.tile is not None or not kernel.outer or kernel.bases():
        return kernel
    for variable in kernel.outer:
        ranges = _ranges(kernel, variable)
        if len(ranges) > 1:
            statements = [s for section in kernel.sections for s in section.statements]
            sections = tuple(
                Section(
                    "row",
                    tuple(replace(s, value=_decided(s.value, variable, *r)) for s in statements),
                    (variable, *r),
                )
                for r in ranges
            )
            return replace(kernel, sections=sections)
    return kernel


def _ranges(kernel: Kernel, variable: Index) -> list[tuple[Index, Index]]:
    """Return the ranges between positions where a select changes; one range if they are unknown."""
    end = ix.extent(variable)
    points: list[Index] = [ix.ZERO, end]
    for statement in kernel.statements():
        for node in walk(statement.value):
            if node.op != "select":
                continue
            for test in _tests(node.args[0]):
                point = _turning_point(test, variable)
                if point is not None and not _insert(points, point):
                    return []
    if len(points) > MAX_RANGES + 1:
        return []
    return list(pairwise(points))


def _tests(condition: Expr) -> list[Expr]:
    if condition.op == "and":
        return [test for arg in condition.args for test in _tests(arg)]
    return [condition] if condition.op in COMPARISONS else []


def _as_index(value: Expr) -> Index | None:
    if value.op == "index":
        index: Index = value.data[0]
        return index
    is_whole = value.op == "const" and type(value.data[0]) is int
    return ix.const(value.data[0]) if is_whole else None


def _turning_point(test: Expr, variable: Index) -> Index | None:
    """Return the value of ``variable`` at which a test on it changes."""
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
        if node.op in COMPARISONS:
            point = _turning_point(node, variable)
            if point is None:
                return node
            below = ix.is_at_least(point - high, 0)
            if below or ix.is_at_least(low - point, 0):
                return constant(below == (node.op == "lt"), torch.bool)
        elif node.op == "and" and any(arg.op == "const" for arg in node.args):
            plain, other = node.args if node.args[0].op == "const" else node.args[::-1]
            if plain.dtype is torch.bool:
                return other if plain.data[0] else plain
        elif node.op == "select" and node.args[0].op == "const":
            return node.args[1] if node.args[0].data[0] else node.args[2]
        return node

    return transform(value, change)
