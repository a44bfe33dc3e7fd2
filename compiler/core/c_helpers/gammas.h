/* The logarithm of the gamma function, without branches, so that gcc vectorises. */

#pragma once /* these lines are for editors, and are not pasted */
#include "prelude.h"
#include "bits.h"
#include "floats.h"
#include "logarithms.h"

/* helper: tc_sin_of_half_turns_f64
   |sin(pi r)| for r from -1/2 to 1/2, by its Taylor series. */
TC_INLINE double tc_sin_of_half_turns_f64(double r) {
  double a = 3.14159265358979323846 * __builtin_fabs(r), s = a * a;
  double y = 1.9572941063391263e-20; /* 1/21! and so on */
  y = tc_fma_f64(y, s, -8.2206352466243295e-18);
  y = tc_fma_f64(y, s, 2.8114572543455206e-15);
  y = tc_fma_f64(y, s, -7.6471637318198164e-13);
  y = tc_fma_f64(y, s, 1.6059043836821613e-10);
  y = tc_fma_f64(y, s, -2.5052108385441720e-08);
  y = tc_fma_f64(y, s, 2.7557319223985893e-06);
  y = tc_fma_f64(y, s, -1.9841269841269841e-04);
  y = tc_fma_f64(y, s, 8.3333333333333332e-03);
  y = tc_fma_f64(y, s, -1.6666666666666666e-01);
  return tc_fma_f64(y * s, a, a);
}

/* helper: tc_lgamma_f32
   Stirling's series in float64, at an argument of 8 or more: a smaller one is raised by 8, and the
   eight factors between taken off. The reflection formula is for arguments below 0. */
TC_INLINE float tc_lgamma_f32(float x0) {
  double x = (double)x0;
  int reflected = x <= 0.0;
  double y = reflected ? 1.0 - x : x;
  double a = y * (y + 7.0); /* y (y + 1) ... (y + 7), by pairs whose sum is 2 y + 7 */
  double factors = a * (a + 6.0) * (a + 10.0) * (a + 12.0);
  factors = y < 8.0 ? factors : 1.0;
  double z = y < 8.0 ? y + 8.0 : y;
  double w = 1.0 / z, v = w * w;
  double r = 6.4102564102564103e-03; /* 1/156: Bernoulli numbers B_2k over 2k (2k - 1) */
  r = tc_fma_f64(r, v, -1.9175269175269176e-03);
  r = tc_fma_f64(r, v, 8.4175084175084171e-04);
  r = tc_fma_f64(r, v, -5.9523809523809529e-04);
  r = tc_fma_f64(r, v, 7.9365079365079365e-04);
  r = tc_fma_f64(r, v, -2.7777777777777779e-03);
  r = tc_fma_f64(r, v, 8.3333333333333329e-02);
  double stirling = tc_fma_f64(z - 0.5, tc_log_f64(z), 0.91893853320467274 - z) + r * w;
  double sine = tc_sin_of_half_turns_f64(x - __builtin_rint(x));
  double rest = tc_log_f64(reflected ? 3.14159265358979323846 * factors / sine : factors);
  double result = reflected ? rest - stirling : stirling - rest;
  result = ((x == 1.0) | (x == 2.0)) ? 0.0 : result; /* as exact as in eager */
  return __builtin_fabs(x) == __builtin_inf() ? __builtin_inff() : (float)result;
}
