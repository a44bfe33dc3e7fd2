/* Dot-product and outer-product GEMM microkernels of few rows. */

#pragma once /* these lines are for editors, and are not pasted */
#include "prelude.h"

/* helper: tc_lanes */
typedef float tc_lanes __attribute__((vector_size(64)));

/* helper: tc_loose */
typedef float tc_loose __attribute__((vector_size(64), aligned(4)));

/* helper: tc_dots_f32
   with: tc_places, tc_lane_sums, tc_dot_tile
   Few rows times a matrix whose columns lie along memory. x is read from the first cache; the rows
   of w that come next are fetched meanwhile. Measured in GFLOP/s on an Intel core (AVX-512),
   16 rows, matrices of 256 x 1024 that no cache holds: 128, MKL 73; 32 rows: 130, MKL 101; 1 row:
   memory sets the pace of both. */
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
#define TC_FOLD(a, k, low, step) \
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
#define TC_TILE(rows, columns, fetched, row) \
  tc_dot_tile(x + m * x_step, x_step, w + n * w_step, w_step, depth, \
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

/* helper: tc_outer_f32
   with: tc_outer_tile, tc_outer_rows
   Few rows times a row-major matrix. The results of a tile stay in registers; a row of the matrix
   is read once for all rows of a tile. x may be transposed, as in gradients of weights.
   With all steps known to gcc a row of x is an offset, not a register. Without the builtin gcc
   multiplies and adds in two steps: kernels are compiled without contraction.
   Measured against MKL's own time, in its place a call of ATen takes 1.4 us more, on an Intel core
   (AVX-512): 128 x 128, 64 rows: 1.04 times as fast (184 GFLOP/s), 12 rows: 1.19, 4 rows: 1.22;
   256 x 256: 1.02, 1.12, 1.14, where no cache holds them 0.97, 1.08, 1.03. */
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
#define TC_TALL(tall, fetched) \
  tc_outer_tile(x + m * x_step, x_step, x_along, w, w_step, depth, to + m * to_step, to_step, \
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
