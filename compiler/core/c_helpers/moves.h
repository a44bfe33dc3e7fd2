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

/* helper: tc_turn_16 */
TC_INLINE void tc_turn_16(const int* from, long long step, int* to) {
  tc_row_16 a[16];
  for (int k = 0; k < 16; k++) __builtin_memcpy(&a[k], from + k * step, 64);
  tc_transpose_16(a);
  for (int k = 0; k < 16; k++) __builtin_memcpy(to + 16 * k, &a[k], 64);
}
