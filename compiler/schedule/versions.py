"""Versions of kernels: short rows of a symbolic length are printed for the length at capture, too.

In: a kernel, and what symbolic sizes were at capture. Out: the kernel with `Kernel.seen`, sizes for
which codegen prints a second body, behind a test (multi-versioning). Rows of a constant length are
unrolled, laid side by side and copied without loops; rows of 4 elements of a length that only the
call knows took up to 40 times as long, and most of what is dynamic by order has one length anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tc.compiler.core.gate import Gate
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, load, substitute, transform
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import row_major
from tc.compiler.schedule.plan import Kernel, Scratch, Section, Statement, Store

#: elements of the longest rows that are printed twice: longer ones gain less than a quarter
LONGEST = 64


def with_version(kernel: Kernel, hints: Mapping[str, int], gate: Gate) -> Kernel:
    """Return a kernel that is printed for the sizes of its rows at capture, too, if that pays.

    Args:
        hints: symbolic size -> its value at capture; without one, a size has no version.
        gate: asked for ``schedule.version``.
    """
    if not hints or kernel.bases() or kernel.tile is not None:
        return kernel
    row = ix.product(list(_row(kernel)))
    names = sorted(atom.name for atom in row.atoms())
    if not names or not all(name in hints for name in names):
        return kernel
    if not 1 < ix.evaluate(row, hints) <= LONGEST:
        return kernel
    if not gate.allow("schedule.version", kernel.name):
        return kernel
    return replace(kernel, seen=tuple((name, hints[name]) for name in names))


def _row(kernel: Kernel) -> Sequence[Index]:
    """Return the extents of the loops over a row, or over the lanes of a block of rows."""
    if kernel.lane is not None:
        return [ix.extent(kernel.lane)]
    if kernel.inner:
        return [ix.extent(v) for v in kernel.inner] if kernel.outer else []
    return [ix.extent(kernel.outer[-1])] if len(kernel.outer) > 1 else []


def at_seen(kernel: Kernel) -> Kernel:
    """Return the loops of a kernel for the sizes that are `Kernel.seen`."""
    seen = dict(kernel.seen)
    sizes = {atom: ix.const(seen[atom.name]) for extent in _row(kernel) for atom in extent.atoms()}
    values = dict(sizes)
    for variable in kernel.loops():
        (atom,) = variable.atoms()
        values[atom] = ix.var(atom.name, ix.substitute(ix.extent(variable), sizes))

    def at(index: Index) -> Index:
        return ix.substitute(index, values)

    def statement_at(statement: Statement) -> Statement:
        value = substitute(statement.value, values)
        if isinstance(statement, Store):
            return replace(statement, index=at(statement.index), value=value)
        return replace(statement, value=value)

    def section_at(section: Section) -> Section:
        over = section.over
        if over is not None:
            over = at(over[0]), at(over[1]), at(over[2])
        return Section(section.level, tuple(map(statement_at, section.statements)), over)

    made = replace(
        kernel,
        outer=tuple(map(at, kernel.outer)),
        inner=tuple(map(at, kernel.inner)),
        lane=None if kernel.lane is None else at(kernel.lane),
        scratch=tuple(replace(s, extent=at(s.extent)) for s in kernel.scratch),
        sections=tuple(map(section_at, kernel.sections)),
        seen=(),
    )
    return made if made.lane is not None else with_scratch(made)


def with_scratch(kernel: Kernel) -> Kernel:
    """Return a kernel that keeps in scratch what passes over a row store for later passes.

    A row of a length that is not known had to be kept in memory. What is stored last stays there.
    """
    statements = kernel.statements()
    inner = [part for part in kernel.sections if part.level == "inner"]
    stores = [s for part in inner for s in part.statements if isinstance(s, Store)]
    private = {scratch.name for scratch in kernel.scratch}
    position = row_major(kernel.inner)
    for first in {s.buffer: s for s in reversed(stores)}.values():
        name, place = first.buffer, first.index
        later = statements[statements.index(first) + 1 :]
        loads = [use for s in later for use in s.value.loads() if use.data[0] == name]
        same = all(use.op == "load" and use.data[1] is place for use in loads)
        same &= all(
            s.index is place for s in statements if isinstance(s, Store) and s.buffer == name
        )
        if name in private or not loads or not same:
            continue
        row = Scratch(f"row_{name}", first.value.dtype, ix.product(list(_row(kernel))))
        kernel = _kept(kernel, (name, place), load(row.name, position, row.dtype))
        kernel = replace(kernel, scratch=(*kernel.scratch, row))
    return kernel


def _kept(kernel: Kernel, place: tuple[str, Index], kept: Expr) -> Kernel:
    """Return a kernel that stores to ``kept``, an element of a scratch, and reads there.

    Args:
        place: the buffer and the index where the kernel stored and read. It stores there last, and
            reads there what it did not store.
    """
    left = sum(isinstance(s, Store) and s.buffer == place[0] for s in kernel.statements())
    stored = False

    def changed(node: Expr) -> Expr:
        return kept if node.op == "load" and node.data[:2] == place else node

    sections = []
    for section in kernel.sections:
        statements: list[Statement] = []
        for statement in section.statements:
            if stored:
                statement = replace(statement, value=transform(statement.value, changed))
            if isinstance(statement, Store) and statement.buffer == place[0]:
                stored, left = True, left - 1
                statements.append(Store(kept.data[0], kept.data[1], statement.value))
                if left:
                    continue
            statements.append(statement)
        sections.append(replace(section, statements=tuple(statements)))
    return replace(kernel, sections=tuple(sections))
