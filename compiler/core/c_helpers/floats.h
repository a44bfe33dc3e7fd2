/* Arithmetic of floats. */

#pragma once /* these lines are for editors, and are not pasted */
#include "prelude.h"
#include "bits.h"
#define SIGN <

/* helper: tc_CHOICE_f32
   for: CHOICE SIGN = minimum <, maximum >
   Two choices one after the other: gcc does not vectorise loops with several nested ones. One, of a
   constant, is made of bits: of two such choices of floats where one needs the other it makes
   jumps. */
TC_INLINE float tc_CHOICE_f32(float a, float b) {
  if (__builtin_constant_p(b) && b == b) {
    union { float x; unsigned u; } mine = {a}, other = {b};
    const unsigned taken = -(unsigned)(b SIGN a);
    mine.u = (other.u & taken) | (mine.u & ~taken);
    return mine.x;
  }
  const float chosen = a SIGN b ? a : b;
  return a != a ? a : chosen;
}

/* helper: tc_CHOICE_f64
   for: CHOICE SIGN = minimum <, maximum >
   As for float. */
TC_INLINE double tc_CHOICE_f64(double a, double b) {
  if (__builtin_constant_p(b) && b == b) {
    union { double x; unsigned long long u; } mine = {a}, other = {b};
    const unsigned long long taken = -(unsigned long long)(b SIGN a);
    mine.u = (other.u & taken) | (mine.u & ~taken);
    return mine.x;
  }
  const double chosen = a SIGN b ? a : b;
  return a != a ? a : chosen;
}

/* helper: tc_remainder_f32 */
TC_INLINE float tc_remainder_f32(float a, float b) {
  float r = __builtin_fmodf(a, b);
  return (r != 0 && ((b < 0) != (r < 0))) ? r + b : r;
}

/* helper: tc_remainder_f64 */
TC_INLINE double tc_remainder_f64(double a, double b) {
  double r = __builtin_fmod(a, b);
  return (r != 0 && ((b < 0) != (r < 0))) ? r + b : r;
}

/* helper: tc_floordiv_f32 */
TC_INLINE float tc_floordiv_f32(float a, float b) {
  float r = __builtin_fmodf(a, b), q = (a - r) / b, f;
  if (b == 0) return a / b;
  if (r != 0 && ((b < 0) != (r < 0))) q -= 1;
  f = __builtin_floorf(q);
  if (q == 0) return __builtin_copysignf(0, a / b);
  return q - f > (float)0.5 ? f + 1 : f;
}

/* helper: tc_floordiv_f64 */
TC_INLINE double tc_floordiv_f64(double a, double b) {
  double r = __builtin_fmod(a, b), q = (a - r) / b, f;
  if (b == 0) return a / b;
  if (r != 0 && ((b < 0) != (r < 0))) q -= 1;
  f = __builtin_floor(q);
  if (q == 0) return __builtin_copysign(0, a / b);
  return q - f > (double)0.5 ? f + 1 : f;
}

/* helper: tc_round_f32 */
TC_INLINE float tc_round_f32(float x) { return __builtin_rintf(x); }

/* helper: tc_round_f64 */
TC_INLINE double tc_round_f64(double x) { return __builtin_rint(x); }

/* helper: tc_abs_f32 */
TC_INLINE float tc_abs_f32(float x) { return __builtin_fabsf(x); }

/* helper: tc_abs_f64 */
TC_INLINE double tc_abs_f64(double x) { return __builtin_fabs(x); }

/* helper: tc_div_f32 */
TC_INLINE float tc_div_f32(float a, float b) {
#ifdef __FMA__
  /* a constant: its reciprocal in two parts of 24 bits, of one sign so that infinity stays */
  const double whole = 1.0 / (double)b;
  const float near = (float)whole;
  const int beyond = __builtin_fabs((double)near) > __builtin_fabs(whole);
  const float most = tc_float_bits(tc_bits_f32(near) - beyond), rest = (float)(whole - most);
  if (__builtin_constant_p(b) && rest != 0 && __builtin_fabs(whole) > 1e-30 &&
      __builtin_fabs(whole) < 1e30)
    return tc_fma_f32(a, most, a * rest);
#endif
  return a / b;
}

/* helper: tc_div_f64 */
TC_INLINE double tc_div_f64(double a, double b) { return a / b; }

/* helper: tc_UNARY_f32
   for: UNARY = floor, ceil, trunc, fabs, sqrt, asinh, acosh, erfc, lgamma */
TC_INLINE float tc_UNARY_f32(float x0) { return __builtin_UNARYf(x0); }

/* helper: tc_UNARY_f64
   for: UNARY = floor, ceil, trunc, fabs, sqrt, exp2, expm1, log2, log10, log1p, erf, erfc, lgamma,
      sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, asinh, acosh, atanh */
TC_INLINE double tc_UNARY_f64(double x0) { return __builtin_UNARY(x0); }

/* helper: tc_BINARY_f32
   for: BINARY = hypot, fmod, copysign, nextafter */
TC_INLINE float tc_BINARY_f32(float x0, float x1) { return __builtin_BINARYf(x0, x1); }

/* helper: tc_BINARY_f64
   for: BINARY = pow, atan2, hypot, fmod, copysign, nextafter */
TC_INLINE double tc_BINARY_f64(double x0, double x1) { return __builtin_BINARY(x0, x1); }
