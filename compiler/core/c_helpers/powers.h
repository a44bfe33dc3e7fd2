/* Powers, and the length of a vector of two. */

#pragma once /* these lines are for editors, and are not pasted */
#include "prelude.h"
#include "bits.h"
#include "exponentials.h"
#include "floats.h"
#include "logarithms.h"

/* helper: tc_pow_f32 */
TC_INLINE float tc_pow_f32(float x, float y) {
  /* exp(y * log|x|) in float64, then the sign and the cases IEEE fixes */
  double a = __builtin_fabs((double)x);
  float r = (float)tc_exp_f64((double)y * tc_log_f64(a));
  int whole = __builtin_floorf(y) == y;
  float half = y * 0.5f;
  int odd = whole & (__builtin_floorf(half) != half);
  int negative = (int)(tc_bits_f32(x) >> 31);
  r = (negative & odd) ? -r : r;
  r = ((x < 0.0f) & !whole & (x != -__builtin_inff())) ? __builtin_nanf("") : r;
  r = ((a == 1.0) & (__builtin_fabsf(y) == __builtin_inff())) ? 1.0f : r;
  return ((y == 0.0f) | (x == 1.0f)) ? 1.0f : r;
}

/* helper: tc_pow_f64
   The exponential of y log|x|, the logarithm and the product as sums of two float64: 2^-54 of a result is 2^-64
   of the largest of them. log(m) = 2 atanh(s) with s = (m - 1) / (m + 1); of its series s and s^3 are
   sums of two. Sums and products are those of Dekker, "A floating-point technique for extending the
   available precision", Numerische Mathematik 18 (1971). */
#ifdef __FMA__
TC_INLINE double tc_pow_f64(double x, double y) {
  double a = __builtin_fabs(x), small = a < 2.2250738585072014e-308 ? 1.0 : 0.0;
  double scaled = small != 0.0 ? a * 18014398509481984.0 : a;
  long long u = tc_bits_f64(scaled) - 0x3fe6a09e667f3bcdLL;
  double e = tc_double_bits((u >> 52) + 0x4338000000000000LL) - 6755399441055744.0 - 54.0 * small;
  double m = tc_double_bits((u & 0xfffffffffffffLL) + 0x3fe6a09e667f3bcdLL);
  double f = m - 1.0, v = m + 1.0, v_low = m - (v - 1.0);
  double s = f / v, s_low = (tc_fma_f64(-s, v, f) - s * v_low) / v;
  double z = s * s, z_low = tc_fma_f64(s, s, -z) + 2.0 * s * s_low;
  double p = 0.11724327488473098;
  p = tc_fma_f64(p, z, 0.11706126417332142);
  p = tc_fma_f64(p, z, 0.13334808800898854);
  p = tc_fma_f64(p, z, 0.15384594886960243);
  p = tc_fma_f64(p, z, 0.1818181833610041);
  p = tc_fma_f64(p, z, 0.22222222221652763);
  p = tc_fma_f64(p, z, 0.2857142857142937);
  p = tc_fma_f64(p, z, 0.4);
  p *= z;
  double q = 0.66666666666666663 + p;
  double q_low = (0.66666666666666663 - q) + p + 3.7007434154171886e-17;
  double c = z * s, c_low = tc_fma_f64(z, s, -c) + tc_fma_f64(z, s_low, z_low * s);
  double t = c * q, t_low = tc_fma_f64(c, q, -t) + tc_fma_f64(c, q_low, c_low * q);
  double big = e * 6.93147180369123816490e-01, one = big + 2.0 * s;
  double one_low = (big - one) + 2.0 * s, two = one + t;
  double low = (one - two) + t + one_low;
  low += tc_fma_f64(e, 1.90821492927058770002e-10, tc_fma_f64(2.0, s_low, t_low));
  double log_high = two + low, log_low = (two - log_high) + low;
  double product = y * log_high, rest = tc_fma_f64(y, log_high, -product) + y * log_low;
  rest = __builtin_fabs(product) < 800.0 ? rest : 0.0;
  double r = tc_exp_sum_f64(product, rest);
  r = (a == 0.0) | (a == __builtin_inf()) ? ((a == 0.0) == (y < 0.0) ? __builtin_inf() : 0.0) : r;
  int whole = __builtin_floor(y) == y;
  double half = y * 0.5;
  int odd = whole & (__builtin_floor(half) != half);
  r = ((tc_bits_f64(x) < 0) & odd) ? -r : r;
  r = ((x < 0.0) & !whole & (x != -__builtin_inf())) ? __builtin_nan("") : r;
  r = ((a == 1.0) & (__builtin_fabs(y) == __builtin_inf())) ? 1.0 : r;
  r = (x != x) | (y != y) ? __builtin_nan("") : r;
  return ((y == 0.0) | (x == 1.0)) ? 1.0 : r;
}
#else
TC_LANES double tc_pow_f64(double x, double y) { return __builtin_pow(x, y); }
#endif

/* helper: tc_hypot_f32 */
TC_INLINE float tc_hypot_f32(float x, float y) {
  double a = (double)x, b = (double)y;
  float r = (float)__builtin_sqrt(a * a + b * b);
  return (__builtin_fabs(a) == __builtin_inf()) | (__builtin_fabs(b) == __builtin_inf())
             ? __builtin_inff() : r;
}

/* helper: tc_hypot_f64 */
TC_INLINE double tc_hypot_f64(double x, double y) {
  /* of numbers that are scaled so that the larger one is from 1 to 2 */
  double a = __builtin_fabs(x), b = __builtin_fabs(y), large = a > b ? a : b;
  long long e = tc_bits_f64(large) >> 52;
  e = e < 1 ? 1 : e;
  e = e > 2045 ? 2045 : e;
  double by = tc_double_bits((2046 - e) << 52);
  a *= by;
  b *= by;
  double r = __builtin_sqrt(tc_fma_f64(a, a, b * b)) * tc_double_bits(e << 52);
  return (a == __builtin_inf()) | (b == __builtin_inf()) ? __builtin_inf() : r;
}
