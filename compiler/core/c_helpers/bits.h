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
   gcc 12 stops with an internal error where it vectorises __builtin_signbit. */
TC_INLINE int tc_signbit_f32(float x) { return (int)(tc_bits_f32(x) >> 31); }

/* helper: tc_signbit_f64 */
TC_INLINE int tc_signbit_f64(double x) {
  union { double f; unsigned long long u; } v = {x};
  return (int)(v.u >> 63);
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
   The _Float16 of gcc is converted one by one; these are integer operations, made in vectors. */
TC_INLINE float tc_f16_to_f32(unsigned short x) {
  /* exponent rebiased by a product, which also makes subnormals right */
  float scaled = tc_float_bits(((unsigned)x & 0x7fff) << 13) * 0x1p112f;
  unsigned u = tc_bits_f32(scaled);
  u = (x & 0x7c00) == 0x7c00 ? u | 0x7f800000u : u;
  return tc_float_bits(u | ((unsigned)x & 0x8000) << 16);
}

/* helper: tc_f32_to_f16 */
TC_INLINE unsigned short tc_f32_to_f16(float x) {
  unsigned u = tc_bits_f32(x), a = u & 0x7fffffffu;
  unsigned normal = (a + 0xfff + ((a >> 13) & 1) - 0x38000000u) >> 13;
  /* below 2^-14 adding a half leaves the multiple of 2^-24 in the last bits, rounded */
  unsigned small = tc_bits_f32(tc_float_bits(a) + 0.5f) - 0x3f000000u;
  unsigned h = a < 0x38800000u ? small : a >= 0x477ff000u ? 0x7c00u : normal;
  h = a > 0x7f800000u ? 0x7e00u : h;
  return (unsigned short)(h | (u >> 16 & 0x8000u));
}

/* helper: tc_round_f16 */
TC_INLINE float tc_round_f16(float x) { return tc_f16_to_f32(tc_f32_to_f16(x)); }
