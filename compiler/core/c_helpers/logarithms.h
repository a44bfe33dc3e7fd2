/* Logarithms, without branches, so that gcc vectorises.

   x = 2^e * (1 + f); log(1 + f) = f - s/2 + f * s * p with s = f * f, of which and of e each
   logarithm is made. Coefficients are tc's weighted least-squares fits. */

#pragma once /* these lines are for editors, and are not pasted */
#include "prelude.h"
#include "bits.h"
#include "floats.h"

/* helper: tc_log_of_parts_f32 */
TC_INLINE float tc_log_of_parts_f32(float e, float f, float s, float p) {
  float t = tc_fma_f32(e, 1.42860677e-6f, p * f * s);
  t = tc_fma_f32(-0.5f, s, t) + f;
  return tc_fma_f32(e, 0.693145751953125f, t);
}

/* helper: tc_log2_of_parts_f32 */
TC_INLINE float tc_log2_of_parts_f32(float e, float f, float s, float p) {
  float t = tc_fma_f32(-0.5f, s, p * f * s) + f;
  return tc_fma_f32(t, 1.44269504088896341f, e);
}

/* helper: tc_log10_of_parts_f32 */
TC_INLINE float tc_log10_of_parts_f32(float e, float f, float s, float p) {
  float t = tc_fma_f32(-0.5f, s, p * f * s) + f;
  t = tc_fma_f32(e, 4.6050389811952137e-6f, t * 0.434294481903251828f);
  return tc_fma_f32(e, 0.301025390625f, t);
}

/* helper: tc_NAME_f32
   for: NAME = log, log2, log10 */
TC_INLINE float tc_NAME_f32(float x) {
  /* x = 2^e * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)) */
  float scaled = x < 1.17549435e-38f ? x * 8388608.0f : x;
  float lift = x < 1.17549435e-38f ? -23.0f : 0.0f;
  unsigned u = tc_bits_f32(scaled) - 0x3f3504f3u;
  float e = (float)((int)u >> 23) + lift;
  float f = tc_float_bits((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  float p = 0.06746601231102646f;
  p = tc_fma_f32(p, f, -0.11675641247677238f);
  p = tc_fma_f32(p, f, 0.11888174611756766f);
  p = tc_fma_f32(p, f, -0.12405591427561685f);
  p = tc_fma_f32(p, f, 0.14219550907828674f);
  p = tc_fma_f32(p, f, -0.1666799566647414f);
  p = tc_fma_f32(p, f, 0.2000211873219614f);
  p = tc_fma_f32(p, f, -0.25000009603665674f);
  p = tc_fma_f32(p, f, 0.33333312602803095f);
  float s = f * f;
  float t = tc_NAME_of_parts_f32(e, f, s, p);
  t = x == __builtin_inff() ? x : t;
  t = x == 0.0f ? -__builtin_inff() : t;
  return (x < 0.0f || x != x) ? __builtin_nanf("") : t;
}

/* helper: tc_log1p_f32 */
TC_INLINE float tc_log1p_f32(float x) {
  /* log(u) with u = 1 + x rounded, plus the rounding made good */
  float u = 1.0f + x;
  float lost = u > 2.0f ? (x - u) + 1.0f : x - (u - 1.0f);
  float r = tc_log_f32(u) + lost / u;
  r = u == 1.0f ? x : r;
  r = x == -1.0f ? -__builtin_inff() : r;
  return x == __builtin_inff() ? x : r;
}

/* helper: tc_atanh_f32 */
TC_INLINE float tc_atanh_f32(float x) {
  float a = __builtin_fabsf(x);
  float r = 0.5f * tc_log1p_f32(2.0f * a / (1.0f - a));
  return a != a ? x : tc_copysign_f32(r, x);
}

/* helper: tc_log_of_parts_f64 */
TC_INLINE double tc_log_of_parts_f64(double e, double f, double h, double t) {
  double r = tc_fma_f64(e, 1.90821492927058770002e-10, t);
  return e * 6.93147180369123816490e-01 - ((h - r) - f);
}

/* helper: tc_NAME_of_parts_f64
   for: NAME WHOLE LOST HIGH LOW = log2 1.0 0.0 1.4426950216293335 1.9259629911266175e-08,
      log10 0.30102999566361177 3.694239077158931e-13 0.4342944771051407 4.798111141615973e-09
   The logarithm of 1 + f as a sum of two, of which the first has so few bits that its product with the
   first part of the factor is exact. */
TC_INLINE double tc_NAME_of_parts_f64(double e, double f, double h, double t) {
  double first = tc_double_bits(tc_bits_f64(f - h) & -134217728LL);
  double rest = ((f - first) - h) + t, whole = e * WHOLE;
  double high = first * HIGH, low = (first + rest) * LOW + rest * HIGH;
  low += e * LOST;
  double sum = whole + high;
  return sum + (low + ((whole - sum) + high));
}

/* helper: tc_NAME_f64
   for: NAME = log, log2, log10 */
TC_INLINE double tc_NAME_f64(double x) {
  double scaled = x < 2.2250738585072014e-308 ? x * 18014398509481984.0 : x;
  double lift = x < 2.2250738585072014e-308 ? -54.0 : 0.0;
  long long u = tc_bits_f64(scaled) - 0x3fe6a09e667f3bcdLL;
  double e = tc_double_bits((u >> 52) + 0x4338000000000000LL) - 6755399441055744.0 + lift;
  double f = tc_double_bits((u & 0xfffffffffffffLL) + 0x3fe6a09e667f3bcdLL) - 1.0;
  double s = f / (2.0 + f), z = s * s, h = 0.5 * f * f;
  double p = 0.14694972894022681;
  p = tc_fma_f64(p, z, 0.15326779947523045);
  p = tc_fma_f64(p, z, 0.1818294475028973);
  p = tc_fma_f64(p, z, 0.22222213223347428);
  p = tc_fma_f64(p, z, 0.2857142856993072);
  p = tc_fma_f64(p, z, 0.40000000000328145);
  p = tc_fma_f64(p, z, 0.6666666666666576);
  double t = tc_NAME_of_parts_f64(e, f, h, s * (h + p * z));
  t = x == __builtin_inf() ? x : t;
  t = x == 0.0 ? -__builtin_inf() : t;
  return (x < 0.0 || x != x) ? __builtin_nan("") : t;
}

/* helper: tc_log1p_f64 */
TC_INLINE double tc_log1p_f64(double x) {
  /* log(u) with u = 1 + x rounded, plus the rounding made good */
  double u = 1.0 + x;
  double lost = u > 2.0 ? (x - u) + 1.0 : x - (u - 1.0);
  double r = tc_log_f64(u) + lost / u;
  r = u == 1.0 ? x : r;
  r = x == -1.0 ? -__builtin_inf() : r;
  return x == __builtin_inf() ? x : r;
}

/* helper: tc_atanh_f64 */
TC_INLINE double tc_atanh_f64(double x) {
  double a = __builtin_fabs(x);
  double r = 0.5 * tc_log1p_f64(2.0 * a / (1.0 - a));
  return a != a ? x : tc_copysign_f64(r, x);
}

/* helper: tc_asinh_KIND
   for: KIND LARGE = f32 1e9, f64 1e9
   log(2a) for large a, log1p(a + a^2 / (1 + sqrt(a^2 + 1))) else. */
TC_INLINE TYPE tc_asinh_KIND(TYPE x) {
  const TYPE one = 1, most = LARGE;
  TYPE a = x < 0 ? -x : x, c = most < a ? most : a;
  TYPE near = tc_log1p_KIND(c + c * c / (one + tc_sqrt_KIND(c * c + one)));
  TYPE far = tc_log_KIND(a) + (TYPE)0.69314718055994531;
  return tc_copysign_KIND(a > most ? far : near, x);
}

/* helper: tc_acosh_KIND
   for: KIND LARGE = f32 1e9, f64 1e9
   As asinh, with a = x - 1. */
TC_INLINE TYPE tc_acosh_KIND(TYPE x) {
  const TYPE one = 1, most = LARGE;
  TYPE c = most < x ? most : x, t = c - one;
  TYPE near = tc_log1p_KIND(t + tc_sqrt_KIND((TYPE)2 * t + t * t));
  TYPE far = tc_log_KIND(x) + (TYPE)0.69314718055994531;
  near = x < one ? (TYPE)__builtin_nanf("") : near;
  return x > most ? far : near;
}
