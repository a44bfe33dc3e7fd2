"""Dot-product GEMM microkernel: few rows times a column-major matrix, as in ``x @ w.t()``.

In: kernels whose inner loop is a ``dot``. Out: C loops over blocks of columns: 16 sums of products
at a time in registers, then the epilogue of each result. Row-major matrices use the outer-product
microkernel (`outer.py`).
"""

from __future__ import annotations

from tc.compiler.codegen.cpp.block import between, call
from tc.compiler.codegen.cpp.outer import Tiles, tiles_of
from tc.compiler.codegen.cpp.writer import PARALLEL_WORK, Writer, atom_of
from tc.compiler.codegen.printer import c_index
from tc.compiler.loops import index as ix
from tc.compiler.loops.index import Index
from tc.compiler.routines.products import LANES
from tc.compiler.schedule.plan import Accumulate, Statement, Store

# Columns whose results are buffered for the epilogue.
BLOCK = 32


def is_dots(statements: list[Statement]) -> bool:
    """Return whether a kernel's reduction is a matrix product."""
    return any(isinstance(s, Accumulate) and s.kind == "dot" for s in statements)


class DotWriter(Writer):
    """Prints loops over blocks of columns in parallel: all rows of a block, then the epilogue."""

    def body(self) -> None:
        """Print the loops over all blocks."""
        kernel = self.kernel
        *rows, column = kernel.outer
        (dot,) = (s for s in kernel.statements() if isinstance(s, Accumulate))
        follows = [s for s in kernel.statements() if s is not dot]
        (x, x_at), (w, w_at) = (value.data for value in dot.value.args)
        tiles = self._tiles(w_at)
        block = LANES * tiles.vectors if tiles else BLOCK
        width, start = c_index(ix.extent(column)), f"{column}_from"
        self.parallel()
        self.count(start, "0", width, str(block))
        left = call("tc_min", str(block), between(start, str(width)))
        self.declare("const long long", f"n_{column}", left)
        row = rows[0] if rows else ix.ZERO
        count = c_index(ix.extent(row)) if rows else "1"
        stored = self._stored(dot, follows, row) if tiles else None
        if stored is None:
            note = " __attribute__((aligned(64)))"
            self.declare("float", "tile", length=f"[{count} * {block}]", note=note)
        (inner,) = kernel.inner
        parts = [*self._place(x, x_at, row)]
        if tiles:
            parts.append(self._step(x_at, inner))
        parts += [count, *self._place(w, w_at, inner if tiles else column), f"n_{column}"]
        parts += [c_index(ix.extent(inner)), *(stored or ("tile", str(block)))]
        if tiles:
            parts += map(str, (tiles.tall, tiles.vectors, tiles.rest, int(tiles.fetched)))
        self.emit(f"{call('tc_outer_f32' if tiles else 'tc_dots_f32', *parts)};")
        if stored is None:
            self._follow(dot, follows, rows, block)
        self.close()

    def _follow(
        self, dot: Accumulate, follows: list[Statement], rows: list[Index], block: int
    ) -> None:
        """Print the epilogue of each result of a block."""
        column = self.kernel.outer[-1]
        for row in rows:
            self.loop(row)
        self.simd()
        self.count(f"d_{column}", "0", f"n_{column}")
        self.declare("const long long", str(column), f"{column}_from + d_{column}")
        at = f"{rows[0]} * {block} + d_{column}" if rows else f"d_{column}"
        self.declare("const float", dot.name, f"tile[{at}]")
        self.statements(follows)
        self.close(1 + len(rows))

    def _tiles(self, matrix: Index) -> Tiles | None:
        """Return the tiles of a product whose matrix is row-major; None if it is column-major."""
        *rows, column = self.kernel.outer
        if ix.coefficient(matrix, self.kernel.inner[0]) is ix.ONE:
            return None
        count, width = ix.product([ix.extent(v) for v in rows]).constant, ix.extent(column).constant
        work = self.work().constant
        assert count is not None and width is not None and work is not None  # by `form`
        return tiles_of(count, width, self.threads if work >= PARALLEL_WORK else 1)

    def _stored(
        self, dot: Accumulate, follows: list[Statement], row: Index
    ) -> tuple[str, str] | None:
        """Return the destination of results that are only stored; None if there is an epilogue."""
        store = follows[0]
        if len(follows) > 1 or not isinstance(store, Store):
            return None
        is_result = store.value.op == "local" and store.value.data[0] == dot.name
        along = ix.coefficient(store.index, self.kernel.outer[-1]) is ix.ONE
        is_row_major = along and ix.coefficient(store.index, row) is not None
        return self._place(store.buffer, store.index, row) if is_result and is_row_major else None

    def _place(self, name: str, index: Index, along: Index) -> tuple[str, str]:
        """Return the position of a block's first element, and the stride along a loop."""
        *rows, column = self.kernel.outer
        start = {atom_of(variable): ix.ZERO for variable in (*rows, *self.kernel.inner)}
        start[atom_of(column)] = ix.counter(f"{column}_from")
        return f"{name} + {c_index(ix.substitute(index, start))}", self._step(index, along)

    def _step(self, index: Index, along: Index) -> str:
        step = ix.coefficient(index, along)
        assert step is not None
        return c_index(step)
