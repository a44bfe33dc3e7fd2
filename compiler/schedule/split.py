"""Index-set splitting: a pointwise kernel that selects by position becomes one loop for each range.

In: a kernel, for example of a concatenation, whose values `select` between pieces. Out: the same
kernel with a section for each range, in which the selects are resolved. Where the selects test
every second or third position (the gradient of ``x[:, 1::2]``), the loop is unrolled by so many,
after which they are resolved as well ("unrolling to remove a periodic condition").

Loops whose reads jump back are split alike: the parts of ``x.repeat(1, 3)`` are ranges, and a pixel
shuffle reads every second element of a row from another channel.

Where a mask compares positions of the last loop with those of a loop around it (``tril``, a causal
mask), the ranges of each row are its own: they end where the row crosses the diagonal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import torch

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, constant, load, substitute, transform, walk
from tc.compiler.loops.index import Atom, Index
from tc.compiler.loops.ops import compute_dtype
from tc.compiler.schedule.plan import Kernel, Let, Section, Statement, Store

MAX_RANGES = 64
#: most ranges of a loop for what it reads, which without them is gathered
MAX_REPEATS = 8
#: most copies of a loop's statements
MAX_PERIOD = 8
#: comparisons of whole numbers -> whether they hold below the point where they change, and by how
#: much that is past the right operand; of ``variable < right`` and so on
COMPARISONS = {"lt": (True, 0), "le": (True, 1), "ge": (False, 0), "gt": (False, 1)}
#: the same comparison with its operands exchanged
EXCHANGED = {"lt": "gt", "le": "ge", "ge": "le", "gt": "lt"}
#: largest number added to positions that surely does not wrap around
MAX_OFFSET = 1 << 31
#: most points at which the masks of a row change
MAX_DIAGONALS = 4
#: fewest elements of a row that is split where it crosses a diagonal
MIN_ROW = 64


def split(kernel: Kernel) -> Kernel:
    """Split a pointwise kernel along the variable that its outermost select tests."""
    if kernel.inner or kernel.tile is not None or not kernel.outer or kernel.bases():
        return kernel
    for variable in kernel.outer:
        ranges, last = _ranges(kernel, variable), variable is kernel.outer[-1]
        sections = [made for r in ranges for made in _over(kernel.statements(), variable, last, *r)]
        if any(section.over != (variable, ix.ZERO, ix.extent(variable)) for section in sections):
            return replace(kernel, sections=tuple(sections))
    return _split_on_diagonals(kernel)


def _split_on_diagonals(kernel: Kernel) -> Kernel:
    """Split the last loop where masks of its rows change, if these points have a known order."""
    *around, variable = kernel.outer
    end = ix.extent(variable)
    points = _diagonals(kernel.statements(), variable)
    if not points or not around or ix.is_at_least(ix.const(MIN_ROW - 1) - end, 0):
        return kernel
    sections = []
    for low, high in pairwise([ix.ZERO, *points, end]):
        statements = [
            replace(s, value=_decided(s.value, variable, low, high)) for s in kernel.statements()
        ]
        first, past = (ix.maximum(ix.ZERO, ix.minimum(point, end)) for point in (low, high))
        sections.append(Section("row", tuple(statements), (variable, first, past)))
    return replace(kernel, sections=tuple(sections))


def _diagonals(statements: Sequence[Statement], variable: Index) -> list[Index]:
    """Return the points of a row where masks change that also depend on the loops around, in order.

    None where they are too many, or where their order is not the same for all rows.
    """
    points: list[Index] = []
    for statement in statements:
        for node in walk(statement.value):
            for test in _conjuncts(node.args[0]) if node.op in ("select", "where") else ():
                turn = _turning_point(test, variable)
                if turn is not None and turn[0].variables() and turn[0] not in points:
                    points.append(turn[0])
    if len(points) > MAX_DIAGONALS or any((p - points[0]).constant is None for p in points):
        return []
    return sorted(points, key=lambda point: (point - points[0]).constant or 0)


def _over(
    statements: Sequence[Statement], variable: Index, last: bool, low: Index, high: Index
) -> list[Section]:
    """Return the statements for a range of a variable, unrolled if their selects are periodic, or,
    in the last loop, their reads.

    What is left after the last whole period keeps its selects.
    """
    decided = [replace(s, value=_decided(s.value, variable, low, high)) for s in statements]
    period = _period(decided, variable, last)
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


def _quotients(index: Index) -> Iterator[Atom]:
    """Yield the quotients and remainders in an index, also those inside of others."""
    for monomial, _ in index.terms:
        for atom in monomial:
            if atom.kind in ("floordiv", "mod"):
                yield atom
                for arg in atom.args:
                    yield from _quotients(arg)


def _jumps(statements: Iterable[Statement], variable: Index) -> Iterator[tuple[str, Index, Index]]:
    """Yield kind, dividend and divisor of what reads divide the last loop's variable by.

    The dividend is the variable, and perhaps a constant.
    """
    for statement in statements:
        for use in statement.value.loads():
            for atom in _quotients(use.data[1]) if use.op == "load" else ():
                dividend, divisor = atom.args
                if (dividend - variable).constant is not None and not divisor.variables():
                    yield atom.kind, dividend, divisor


def _period(statements: Sequence[Statement], variable: Index, last: bool) -> int:
    """Return after how many positions the selects choose alike again; 1 if they are not periodic.

    Only tests of the remainder of the position are: ``(variable + offset) % period == constant``,
    and, of the last loop, reads at such a remainder.
    """
    periods = {
        _copies(modulus)
        for kind, _, modulus in (_jumps(statements, variable) if last else ())
        if kind == "mod"
    }
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
    position, modulus = atom.args
    fixed = (position - variable).constant is not None
    return _copies(modulus) if fixed else 1


def _copies(divisor: Index) -> int:
    """Return by how much a loop is unrolled for a divisor; 1 if it is left."""
    known = divisor.constant
    return known if known is not None and known <= MAX_PERIOD else 1


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
                turn = _turning_point(test, variable)
                if turn is None or turn[0].variables():
                    continue
                if not _insert(points, turn[0]):
                    return []
    if variable is kernel.outer[-1]:
        for point in _turns(kernel.statements(), variable):
            if not _insert(points, point):
                return []
    if len(points) > MAX_RANGES + 1:
        return []
    return list(pairwise(points))


def _turns(statements: Sequence[Statement], variable: Index) -> Iterator[Index]:
    """Yield where reads of a loop jump back, if that is seldom."""
    for kind, dividend, divisor in _jumps(statements, variable):
        if kind != "mod" or _copies(divisor) > 1:
            continue
        offset = dividend - variable
        first = ix.floordiv(offset, divisor).constant
        whole = ix.floordiv(offset + ix.extent(variable), divisor).constant
        if first is not None and whole is not None and whole - first <= MAX_REPEATS:
            yield from (divisor * k - offset for k in range(first + 1, whole + 1))


def _conjuncts(condition: Expr) -> list[Expr]:
    if condition.op == "and":
        return [test for arg in condition.args for test in _conjuncts(arg)]
    return [condition]


def _as_index(value: Expr) -> Index | None:
    """Return a position, and what is a small number away from one, as an index."""
    if value.op == "index":
        index: Index = value.data[0]
        return index
    if value.op in ("add", "sub") and value.dtype is torch.int64:
        left, right = map(_as_index, value.args)
        if left is None or right is None or not all(map(_is_small, (left, right))):
            return None
        return left + right if value.op == "add" else left - right
    is_whole = value.op == "const" and type(value.data[0]) is int
    return ix.const(value.data[0]) if is_whole else None


def _is_small(index: Index) -> bool:
    """Whether adding an index to another one surely does not wrap around."""
    return all(abs(factor) < MAX_OFFSET for _, factor in index.terms)


def _turning_point(test: Expr, variable: Index) -> tuple[Index, bool] | None:
    """Return the value of ``variable`` at which a test on it changes, and whether it holds below.

    The value may be outside of the loop, and depend on other loops.
    """
    if test.op not in COMPARISONS:
        return None
    left, right = (_as_index(arg) for arg in test.args)
    if left is None or right is None:
        return None
    for op, a, b in ((test.op, left, right), (EXCHANGED[test.op], right, left)):
        rest = a - b - variable
        if not variable.atoms() & rest.atoms():
            below, past = COMPARISONS[op]
            return past - rest, below
    return None


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
        turn = _turning_point(node, variable)
        if turn is not None:
            point, holds_below = turn
            below = ix.is_at_least(point - high, 0)
            if below or ix.is_at_least(low - point, 0):
                return constant(below == holds_below, torch.bool)
        if node.op == "load":
            return load(node.data[0], _straight(node.data[1], variable, low, high), node.dtype)
        return _resolved(node)

    return transform(value, change)


def _straight(index: Index, variable: Index, low: Index, high: Index) -> Index:
    """Return an index for positions of one period without the division."""
    values = {}
    for atom in _quotients(index):
        dividend, divisor = atom.args
        offset = dividend - variable
        passed = ix.floordiv(low + offset, divisor)
        if offset.constant is None or divisor.variables():
            continue
        if ix.is_at_least(divisor * (passed + 1) - (high + offset), 0):
            values[atom] = passed if atom.kind == "floordiv" else dividend - divisor * passed
    return ix.substitute(index, values)


def _resolved(node: Expr) -> Expr:
    """Return what a test or a select of constants gives, or an element that is widened for nothing;
    another node as it is."""
    if node.op == "to":
        wide = node.args[0]
        source = wide.args[0] if wide.op == "to" else node
        undone = source.dtype is node.dtype and wide.dtype is compute_dtype(node.dtype)
        return source if undone else node
    if node.op == "eq":
        left, right = map(_as_index, node.args)
        if left is not None and right is not None and (left - right).constant is not None:
            return constant(left is right, torch.bool)
    elif node.op == "and" and any(arg.op == "const" for arg in node.args):
        plain, other = node.args if node.args[0].op == "const" else node.args[::-1]
        if plain.dtype is torch.bool:
            return other if plain.data[0] else plain
    elif node.op in ("select", "where") and node.args[0].op == "const":
        return node.args[1] if node.args[0].data[0] else node.args[2]
    return node
