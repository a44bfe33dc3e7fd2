"""Reductions to a position (argmax, argmin): a block's best value first, then where it is.

In: the statements of a pass over a row. Out: the same with the best value in the place of its
position, which vectors find, and a search of each block that holds a better one than those before
it. Element by element each would wait for the choice before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from tc.compiler.codegen.cpp.accumulators import POSITIONS, Accumulator, clause
from tc.compiler.codegen.cpp.block import between, call
from tc.compiler.codegen.cpp.rests import CHOOSING, Run, in_vectors
from tc.compiler.codegen.cpp.writer import WIDE_COST, Writer, at_least, atom_of
from tc.compiler.codegen.printer import c_constant, c_index, c_type
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, index_value, load, neutral, walk
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import row_major
from tc.compiler.loops.ops import compute_dtype
from tc.compiler.schedule.plan import Accumulate, Let, Running, Section, Statement, Store

# Elements that are compared at once.
WIDE = 64
# Elements of the shortest blocks: a vector of float32.
LEAST = 16


@dataclass(frozen=True)
class Search:
    """A position that is looked for.

    Attributes:
        statement: the reduction to it.
        best: the reduction to the value there.
        seen: the array that keeps the values of a block; "" where they are computed again.
    """

    statement: Accumulate
    best: Accumulate
    seen: str

    def value(self, at: Index) -> Expr:
        """Return the value of an element of the block, which is at ``at`` in it."""
        value = self.statement.value
        return load(self.seen, at, value.dtype) if self.seen else value

    def declare(self, writer: Writer, length: str) -> None:
        """Declare the position, and an array for so many values."""
        accumulator = writer.accumulators[self.statement.name]
        writer.declare(c_type(accumulator.places), f"ap_{accumulator.name}", "0")
        if self.seen:
            writer.declare(c_type(self.best.dtype), self.seen, length=f"[{length}]")


def searches(writer: Writer, statements: Sequence[Statement]) -> list[Search]:
    """Return the positions among the results of a pass that are looked for block by block."""
    last = writer.kernel.inner[-1]
    found = [s for s in statements if isinstance(s, Accumulate) and s.kind in POSITIONS]
    as_computed = all(compute_dtype(s.value.dtype) is s.value.dtype for s in found)
    in_order = any(isinstance(s, Running) for s in statements)
    is_long = at_least(last, LEAST)
    if not as_computed or not is_long or in_order:
        return []
    return [_search(writer, s, statements) for s in found]


def _search(writer: Writer, statement: Accumulate, others: Sequence[Statement]) -> Search:
    name, value = f"{statement.name}_best", statement.value
    best = replace(statement, name=name, kind=POSITIONS[statement.kind], dtype=value.dtype)
    # `max` along a dimension asks for both.
    same = (s for s in others if isinstance(s, Accumulate) and replace(s, name=name) == best)
    best = next(same, best)
    writer.accumulators[best.name] = Accumulator(best.name, best.kind, best.dtype)
    kinds = {node.op for node in walk(value)}
    stored = {s.buffer for s in others if isinstance(s, Store)}
    again = value.cost() <= WIDE_COST and not kinds & {"local", *CHOOSING} and not writer.checked
    again = again and stored.isdisjoint(use.data[0] for use in value.loads())
    return Search(statement, best, "" if again else f"v_{statement.name}")


def in_the_place_of(found: Sequence[Search], section: Section, at: Index) -> Section:
    """Return a pass with the best values in the place of their positions.

    ``at`` is where in a block an element is.
    """
    of = {each.statement: each for each in found}
    statements: dict[Statement, None] = {}
    for statement in section.statements:
        if not isinstance(statement, Accumulate) or statement not in of:
            statements[statement] = None
            continue
        best, seen = of[statement].best, of[statement].seen
        if seen:
            kept = Let(f"k_{seen}", statement.value)
            value = Expr("local", (), statement.value.dtype, (kept.name,))
            statements |= dict.fromkeys([kept, Store(seen, at, value)])
            if best not in section.statements:
                best = replace(best, value=value)
        statements[best] = None
    return replace(section, statements=tuple(statements))


def search(
    writer: Writer, found: Search, bounds: tuple[str, str], at: Index, locals_: frozenset[str]
) -> None:
    """Print the search of a block, entered if the block's best value is better than those before.

    The accumulators ``a_…`` are those of the blocks before it, ``s_…`` those of this one. The
    position is the first of the best value, or of a NaN, which is better than all others.

    Args:
        writer: prints.
        found: what is looked for.
        bounds: C of the first element of the block and of the one after its last.
        at: where in the block an element is.
        locals_: names of values that are the same in a whole row.
    """
    name, best, last = found.statement.name, found.best.name, writer.kernel.inner[-1]
    better = f"s_{best} {'>' if found.best.kind == 'max' else '<'} a_{best}"
    sought = f"s_{best}"
    if found.best.dtype.is_floating_point:
        better = f"!an_{best} && (sn_{best} || {better})"
        nan = c_constant(math.nan, found.best.dtype)
        sought = f"sn_{best} ? {nan} : {sought}"
    writer.open(f"if ({better})")
    writer.declare(f"const {c_type(found.best.dtype)}", f"sought_{name}", sought)
    if not found.seen:
        writer.hoist([found.statement], last, locals_, bounds)
    first, stop = bounds
    extent = ix.extent(last).constant
    lowest = Accumulator(f"at_{name}", "min", torch.int32)
    writer.accumulators[lowest.name] = lowest
    writer.declare("int", f"a_{lowest.name}", lowest.start())
    mark = partial(writer.simd, clause([lowest], "a"))
    around, writer.running = writer.running, "a"
    if extent is not None and extent <= WIDE:
        base = ix.ZERO
        in_vectors(writer, [_place(found, at, last)], last, first, stop, mark)
    else:
        base, count = ix.counter(f"{last}_by"), f"n_{name}"
        missing = f"a_{lowest.name} == {lowest.start()}"
        writer.count(c_index(base), first, stop, str(WIDE), only_while=missing)
        writer.declare(
            "const long long", count, call("tc_min", str(WIDE), between(c_index(base), stop))
        )
        end = f"{c_index(base)} + {count}"
        in_vectors(
            writer,
            [_place(found, at, last - base)],
            last,
            c_index(base),
            end,
            mark,
            run=Run(count, None),
        )
    writer.running = around
    found_at = ix.counter(f"a_{lowest.name}")
    position = ix.substitute(row_major(writer.kernel.inner), {atom_of(last): base + found_at})
    writer.emit(f"ap_{name} = {c_index(position)};")
    writer.close(1 if base is ix.ZERO else 2)
    writer.hoisted = {}


def _place(found: Search, at: Index, place: Index) -> Accumulate:
    """Return the reduction to the first place of what is sought.

    A NaN is better than all other values: if it is not what is sought, there is none.
    """
    name, value = found.statement.name, found.value(at)
    sought = Expr("local", (), value.dtype, (f"sought_{name}",))
    test = Expr("eq", (value, sought), torch.bool)
    if value.dtype.is_floating_point:
        test = Expr("or", (test, Expr("isnan", (value,), torch.bool)), torch.bool)
    here = Expr("to", (index_value(place),), torch.int32)
    none = neutral("min", torch.int32)
    return Accumulate(
        f"at_{name}", "min", Expr("where", (test, here, none), torch.int32), torch.int32
    )
