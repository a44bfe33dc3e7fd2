"""Runs of elements that are brought into arrays before a vectorised loop computes with them.

In: the statements of a vectorised loop. Out: the same over arrays. Float16 along memory is widened
by `tc_f16_to_f32_run` before the loop, and results are made float16 by `tc_f32_to_f16_run` after
it: gcc 12 makes vectors of neither conversion but by a dozen other operations, which take longer
than a sum. Elements that are not adjacent are gathered if much is computed of them: gcc leaves the
last vector of a loop that reads such ones to a scalar loop, as it may not read beyond them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from tc.compiler.codegen.cpp.block import between, call
from tc.compiler.codegen.cpp.positions import always, replaced
from tc.compiler.codegen.cpp.rests import Run, in_vectors
from tc.compiler.codegen.cpp.stream import LINE
from tc.compiler.codegen.cpp.writer import Writer, at_least, atom_of
from tc.compiler.codegen.printer import c_index, c_type
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, load, walk
from tc.compiler.loops.index import Index
from tc.compiler.schedule.plan import Let, Statement, Store

#: elements of a run. Arrays of 4096 bytes would begin at one place of their memory pages, where
#: loads wait for stores to another one: with 1024 elements, float16 took twice as long
RUN = 256
#: operations of an element from which on gathering its operands pays
EXPENSIVE = 16
#: arrays have space for full vectors of this many elements
VECTOR = 16


@dataclass(frozen=True)
class Runs:
    """What of a loop is brought into arrays first, or waits in them.

    Attributes:
        read: the elements of float16 buffers along memory, which the loop widens.
        apart: elements that are not adjacent.
        written: the stores of values that are float32 until then.
        lets: names of such values.
    """

    read: tuple[Expr, ...]
    apart: tuple[Expr, ...]
    written: tuple[Store, ...]
    lets: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.read or self.apart or self.written)


def runs_of(statements: Sequence[Statement], variable: Index, stores: bool = True) -> Runs:
    """Return the runs that a loop reads in any case, and those that it writes.

    A buffer that it both reads and writes is left out, for its elements may depend on each other.
    """
    if not at_least(variable, VECTOR):
        return Runs((), (), (), frozenset())
    to = {s.buffer for s in statements if isinstance(s, Store)}
    of = {use.data[0] for s in statements for use in s.value.loads()}
    read = dict.fromkeys(
        node.args[0]
        for statement in statements
        for node in always(statement.value)
        if _widened(node) and _along(node.args[0].data[1], variable)
    )
    cost = sum(s.value.cost() for s in statements)
    apart = dict.fromkeys(
        node
        for statement in statements
        for node in (always(statement.value) if cost > EXPENSIVE else ())
        if node.op == "load" and _is_apart(node.data[1], variable)
    )
    lets = _only_stored(statements)
    narrow = [s for s in statements if isinstance(s, Store) and s.value.dtype is torch.float16]
    written = [
        s
        for s in narrow
        if stores and s.buffer not in of and _along(s.index, variable)
        if _narrowed(s.value) or (s.value.op == "local" and s.value.data[0] in lets)
        if sum(other.buffer == s.buffer for other in narrow) == 1
    ]
    others = [s for s in narrow if s not in written]
    lets -= {s.value.data[0] for s in others if s.value.op == "local"}
    kept = [s for s in written if s.value.op != "local" or s.value.data[0] in lets]
    used = {s.value.data[0] for s in kept if s.value.op == "local"}
    reads = [tuple(r for r in found if r.data[0] not in to) for found in (read, apart)]
    return Runs(reads[0], reads[1], tuple(kept), frozenset(used))


def _along(index: Index, variable: Index) -> bool:
    return ix.coefficient(index, variable) is ix.ONE


def _is_apart(index: Index, variable: Index) -> bool:
    """Return whether the elements along a loop are at equal distances, but not adjacent."""
    return ix.coefficient(index, variable) not in (None, ix.ZERO, ix.ONE)


def _widened(node: Expr) -> bool:
    """Return whether a node is an element of a float16 buffer as float32."""
    is_load = node.op == "to" and node.dtype is torch.float32 and node.args[0].op == "load"
    return is_load and node.args[0].dtype is torch.float16


def _narrowed(value: Expr) -> bool:
    """Return whether a value is a float32 made a float16."""
    made = value.op == "to" and value.dtype is torch.float16
    return made and value.args[0].dtype is torch.float32


def _only_stored(statements: Sequence[Statement]) -> set[str]:
    """Return the names of float16 values that are float32 until then, and only stored."""
    names = {s.name for s in statements if isinstance(s, Let) and _narrowed(s.value)}
    for statement in statements:
        if not isinstance(statement, Store) or statement.value.op != "local":
            names -= {node.data[0] for node in walk(statement.value) if node.op == "local"}
    return names


def widen(
    writer: Writer,
    found: Runs,
    statements: Sequence[Statement],
    variable: Index,
    start: Index,
    count: str,
    most: int,
) -> list[Statement]:
    """Print how operands are brought into arrays, and return the statements over these.

    Args:
        writer: prints; stores wait in arrays until `narrow`.
        found: what is converted.
        statements: those of the loop.
        variable: its variable.
        start: the first value of that.
        count: C of how many iterations follow, at most ``most``.
        most: a constant.
    """
    length = f"[{-(-most // VECTOR) * VECTOR}]"
    note = f" __attribute__((aligned({LINE})))"
    at = variable - start
    arrays: dict[Expr, Expr] = {}
    for use in found.read:
        writer.names[0] += 1
        name = f"h{writer.names[0]}"
        writer.declare("float", name, length=length, note=note)
        place = f"{use.data[0]} + {_from(use.data[1], variable, start)}"
        writer.emit(call("tc_f16_to_f32_run", place, name, count) + ";")
        arrays[Expr("to", (use,), torch.float32)] = load(name, at, torch.float32)
    for use in found.apart:
        writer.names[0] += 1
        name = f"h{writer.names[0]}"
        writer.declare(c_type(use.dtype), name, length=length, note=note)
        place = f"{use.data[0]}[{_from(use.data[1], variable, start + ix.counter('of'))}]"
        writer.each("of", "0", count, "", f"{name}[of] = {place};")
        arrays[use] = load(name, at, use.dtype)
    for store in found.written:
        writer.declare("float", f"line_{store.buffer}", length=length, note=note)
        writer.waiting[store.buffer] = f"line_{store.buffer}[{c_index(at)}]"
    wide = [_wide(s, found) for s in statements]
    return replaced(wide, arrays)


def narrow(writer: Writer, found: Runs, variable: Index, start: Index, count: str) -> None:
    """Print the conversion of what waits in arrays."""
    for store in found.written:
        place = f"{store.buffer} + {_from(store.index, variable, start)}"
        writer.emit(call("tc_f32_to_f16_run", f"line_{store.buffer}", place, count) + ";")
        del writer.waiting[store.buffer]


def _from(index: Index, variable: Index, start: Index) -> str:
    return c_index(ix.substitute(index, {atom_of(variable): start}))


def _wide(statement: Statement, found: Runs) -> Statement:
    """Return a statement that leaves its value float32."""
    if isinstance(statement, Let) and statement.name in found.lets:
        return replace(statement, value=statement.value.args[0])
    if statement in found.written and isinstance(statement, Store):
        value = statement.value
        if value.op == "local":
            return replace(statement, value=Expr("local", (), torch.float32, value.data))
        return replace(statement, value=value.args[0])
    return statement


def in_runs(
    writer: Writer,
    found: Runs,
    statements: Sequence[Statement],
    variable: Index,
    start: str,
    stop: str,
    mark: Callable[[], None],
) -> None:
    """Print a loop run by run; ``mark`` prints what stands before the loop over one run.

    Where little is computed of an element, full runs have code of their own, whose loops are as
    long as gcc knows: that took half the time.
    """
    base, count = f"{variable}_by", f"n_{variable}"
    known = ix.extent(variable).constant if start == "0" else None
    known = known if known is not None and stop == str(known) else None

    def one(count: str) -> None:
        first, most = ix.counter(base), min(RUN, known or RUN)
        wide = widen(writer, found, statements, variable, first, count, most)
        run = Run(count, RUN if count == str(RUN) else known)
        in_vectors(writer, wide, variable, base, f"{base} + {count}", mark, run=run)
        narrow(writer, found, variable, first, count)

    writer.count(base, start, stop, str(RUN))
    if known is not None and known % RUN == 0:
        one(str(RUN))
        writer.close()
        return
    writer.declare("const long long", count, call("tc_min", str(RUN), between(base, stop)))
    is_light = sum(s.value.cost() for s in statements) < EXPENSIVE
    if is_light and (known is None or known > RUN):
        writer.open(f"if ({count} == {RUN})")
        one(str(RUN))
        writer.otherwise()
        one(count)
        writer.close()
    else:
        one(count)
    writer.close()
