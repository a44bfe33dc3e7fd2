"""Product kernels: few rows times a matrix whose columns lie along memory, as in ``x @ w.t()``.

In: kernels whose inner loop is a ``dot``. Out: C loops over blocks of columns: sums of products, 16
results at a time in registers, then what is computed of each result. Matrices whose rows lie along
memory have tiles of their own (`outer.py`).
"""

from __future__ import annotations

from tc.compiler.codegen.cpp.outer import LANES, Tiles, tiles_of
from tc.compiler.codegen.cpp.writer import PARALLEL_WORK, Writer, atom_of
from tc.compiler.codegen.printer import c_index
from tc.compiler.loops import index as ix
from tc.compiler.loops.index import Index
from tc.compiler.schedule.plan import Accumulate, Statement, Store

# Columns whose results are gathered before something is computed of them.
BLOCK = 32

VECTORS = """
typedef float tc_lanes __attribute__((vector_size(64)));
typedef float tc_loose __attribute__((vector_size(64), aligned(4)));
"""

# x is read from the first cache; the rows of w that come next are fetched meanwhile.
# Measured in GFLOP/s on an Intel core (AVX-512), 16 rows, matrices of 256 x 1024 that no cache
# holds: 128, MKL 73; 32 rows: 130, MKL 101; 1 row: memory sets the pace of both.
DOTS = """
#if defined(__AVX512F__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize ("fp-contract=fast")
typedef int tc_places __attribute__((vector_size(64)));
static inline __attribute__((always_inline)) tc_lanes tc_lane_sums(const tc_lanes* a) {
  /* lane i is the sum of the lanes of a[i] */
  const tc_places low8 = {0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23};
  const tc_places low4 = {0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27};
  const tc_places low2 = {0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29};
  const tc_places low1 = {0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30};
  tc_lanes b[8], c[4], d[2];
#define TC_FOLD(a, k, low, step) \\
  (__builtin_shuffle(a[k], a[k + step], low) + __builtin_shuffle(a[k], a[k + step], low + step))
  for (int k = 0; k < 8; k++) b[k] = TC_FOLD(a, k, low8, 8);
  for (int k = 0; k < 4; k++) c[k] = TC_FOLD(b, k, low4, 4);
  for (int k = 0; k < 2; k++) d[k] = TC_FOLD(c, k, low2, 2);
  return TC_FOLD(d, 0, low1, 1);
}
static inline __attribute__((always_inline)) void tc_dot_tile(
    const float* x, long long x_step, const float* w, long long w_step, long long depth,
    const float* ahead, const int fetched, float* to, long long to_step, const int rows,
    const int columns) {
  tc_lanes sums[16], a[4], b;
  for (int k = 0; k < 16; k++) sums[k] = (tc_lanes){0};
  long long k = 0;
  for (; k + 16 <= depth; k += 16) {
    for (int r = 0; r < fetched; r++) __builtin_prefetch(ahead + r * w_step + k);
    for (int m = 0; m < rows; m++) a[m] = *(const tc_loose*)(x + m * x_step + k);
    for (int n = 0; n < columns; n++) {
      b = *(const tc_loose*)(w + n * w_step + k);
      for (int m = 0; m < rows; m++) sums[m * columns + n] += a[m] * b;
    }
  }
  const tc_lanes found = tc_lane_sums(sums);
  for (int m = 0; m < rows; m++)
    __builtin_memcpy(to + m * to_step, (const float*)&found + m * columns, columns * 4);
  for (; k < depth; k++)
    for (int m = 0; m < rows; m++)
      for (int n = 0; n < columns; n++)
        to[m * to_step + n] += x[m * x_step + k] * w[n * w_step + k];
}
static __attribute__((noinline)) void tc_dots_f32(
    const float* x, long long x_step, long long rows, const float* w, long long w_step,
    long long columns, long long depth, float* to, long long to_step) {
#define TC_TILE(rows, columns, fetched, row) \\
  tc_dot_tile(x + m * x_step, x_step, w + n * w_step, w_step, depth, \\
              w + (n + 4 + row) * w_step, fetched, to + m * to_step + n, to_step, rows, columns)
  long long n = 0;
  for (; n + 4 <= columns; n += 4) {
    long long m = 0;
    if (rows >= 16)
      for (; m < 16; m += 4) TC_TILE(4, 4, 1, m / 4);
    else if (rows >= 4) {
      TC_TILE(4, 4, 4, 0);
      m = 4;
    } else if (rows == 1) {
      TC_TILE(1, 4, 4, 0);
      m = 1;
    }
    for (; m + 4 <= rows; m += 4) TC_TILE(4, 4, 0, 0);
    if (rows - m == 3) TC_TILE(3, 4, 0, 0);
    else if (rows - m == 2) TC_TILE(2, 4, 0, 0);
    else if (rows - m == 1) TC_TILE(1, 4, 0, 0);
  }
  for (; n < columns; n++)
    for (long long m = 0; m < rows; m++) TC_TILE(1, 1, 0, 0);
}
#pragma GCC pop_options
#else
static void tc_dots_f32(
    const float* x, long long x_step, long long rows, const float* w, long long w_step,
    long long columns, long long depth, float* to, long long to_step) {
  for (long long m = 0; m < rows; m++)
    for (long long n = 0; n < columns; n++) {
      float sums[16] = {0}, sum = 0;
      for (long long k = 0; k < depth; k++)
        sums[k & 15] += x[m * x_step + k] * w[n * w_step + k];
      for (int k = 0; k < 16; k++) sum += sums[k];
      to[m * to_step + n] = sum;
    }
}
#endif
"""


def is_dots(statements: list[Statement]) -> bool:
    """Whether a kernel's reduction is a product of matrices."""
    return any(isinstance(s, Accumulate) and s.kind == "dot" for s in statements)


class DotWriter(Writer):
    """Blocks of columns in parallel; all rows of a block, then what follows of each result."""

    def body(self) -> None:
        """All blocks."""
        kernel = self.kernel
        *rows, column = kernel.outer
        (dot,) = (s for s in kernel.statements() if isinstance(s, Accumulate))
        follows = [s for s in kernel.statements() if s is not dot]
        (x, x_at), (w, w_at) = (value.data for value in dot.value.args)
        tiles = self._tiles(w_at)
        block = LANES * tiles.vectors if tiles else BLOCK
        width, start = c_index(ix.extent(column)), f"{column}_from"
        self.parallel()
        self.open(f"for (long long {start} = 0; {start} < {width}; {start} += {block})")
        self.emit(f"const long long n_{column} = tc_min({block}, {width} - {start});")
        row = rows[0] if rows else ix.ZERO
        count = c_index(ix.extent(row)) if rows else "1"
        stored = self._stored(dot, follows, row) if tiles else ""
        if not stored:
            self.emit(f"float tile[{count} * {block}] __attribute__((aligned(64)));")
        (inner,) = kernel.inner
        parts = [self._place(x, x_at, row)]
        if tiles:
            parts.append(self._step(x_at, inner))
        parts += [count, self._place(w, w_at, inner if tiles else column), f"n_{column}"]
        parts += [c_index(ix.extent(inner)), stored or f"tile, {block}"]
        if tiles:
            parts += map(str, (tiles.tall, tiles.vectors, tiles.rest, int(tiles.fetched)))
        self.emit(f"{'tc_outer_f32' if tiles else 'tc_dots_f32'}({', '.join(parts)});")
        if not stored:
            self._follow(dot, follows, rows, block)
        self.close()

    def _follow(
        self, dot: Accumulate, follows: list[Statement], rows: list[Index], block: int
    ) -> None:
        """Compute what follows of each result of a block."""
        column = self.kernel.outer[-1]
        for row in rows:
            self.loop(row)
        self.simd()
        self.open(f"for (long long d_{column} = 0; d_{column} < n_{column}; d_{column}++)")
        self.emit(f"const long long {column} = {column}_from + d_{column};")
        at = f"{rows[0]} * {block} + d_{column}" if rows else f"d_{column}"
        self.emit(f"const float {dot.name} = tile[{at}];")
        self.statements(follows)
        self.close(1 + len(rows))

    def _tiles(self, matrix: Index) -> Tiles | None:
        """The tiles of a product whose matrix lies row by row; None if its columns lie so."""
        *rows, column = self.kernel.outer
        if ix.coefficient(matrix, self.kernel.inner[0]) is ix.ONE:
            return None
        count, width = ix.product([ix.extent(v) for v in rows]).constant, ix.extent(column).constant
        work = self.work().constant
        assert count is not None and width is not None and work is not None  # see `library/rows.py`
        return tiles_of(count, width, self.threads if work >= PARALLEL_WORK else 1)

    def _stored(self, dot: Accumulate, follows: list[Statement], row: Index) -> str:
        """Where results go that are only stored, along memory; empty if more is computed."""
        store = follows[0]
        if len(follows) > 1 or not isinstance(store, Store):
            return ""
        is_result = store.value.op == "local" and store.value.data[0] == dot.name
        along = ix.coefficient(store.index, self.kernel.outer[-1]) is ix.ONE
        lies = along and ix.coefficient(store.index, row) is not None
        return self._place(store.buffer, store.index, row) if is_result and lies else ""

    def _place(self, name: str, index: Index, along: Index) -> str:
        """Where the first element that a block reads or writes lies, and the step along a loop."""
        *rows, column = self.kernel.outer
        start = {atom_of(variable): ix.ZERO for variable in (*rows, *self.kernel.inner)}
        start[atom_of(column)] = ix.size(f"{column}_from")
        return f"{name} + {c_index(ix.substitute(index, start))}, {self._step(index, along)}"

    def _step(self, index: Index, along: Index) -> str:
        step = ix.coefficient(index, along)
        assert step is not None
        return c_index(step)
