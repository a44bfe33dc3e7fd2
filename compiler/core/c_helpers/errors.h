/* Error functions of float64, and the complementary one of float, without branches.

   Near zero erf is x times a polynomial of x^2. Elsewhere erfc(a) = e^(-a^2) * erfcx(a), where
   erfcx(a) * (a + K) is a polynomial of (a - K) / (a + K), after Shepherd and Laframboise, "Chebyshev
   approximation of (1 + 2x) exp(x^2) erfc x in 0 <= x < infinity", Mathematics of Computation 36
   (1981). What a^2 loses when it is rounded is made good. Coefficients are interpolated at Chebyshev
   nodes by us. */

#pragma once /* these lines are for editors, and are not pasted */
#include "prelude.h"
#include "exponentials.h"
#include "floats.h"

/* helper: tc_erfc_far_f64 */
TC_INLINE double tc_erfc_far_f64(double a) {
  /* erfc from 1/2 on */
  double c = 28.0 < a ? 28.0 : a;
  double w = 1.0 / (c + 3.0), t = (c - 3.0) * w;
  double p = -9.183354810151792e-09;
  p = tc_fma_f64(p, t, 3.211022940727216e-08);
  p = tc_fma_f64(p, t, 6.431157166291459e-08);
  p = tc_fma_f64(p, t, -2.143613253928427e-07);
  p = tc_fma_f64(p, t, -4.271602790972938e-07);
  p = tc_fma_f64(p, t, 9.87523027863277e-07);
  p = tc_fma_f64(p, t, 2.7768911577832785e-06);
  p = tc_fma_f64(p, t, -4.7450491511443e-06);
  p = tc_fma_f64(p, t, -1.7474785243188214e-05);
  p = tc_fma_f64(p, t, 3.0397187439821162e-05);
  p = tc_fma_f64(p, t, 0.00010756245265926458);
  p = tc_fma_f64(p, t, -0.0002767777017632291);
  p = tc_fma_f64(p, t, -0.0005483098272760808);
  p = tc_fma_f64(p, t, 0.003034061988070013);
  p = tc_fma_f64(p, t, -0.0012124166162347325);
  p = tc_fma_f64(p, t, -0.026827234623802567);
  p = tc_fma_f64(p, t, 0.11952776128683756);
  p = tc_fma_f64(p, t, -0.3104672619005842);
  p = tc_fma_f64(p, t, 0.590228357104109);
  p = tc_fma_f64(p, t, -0.8833944531698835);
  p = tc_fma_f64(p, t, 1.0740069070883398);
  double s = c * c, e = tc_exp_f64(-s);
  return tc_fma_f64(e, -tc_fma_f64(c, c, -s), e) * (p * w);
}

/* helper: tc_erf_near_f64 */
TC_INLINE double tc_erf_near_f64(double x) {
  /* erf from -1 to 1 */
  double z = x * x;
  double p = 6.173839024542301e-11;
  p = tc_fma_f64(p, z, -1.150022149262635e-09);
  p = tc_fma_f64(p, z, 1.4692454144290629e-08);
  p = tc_fma_f64(p, z, -1.6355114690771087e-07);
  p = tc_fma_f64(p, z, 1.6461446347099696e-06);
  p = tc_fma_f64(p, z, -1.4925622488806722e-05);
  p = tc_fma_f64(p, z, 0.0001205533221420817);
  p = tc_fma_f64(p, z, -0.0008548327010023105);
  p = tc_fma_f64(p, z, 0.005223977625303399);
  p = tc_fma_f64(p, z, -0.02686617064512383);
  p = tc_fma_f64(p, z, 0.11283791670955111);
  p = tc_fma_f64(p, z, -0.37612638903183754);
  return tc_fma_f64(p * z, x, x * 1.1283791670955126);
}

/* helper: tc_erf_f64 */
TC_INLINE double tc_erf_f64(double x) {
#ifdef __FMA__
  double a = __builtin_fabs(x), far = 1.0 - tc_erfc_far_f64(a);
  return tc_copysign_f64(a < 1.0 ? tc_erf_near_f64(a) : far, x);
#else
  return __builtin_erf(x);
#endif
}

/* helper: tc_erfc_f64 */
TC_INLINE double tc_erfc_f64(double x) {
#ifdef __FMA__
  double a = __builtin_fabs(x), far = tc_erfc_far_f64(a);
  far = x < 0.0 ? 2.0 - far : far;
  return a < 0.5 ? 1.0 - tc_erf_near_f64(x) : far;
#else
  return __builtin_erfc(x);
#endif
}

/* helper: tc_erfc_f32 */
TC_INLINE float tc_erfc_f32(float x) {
#ifdef __FMA__
  float a = __builtin_fabsf(x), c = 10.1f < a ? 10.1f : a;
  float w = 1.0f / (c + 2.0f), t = (c - 2.0f) * w;
  float p = -0.0005169412714431499f;
  p = tc_fma_f32(p, t, -0.0007874866623571935f);
  p = tc_fma_f32(p, t, 0.0030360630284969664f);
  p = tc_fma_f32(p, t, 0.0064614073492208655f);
  p = tc_fma_f32(p, t, -0.021502422266963493f);
  p = tc_fma_f32(p, t, -0.03643998254413301f);
  p = tc_fma_f32(p, t, 0.2794716720667161f);
  p = tc_fma_f32(p, t, -0.6871607603941107f);
  p = tc_fma_f32(p, t, 1.021582708407918f);
  float s = c * c, e = tc_exp_f32(-s);
  float far = tc_fma_f32(e, -tc_fma_f32(c, c, -s), e) * (p * w);
  far = x < 0.0f ? 2.0f - far : far;
  return a < 0.5f ? 1.0f - tc_erf_f32(x) : far;
#else
  return __builtin_erfcf(x);
#endif
}
