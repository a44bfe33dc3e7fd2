/* Sine, cosine and tangent, whose arguments are reduced in one of two ways.

   Up to 1e5f, whose bits are 0x47c35000, three products with parts of pi/2 reduce an argument, each
   rounded once (Cody and Waite, with fused multiply-add); the results err by 1.6 ulps at most.
   Beyond it float64 does, at five times the price. A loop cannot choose between the two for a
   single element, so gcc is informed that vector forms of the functions exist (under the names that
   the vector ABI of x86-64 gives them), and those ask once for all their elements. */

#pragma once /* these lines are for editors, and are not pasted */
#include "prelude.h"
#include "bits.h"
#include "floats.h"
#define QUARTERS 0

/* helper: tc_quarter_f32 */
TC_INLINE float tc_quarter_f32(float r, unsigned q) {
  /* sine of r + q quarter turns, r from -pi/4 to pi/4 */
  float s = r * r;
  float a = tc_fma_f32(-0.0001951083813518929f, s, 0.008332131487771994f);
  a = tc_fma_f32(a, s, -0.166666542253512f);
  float b = tc_fma_f32(2.4431203143804147e-05f, s, -0.0013887306024715548f);
  b = tc_fma_f32(b, s, 0.04166664565242636f);
  float sine = tc_copysign_f32(tc_fma_f32(a * s, r, r), r);
  float cosine = tc_fma_f32(b * s, s, tc_fma_f32(-0.5f, s, 1.0f));
  float y = (q & 1) ? cosine : sine;
  return tc_float_bits(tc_bits_f32(y) ^ (q & 2) << 30);
}

/* helper: tc_turn_near_f32 */
TC_INLINE float tc_turn_near_f32(float x, unsigned q) {
  /* n, the low bits of t, quarter turns are taken off */
  float t = tc_fma_f32(x, 0.636619772367581343f, 12582912.0f), n = t - 12582912.0f;
  float r = tc_fma_f32(n, -1.57079625129699707f, x); /* parts of one sign: -0 stays */
  r = tc_fma_f32(n, -7.54978941586159635e-8f, r);
  r = tc_fma_f32(n, -5.39030252995776477e-15f, r);
  return tc_quarter_f32(r, tc_bits_f32(t) + q);
}

/* helper: tc_turn_far_f32
   The pieces are those of 2/pi, of 29 bits, so that products with 24 bits are exact. */
TC_INLINE float tc_turn_far_f32(float x, unsigned q) {
  /* quarter turns: x * 2/pi modulo 4, in pieces of 29 bits whose products are exact */
  double d = (double)x, turns = 0;
  { double p = d * 0x1.c820ff2p-175; turns += p - 4.0 * __builtin_rint(p * 0.25); }
  { double p = d * 0x1.5993c4p-148; turns += p - 4.0 * __builtin_rint(p * 0.25); }
  { double p = d * 0x1.b81b6c5p-117; turns += p - 4.0 * __builtin_rint(p * 0.25); }
  { double p = d * 0x1.d1f534dp-88; turns += p - 4.0 * __builtin_rint(p * 0.25); }
  { double p = d * 0x1.4fe13abp-59; turns += p - 4.0 * __builtin_rint(p * 0.25); }
  { double p = d * 0x1.9391054p-30; turns += p - 4.0 * __builtin_rint(p * 0.25); }
  { double p = d * 0x1.45f306dp-1; turns += p - 4.0 * __builtin_rint(p * 0.25); }
  double n = __builtin_rint(turns);
  return tc_quarter_f32((float)((turns - n) * 1.5707963267948966), (unsigned)(int)n + q);
}

/* helper: tc_turn_f32 */
TC_INLINE float tc_turn_f32(float x, unsigned q) {
  /* the same for an element wherever it stands */
  const float near = tc_turn_near_f32(x, q), far = tc_turn_far_f32(x, q);
  return (tc_bits_f32(x) & 0x7fffffffu) > 0x47c35000 ? far : near;
}

/* helper: tc_NAME_f32
   for: NAME QUARTERS = sin 0, cos 1
   with: tc_NAME_one, tc_NAME_b, tc_NAME_c, tc_NAME_d
   The sine, so many quarter turns on. Its forms have names for the linker, weak ones, since each
   part of a file has a copy. */
#if defined(__FMA__) && defined(__x86_64__) && !defined(__clang__)
#define TC_ALONE __attribute__((visibility("hidden"), weak))
TC_ALONE __attribute__((const, simd("notinbranch"))) float tc_NAME_f32(float x);
TC_ALONE float tc_NAME_one(float x) __asm__("tc_NAME_f32");
float tc_NAME_one(float x) { return tc_turn_f32(x, QUARTERS); }
#define TC_TURNS(isa, lanes, any) \
  typedef float tc_NAME_##isa __attribute__((vector_size(4 * lanes))); \
  typedef int tc_NAME_i##isa __attribute__((vector_size(4 * lanes))); \
  TC_ALONE tc_NAME_##isa tc_NAME_of_##isa(tc_NAME_##isa x) \
    __asm__("_ZGV" #isa "N" #lanes "v_tc_NAME_f32"); \
  tc_NAME_##isa tc_NAME_of_##isa(tc_NAME_##isa x) { \
    tc_NAME_##isa given = x, made; \
    const float* in = (const float*)&given; \
    float* out = (float*)&made; \
    tc_NAME_i##isa far = ((tc_NAME_i##isa)x & 0x7fffffff) > 0x47c35000; \
    if (__builtin_expect(any, 0)) \
      for (int i = 0; i < lanes; i++) out[i] = tc_turn_f32(in[i], QUARTERS); \
    else \
      for (int i = 0; i < lanes; i++) out[i] = tc_turn_near_f32(in[i], QUARTERS); \
    return made; \
  }
TC_TURNS(b, 4, __builtin_ia32_movmskps((tc_NAME_b)far))
TC_TURNS(c, 8, __builtin_ia32_movmskps256((tc_NAME_c)far))
TC_TURNS(d, 8, __builtin_ia32_movmskps256((tc_NAME_d)far))
#ifdef __AVX512F__
TC_TURNS(e, 16, __builtin_ia32_ptestmd512(far, far, -1))
#endif
#undef TC_TURNS
#undef TC_ALONE
#else
TC_INLINE float tc_NAME_f32(float x) { return tc_turn_far_f32(x, QUARTERS); }
#endif

/* helper: tc_tan_f32 */
TC_INLINE float tc_tan_f32(float x) { return tc_sin_f32(x) / tc_cos_f32(x); }

/* helper: tc_turn_near_f64
   Up to 2^30: the products with three parts of pi/2 of 53 bits each are rounded once, so that the rest
   is right to its last bit but one even next to a multiple. They have one sign, so that -0 stays. */
TC_INLINE double tc_turn_near_f64(double x, const int quarters) {
  /* sine of so many quarter turns more; of -1 the tangent */
  double shifted = tc_fma_f64(x, 0.63661977236758134, 6755399441055744.0);
  double n = shifted - 6755399441055744.0;
  double r = tc_fma_f64(n, -1.5707963267948966, x);
  r = tc_fma_f64(n, -6.123233995736765e-17, r);
  r = tc_fma_f64(n, -1.082856673921914e-32, r);
  long long q = tc_bits_f64(shifted) + (quarters > 0 ? quarters : 0);
  double s = r * r;
  double a = -7.586094789672523e-13;
  a = tc_fma_f64(a, s, 1.6058521349954984e-10);
  a = tc_fma_f64(a, s, -2.5052106167335705e-08);
  a = tc_fma_f64(a, s, 2.7557319219150783e-06);
  a = tc_fma_f64(a, s, -0.00019841269841264821);
  a = tc_fma_f64(a, s, 0.008333333333333331);
  a = tc_fma_f64(a, s, -0.16666666666666666);
  double b = 4.745537016775937e-14;
  b = tc_fma_f64(b, s, -1.1470455178205905e-11);
  b = tc_fma_f64(b, s, 2.087675575487951e-09);
  b = tc_fma_f64(b, s, -2.755731922129809e-07);
  b = tc_fma_f64(b, s, 2.480158730158451e-05);
  b = tc_fma_f64(b, s, -0.0013888888888888887);
  b = tc_fma_f64(b, s, 0.041666666666666664);
  double sine = tc_copysign_f64(tc_fma_f64(a * s, r, r), r);
  double cosine = tc_fma_f64(b * s, s, tc_fma_f64(-0.5, s, 1.0));
  if (quarters < 0) return (q & 1 ? -cosine : sine) / (q & 1 ? sine : cosine);
  double y = (q & 1) ? cosine : sine;
  return tc_double_bits(tc_bits_f64(y) ^ (q & 2) << 62);
}

/* helper: tc_NAME_f64
   for: NAME QUARTERS = sin 0, cos 1, tan -1
   with: tc_NAME_by64, tc_NAME_b64, tc_NAME_c64, tc_NAME_d64, tc_NAME_e64, tc_NAME_l64
   As those of float; what is beyond 2^30 libm computes. */
#if defined(__FMA__) && defined(__x86_64__) && !defined(__clang__)
#define TC_ALONE __attribute__((visibility("hidden"), weak))
TC_ALONE __attribute__((const, simd("notinbranch"))) double tc_NAME_f64(double x);
TC_ALONE double tc_NAME_by64(double x) __asm__("tc_NAME_f64");
double tc_NAME_by64(double x) {
  return __builtin_fabs(x) < 0x1p30 ? tc_turn_near_f64(x, QUARTERS) : __builtin_NAME(x);
}
#define TC_TURNS(isa, lanes, any) \
  typedef double tc_NAME_##isa##64 __attribute__((vector_size(8 * lanes))); \
  typedef long long tc_NAME_l64##isa __attribute__((vector_size(8 * lanes))); \
  TC_ALONE tc_NAME_##isa##64 tc_NAME_l64_of_##isa(tc_NAME_##isa##64 x) \
    __asm__("_ZGV" #isa "N" #lanes "v_tc_NAME_f64"); \
  tc_NAME_##isa##64 tc_NAME_l64_of_##isa(tc_NAME_##isa##64 x) { \
    tc_NAME_##isa##64 given = x, made; \
    const double* in = (const double*)&given; \
    double* out = (double*)&made; \
    /* beyond 2^30, whose upper bits these are; infinities and NaN as well */ \
    tc_NAME_l64##isa far = ((tc_NAME_l64##isa)x & 0x7fffffffffffffffLL) >= 0x41d0000000000000LL; \
    if (__builtin_expect(any, 0)) \
      for (int i = 0; i < lanes; i++) out[i] = tc_NAME_by64(in[i]); \
    else \
      for (int i = 0; i < lanes; i++) out[i] = tc_turn_near_f64(in[i], QUARTERS); \
    return made; \
  }
TC_TURNS(b, 2, __builtin_ia32_movmskpd((tc_NAME_b64)far))
TC_TURNS(c, 4, __builtin_ia32_movmskpd256((tc_NAME_c64)far))
TC_TURNS(d, 4, __builtin_ia32_movmskpd256((tc_NAME_d64)far))
#ifdef __AVX512F__
TC_TURNS(e, 8, __builtin_ia32_ptestmq512(far, far, -1))
#endif
#undef TC_TURNS
#undef TC_ALONE
#else
TC_INLINE double tc_NAME_f64(double x) { return __builtin_NAME(x); }
#endif
