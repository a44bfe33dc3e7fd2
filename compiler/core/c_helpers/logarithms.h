/* Logarithms, without branches, so that gcc vectorises.

   x = 2^e * (1 + f); log(1 + f) = f - s/2 + f * s * p with s = f * f, of which and of e each
   logarithm is made. Coefficients are our own weighted least-squares fits. */

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

/* helper: tc_log_f64 */
TC_INLINE double tc_log_f64(double x) {
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
  double t = tc_fma_f64(s, h + p * z, e * 1.90821492927058770002e-10);
  t = e * 6.93147180369123816490e-01 - ((h - t) - f);
  t = x == __builtin_inf() ? x : t;
  t = x == 0.0 ? -__builtin_inf() : t;
  return (x < 0.0 || x != x) ? __builtin_nan("") : t;
}
