/* The bits of numbers, and types of 16 bits. */

#pragma once /* these lines are for editors, and are not pasted */
#include "prelude.h"

/* helper: tc_bits_f32 */
TC_INLINE unsigned tc_bits_f32(float x) { union { float f; unsigned u; } v = {x}; return v.u; }

/* helper: tc_float_bits */
TC_INLINE float tc_float_bits(unsigned u) { union { unsigned u; float f; } v = {u}; return v.f; }

/* helper: tc_bits_f64 */
TC_INLINE long long tc_bits_f64(double x) { union { double f; long long u; } v = {x}; return v.u; }

/* helper: tc_double_bits */
TC_INLINE double tc_double_bits(long long u) {
  union { long long u; double f; } v = {u};
  return v.f;
}

/* helper: tc_bits_f32_i32 */
TC_INLINE int tc_bits_f32_i32(float x) {
  return ((union { float a; int b; }){x}).b;
}

/* helper: tc_bits_i32_f32 */
TC_INLINE float tc_bits_i32_f32(int x) {
  return ((union { int a; float b; }){x}).b;
}

/* helper: tc_bits_f64_i64 */
TC_INLINE long long tc_bits_f64_i64(double x) {
  return ((union { double a; long long b; }){x}).b;
}

/* helper: tc_bits_i64_f64 */
TC_INLINE double tc_bits_i64_f64(long long x) {
  return ((union { long long a; double b; }){x}).b;
}

/* helper: tc_signbit_f32
   gcc 12 stops with an internal error where it vectorises __builtin_signbit. A comparison is a mask
   of lanes, a bit shifted down would be bytes where it meets other conditions. */
TC_INLINE int tc_signbit_f32(float x) { return (int)tc_bits_f32(x) < 0; }

/* helper: tc_signbit_f64 */
TC_INLINE int tc_signbit_f64(double x) {
  union { double f; long long u; } v = {x};
  return v.u < 0;
}

/* helper: tc_bf16_to_f32 */
TC_INLINE float tc_bf16_to_f32(unsigned short x) { return tc_float_bits((unsigned)x << 16); }

/* helper: tc_f32_to_bf16 */
TC_INLINE unsigned short tc_f32_to_bf16(float x) {
  unsigned u = tc_bits_f32(x);
  unsigned rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  return (unsigned short)(x != x ? 0x7fc0 : rounded);
}

/* helper: tc_f32_to_plain_bf16
   Of numbers that are no NaN with bits below those of bfloat16. */
TC_INLINE unsigned short tc_f32_to_plain_bf16(float x) {
  unsigned u = tc_bits_f32(x);
  return (unsigned short)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

/* helper: tc_round_plain_bf16
   As tc_f32_to_plain_bf16. */
TC_INLINE float tc_round_plain_bf16(float x) {
  unsigned u = tc_bits_f32(x);
  return tc_float_bits((u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u);
}

/* helper: tc_round_bf16 */
TC_INLINE float tc_round_bf16(float x) {
  unsigned u = tc_bits_f32(x);
  float rounded = tc_float_bits((u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u);
  return x != x ? x : rounded;
}

/* helper: tc_f16_to_f32
   The _Float16 of gcc is converted one by one; these are operations that it makes in vectors. */
TC_INLINE float tc_f16_to_f32(unsigned short x) {
  /* exponent rebiased by a product, which also makes subnormals right */
  float y = tc_float_bits((unsigned)((int)(short)x << 13) & 0x8fffe000u) * 0x1p112f;
  unsigned u = tc_bits_f32(y);
  return tc_float_bits((u & 0x7fffffff) >= 0x47800000 ? u | 0x7f800000u : u);
}

/* helper: tc_f32_to_f16 */
TC_INLINE unsigned short tc_f32_to_f16(float x) {
  /* a number 2^13 times as large as the bits of |x| to keep, added and taken off, rounds to them,
     ties to even; 2^-24 is the last bit of all numbers below 2^-14. NaN and infinity stay. */
  float a = __builtin_fabsf(x);
  a = 65536.0f < a ? 65536.0f : a;
  int e = tc_bits_f32(a) & 0x7f800000;
  e = e > 113 << 23 ? e : 113 << 23;
  float c = tc_float_bits(e + (13 << 23));
  float y = ((a + c) - c) * 0x1p-112f;
  return (unsigned short)(tc_bits_f32(y) >> 13 | (tc_bits_f32(x) >> 16 & 0x8000));
}

/* helper: tc_round_f16 */
TC_INLINE float tc_round_f16(float x) {
  /* as tc_f32_to_f16, with half as much again added, so that the sign of x does not matter */
  int e = tc_bits_f32(x) & 0x7f800000;
  e = e > 113 << 23 ? e : 113 << 23;
  float c = tc_float_bits((unsigned)e + (13 << 23 | 0x400000));
  float y = (x + c) - c;
  y = __builtin_fabsf(x) >= 65520.0f ? x * __builtin_inff() : y;
  return tc_float_bits(tc_bits_f32(y) | (tc_bits_f32(x) & 0x80000000u));
}

/* helper: tc_f16_to_f32_run
   A run of numbers by the instruction for it, which gcc 12 finds for single numbers only. There is
   room for whole vectors where they go to. */
TC_INLINE void tc_f16_to_f32_run(const unsigned short* from, float* to, long long count) {
  long long i = 0;
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  typedef short halves __attribute__((vector_size(32), aligned(2), may_alias));
  typedef float floats __attribute__((vector_size(64), aligned(4), may_alias));
  const floats zero = {0};
  const halves none = {0};
  for (; i + 16 <= count; i += 16)
    *(floats*)(to + i) = __builtin_ia32_vcvtph2ps512_mask(*(const halves*)(from + i), zero, -1, 4);
  if (i < count) {
    const unsigned short some = (unsigned short)((1 << (count - i)) - 1);
    const halves x = __builtin_ia32_loaddquhi256_mask((const void*)(from + i), none, some);
    *(floats*)(to + i) = __builtin_ia32_vcvtph2ps512_mask(x, zero, -1, 4);
  }
#else
#ifdef __F16C__
  typedef short halves __attribute__((vector_size(16), aligned(2), may_alias));
  typedef float floats __attribute__((vector_size(32), aligned(4), may_alias));
  for (; i + 8 <= count; i += 8)
    *(floats*)(to + i) = __builtin_ia32_vcvtph2ps256(*(const halves*)(from + i));
#endif
  for (; i < count; i++) to[i] = tc_f16_to_f32(from[i]);
#endif
}

/* helper: tc_f32_to_f16_run
   As tc_f16_to_f32_run; only the numbers themselves are written. */
TC_INLINE void tc_f32_to_f16_run(const float* from, unsigned short* to, long long count) {
  long long i = 0;
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  typedef short halves __attribute__((vector_size(32), aligned(2), may_alias));
  typedef float floats __attribute__((vector_size(64), aligned(4), may_alias));
  const halves none = {0};
  for (; i + 16 <= count; i += 16)
    *(halves*)(to + i) = __builtin_ia32_vcvtps2ph512_mask(*(const floats*)(from + i), 4, none, -1);
  if (i < count) {
    const unsigned short some = (unsigned short)((1 << (count - i)) - 1);
    const halves x = __builtin_ia32_vcvtps2ph512_mask(*(const floats*)(from + i), 4, none, -1);
    __builtin_ia32_storedquhi256_mask((void*)(to + i), x, some);
  }
#else
#ifdef __F16C__
  typedef short halves __attribute__((vector_size(16), aligned(2), may_alias));
  typedef float floats __attribute__((vector_size(32), aligned(4), may_alias));
  for (; i + 8 <= count; i += 8)
    *(halves*)(to + i) = __builtin_ia32_vcvtps2ph256(*(const floats*)(from + i), 4);
#endif
  for (; i < count; i++) to[i] = tc_f32_to_f16(from[i]);
#endif
}
