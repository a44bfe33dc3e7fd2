/* Exponentials and what is made of them, without branches, so that gcc vectorises.

   Coefficients are tc's weighted least-squares fits; the error bounds are those of
   `ops.SCALAR_OPS`, which tests hold against float64. */

#pragma once /* these lines are for editors, and are not pasted */
#include "prelude.h"
#include "bits.h"
#include "floats.h"
#include "logarithms.h"

/* helper: tc_exp_to_power_f32 */
TC_INLINE float tc_exp_to_power_f32(float r, float t, int tiny) {
  /* e^r * 2^n, r from -ln(2)/2 to ln(2)/2; n - 1 is in the low bits of t. Results that may be
     denormal are made 2^64 times too large first: programs take their logarithm. */
  float p = 0.0027687211986631155f;
  p = tc_fma_f32(p, r, 0.016748391091823578f);
  p = tc_fma_f32(p, r, 0.08333601057529449f);
  p = tc_fma_f32(p, r, 0.3333286046981812f);
  p = tc_fma_f32(p, r, 0.9999998807907104f);
  p = tc_fma_f32(tc_fma_f32(p, r, 2.0f), r, 2.0f);
  unsigned power = tc_bits_f32(t) << 23;
  float y = p * tc_float_bits(tiny ? power + (64u << 23) : power);
  return y * (tiny ? 5.42101086242752217e-20f /* 2^-64 */ : 1.0f);
}

/* helper: tc_exp_f32 */
TC_INLINE float tc_exp_f32(float x) {
  /* x = n*ln2 + r. Clamped is only what n is made of, by integers, which takes one instruction; r,
     from x itself, still is inf or NaN. */
  int c = (int)tc_bits_f32(x);
  c = c < 0x42b20000 ? c : 0x42b20000; /* 89 */
  float t = tc_fma_f32(tc_float_bits((unsigned)c), 1.44269504088896341f, 12583038.0f);
  float n = t - 12583038.0f;
  float r = tc_fma_f32(n, -0.693145751953125f, x);
  r = tc_fma_f32(n, -1.42860677e-6f, r);
  float y = tc_exp_to_power_f32(r, t, x < -86.9f);
  return x < -104.0f ? 0.0f : y;
}

/* helper: tc_exp2_f32 */
TC_INLINE float tc_exp2_f32(float x) {
  /* as tc_exp_f32, where x - n is exact */
  int c = (int)tc_bits_f32(x);
  c = c < 0x43010000 ? c : 0x43010000; /* 129 */
  float t = tc_float_bits((unsigned)c) + 12583038.0f;
  float r = (x - (t - 12583038.0f)) * 0.693147180559945f;
  float y = tc_exp_to_power_f32(r, t, x < -125.4f);
  return x < -150.0f ? 0.0f : y;
}

/* helper: tc_expm1_f32 */
TC_INLINE float tc_expm1_f32(float x) {
  /* 2^n * (e^r - 1) + (2^n - 1); n = 0 near zero, so nothing cancels there */
  float c = x > 89.0f ? 89.0f : x;
  c = c < -30.0f ? -30.0f : c;
  float n = c * 1.44269504088896341f + 12582912.0f;
  n -= 12582912.0f;
  float r = tc_fma_f32(n, -0.693145751953125f, c);
  r = tc_fma_f32(n, -1.42860677e-6f, r);
  float p = 0.0001984588433100923f;
  p = tc_fma_f32(p, r, 0.0013940720446702817f);
  p = tc_fma_f32(p, r, 0.008333389575290985f);
  p = tc_fma_f32(p, r, 0.041666359813421566f);
  p = tc_fma_f32(p, r, 0.16666666368835367f);
  p = tc_fma_f32(p, r, 0.5000000044401725f);
  p = tc_fma_f32(p, r * r, r);
  int i = (int)n, half = i >> 1;
  float a = tc_float_bits((unsigned)(half + 127) << 23);
  float b = tc_float_bits((unsigned)(i - half + 127) << 23);
  float big = tc_fma_f32(p, a, a - 1.0f / b) * b;
  return i == 0 ? (x == 0 ? x : p) : big;
}

/* helper: tc_tanh_f32 */
TC_INLINE float tc_tanh_f32(float x) {
  /* x * P(x^2) / Q(x^2), exactly 1 at `most`. With fused multiply-add no result is beyond 1: all
     floats were tried. Clamps are dear, gcc makes masks of them. */
#ifdef __FMA__
  const float most = 8.13919258f;
#else
  const float most = 9.1f;
#endif
  float c = x > most ? most : x;
  c = c < -most ? -most : c;
  float s = c * c;
  float p = -1.2033567769788744e-11f;
  p = tc_fma_f32(p, s, 3.0355453131138605e-08f);
  p = tc_fma_f32(p, s, 2.791191244329072e-05f);
  p = tc_fma_f32(p, s, 0.0038635919931375036f);
  p = tc_fma_f32(p, s, 0.13676136005227238f);
  p = tc_fma_f32(p, s, 0.9999999985631803f);
  float q = 1.2806927950423841e-06f;
  q = tc_fma_f32(q, s, 0.0003930281383907765f);
  q = tc_fma_f32(q, s, 0.02722850761260931f);
  q = tc_fma_f32(q, s, 0.47009467945539624f);
  q = tc_fma_f32(q, s, 1.0f);
#ifdef __FMA__
  return c * p / q;
#else
  float y = c * p / q;
  y = y > 1.0f ? 1.0f : y;
  return y < -1.0f ? -1.0f : y;
#endif
}

/* helper: tc_erf_f32 */
TC_INLINE float tc_erf_f32(float x) {
  /* x * P(x^2) / Q(x^2), exactly 1 at `most`. With fused multiply-add no result is beyond 1: all
     floats were tried. Clamps are dear, gcc makes masks of them. */
#ifdef __FMA__
  const float most = 3.6404109f;
#else
  const float most = 4.0f;
#endif
  float c = x > most ? most : x;
  c = c < -most ? -most : c;
  float s = c * c;
  float p = 1.986787026403537e-06f;
  p = tc_fma_f32(p, s, 0.00028455946063062624f);
  p = tc_fma_f32(p, s, 0.0038831534346449575f);
  p = tc_fma_f32(p, s, 0.053101153481292816f);
  p = tc_fma_f32(p, s, 0.19354094216092999f);
  p = tc_fma_f32(p, s, 1.1283791394195886f);
  float q = 3.741988321657581e-05f;
  q = tc_fma_f32(q, s, 0.0011855208271748592f);
  q = tc_fma_f32(q, s, 0.015206872183381712f);
  q = tc_fma_f32(q, s, 0.11534825404354832f);
  q = tc_fma_f32(q, s, 0.5048537509515316f);
  q = tc_fma_f32(q, s, 1.0f);
#ifdef __FMA__
  return c * p / q;
#else
  float y = c * p / q;
  y = y > 1.0f ? 1.0f : y;
  return y < -1.0f ? -1.0f : y;
#endif
}

/* helper: tc_sinh_f32 */
TC_INLINE float tc_sinh_f32(float x) {
  /* from e^a - 1; for large a half of e^a alone, by halves, which do not overflow */
  float a = __builtin_fabsf(x), m = tc_expm1_f32(a), h = tc_exp_f32(0.5f * a);
  float r = a < 9.0f ? 0.5f * (m + m / (m + 1.0f)) : 0.5f * h * h;
  return tc_copysign_f32(r, x);
}

/* helper: tc_cosh_f32 */
TC_INLINE float tc_cosh_f32(float x) {
  /* as sinh */
  float a = __builtin_fabsf(x), m = tc_exp_f32(a), h = tc_exp_f32(0.5f * a);
  return a < 9.0f ? 0.5f * m + 0.5f / m : 0.5f * h * h;
}

/* helper: tc_exp_of_part_f64 */
TC_INLINE double tc_exp_of_part_f64(double r) {
  /* e^r - 1, r from -ln(2)/2 to ln(2)/2 */
  double p = 2.0914717341716378e-09;
  p = tc_fma_f64(p, r, 2.5105259538448494e-08);
  p = tc_fma_f64(p, r, 2.755727357010214e-07);
  p = tc_fma_f64(p, r, 2.7557255297969643e-06);
  p = tc_fma_f64(p, r, 2.4801587325605324e-05);
  p = tc_fma_f64(p, r, 0.0001984126987490126);
  p = tc_fma_f64(p, r, 0.001388888888888373);
  p = tc_fma_f64(p, r, 0.008333333333326112);
  p = tc_fma_f64(p, r, 0.04166666666666667);
  p = tc_fma_f64(p, r, 0.1666666666666667);
  p = tc_fma_f64(p, r, 0.5);
  return tc_fma_f64(p, r * r, r);
}

/* helper: tc_to_power_f64 */
TC_INLINE double tc_to_power_f64(double q, double t, int tiny) {
  /* (1 + q) * 2^n, n in the low bits of t less 6755399441056766; where that may be denormal, it is
     made 2^64 times too large first */
  unsigned long long power = (unsigned long long)tc_bits_f64(t) << 52;
  double y = tc_fma_f64(q, 2.0, 2.0);
  y *= tc_double_bits((long long)(tiny ? power + (64ULL << 52) : power));
  return y * (tiny ? 5.42101086242752217e-20 : 1.0);
}

/* helper: tc_exp_sum_f64 */
TC_INLINE double tc_exp_sum_f64(double x, double rest) {
  /* e^(x + rest), the rest small beside x; clamped is only what n is made of, by integers, and the
     rest of x still is inf or NaN */
  long long c = tc_bits_f64(x);
  c = c < 0x4086300000000000LL ? c : 0x4086300000000000LL; /* 710 */
  double t = tc_fma_f64(tc_double_bits(c), 1.44269504088896340736, 6755399441056766.0);
  double n = t - 6755399441056766.0;
  double r = tc_fma_f64(n, -6.93147180369123816490e-01, x);
  r = tc_fma_f64(n, -1.90821492927058770002e-10, r) + rest;
  double y = tc_to_power_f64(tc_exp_of_part_f64(r), t, x < -707.5);
  return x < -746.0 ? 0.0 : y;
}

/* helper: tc_exp_f64 */
TC_INLINE double tc_exp_f64(double x) { return tc_exp_sum_f64(x, 0.0); }

/* helper: tc_exp2_f64 */
TC_INLINE double tc_exp2_f64(double x) {
  long long c = tc_bits_f64(x);
  c = c < 0x4090040000000000LL ? c : 0x4090040000000000LL; /* 1025 */
  double t = tc_double_bits(c) + 6755399441056766.0;
  double d = x - (t - 6755399441056766.0), r = d * 0.693147180559945309;
  /* what the product loses, which is nothing where it is infinite */
  double lost = tc_fma_f64(d, 0.693147180559945309, -r) + d * 2.31904681384629955e-17;
  r += x < 1e300 ? lost : 0.0;
  double y = tc_to_power_f64(tc_exp_of_part_f64(r), t, x < -1020.5);
  return x < -1076.0 ? 0.0 : y;
}

/* helper: tc_expm1_f64 */
TC_INLINE double tc_expm1_f64(double x) {
  /* 2^n * (e^r - 1) + (2^n - 1); n = 0 near zero, so nothing cancels there */
  double c = x > 710.0 ? 710.0 : x;
  c = c < -50.0 ? -50.0 : c;
  double shifted = c * 1.44269504088896340736 + 6755399441055744.0;
  double n = shifted - 6755399441055744.0;
  double r = tc_fma_f64(n, -6.93147180369123816490e-01, c);
  r = tc_fma_f64(n, -1.90821492927058770002e-10, r);
  double p = tc_exp_of_part_f64(r);
  long long i = tc_bits_f64(shifted) - 0x4338000000000000LL, half = i >> 1;
  double a = tc_double_bits((half + 1023) << 52), b = tc_double_bits((i - half + 1023) << 52);
  double big = tc_fma_f64(p, a, a - 1.0 / b) * b;
  return i == 0 ? (x == 0 ? x : p) : big;
}

/* helper: tc_tanh_f64 */
TC_INLINE double tc_tanh_f64(double x) {
  /* from e^2a - 1; beyond 22 it is 1 */
  double a = __builtin_fabs(x), c = 22.0 < a ? 22.0 : a, m = tc_expm1_f64(2.0 * c);
  return tc_copysign_f64(m / (m + 2.0), x);
}

/* helper: tc_sinh_f64 */
TC_INLINE double tc_sinh_f64(double x) {
  /* as sinh of float; beyond 22 e^-a is nothing */
  double a = __builtin_fabs(x), m = tc_expm1_f64(a), h = tc_exp_f64(0.5 * a);
  double r = a < 22.0 ? 0.5 * (m + m / (m + 1.0)) : 0.5 * h * h;
  return tc_copysign_f64(r, x);
}

/* helper: tc_cosh_f64 */
TC_INLINE double tc_cosh_f64(double x) {
  double a = __builtin_fabs(x), m = tc_exp_f64(a), h = tc_exp_f64(0.5 * a);
  return a < 22.0 ? 0.5 * m + 0.5 / m : 0.5 * h * h;
}
