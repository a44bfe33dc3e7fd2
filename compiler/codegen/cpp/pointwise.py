"""Pointwise kernels: nested loops, tiled if loads and stores run along different loops.

In: kernels without inner loops. Out: C loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from tc.compiler.codegen.cpp.block import between, call
from tc.compiler.codegen.cpp.positions import LONGEST, Offset, branches, offsets
from tc.compiler.codegen.cpp.rests import in_vectors, maskable, masked
from tc.compiler.codegen.cpp.runs import in_runs, runs_of
from tc.compiler.codegen.cpp.stream import LINE
from tc.compiler.codegen.cpp.writer import LEAST_ROWS, SHORT, STREAM, Writer, at_least, atom_of
from tc.compiler.codegen.printer import c_index, c_type, suffix
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import FALSE, TRUE, Expr, either, load, needed, transform, walk
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import row_major
from tc.compiler.loops.ops import SCALAR_OPS
from tc.compiler.schedule.plan import Let, Section, Statement, Store

TILE = 16
#: bytes of an element -> the type as which tiles are transposed in registers. Bytes take longer so.
WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
# So many elements along the loads are transposed before the next ones along the stores: the loop
# changes memory pages 16 times less often.
STRIP = 256
# Lines of a row's part from which on it pays to ask for them: `cat` and `stack` of what the second
# cache holds are 1.05 to 1.2 times as fast.
LEAST_FETCHED = 8
# Elements of a block of short rows, and operations for each operand from which on copying pays.
FLAT, FLAT_COST = 512, 7
# What depends on positions in another way than by plain loads.
UNFLAT = frozenset(("at", "into", "index", "select"))
# Leaves of the conditions of loads under which a tile may be read.
TESTS = frozenset(("const", "index", "scalar", "to"))


class PointwiseWriter(Writer):
    """Prints loops over all elements, the last one vectorised."""

    def body(self) -> None:
        """One nest, or one a range; ranges of the last loop share the loops around it."""
        sections = self.kernel.sections
        ranges = [(s.statements, *s.over[1:]) for s in sections if s.over and self._in_last_loop(s)]
        apart = not set(self.kernel.stored) & set(self.kernel.loaded)
        if apart and ranges and len(ranges) == len(sections):
            self._ranges(ranges)
        elif any(section.over is not None for section in sections):
            for section in sections:
                self._nest(section.statements, section.over)
        else:
            self._nest([s for section in sections for s in section.statements])

    def _in_last_loop(self, section: Section) -> bool:
        """Return whether a section is a range of the last of several loops, and nothing streams."""
        outer, over = self.kernel.outer, section.over
        ranged = over is not None and len(outer) > 1 and over[0] is outer[-1]
        return ranged and not self.to_stream(section.statements, outer[-1])

    def _ranges(self, ranges: Sequence[tuple[Sequence[Statement], Index, Index]]) -> None:
        """One loop a range, side by side, so that memory is written from front to back."""
        *rows, last = self.kernel.outer
        self.parallel(collapse=len(rows))
        for variable in rows:
            self.loop(variable)
        for statements, start, stop in ranges:
            self._fetch_next_row(statements, rows[-1], last, start, stop)
        for statements, start, stop in ranges:
            self.hoist(statements, last, frozenset(), (c_index(start), c_index(stop)))
            in_vectors(self, statements, last, c_index(start), c_index(stop), self.simd)
            self.hoisted = {}
        self.close(len(rows))

    def _fetch_next_row(
        self, statements: Sequence[Statement], row: Index, last: Index, start: Index, stop: Index
    ) -> None:
        """Prefetch the lines that the next iteration writes, as the L2 cache is too late."""
        for store in statements:
            if not isinstance(store, Store) or ix.coefficient(store.index, last) is not ix.ONE:
                continue
            line = LINE // store.value.dtype.itemsize
            if ((stop - start).constant or 0) < LEAST_FETCHED * line:
                continue
            next_row = {atom_of(row): row + 1, atom_of(last): ix.counter("ahead")}
            place = c_index(ix.substitute(store.index, next_row))
            asked = f"__builtin_prefetch({store.buffer} + {place}, 1);"
            self.each("ahead", c_index(start), c_index(stop), str(line), asked)

    def _nest(
        self, statements: Sequence[Statement], over: tuple[Index, Index, Index] | None = None
    ) -> None:
        """Print nested loops around pointwise statements, one of them over a range if given."""
        outer = self.kernel.outer
        bounds = {v: ("0", c_index(ix.extent(v))) for v in outer}
        if over is not None:
            bounds[over[0]] = (c_index(over[1]), c_index(over[2]))
        streams = self.to_stream(statements, outer[-1]) if outer else []
        if streams:
            statements = self._offsets_of_rows(statements, bounds)
            self._streaming_nest(statements, streams, bounds)
            return
        if len(outer) > 1 and over is None:
            if self._flattens(statements):
                self._flat_nest(statements)
                return
            if self.unrolls(outer[-2], outer[-1:], statements):
                self._short_nest(statements)
                return
        self._long_nest(statements, bounds)

    def _long_nest(
        self, statements: Sequence[Statement], bounds: dict[Index, tuple[str, str]]
    ) -> None:
        """Print nested loops, the last one vectorised."""
        if not self.kernel.outer:
            self.statements(statements)
            return
        *around, last = self.kernel.outer
        statements = self._offsets_of_rows(statements, bounds)
        if around:
            self.parallel(collapse=len(around))
            for variable in around:
                self.loop(variable, *bounds[variable])
            self.hoist(statements, last, frozenset(), bounds[last])
        found = offsets(statements, atom_of(last))
        if found and not branches(statements, found):
            self._offsets_first(statements, found, *bounds[last])
        elif not found and (runs := runs_of(statements, last)):
            if not around:
                self.parallel()
            in_runs(self, runs, statements, last, *bounds[last], self.simd)
        elif not found and (around or not self.is_parallel()):
            in_vectors(self, statements, last, *bounds[last], self.simd)
        else:
            if around:
                self.vectors(statements, last)
            else:
                self.parallel(simd=not found)
            self.branching = bool(found)
            self.loop(last, *bounds[last])
            self.statements(statements)
            self.close()
        self.close(len(around))
        self.hoisted, self.branching = {}, False

    def _offsets_of_rows(
        self, statements: Sequence[Statement], bounds: dict[Index, tuple[str, str]]
    ) -> Sequence[Statement]:
        """Compute offsets that are the same in other rows before the loops over rows."""
        outer = self.kernel.outer
        found = offsets(statements, atom_of(outer[-1]))
        same: dict[tuple[Index, ...], dict[Expr, Offset]] = {}
        for node, offset in found.items():
            along = tuple(v for v in outer if offset.varies(atom_of(v)))
            length = ix.product([ix.extent(v) for v in along]).constant
            runs = not offset.fails or all(ix.extent(v).constant for v in outer)
            if len(along) < len(outer) and runs and length is not None and length <= LONGEST:
                same.setdefault(along, {})[node] = offset
        if sum(map(len, same.values())) < len(found) and branches(statements, found):
            return statements
        for along, some in same.items():
            count = c_index(ix.product([ix.extent(v) for v in along]))
            loops = [(v, *bounds[v]) for v in along]
            statements = self.tabulate(statements, some, loops, count, row_major(along))
        return statements

    def _offsets_first(
        self, statements: Sequence[Statement], found: Mapping[Expr, Offset], start: str, stop: str
    ) -> None:
        """Print the last loop after its offsets: of a whole row, or block by block."""
        *around, last = self.kernel.outer
        length = ix.extent(last).constant
        if around and length is not None and length <= LONGEST:
            loops = [(last, start, stop)]
            statements = self.tabulate(statements, found, loops, str(length), last)
            self.simd()
            self.loop(last, start, stop)
            self.statements(statements)
            self.close()
            return
        base = f"{last}_by"
        if not around:
            self.parallel()
        self.count(base, start, stop, str(STREAM))
        left = call("tc_min", str(STREAM), between(base, stop))
        self.declare("const long long", f"n_{last}", left)
        statements = self.offsets_of_block(statements, last, base)
        self.simd()
        self.loop(last, base, f"{base} + n_{last}")
        self.statements(statements)
        self.close(2)

    def _short_nest(self, statements: Sequence[Statement]) -> None:
        """Print nested loops the last of which is unrolled, and the one around it vectorised."""
        *_, last = self.kernel.outer
        self.side_by_side(self.kernel.outer[:-1])
        self.pragma(f"GCC unroll {SHORT}")
        self.loop(last)
        self.statements(statements)
        self.close(len(self.kernel.outer))

    def _short_loops(self) -> tuple[Index, ...]:
        """Return the last loops, as many as together have few iterations, but not all."""
        found: tuple[Index, ...] = ()
        for variable in reversed(self.kernel.outer[1:]):
            length = ix.product([ix.extent(v) for v in (variable, *found)]).constant
            if length is None or length > SHORT:
                break
            found = (variable, *found)
        return found

    def _flattens(self, statements: Sequence[Statement]) -> bool:
        """Return whether the last loops are too short for vectors, and the loads worth copying."""
        short = self._short_loops()
        if not short or not at_least(self.kernel.outer[-len(short) - 1], LEAST_ROWS):
            return False
        plain = all(
            isinstance(s, Store | Let) and all(n.op not in UNFLAT for n in walk(s.value))
            for s in statements
        )
        cost = sum(s.value.cost() for s in statements) + self.conversions()
        return plain and self.apart() and cost >= FLAT_COST * len(self.kernel.loaded)

    def _flat_nest(self, statements: Sequence[Statement]) -> None:
        """Print loops over blocks of rows, whose operands are copied so that they are one loop.

        gcc would read and compute short rows element by element. Copies cost a load and a store.
        """
        short = self._short_loops()
        *around, over = self.kernel.outer[: -len(short)]
        length = ix.product([ix.extent(v) for v in short]).constant or 1
        block, collapse = str(FLAT // length), len(around) + 1
        self.parallel(collapse=collapse)
        for variable in around:
            self.loop(variable)
        self.count("row", "0", c_index(ix.extent(over)), block)
        self.declare(
            "const long long", "rows", call("tc_min", block, f"{c_index(ix.extent(over))} - row")
        )
        here = {atom_of(over): ix.counter("row") + ix.counter("of")}
        at = c_index(length * ix.counter("of") + row_major(short))
        uses = dict.fromkeys(use for s in statements for use in s.value.loads())
        stores = [s for s in statements if isinstance(s, Store)]
        flat: dict[Expr, Expr] = {}
        for use in uses:
            name = f"g{len(flat)}"
            flat[use] = load(name, ix.counter("flat"), use.dtype)
            self.declare(c_type(use.dtype), name, length=f"[{FLAT}]")
            place = c_index(ix.substitute(use.data[1], here))
            self._copied(short, f"{name}[{at}] = {use.data[0]}[{place}];")
        for store in stores:
            name = f"line_{store.buffer}"
            self.declare(c_type(store.value.dtype), name, length=f"[{FLAT}]")
            self.waiting[store.buffer] = f"{name}[flat]"
        self.simd()
        self.count("flat", "0", f"rows * {length}")
        self.statements(
            [replace(s, value=transform(s.value, lambda n: flat.get(n, n))) for s in statements]
        )
        self.close()
        self.waiting = {}
        for store in stores:
            place = c_index(ix.substitute(store.index, here))
            self._copied(short, f"{store.buffer}[{place}] = line_{store.buffer}[{at}];")
        self.close(collapse)

    def _copied(self, short: Sequence[Index], line: str) -> None:
        """Print loops over the rows of a block and the elements of a row."""
        self.count("of", "0", "rows")
        for variable in short:
            self.marked = 1  # nothing stands between the loops
            self.loop(variable)
        self.emit(line)
        self.close(1 + len(short))

    def _streaming_nest(
        self,
        statements: Sequence[Statement],
        streams: Sequence[Store],
        bounds: dict[Index, tuple[str, str]],
    ) -> None:
        """Print nested loops with streaming stores, which bypass the caches."""
        *rows, last = self.kernel.outer
        self.parallel(collapse=len(rows))
        for variable in rows:
            self.loop(variable, *bounds[variable])
        if rows:
            self.hoist(statements, last, frozenset(), bounds[last])
        self.stream_loop(statements, streams, last, *bounds[last])
        self.close(len(rows))
        self.hoisted = {}


class TileWriter(Writer):
    """Prints loops over tiles, in which loads along another loop than the stores are transposed."""

    def body(self) -> None:
        """Print the loops over all tiles."""
        assert self.kernel.tile is not None
        self._tiles(*self.kernel.tile)

    def _tiles(self, along: Index, last: Index) -> None:
        """Pointwise loops where some loads run along ``along`` and the stores along ``last``."""
        outer = [v for v in self.kernel.outer if v not in (along, last)]
        statements = [s for section in self.kernel.sections for s in section.statements]
        streams = [
            s for s in self.to_stream(statements, last) if TILE * s.value.dtype.itemsize % LINE == 0
        ]
        self.parallel(collapse=len(outer) + 2)
        for variable in outer:
            self.loop(variable)
        ends = {v: c_index(ix.extent(v)) for v in (along, last)}
        self.count(f"{along}_strip", "0", ends[along], str(STRIP))
        self.count(f"{last}_from", "0", ends[last], str(TILE))
        end = call("tc_min", f"{along}_strip + {STRIP}", ends[along])
        self.count(f"{along}_from", f"{along}_strip", end, str(TILE))
        for variable in (along, last):
            left = call("tc_min", str(TILE), f"{ends[variable]} - {variable}_from")
            self.declare("const long long", f"n_{variable}", left)
        self._fetch_next(along, last, {s.buffer for s in streams})
        tiles = self._fill_tiles(along, last)
        self.count(f"d_{along}", "0", _rounds(along))
        self.declare("const long long", str(along), f"{along}_from + d_{along}")
        self.lines_for(streams, TILE, f"{last} - {last}_from")
        inside = ix.var(f"d_{along}", TILE) * TILE + last - ix.counter(f"{last}_from")

        def from_tile(node: Expr) -> Expr:
            return load(tiles[node], inside, node.dtype) if node in tiles else node

        statements = [replace(s, value=transform(s.value, from_tile)) for s in statements]
        start, stop = f"{last}_from", f"{last}_from + {_rounds(last)}"
        if _rounds(last) != str(TILE) and maskable(statements, last):
            # A loop of an unknown number of iterations would become a call that copies one line.
            masked(self, statements, last, start, stop, TILE, self.simd)
        else:
            self.simd()
            self.loop(last, start, stop)
            self.statements(statements)
            self.close()
        self.stream(streams, last, f"{last}_from", _rounds(last))
        self.close(len(outer) + 4)

    def _fetch_next(self, along: Index, last: Index, streamed: set[str]) -> None:
        """Prefetch what the next tiles read and write: runs of `TILE` elements, not adjacent."""
        stores = [s for s in self.kernel.statements() if isinstance(s, Store)]
        uses = [(s.buffer, s.index, True) for s in stores if s.buffer not in streamed]
        for statement in self.kernel.statements():
            loads = (use for use in statement.value.loads() if use.op == "load")
            uses += [(use.data[0], use.data[1], False) for use in loads]
        lines = []
        for name, index, written in dict.fromkeys(uses):
            steps = {v: ix.coefficient(index, v) for v in (along, last)}
            if ix.ONE not in steps.values() or {None, ix.ZERO} & set(steps.values()):
                continue
            across = last if steps[along] is ix.ONE else along
            corner = {atom_of(v): ix.counter(f"{v}_from") for v in (along, last)}
            corner[atom_of(across)] = ix.counter(f"{across}_from") + ix.counter("ahead")
            place = c_index(ix.substitute(index, corner))
            lines.append(f"__builtin_prefetch({name} + {place}{', 1' if written else ''});")
        if lines:
            self.count("ahead", str(TILE), str(2 * TILE))
            for line in lines:
                self.emit(line)
            self.close()

    def _fill_tiles(self, along: Index, last: Index) -> dict[Expr, str]:
        """Read a tile for each load that runs along ``along``, if its elements are needed."""
        when: dict[Expr, Expr] = {}
        for statement in self.kernel.statements():
            for node, condition in needed(statement.value).items():
                if node.op == "load":
                    when[node] = either(when.get(node, FALSE), condition)
        tiles: dict[Expr, str] = {}
        for use, condition in when.items():
            step = ix.coefficient(use.data[1], last)
            one = ix.coefficient(use.data[1], along)
            if step is None or step in (ix.ZERO, ix.ONE) or one is not ix.ONE:
                continue
            if all(node.op in TESTS or node.op in SCALAR_OPS for node in walk(condition)):
                tiles[use] = f"tile{len(tiles)}"
                self._fill_tile(tiles[use], use, condition, (along, last))
        return tiles

    def _fill_tile(
        self, name: str, use: Expr, condition: Expr, variables: tuple[Index, Index]
    ) -> None:
        """Read a tile: transposed in registers where it is whole, else element by element."""
        along, last = variables
        self.declare(c_type(use.dtype), name, length=f"[{TILE * TILE}]")
        word = WORDS.get(use.dtype.itemsize)
        if word is not None:
            whole = f"n_{along} == {TILE} && n_{last} == {TILE}"
            if condition is not TRUE:
                self.declare("int", f"all_{name}", whole)
                self._over_tile(variables, condition, f"all_{name} &= {{}};")
                whole = f"all_{name}"
            self.open(f"if ({whole})")
            corner = {atom_of(v): ix.counter(f"{v}_from") for v in variables}
            from_ = f"{use.data[0]} + {c_index(ix.substitute(use.data[1], corner))}"
            step = c_index(ix.coefficient(use.data[1], last) or ix.ZERO)
            turn, kind = f"tc_turn_{suffix(word)}", c_type(word)
            self.emit(f"{call(turn, f'(const {kind}*)({from_})', step, f'({kind}*){name}')};")
            self.otherwise()
        place = f"{name}[({along} - {along}_from) * {TILE} + {last} - {last}_from]"
        line = f"{place} = {use.data[0]}[{c_index(use.data[1])}];"
        self._over_tile(variables, condition, line if condition is TRUE else f"if ({{}}) {line}")
        if word is not None:
            self.close()

    def _over_tile(self, variables: tuple[Index, Index], condition: Expr, line: str) -> None:
        """Print a line for each element of a tile.

        ``{}`` in it is the place of a condition on the tile.
        """
        along, last = variables
        for variable in (last, along):
            self.count(str(variable), f"{variable}_from", f"{variable}_from + n_{variable}")
        self.emit(line.format(self.printer().value(condition)))
        self.close(2)


def _rounds(variable: Index) -> str:
    """Return the trip count of a loop over a tile.

    A constant one needs no masks and no remainder.
    """
    whole = ix.mod(ix.extent(variable), ix.const(TILE)) is ix.ZERO
    return str(TILE) if whole else f"n_{variable}"
