/* Moving memory: tiles transposed in registers, lines written past the caches. */

#pragma once /* these lines are for editors, and are not pasted */
#include "prelude.h"

/* helper: tc_stream */
TC_INLINE void tc_stream(void* to, const void* from, long long bytes) {
  /* whole lines, past the caches */
#if defined(__AVX512F__) && !defined(__clang__)
  typedef long long line __attribute__((vector_size(64)));
  line* into = (line*)to;
  const line* out_of = (const line*)from;
  if (((unsigned long long)to & 63) == 0) {
    for (; bytes >= 64; bytes -= 64) __builtin_ia32_movntdq512(into++, *out_of++);
    to = into;
    from = out_of;
  }
#endif
  __builtin_memcpy(to, from, bytes);
}

/* helper: tc_keep
   Keeps a number that gives a loop its type, and so its lanes; nothing reads it. */
TC_INLINE void tc_keep(int x) { __asm__ volatile("" ::"r"(x)); }

/* helper: tc_scalar_loop */
TC_INLINE void tc_scalar_loop(void) {
  /* the loop that this stands in is not vectorised, as gcc does by itself; those in it can be */
  __asm__ volatile("");
}

/* helper: tc_stream_end */
TC_INLINE void tc_stream_end(void) {
  /* other threads see what was streamed; those of a parallel loop meet at a locked instruction */
#ifdef __SSE__
  __builtin_ia32_sfence();
#endif
}

/* helper: tc_row_16 */
typedef int tc_row_16 __attribute__((vector_size(64)));

/* helper: tc_transpose_16
   A 16 x 16 tile in registers is transposed: four rounds, each interleaving rows k and k + 8. */
#ifdef __clang__
#define TC_SHUFFLED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define TC_SHUFFLED(a, b, ...) __builtin_shuffle(a, b, (tc_row_16){__VA_ARGS__})
#endif
#define TC_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define TC_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
TC_INLINE void tc_transpose_16(tc_row_16* a) {
  tc_row_16 b[16];
  for (int round = 0; round < 2; round++) {
    for (int k = 0; k < 8; k++) {
      b[2 * k] = TC_SHUFFLED(a[k], a[k + 8], TC_LOW);
      b[2 * k + 1] = TC_SHUFFLED(a[k], a[k + 8], TC_HIGH);
    }
    for (int k = 0; k < 8; k++) {
      a[2 * k] = TC_SHUFFLED(b[k], b[k + 8], TC_LOW);
      a[2 * k + 1] = TC_SHUFFLED(b[k], b[k + 8], TC_HIGH);
    }
  }
}
#undef TC_SHUFFLED
#undef TC_LOW
#undef TC_HIGH

/* helper: tc_turn_i32
   Reads a 16 x 16 tile transposed. */
TC_INLINE void tc_turn_i32(const int* from, long long step, int* to) {
  tc_row_16 a[16];
  for (int k = 0; k < 16; k++) __builtin_memcpy(&a[k], from + k * step, 64);
  tc_transpose_16(a);
  for (int k = 0; k < 16; k++) __builtin_memcpy(to + 16 * k, &a[k], 64);
}

/* helper: tc_turn_i16
   Reads a 16 x 16 tile transposed, as 32 bits meanwhile. */
TC_INLINE void tc_turn_i16(const short* from, long long step, short* to) {
  typedef short narrow __attribute__((vector_size(32)));
  tc_row_16 a[16];
  narrow row;
  for (int k = 0; k < 16; k++) {
    __builtin_memcpy(&row, from + k * step, sizeof(row));
    a[k] = __builtin_convertvector(row, tc_row_16);
  }
  tc_transpose_16(a);
  for (int k = 0; k < 16; k++) {
    row = __builtin_convertvector(a[k], narrow);
    __builtin_memcpy(to + 16 * k, &row, sizeof(row));
  }
}

/* helper: tc_turn_i64
   Reads a 16 x 16 tile transposed, a quarter at a time: three rounds, as of words. */
#ifdef __clang__
#define TC_SHUFFLED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define TC_SHUFFLED(a, b, ...) __builtin_shuffle(a, b, (row){__VA_ARGS__})
#endif
#define TC_ROUND(b, a) \
  for (int k = 0; k < 4; k++) { \
    b[2 * k] = TC_SHUFFLED(a[k], a[k + 4], 0, 8, 1, 9, 2, 10, 3, 11); \
    b[2 * k + 1] = TC_SHUFFLED(a[k], a[k + 4], 4, 12, 5, 13, 6, 14, 7, 15); \
  }
TC_INLINE void tc_turn_i64(const long long* from, long long step, long long* to) {
  typedef long long row __attribute__((vector_size(64)));
  for (int part = 0; part < 4; part++) {
    const long long down = part / 2 * 8, right = part % 2 * 8;
    row a[8], b[8];
    for (int k = 0; k < 8; k++) __builtin_memcpy(&a[k], from + (down + k) * step + right, 64);
    TC_ROUND(b, a)
    TC_ROUND(a, b)
    TC_ROUND(b, a)
    for (int k = 0; k < 8; k++) __builtin_memcpy(to + 16 * (right + k) + down, &b[k], 64);
  }
}
#undef TC_ROUND
#undef TC_SHUFFLED
