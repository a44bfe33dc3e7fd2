"""Row kernels: rows in parallel, passes over each row, the loop along the row vectorised.

In: kernels with inner loops. Out: C loops. Float sums are taken in blocks of `BLOCK` elements whose
partial sums are added, which bounds their error; cheap ones use `WIDE` independent sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from tc.compiler.codegen.cpp.accumulators import OMP, Accumulator, clause, joined
from tc.compiler.codegen.cpp.block import call
from tc.compiler.codegen.cpp.positions import LONGEST as LONGEST_OFFSETS
from tc.compiler.codegen.cpp.positions import offsets
from tc.compiler.codegen.cpp.rests import in_vectors, lanes
from tc.compiler.codegen.cpp.runs import in_runs, narrow, runs_of, widen
from tc.compiler.codegen.cpp.searches import in_the_place_of, search, searches
from tc.compiler.codegen.cpp.stream import beyond_caches
from tc.compiler.codegen.cpp.writer import (
    SHORT,
    UNROLLED,
    WIDE_COST,
    Writer,
    at_least,
    atom_of,
)
from tc.compiler.codegen.printer import c_index, c_type
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, load, transform, walk
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import row_major
from tc.compiler.schedule.plan import (
    LONGEST_COPIED,
    Accumulate,
    Let,
    Running,
    Section,
    Statement,
    Store,
)

BLOCK = 4096
WIDE = 64
# Elements of the longest inner loop each of which has its own sums.
LANES_OF_SUMS = 256
# Prefetch distance in elements. Measured: a sum of 29 MB takes a tenth less time.
AHEAD = 512
# Arrays of one row become registers if they have at most so many elements.
FEW = 2
# Rows of a block that is transposed.
LANES = 64
# Operations of a row longer than `SHORT` from which on copying it pays.
EXPENSIVE = 16


class RowWriter(Writer):
    """Prints loops over rows in parallel, whose elements are vectorised."""

    def body(self) -> None:
        """Print the loops over all rows."""
        kernel = self.kernel
        if self._transposes():
            self._transposed_rows()
            return
        if self._are_short():
            self._short_rows()
            return
        if kernel.outer:
            self.parallel(collapse=len(kernel.outer))
            for variable in kernel.outer:
                self.loop(variable)
        self._scratch()
        for section in kernel.sections:
            if section.level == "row":
                self.statements(section.statements)
            else:
                self._run(section)
        self.close(len(kernel.outer))

    def _scratch(self) -> None:
        for scratch in self.kernel.scratch:
            extent = c_index(scratch.extent)
            self.declare(c_type(scratch.dtype), scratch.name, length=f"[{extent}]")

    def _are_short(self) -> bool:
        """Return whether the loop over rows is the one to vectorise."""
        kernel = self.kernel
        if not kernel.outer:
            return False
        if any(isinstance(s, Running) for s in kernel.statements()):
            return False
        length = ix.product([ix.extent(v) for v in kernel.inner]).constant
        if kernel.scratch and (length or FEW + 1) > FEW:
            return False
        stored = [s for part in kernel.sections if part.level == "inner" for s in part.statements]
        return self.unrolls(kernel.outer[-1], kernel.inner, stored)

    def _transposes(self) -> bool:
        """Return whether rows are short, and so much is computed that copying them first pays."""
        kernel = self.kernel
        length = ix.product([ix.extent(v) for v in kernel.inner]).constant
        if not kernel.outer or not length or length > LONGEST_COPIED or self.checked:
            return False
        kinds = {n.op for s in kernel.statements() for n in walk(s.value)}
        scans = any(isinstance(s, Running) for s in kernel.statements())
        cost = self.cost()
        whole = length > SHORT and length % lanes(kernel.statements()) == 0
        least = EXPENSIVE if whole else WIDE_COST
        pays = least < cost <= UNROLLED // length and at_least(kernel.outer[-1], LANES)
        return self.apart() and pays and not scans and not kinds & {"at", "into", "select"}

    def _transposed_rows(self) -> None:
        """Print blocks of rows, copied so that the same element of all rows is adjacent."""
        *around, over = self.kernel.outer
        inner = self.kernel.inner
        collapse = len(around) + 1
        self.parallel(collapse=collapse)
        for variable in around:
            self.loop(variable)
        extent = c_index(ix.extent(over))
        self.count("row", "0", extent, str(LANES))
        self.declare("const long long", "rows", call("tc_min", str(LANES), f"{extent} - row"))
        length = ix.product([ix.extent(v) for v in inner])
        size = f"[{LANES * (length.constant or 0)}]"
        place = LANES * row_major(inner) + ix.counter("of")
        for scratch in self.kernel.scratch:
            self.declare(c_type(scratch.dtype), scratch.name, length=size)
        moved = self._moved_in(over, place, size)
        stores = self._lines(place, size)
        self.simd()
        self.count("of", "0", "rows")
        self.declare("const long long", str(over), "row + of")
        self.emit(f"(void){over};")
        self._unrolled_sections(moved)
        self.close()
        self.waiting = {}
        for store in stores:
            into = f"{store.buffer}[{c_index(self._of_row(store.index, over))}]"
            self._copies(f"{into} = line_{store.buffer}[{c_index(place)}];")
        self.close(collapse)

    def _of_row(self, index: Index, over: Index) -> Index:
        return ix.substitute(index, {atom_of(over): ix.counter("row") + ix.counter("of")})

    def _copies(self, line: str) -> None:
        """Print loops over the rows of a block and the elements of a row."""
        self.count("of", "0", "rows")
        for variable in self.kernel.inner:
            self.loop(variable)
        self.emit(line)
        self.close(1 + len(self.kernel.inner))

    def _moved_in(self, over: Index, place: Index, size: str) -> dict[Expr, Expr]:
        """Copy the elements of rows; return the loads that take the places of the kernel's."""
        private = {scratch.name for scratch in self.kernel.scratch}
        moved: dict[Expr, Expr] = {}
        uses = dict.fromkeys(use for s in self.kernel.statements() for use in s.value.loads())
        for use in uses:
            buffer, index = use.data
            if buffer in private:
                moved[use] = load(buffer, place, use.dtype)
            elif any(ix.coefficient(index, v) is not ix.ZERO for v in self.kernel.inner):
                name = f"g{len(moved)}"
                moved[use] = load(name, place, use.dtype)
                self.declare(c_type(use.dtype), name, length=size)
                from_ = f"{buffer}[{c_index(self._of_row(index, over))}]"
                self._copies(f"{name}[{c_index(place)}] = {from_};")
        return moved

    def _lines(self, place: Index, size: str) -> list[Store]:
        """Declare where stores to elements of rows wait; return those that are copied back."""
        private = {scratch.name for scratch in self.kernel.scratch}
        found = []
        for section in self.kernel.sections:
            for store in section.statements:
                if not isinstance(store, Store) or section.level == "row":
                    continue
                if store.buffer in private:
                    self.waiting[store.buffer] = f"{store.buffer}[{c_index(place)}]"
                    continue
                self.declare(c_type(store.value.dtype), f"line_{store.buffer}", length=size)
                self.waiting[store.buffer] = f"line_{store.buffer}[{c_index(place)}]"
                found.append(store)
        return found

    def _short_rows(self) -> None:
        """Print rows that are unrolled, side by side in vectors."""
        self.side_by_side(self.kernel.outer)
        self._scratch()
        self._unrolled_sections({})
        self.close(len(self.kernel.outer))

    def _unrolled_sections(self, moved: Mapping[Expr, Expr]) -> None:
        """Print a row, its loops unrolled, with other loads in the place of some."""
        for section in self.kernel.sections:
            statements: list[Statement] = [
                replace(s, value=transform(s.value, lambda n: moved.get(n, n)))
                for s in section.statements
            ]
            if section.level == "row":
                self.statements(statements)
                continue
            names = [s.name for s in statements if isinstance(s, Accumulate)]
            sums = [self.accumulators[name] for name in names]
            self._declare(sums)
            for variable in self.kernel.inner:
                self.pragma(f"GCC unroll {LONGEST_COPIED}")
                self.loop(variable)
            self.statements(statements)
            self.close(len(self.kernel.inner))
            for accumulator in sums:
                self._show(accumulator)

    def _show(self, accumulator: Accumulator) -> None:
        kind = c_type(accumulator.result_dtype)
        self.declare(f"const {kind}", accumulator.name, accumulator.result())

    def _run(self, section: Section) -> None:
        """Print a pass over a row; long or nested ones sum block by block."""
        inner = self.kernel.inner
        extent = ix.extent(inner[-1]).constant
        is_long = extent is None or extent > BLOCK
        first = ix.counter(f"{inner[-1]}_from") if is_long else ix.ZERO
        shown = self._sums(section)
        searched = searches(self, section.statements)
        section = in_the_place_of(searched, section, inner[-1] - first)
        sums = self._sums(section)
        self._declare(sums)
        for each in searched:
            each.declare(self, str(BLOCK) if is_long else c_index(ix.extent(inner[-1])))
        plain = all(a.kind in OMP for a in sums)
        if plain and self._have_lanes(section) and not searched:
            self._run_in_lanes(section, sums)
            return
        blocked = plain and bool(sums) and is_long
        partial = plain and bool(sums) and (blocked or len(inner) > 1 or bool(searched))
        passes = sum(s.level == "inner" for s in self.kernel.sections)
        in_order = bool(searched) or any(isinstance(s, Running) for s in section.statements)
        whole = not self.kernel.outer and passes == 1 and plain and not in_order
        opened = self._outer_loops(inner[:-1], inner[-1] if blocked else None, sums, whole)
        self.running = "s" if partial else "a"
        if partial:
            self._declare(sums, "s")
        bounds = self._range(inner[-1], blocked)
        self._vector_loop(section, bounds, sums, blocked, plain)
        for each in searched:
            search(self, each, bounds, inner[-1] - first, self._row_locals())
        if partial:
            self._join_partials(sums)
        self.running = "a"
        self.close(opened)
        for accumulator in shown:
            self._show(accumulator)

    def _sums(self, section: Section) -> list[Accumulator]:
        return [self.accumulators[s.name] for s in section.statements if isinstance(s, Accumulate)]

    def _have_lanes(self, section: Section) -> bool:
        """Return whether each element of a short inner loop has sums of its own, added up last.

        Adding up those of each iteration of the loops around would take longer than the loop.
        """
        *around, last = self.kernel.inner
        length, iterations = (
            ix.extent(last).constant,
            ix.product([ix.extent(v) for v in around]).constant,
        )
        only = all(isinstance(s, Accumulate | Let) for s in section.statements)
        short = length is not None and WIDE // 4 <= length <= LANES_OF_SUMS
        few = bool(around) and iterations is not None and 1 < iterations <= BLOCK
        shared = self.threads > 1 and not self.kernel.outer
        runs = runs_of(section.statements, last) or offsets(section.statements, atom_of(last))
        return only and short and few and not shared and not runs

    def _run_in_lanes(self, section: Section, sums: list[Accumulator]) -> None:
        """Print a pass over a row in which each element of the last loop has its own sums."""
        *around, last = self.kernel.inner
        extent = c_index(ix.extent(last))
        pairs = [
            pair for a in sums for pair in zip(a.variables("a"), a.variables("l"), strict=True)
        ]
        for _, (kind, name, _, _) in pairs:
            self.declare(kind, name, length=f"[{extent}]")
        for _, (_, name, start, _) in pairs:
            self.each("j", "0", extent, "", f"{name}[j] = {start};")
        for variable in around:
            self.loop(variable)
        self.hoist(section.statements, last, self._row_locals(), ("0", extent))
        self.running, self.at = "l", f"[{last}]"
        in_vectors(self, section.statements, last, "0", extent, self.simd)
        self.running, self.at, self.hoisted = "a", "", {}
        self.close(len(around))
        self.simd(clause(sums, "a"))
        self.count("j", "0", extent)
        for (_, total, _, op), (_, name, _, _) in pairs:
            self.emit(joined(total, f"{name}[j]", op))
        self.close()
        for accumulator in sums:
            self._show(accumulator)

    def _outer_loops(
        self, loops: tuple[Index, ...], blocked: Index | None, sums: list[Accumulator], whole: bool
    ) -> int:
        """Print loops around the vectorised one.

        A lone full reduction is split among threads here.
        """
        opened = 0
        if whole and (loops or blocked is not None):
            reductions = clause(sums, "a")
            self.parallel(reductions)
        for variable in loops:
            self.loop(variable)
            opened += 1
        if blocked is not None:
            stop = c_index(ix.extent(blocked))
            base = f"{blocked}_from"
            self.count(base, "0", stop, str(BLOCK))
            opened += 1
        return opened

    def _vector_loop(
        self,
        section: Section,
        bounds: tuple[str, str],
        sums: list[Accumulator],
        blocked: bool,
        plain: bool,
    ) -> None:
        reductions, last = clause(sums, self.running), self.kernel.inner[-1]
        start, stop = bounds
        self.hoist(section.statements, last, self._row_locals(), (start, stop))
        section = self._offsets_first(section, last, start, stop, blocked)
        cheap = sum(s.value.cost() for s in section.statements) <= WIDE_COST
        # Without it a sum of runs waits for memory as well as for the sum before.
        least = 4 if runs_of(section.statements, last) else 16
        if sums and plain and cheap and at_least(last, least * WIDE):
            start = self._wide_loop(section, last, sums, start, stop)
            extent = ix.extent(last).constant
            if not blocked and extent is not None and extent % WIDE == 0:
                self.hoisted = {}
                return
        streams = self.to_stream(section.statements, last)
        if streams and plain:
            self.stream_loop(section.statements, streams, last, start, stop, reductions)
            self.hoisted = {}
            return
        mark = partial(self.simd, reductions) if plain else _unmarked
        runs = runs_of(section.statements, last)
        if runs:
            in_runs(self, runs, section.statements, last, start, stop, mark)
        else:
            in_vectors(self, section.statements, last, start, stop, mark, not plain)
        self.hoisted = {}

    def _offsets_first(
        self, section: Section, last: Index, start: str, stop: str, blocked: bool
    ) -> Section:
        """Compute the offsets of reads in a row or block first; return what reads by them."""
        length, found = ix.extent(last).constant, offsets(section.statements, atom_of(last))
        if not found or not (blocked or (length is not None and length <= LONGEST_OFFSETS)):
            return section
        at = last - ix.counter(start) if blocked else last
        space, loops = str(BLOCK if blocked else length), [(last, start, stop)]
        statements = self.tabulate(section.statements, found, loops, space, at)
        return replace(section, statements=tuple(statements))

    def _range(self, last: Index, blocked: bool) -> tuple[str, str]:
        """Return start and stop of the innermost loop: those of the row, or of a block."""
        start, stop = "0", c_index(ix.extent(last))
        if blocked:
            start = f"{last}_from"
            end = call("tc_min", f"{start} + {BLOCK}", stop)
            self.declare("const long long", f"{last}_to", end)
            stop = f"{last}_to"
        return start, stop

    def _row_locals(self) -> frozenset[str]:
        """Return the names of values that are constant in a row."""
        rows = [
            s
            for section in self.kernel.sections
            if section.level == "row"
            for s in section.statements
        ]
        return frozenset([s.name for s in rows if isinstance(s, Let)]) | frozenset(
            self.accumulators
        )

    def _wide_loop(
        self, section: Section, last: Index, sums: list[Accumulator], start: str, stop: str
    ) -> str:
        """Return a cheap reduction in `WIDE` sums side by side, so that additions do not wait.

        Return the start of the remainder, which is shorter than `WIDE`.
        """
        self.names[0] += 1
        base = f"{last}_at{self.names[0]}"
        self.declare("long long", base, start)
        # Short rows would wait for sums that nothing is added to.
        asked = ix.extent(last).constant is None
        if asked:
            self.open(f"if ({base} + {WIDE} <= {stop})")
        pairs = [
            pair
            for a in sums
            for pair in zip(a.variables(self.running), a.variables("l"), strict=True)
        ]
        for _, (kind, name, _, _) in pairs:
            self.declare(kind, name, length=f"[{WIDE}]")
        self.count("j", "0", str(WIDE), kind="int")
        for _, (_, name, first, _) in pairs:
            self.emit(f"{name}[j] = {first};")
        self.close()
        self.open(f"for (; {base} + {WIDE} <= {stop}; {base} += {WIDE})")
        if beyond_caches(self.kernel):
            self.fetch_ahead(section.statements, last, base, AHEAD, WIDE)
        runs, origin = runs_of(section.statements, last), ix.counter(base)
        statements = widen(self, runs, section.statements, last, origin, str(WIDE), WIDE)
        self.simd()
        self.count("j", "0", str(WIDE), kind="int")
        self.declare("const long long", str(last), f"{base} + j")
        running, self.running, self.at = self.running, "l", "[j]"
        self.statements(statements)
        self.running, self.at = running, ""
        self.close()
        narrow(self, runs, last, origin, str(WIDE))
        self.close()
        self.pragma(f"omp simd{clause(sums, self.running)}")
        self.count("j", "0", str(WIDE), kind="int")
        for (_, total, _, op), (_, name, _, _) in pairs:
            self.emit(joined(total, f"{name}[j]", op))
        self.close(2 if asked else 1)
        return base

    def _declare(self, sums: list[Accumulator], prefix: str = "a") -> None:
        for accumulator in sums:
            for kind, name, start, _ in accumulator.variables(prefix):
                self.declare(kind, name, start)

    def _join_partials(self, sums: list[Accumulator]) -> None:
        for accumulator in sums:
            pairs = zip(accumulator.variables("a"), accumulator.variables("s"), strict=True)
            for (_, total, _, op), (_, part, _, _) in pairs:
                self.emit(joined(total, part, op))


def _unmarked() -> None:
    """Print nothing before a loop that runs in order."""
