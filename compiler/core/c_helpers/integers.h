/* Arithmetic of integers, and of indices, which are `long long`. */

#pragma once /* these lines are for editors, and are not pasted */
#include "prelude.h"
#define TYPE int
#define BITS 32

/* helper: tc_floordiv */
TC_INLINE long long tc_floordiv(long long a, long long b) {
  long long q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

/* helper: tc_mod */
TC_INLINE long long tc_mod(long long a, long long b) {
  long long r = a % b;
  return (r < 0) ? r + b : r;
}

/* helper: tc_min */
TC_INLINE long long tc_min(long long a, long long b) { return a < b ? a : b; }

/* helper: tc_max */
TC_INLINE long long tc_max(long long a, long long b) { return a > b ? a : b; }

/* helper: tc_clip */
TC_INLINE long long tc_clip(long long i, long long n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }

/* helper: tc_minimum_TAG
   for: TAG = i64, i32, i16, i8, u8, b8 */
TC_INLINE TYPE tc_minimum_TAG(TYPE a, TYPE b) { return a < b ? a : b; }

/* helper: tc_maximum_TAG
   for: TAG = i64, i32, i16, i8, u8, b8 */
TC_INLINE TYPE tc_maximum_TAG(TYPE a, TYPE b) { return a > b ? a : b; }

/* helper: tc_abs_SIGNED
   for: SIGNED = i64, i32, i16, i8 */
TC_INLINE TYPE tc_abs_SIGNED(TYPE x) { return (TYPE)(x < 0 ? -x : x); }

/* helper: tc_abs_UNSIGNED
   for: UNSIGNED = u8, b8 */
TC_INLINE TYPE tc_abs_UNSIGNED(TYPE x) { return (TYPE)(x); }

/* helper: tc_not_TAG
   for: TAG = i64, i32, i16, i8, u8 */
TC_INLINE TYPE tc_not_TAG(TYPE x) { return (TYPE)(~x); }

/* helper: tc_not_b8 */
TC_INLINE unsigned char tc_not_b8(unsigned char x) { return (unsigned char)(!x); }

/* helper: tc_truncdiv_i64
   Two steps in float64 are exact and vectorise; the second divides what the first left. Both
   multiply by the reciprocal, which is a constant where the divisor is one. */
TC_INLINE long long tc_truncdiv_i64(long long a, long long b) {
#ifdef __AVX512DQ__
  double per = 1.0 / (double)b;
  long long q = (long long)((double)a * per), r = a - q * b;
  q += (long long)((double)r * per);
  r = a - q * b;
  unsigned long long left = r < 0 ? 0ULL - (unsigned long long)r : (unsigned long long)r;
  unsigned long long size = b < 0 ? 0ULL - (unsigned long long)b : (unsigned long long)b;
  long long over = (r != 0 && ((r < 0) != (a < 0))) ? -1 : (left >= size);
  return q + (((a < 0) != (b < 0)) ? -over : over);
#else
  return b == 0 ? 0 : b == -1 ? -a : a / b;
#endif
}

/* helper: tc_truncdiv_TAG
   for: TAG = i32, i16, i8, u8, b8 */
TC_INLINE TYPE tc_truncdiv_TAG(TYPE a, TYPE b) { return (TYPE)((double)a / (double)b); }

/* helper: tc_fmod_TAG
   for: TAG = i64, i32, i16, i8, u8, b8 */
TC_INLINE TYPE tc_fmod_TAG(TYPE a, TYPE b) { return a - tc_truncdiv_TAG(a, b) * b; }

/* helper: tc_floordiv_TAG
   for: TAG = i64, i32, i16, i8, u8, b8 */
TC_INLINE TYPE tc_floordiv_TAG(TYPE a, TYPE b) {
  TYPE q = tc_truncdiv_TAG(a, b), r = (TYPE)(a - q * b);
  return (TYPE)(q - ((r != 0) & ((r < 0) != (b < 0))));
}

/* helper: tc_remainder_TAG
   for: TAG = i64, i32, i16, i8, u8, b8 */
TC_INLINE TYPE tc_remainder_TAG(TYPE a, TYPE b) {
  TYPE q = tc_truncdiv_TAG(a, b), r = (TYPE)(a - q * b);
  return (TYPE)(r + (((r != 0) & ((r < 0) != (b < 0))) ? b : 0));
}

/* helper: tc_ipow_TAG
   for: TAG = i64, i32, i16, i8, u8, b8 */
TC_INLINE TYPE tc_ipow_TAG(TYPE a, TYPE b) {
  TYPE r = 1;
  if (b < 0) return a == 1 ? 1 : a == (TYPE)-1 ? ((b & 1) ? (TYPE)-1 : 1) : 0;
  while (b) {
    if (b & 1) r = (TYPE)(r * a);
    a = (TYPE)(a * a);
    b = (TYPE)(b >> 1);
  }
  return r;
}

/* helper: tc_shl_TAG
   for: TAG BITS = i64 64, i32 32, i16 16, i8 8, u8 8, b8 8 */
TC_INLINE TYPE tc_shl_TAG(TYPE a, TYPE b) {
  return (b < 0 || b >= BITS) ? 0 : (TYPE)((unsigned long long)a << b);
}

/* helper: tc_shr_SIGNED
   for: SIGNED BITS = i64 64, i32 32, i16 16, i8 8 */
TC_INLINE TYPE tc_shr_SIGNED(TYPE a, TYPE b) {
  return (TYPE)((b < 0 || b >= BITS) ? (a < 0 ? -1 : 0) : (a >> b));
}

/* helper: tc_shr_UNSIGNED
   for: UNSIGNED = u8, b8 */
TC_INLINE TYPE tc_shr_UNSIGNED(TYPE a, TYPE b) { return (TYPE)(b >= 8 ? 0 : (a >> b)); }

/* helper: tc_random_i64
   Philox. Lanes of 64 bits spare the shuffles that narrow ones need around a wide product. */
TC_INLINE long long tc_random_i64(long long seed, long long counter) {
  unsigned long long low = 0xffffffff, key = seed & low, left = counter & low, p;
  unsigned long long right = (unsigned long long)(counter ^ seed) >> 32;
  for (int round = 0; round < 10; round++) {
    p = left * 0xD256D193ULL, left = (p >> 32) ^ key ^ right, right = p & low;
    key = (key + 0x9E3779B9U) & low;
  }
  return (long long)((left << 32) | right);
}
