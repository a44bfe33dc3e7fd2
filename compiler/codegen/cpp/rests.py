"""Vector loops over rows that are no whole number of vectors: the rest is one more vector, masked.

In: the statements of a loop over a row. Out: a loop over whole vectors, and one whose iterations
beyond the row do nothing. gcc 12 computes most of a rest element by element, which for 10 elements
of an exponential takes longer than for the 240 before them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from tc.compiler.codegen.cpp.block import between, call
from tc.compiler.codegen.cpp.positions import replaced
from tc.compiler.codegen.cpp.writer import WIDE_COST, Bounds, Writer, at_least
from tc.compiler.codegen.printer import c_index, c_type
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, can_fail, walk
from tc.compiler.loops.index import Index
from tc.compiler.loops.ops import LOW_PRECISION
from tc.compiler.schedule.plan import Accumulate, Statement, Store

#: bytes of the longest vectors
VECTOR = 64
#: operations of an element from which on its latency counts: those of about three functions
LONG = 60
#: placeholders of elements beyond the row, whose results nothing reads: 1, which no built-in
#: function computes in a slow way
ONES = {torch.bfloat16: "0x3f80", torch.float16: "0x3c00"}
#: operations whose operands gcc does not compute for elements that are masked
CHOOSING = frozenset(("at", "into", "select", "scalar"))


@dataclass(frozen=True)
class Run:
    """A part of a loop.

    Attributes:
        count: C of how many iterations it has, in all parts but the last a multiple of `VECTOR`.
        of: how many all parts have together, if that is known.
    """

    count: str
    of: int | None


def in_vectors(
    writer: Writer,
    statements: Sequence[Statement],
    variable: Index,
    start: str,
    stop: str,
    mark: Callable[[], None],
    in_order: bool = False,
    run: Run | None = None,
    inside: Callable[[], None] = lambda: None,
) -> None:
    """Print a vectorised loop from ``start`` to before ``stop``.

    Args:
        writer: prints.
        statements: those of the loop.
        variable: its variable.
        start: C of its first value.
        stop: C of the value after its last one.
        mark: prints what stands before a loop that is to be vectorised.
        in_order: whether that is none, so that nothing is split.
        run: how many iterations there are, where they are a part of all.
        inside: prints what stands first in a loop.
    """
    count = lanes(statements)
    narrow = "" if in_order else _interleaving(statements, variable)
    count *= 2 if narrow else 1
    if run is not None and run.of is not None:
        count = min(count, 1 << (run.of - 1).bit_length())
    whole = stop if in_order else _end_of_vectors(statements, variable, start, stop, count, run)
    unmasked = [(start, whole)] if whole != start else []
    known = whole.isdecimal() and stop.isdecimal() and whole != stop
    if known:
        rest = int(stop) - int(whole)
        count = min(count, 1 << (rest - 1).bit_length())
        if count == rest:
            unmasked.append((whole, stop))
            whole = stop
    for first, end in unmasked:
        _unmasked(writer, statements, (variable, first, end), narrow, mark, inside)
    if whole == stop:
        return
    if not known and whole != start:
        writer.open(f"if ({whole} < {stop})")
    masked(writer, statements, variable, whole, stop, count, mark, inside)
    if not known and whole != start:
        writer.close()


def masked(
    writer: Writer,
    statements: Sequence[Statement],
    variable: Index,
    start: str,
    stop: str,
    count: int,
    mark: Callable[[], None],
    inside: Callable[[], None] = lambda: None,
) -> None:
    """Print a loop over ``count`` elements, of which those from ``stop`` on do nothing.

    See `in_vectors` for the arguments; the statements are `maskable`.
    """
    statements = _steady_first(writer, statements, variable)
    mark()
    writer.count(f"d_{variable}", "0", str(count), kind="int")
    writer.declare("const long long", str(variable), f"{start} + d_{variable}")
    inside()
    writer.mask = f"in_{variable}"
    writer.declare("const int", writer.mask, f"{variable} < {stop}")
    writer.statements(_read(writer, statements, f"{writer.mask} ? {{}} : {{}}"))
    writer.mask = ""
    writer.close()


def _unmasked(
    writer: Writer,
    statements: Sequence[Statement],
    bounds: Bounds,
    narrow: str,
    mark: Callable[[], None],
    inside: Callable[[], None],
) -> None:
    """Print a vectorised loop; with ``narrow``, see `_interleaving`, two vectors at a time."""
    if narrow:
        writer.names[0] += 1
        writer.interleaved = f"w{writer.names[0]}"
        writer.declare(narrow, writer.interleaved, "0")
    mark()
    writer.loop(*bounds)
    inside()
    writer.statements(statements)
    if narrow:
        writer.emit(f"{writer.interleaved} |= 1;")
    writer.close()
    if narrow:
        writer.emit(call("tc_keep", writer.interleaved) + ";")
        writer.interleaved = ""


def _interleaving(statements: Sequence[Statement], variable: Index) -> str:
    """Return the C type of a number that makes a loop compute two vectors at a time; "" for one.

    An element of many operations, each of which waits for the one before, is longer than what a
    processor looks ahead, so that only what is beside it in the program fills the time. gcc gives a
    loop as many lanes as its narrowest type has, and computes the wider ones in several vectors.
    """
    sizes = {
        node.dtype.itemsize
        for s in statements
        for node in walk(s.value)
        if node.dtype is not torch.bool and node.dtype not in LOW_PRECISION
    }
    count = lanes(statements)
    alike = len(sizes) == 1 and count * max(sizes) == VECTOR
    cost = sum(s.value.cost() for s in statements)
    if not alike or cost < LONG or not at_least(variable, 4 * count):
        return ""
    return {4: "short", 8: "int"}.get(max(sizes), "")


def _steady_first(
    writer: Writer, statements: Sequence[Statement], variable: Index
) -> Sequence[Statement]:
    """Read what is the same in a whole row before its rest, as gcc does not where it may not be."""
    stored = {s.buffer for s in statements if isinstance(s, Store)}

    def steady(use: Expr) -> bool:
        return use.data[0] not in stored and ix.coefficient(use.data[1], variable) is ix.ZERO

    return _read(writer, statements, "{}", steady)


def _read(
    writer: Writer,
    statements: Sequence[Statement],
    how: str,
    which: Callable[[Expr], bool] = lambda use: True,
) -> Sequence[Statement]:
    """Print reads of elements; return the statements over their results.

    ``how`` is C with the places of an element and of its placeholder.

    All that is computed of them is computed for all elements of a vector: gcc makes no vectors of
    built-in functions that are called under a condition.
    """
    read: dict[Expr, Expr] = {}
    for use in dict.fromkeys(use for s in statements for use in s.value.loads() if which(use)):
        writer.names[0] += 1
        name = f"t{writer.names[0]}"
        place = f"{use.data[0]}[{c_index(use.data[1])}]"
        writer.declare(
            f"const {c_type(use.dtype)}", name, how.format(place, ONES.get(use.dtype, "1"))
        )
        read[use] = Expr("local", (), use.dtype, (name,))
    return replaced(statements, read)


def lanes(statements: Sequence[Statement]) -> int:
    """Return how many elements a vector of the smallest type in a loop has.

    Between memory and memory, floats of low precision are float32, rounded.
    """
    sizes = [
        node.dtype.itemsize
        for s in statements
        for node in walk(s.value)
        if node.op == "load" or node.dtype not in (torch.bool, *LOW_PRECISION)
    ]
    sizes += [s.value.dtype.itemsize for s in statements if isinstance(s, Store)]
    return VECTOR // min(sizes, default=VECTOR)


def _end_of_vectors(
    statements: Sequence[Statement],
    variable: Index,
    start: str,
    stop: str,
    count: int,
    run: Run | None,
) -> str:
    """Return C of where the last whole vector ends; ``stop`` if the rest is left to gcc."""
    length = ix.extent(variable).constant
    pays = maskable(statements, variable) and _pays(statements, at_least(variable, count))
    if run is not None:
        if not pays or (run.of is not None and not run.of % count):
            return stop
        is_less = run.of is not None and run.of < count
        return start if is_less else f"({start} + ({run.count} & -{count}LL))"
    if start.isdecimal() and stop.isdecimal():
        length = int(stop) - int(start)
        pays = pays and _pays(statements, length >= count)
        return str(int(start) + length // count * count) if pays and length % count else stop
    if not pays or (length is not None and not length % count):
        return stop  # blocks are whole numbers of vectors, too
    left = stop if start == "0" else f"({between(start, stop)})"
    whole = f"{left} & -{count}LL"
    return f"({whole})" if start == "0" else f"({start} + ({whole}))"


def _pays(statements: Sequence[Statement], is_long: bool) -> bool:
    """Return whether a masked vector takes less time than single elements.

    Its own sum is one more to be taken over a vector, which takes as long as some additions.
    """
    if sum(s.value.cost() for s in statements) > WIDE_COST:
        return True
    kinds = {s.kind for s in statements if isinstance(s, Accumulate)}
    return is_long and kinds <= {"max", "min"}


def maskable(statements: Sequence[Statement], variable: Index) -> bool:
    """Return whether gcc makes vectors of the statements where some elements are masked."""
    for statement in statements:
        if isinstance(statement, Store) and not _adjacent(statement.index, variable):
            return False
        for node in walk(statement.value):
            if node.op in CHOOSING or can_fail(node):
                return False
            if node.op == "load" and not _adjacent(node.data[1], variable):
                return False
    return True


def _adjacent(index: Index, variable: Index) -> bool:
    """Return whether elements at an index are adjacent along a loop, or are one."""
    return ix.coefficient(index, variable) in (ix.ZERO, ix.ONE)
