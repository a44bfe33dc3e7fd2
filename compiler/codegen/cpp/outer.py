"""C of few rows times a matrix that lies row by row, as in ``x @ w``, and how it is cut into tiles.

The results of a tile stay in registers; a row of the matrix is read once for all rows of a tile.
``x`` may lie transposed, as in gradients of weights.
"""

from __future__ import annotations

from dataclasses import dataclass

LANES = 16
# A tile holds its results, a row of the matrix and one element of x in 32 registers.
REGISTERS = 32
MOST_TALL, MOST_VECTORS = 14, 8
# Rows of a tile from which on there is time to fetch the next block of the matrix meanwhile.
LEAST_FETCHING = 7

# With all steps known to gcc a row of x is an offset, not a register. Without the builtin gcc
# multiplies and adds in two steps: kernels are compiled without contraction.
# Measured against MKL's own time, in its place a call of ATen takes 1.4 us more, on an Intel core
# (AVX-512): 128 x 128, 64 rows: 1.04 times as quick (184 GFLOP/s), 12 rows: 1.19, 4 rows: 1.22;
# 256 x 256: 1.02, 1.12, 1.14, where no cache holds them 0.97, 1.08, 1.03.
OUTER = """
#if defined(__AVX512F__) && !defined(__clang__)
#define TC_EACH(i, count) _Pragma("GCC unroll 16") for (int i = 0; i < count; i++)
TC_INLINE void tc_outer_tile(
    const float* x, long long x_step, long long x_along, const float* w, long long w_step,
    long long depth, float* to, long long to_step, const int rows, const int vectors,
    const unsigned short last, const int fetched) {
  /* of the last vector only the lanes of the mask are read and written */
  const tc_lanes zero = {0};
  tc_lanes sums[14][8], b[8];
  TC_EACH(m, rows) TC_EACH(n, vectors) sums[m][n] = zero;
  for (long long k = 0; k < depth; k++) {
    const float* row = w + k * w_step;
    TC_EACH(n, vectors)
      b[n] = n < vectors - 1 || last == 0xffff
          ? *(const tc_loose*)(row + 16 * n)
          : __builtin_ia32_loadups512_mask(row + 16 * n, zero, last);
    if (fetched) TC_EACH(n, vectors) __builtin_prefetch(row + 16 * (vectors + n) + 15);
    TC_EACH(m, rows) {
      const float e = x[m * x_step + k * x_along];
      const tc_lanes a = {e, e, e, e, e, e, e, e, e, e, e, e, e, e, e, e};
      TC_EACH(n, vectors)
        sums[m][n] = __builtin_ia32_vfmaddps512_mask(a, b[n], sums[m][n], -1, 4);
    }
  }
  TC_EACH(m, rows) TC_EACH(n, vectors) {
    float* at = to + m * to_step + 16 * n;
    if (n < vectors - 1 || last == 0xffff) *(tc_loose*)at = sums[m][n];
    else __builtin_ia32_storeups512_mask(at, sums[m][n], last);
  }
}
TC_INLINE void tc_outer_rows(
    const float* x, long long x_step, long long x_along, const int rows, const float* w,
    long long w_step, long long depth, float* to, long long to_step, const int tall,
    const int vectors, const unsigned short last, const int fetched) {
  /* tiles of tall rows, then of one less */
#define TC_TALL(tall, fetched) \\
  tc_outer_tile(x + m * x_step, x_step, x_along, w, w_step, depth, to + m * to_step, to_step, \\
                tall, vectors, last, fetched)
  const int tiles = (rows + tall - 1) / tall, until = rows - (tall - 1) * tiles;
  long long m = 0;
  if (fetched) {
    TC_TALL(tall, 1);
    m = tall;
  }
  for (; m < until * tall; m += tall) TC_TALL(tall, 0);
  if (until < tiles)
    for (; m < rows; m += tall - 1) TC_TALL(tall - 1, 0);
}
TC_INLINE void tc_outer_f32(
    const float* x, long long x_step, long long x_along, const int rows, const float* w,
    long long w_step, long long columns, long long depth, float* to, long long to_step,
    const int tall, const int vectors, const int rest, const int fetched) {
  /* columns: those of the block; rest: vectors of a block that has less, 0 if there is none */
  if (!rest || columns == 16 * vectors)
    tc_outer_rows(x, x_step, x_along, rows, w, w_step, depth, to, to_step, tall, vectors, 0xffff,
                  fetched);
  else
    tc_outer_rows(x, x_step, x_along, rows, w, w_step, depth, to, to_step, tall, rest,
                  0xffff >> (16 * rest - columns), 0);
}
#else
TC_INLINE void tc_outer_f32(
    const float* x, long long x_step, long long x_along, const int rows, const float* w,
    long long w_step, long long columns, long long depth, float* to, long long to_step,
    const int tall, const int vectors, const int rest, const int fetched) {
  for (long long m = 0; m < rows; m++) {
    for (long long n = 0; n < columns; n++) to[m * to_step + n] = 0;
    for (long long k = 0; k < depth; k++)
      for (long long n = 0; n < columns; n++)
        to[m * to_step + n] += x[m * x_step + k * x_along] * w[k * w_step + n];
  }
}
#endif
"""


@dataclass(frozen=True)
class Tiles:
    """How a product is cut: blocks of columns, each in tiles of rows.

    Attributes:
        tall: rows of a tile; the last ones may have one less.
        vectors: of a row of a block.
        rest: vectors of a last block that is narrower, or not full; 0 if there is none.
        fetched: whether the first tile of a block fetches the next block.
    """

    tall: int
    vectors: int
    rest: int
    fetched: bool


def tiles_of(rows: int, width: int, threads: int) -> Tiles:
    """Tiles as large as the registers hold, and blocks alike in width, for all threads."""
    tall = _ceil(rows, _ceil(rows, MOST_TALL))
    most = min((REGISTERS - 1) // (tall + 1), MOST_VECTORS)
    whole = _ceil(width, LANES)
    blocks = min(_ceil(_ceil(whole, most), threads) * threads, whole)
    vectors = _ceil(whole, blocks)
    rest = _ceil(width % (LANES * vectors), LANES)
    return Tiles(tall, vectors, rest, tall >= LEAST_FETCHING and blocks > 1)


def _ceil(count: int, by: int) -> int:
    return -(-count // by)
