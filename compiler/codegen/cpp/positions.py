"""Computed positions in vector loops: which are computed first, into arrays.

In: the statements of a loop. Out: the `Offset` of each indirect read that changes along it, and the
reads that take the place of these once offsets are in arrays. gcc makes vectors of a loop with
indirect reads by taking each position out of a vector; where they are 32-bit integers in memory it
reads one by one instead, which is up to twice as fast. Offsets that are the same in each row are
computed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, can_fail, positions, transform, varies, walk
from tc.compiler.loops.index import Atom, Index
from tc.compiler.schedule.plan import Let, Statement, Store

#: the most positions in one array: half of a first cache
LONGEST = 4096
#: operations up to which a position that is made of other values of its loop is computed twice
REPEATED = 24
#: operations of an element up to which a loop with checked positions has branches, not vectors
PLAIN = 8
INT32 = 1 << 31


@dataclass(frozen=True)
class Part:
    """One computed position of an indirect read.

    Attributes:
        name: of the variable of the read's index.
        given: its expression, of loads and loop variables alone.
        bound: it is clipped to that; None if it is within.
        checked: whether being outside is an error.
    """

    name: str
    given: Expr
    bound: Index | None
    checked: bool

    @property
    def fails(self) -> bool:
        """Return whether computing it can be an error."""
        outside = self.checked and self.bound is not None
        return outside or any(map(can_fail, walk(self.given)))


@dataclass(frozen=True)
class Offset:
    """What positions that change along a loop contribute to the place of an indirect read.

    Attributes:
        parts: those positions.
        index: over their variables.
        kind: an integer type that has all its values.
    """

    parts: tuple[Part, ...]
    index: Index
    kind: torch.dtype

    def varies(self, variable: Atom) -> bool:
        """Return whether it depends on a loop variable."""
        return any(varies(part.given, variable) for part in self.parts)

    def positions(self) -> list[tuple[str, Expr, Index | None, bool]]:
        """Return names, values and bounds of the positions, and whether to check them."""
        return [(part.name, part.given, part.bound, part.checked) for part in self.parts]

    @property
    def fails(self) -> bool:
        """Return whether computing it can be an error."""
        return any(part.fails for part in self.parts)


def always(root: Expr) -> list[Expr]:
    """Return the nodes whose value is needed in any case, operands first: none of an arm."""
    return walk(root, lambda node: node.args[:1] if node.op == "select" else node.args)


def offsets(statements: Sequence[Statement], variable: Atom) -> dict[Expr, Offset]:
    """Return the offsets of the unconditional reads at positions that change along a loop.

    Reads are left out whose positions are made of other such reads, or of much that the loop
    computes anyway.
    """
    lets: dict[str, Expr] = {}
    found: dict[Expr, Offset] = {}

    def inline(node: Expr) -> Expr:
        return lets.get(node.data[0], node) if node.op == "local" else node

    for statement in statements:
        for node in always(statement.value):
            if node.op == "at" and node not in found:
                givens = [transform(arg, inline) for arg in node.args]
                offset = _offset(node, givens, variable)
                if offset is not None:
                    found[node] = offset
        if isinstance(statement, Let):
            lets[statement.name] = transform(statement.value, inline)
    return found


def _offset(node: Expr, givens: Sequence[Expr], variable: Atom) -> Offset | None:
    parts = []
    for k, (position, bound, checked) in enumerate(positions(node)):
        given = givens[k]
        if not varies(given, variable) and not any(n.op == "local" for n in walk(given)):
            continue
        if any(n.op in ("local", "at", "select") for n in walk(given)):
            return None
        if given is not position and given.exceeds(REPEATED):
            return None
        if bound is not None and not ix.is_at_least(bound, 1):
            return None  # nothing may be read
        parts.append(Part(f"x{k}", given, bound, checked))
    if not parts:
        return None
    index = _moving(node.data[1], parts)
    [first, *others] = parts
    if first.given.op == "load" and first.given.dtype is torch.int32 and not others:
        return None  # it is in such an array already
    return None if index is None else Offset(tuple(parts), index, _kind(index))


def _moving(index: Index, parts: Sequence[Part]) -> Index | None:
    """Return the terms of an index that these positions are in, if nothing else changes there."""
    names = {part.name for part in parts}
    moving = index - _without(index, names)
    return moving if all(v.name in names for v in moving.variables()) else None


def _without(index: Index, names: set[str]) -> Index:
    return Index(
        tuple(
            (monomial, k)
            for monomial, k in index.terms
            if not any(atom.name in names for atom in Index(((monomial, k),)).atoms())
        )
    )


def _kind(index: Index) -> torch.dtype:
    """Return int32 if all values of an index are known to fit, else int64."""
    low, below = ix.lower_bound(index), ix.lower_bound(-index)
    fits = low is not None and below is not None and low > -INT32 and -below < INT32
    return torch.int32 if fits else torch.int64


def moved(node: Expr, offset: Offset, where: Expr) -> Expr:
    """Return the read with an offset that is ``where``, in place of the positions in it."""
    gone = {part.name for part in offset.parts}
    rest = _without(node.data[1], gone)
    kept = [(f"x{k}", p) for k, p in enumerate(positions(node)) if f"x{k}" not in gone]
    renamed = {
        atom: ix.var(f"x{new}", atom.args[0])
        for new, (name, _) in enumerate(kept)
        for atom in rest.variables()
        if atom.name == name
    }
    # Its extent is not looked at any more.
    index = ix.substitute(rest, renamed) + ix.var(f"x{len(kept)}", ix.ONE)
    bounds = (*(bound for _, (_, bound, _) in kept), None)
    args = (*(arg for _, (arg, _, _) in kept), where)
    return Expr("at", args, node.dtype, (node.data[0], index, bounds, node.data[3]))


def replaced(statements: Sequence[Statement], values: Mapping[Expr, Expr]) -> list[Statement]:
    """Return statements with other expressions in place of some."""
    if not values:
        return list(statements)
    return [
        replace(s, value=transform(s.value, lambda node: values.get(node, node)))
        for s in statements
    ]


def branches(statements: Sequence[Statement], found: Mapping[Expr, Offset]) -> bool:
    """Return whether a loop does little but read at checked positions.

    A branch that is never taken costs it less than a vector of positions.
    """
    cost = sum(s.value.cost() for s in statements)
    plain = cost <= PLAIN and all(isinstance(s, Let | Store) for s in statements)
    return plain and any(offset.fails for offset in found.values())
