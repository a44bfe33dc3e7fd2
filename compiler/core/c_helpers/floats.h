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

/* helper: tc_fmod_near_KIND
   for: KIND = f32, f64
   Of quotients below 2^22 (2^51): the whole part, of a rounded quotient, is right or one too large, and
   the fused product with it exact. */
TC_INLINE TYPE tc_fmod_near_KIND(TYPE a, TYPE b) {
  TYPE x = tc_abs_KIND(a), y = tc_abs_KIND(b), q = tc_trunc_KIND(x / y);
  TYPE r = tc_fma_KIND(-q, y, x);
  r = r < 0 ? r + y : r;
  return tc_copysign_KIND(y == (TYPE)__builtin_inf() ? x : r, a);
}

/* helper: tc_fmod_KIND
   for: KIND WHOLE LIBM MASK MOST LANESB LANESC LANESE = f32 int __builtin_fmodf 0x7fffffff 0x1p22f 4 8 16,
      f64 long __builtin_fmod 0x7fffffffffffffffL 0x1p51 2 4 8
   with: tc_fmod_one_KIND, tc_fmod_v_KIND, tc_fmod_i_KIND, tc_fmod_of_KIND, tc_fmod_f_KIND, tc_fmod_w_KIND, tc_fmod_f_KINDb, tc_fmod_f_KINDc,
      tc_fmod_f_KINDd, tc_fmod_w_KINDe
   In vector forms as sine has; libm computes the large quotients. */
#if defined(__FMA__) && defined(__x86_64__) && !defined(__clang__)
#define TC_ALONE __attribute__((visibility("hidden"), weak))
TC_ALONE __attribute__((const, simd("notinbranch"))) TYPE tc_fmod_KIND(TYPE a, TYPE b);
TC_ALONE TYPE tc_fmod_one_KIND(TYPE a, TYPE b) __asm__("tc_fmod_KIND");
TYPE tc_fmod_one_KIND(TYPE a, TYPE b) {
  return tc_abs_KIND(a) / tc_abs_KIND(b) < MOST ? tc_fmod_near_KIND(a, b) : LIBM(a, b);
}
#define TC_ANY512(x) __builtin_ia32_ptestmd512(x, x, -1)
#define TC_FORM(isa, bytes, lanes, any, part) \
  typedef TYPE tc_fmod_v_KIND##isa __attribute__((vector_size(bytes))); \
  typedef WHOLE tc_fmod_i_KIND##isa __attribute__((vector_size(bytes))); \
  typedef part tc_fmod_f_KIND##isa __attribute__((vector_size(bytes))); \
  TC_ALONE tc_fmod_v_KIND##isa tc_fmod_of_KIND##isa(tc_fmod_v_KIND##isa a, tc_fmod_v_KIND##isa b) \
    __asm__("_ZGV" #isa "N" #lanes "vv_tc_fmod_KIND"); \
  tc_fmod_v_KIND##isa tc_fmod_of_KIND##isa(tc_fmod_v_KIND##isa a, tc_fmod_v_KIND##isa b) { \
    tc_fmod_v_KIND##isa one = a, two = b, made, zero = {0}; \
    const TYPE* x = (const TYPE*)&one; \
    const TYPE* y = (const TYPE*)&two; \
    TYPE* out = (TYPE*)&made; \
    tc_fmod_v_KIND##isa size = (tc_fmod_v_KIND##isa)((tc_fmod_i_KIND##isa)(a / b) & MASK); \
    tc_fmod_i_KIND##isa far = ~(size < zero + MOST); \
    if (__builtin_expect(any((tc_fmod_f_KIND##isa)far), 0)) \
      for (int i = 0; i < lanes; i++) out[i] = tc_fmod_one_KIND(x[i], y[i]); \
    else \
      for (int i = 0; i < lanes; i++) out[i] = tc_fmod_near_KIND(x[i], y[i]); \
    return made; \
  }
TC_FORM(b, 16, LANESB, __builtin_ia32_movmskps, float)
TC_FORM(c, 32, LANESC, __builtin_ia32_movmskps256, float)
TC_FORM(d, 32, LANESC, __builtin_ia32_movmskps256, float)
#ifdef __AVX512F__
TC_FORM(e, 64, LANESE, TC_ANY512, int)
#endif
#undef TC_FORM
#undef TC_ANY512
#undef TC_ALONE
#else
TC_LANES TYPE tc_fmod_KIND(TYPE a, TYPE b) { return LIBM(a, b); }
#endif

/* helper: tc_remainder_KIND
   for: KIND = f32, f64 */
TC_INLINE TYPE tc_remainder_KIND(TYPE a, TYPE b) {
  TYPE r = tc_fmod_KIND(a, b);
  return ((r != 0) & ((b < 0) != (r < 0))) ? r + b : r;
}

/* helper: tc_floordiv_KIND
   for: KIND = f32, f64 */
TC_INLINE TYPE tc_floordiv_KIND(TYPE a, TYPE b) {
  TYPE r = tc_fmod_KIND(a, b), whole = a / b, q = (a - r) / b;
  q = ((r != 0) & ((b < 0) != (r < 0))) ? q - 1 : q;
  TYPE f = tc_floor_KIND(q);
  f = q - f > (TYPE)0.5 ? f + 1 : f;
  f = q == 0 ? tc_copysign_KIND(0, whole) : f;
  return b == 0 ? whole : f;
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
   for: UNARY = floor, ceil, trunc, fabs, sqrt */
TC_INLINE float tc_UNARY_f32(float x0) { return __builtin_UNARYf(x0); }

/* helper: tc_UNARY_f64
   for: UNARY = floor, ceil, trunc, fabs, sqrt */
TC_INLINE double tc_UNARY_f64(double x0) { return __builtin_UNARY(x0); }

/* helper: tc_LIBM_f64
   for: LIBM = lgamma */
TC_LANES double tc_LIBM_f64(double x0) { return __builtin_LIBM(x0); }

/* helper: tc_copysign_f32 */
TC_INLINE float tc_copysign_f32(float x0, float x1) { return __builtin_copysignf(x0, x1); }

/* helper: tc_copysign_f64 */
TC_INLINE double tc_copysign_f64(double x0, double x1) { return __builtin_copysign(x0, x1); }

/* helper: tc_nextafter_f32
   Numbers of one sign are in the order of their bits. Chosen are the two results: a step of 1 or -1
   gcc would keep in a byte, and make vectors of as many lanes as a register has bytes. */
TC_INLINE float tc_nextafter_f32(float x, float y) {
  unsigned bits = tc_bits_f32(x);
  float r = (x < y) == (x > 0.0f) ? tc_float_bits(bits + 1) : tc_float_bits(bits - 1);
  r = x == 0.0f ? tc_copysign_f32(1.40129846e-45f, y) : r;
  return x == y ? y : (x != x) | (y != y) ? x + y : r;
}

/* helper: tc_nextafter_f64 */
TC_INLINE double tc_nextafter_f64(double x, double y) {
  long long bits = tc_bits_f64(x);
  double r = (x < y) == (x > 0.0) ? tc_double_bits(bits + 1) : tc_double_bits(bits - 1);
  r = x == 0.0 ? tc_copysign_f64(4.9406564584124654e-324, y) : r;
  return x == y ? y : (x != x) | (y != y) ? x + y : r;
}
