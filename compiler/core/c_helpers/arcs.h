/* Inverse trigonometric functions, without branches, so that gcc vectorises. */

#pragma once /* these lines are for editors, and are not pasted */
#include "prelude.h"
#include "bits.h"
#include "floats.h"

/* helper: tc_arc_f32 */
TC_INLINE float tc_arc_f32(float q) {
  /* atan of 0 to 1 */
  float z = q * q;
  float p = -0.00182690832298249f;
  p = tc_fma_f32(p, z, 0.011063083074986935f);
  p = tc_fma_f32(p, z, -0.03145318478345871f);
  p = tc_fma_f32(p, z, 0.05823203921318054f);
  p = tc_fma_f32(p, z, -0.0841931402683258f);
  p = tc_fma_f32(p, z, 0.10957527160644531f);
  p = tc_fma_f32(p, z, -0.14265236258506775f);
  p = tc_fma_f32(p, z, 0.19998638331890106f);
  p = tc_fma_f32(p, z, -0.33333301544189453f);
  return tc_fma_f32(p * z, q, q);
}

/* helper: tc_atan_f32 */
TC_INLINE float tc_atan_f32(float x) {
  /* of the smaller of |x| and 1/|x| */
  float a = __builtin_fabsf(x);
  float r = tc_arc_f32(a > 1.0f ? 1.0f / a : a);
  r = a > 1.0f ? 1.57079637050628662f - (r + 4.37113900018624283e-8f) : r;
  return tc_copysign_f32(r, x);
}

/* helper: tc_atan2_f32 */
TC_INLINE float tc_atan2_f32(float y, float x) {
  /* of the smaller side by the larger, then mirrored into the octant */
  float a = __builtin_fabsf(x), b = __builtin_fabsf(y);
  float large = a > b ? a : b, small = a > b ? b : a;
  float q = small / large;
  q = large == 0.0f ? 0.0f : q;
  q = small == __builtin_inff() ? 1.0f : q;
  float r = tc_arc_f32(q), left = (int)tc_bits_f32(x) < 0 ? 1.0f : 0.0f;
  float steep = left == 1.0f ? r : -r, flat = left == 1.0f ? -r : r;
  r = b > a ? 1.57079637050628662f + (steep - 4.37113900018624283e-8f)
            : tc_fma_f32(left, 3.14159274101257324f, flat - left * 8.74227800037248566e-8f);
  return (x != x || y != y) ? __builtin_nanf("") : tc_copysign_f32(r, y);
}

/* helper: tc_arc_sine_f32 */
TC_INLINE float tc_arc_sine_f32(float x) {
  /* asin of |x|; beyond 1/2 half of the angle from the pole instead, which is as small */
  float a = __builtin_fabsf(x), z = a > 0.5f ? (1.0f - a) * 0.5f : a * a;
  a = a > 0.5f ? __builtin_sqrtf(z) : a;
  float p = 0.037564925849437714f;
  p = tc_fma_f32(p, z, 0.014402792789041996f);
  p = tc_fma_f32(p, z, 0.031817566603422165f);
  p = tc_fma_f32(p, z, 0.04451572522521019f);
  p = tc_fma_f32(p, z, 0.07500510662794113f);
  p = tc_fma_f32(p, z, 0.16666659712791443f);
  return tc_fma_f32(p * z, a, a);
}

/* helper: tc_asin_f32 */
TC_INLINE float tc_asin_f32(float x) {
  float a = __builtin_fabsf(x), r = tc_arc_sine_f32(x);
  r = a > 0.5f ? 1.57079637050628662f - (2.0f * r + 4.37113900018624283e-8f) : r;
  return a != a ? x : tc_copysign_f32(r, x);
}

/* helper: tc_acos_f32 */
TC_INLINE float tc_acos_f32(float x) {
  float a = __builtin_fabsf(x), r = tc_arc_sine_f32(x);
  float near = 1.57079637050628662f - (tc_copysign_f32(r, x) + 4.37113900018624283e-8f);
  float far = x < 0.0f ? 3.14159274101257324f - (2.0f * r + 8.74227800037248566e-8f) : 2.0f * r;
  return a > 0.5f ? far : near;
}

/* helper: tc_arc_of_part_f64 */
TC_INLINE double tc_arc_of_part_f64(double t) {
  /* atan from -tan(pi/8) to tan(pi/8) */
  double z = t * t;
  double p = 0.016271944751537433;
  p = tc_fma_f64(p, z, -0.034558092551328114);
  p = tc_fma_f64(p, z, 0.04551108126321486);
  p = tc_fma_f64(p, z, -0.0523034787301517);
  p = tc_fma_f64(p, z, 0.05878914544400483);
  p = tc_fma_f64(p, z, -0.06666423628069243);
  p = tc_fma_f64(p, z, 0.07692296304974469);
  p = tc_fma_f64(p, z, -0.09090908751076636);
  p = tc_fma_f64(p, z, 0.11111111105106705);
  p = tc_fma_f64(p, z, -0.14285714285659326);
  p = tc_fma_f64(p, z, 0.199999999999998);
  p = tc_fma_f64(p, z, -0.3333333333333333);
  return tc_fma_f64(p * z, t, t);
}

/* helper: tc_angle_f64 */
TC_INLINE double tc_angle_f64(double eighths, double part) {
  /* so many times pi/4, and a part */
  double high = eighths * 0.78539816339744828;
  double low = tc_fma_f64(eighths, 0.78539816339744828, -high);
  return high + (tc_fma_f64(eighths, 3.0616169978683830e-17, low) + part);
}

/* helper: tc_atan_f64 */
TC_INLINE double tc_atan_f64(double x) {
#ifdef __FMA__
  /* of a, (a - 1) / (a + 1) or -1 / a, by thirds of the quarter turn */
  double a = __builtin_fabs(x);
  int middle = a > 0.41421356237309503, far = a > 2.4142135623730949;
  double up = far ? -1.0 : middle ? a - 1.0 : a, down = far ? a : middle ? a + 1.0 : 1.0;
  double r = tc_angle_f64(far ? 2.0 : middle ? 1.0 : 0.0, tc_arc_of_part_f64(up / down));
  return tc_copysign_f64(r, x);
#else
  return __builtin_atan(x);
#endif
}

/* helper: tc_atan2_f64 */
TC_INLINE double tc_atan2_f64(double y, double x) {
#ifdef __FMA__
  /* of the smaller side by the larger, then mirrored into the octant */
  double a = __builtin_fabs(x), b = __builtin_fabs(y);
  double large = a > b ? a : b, small = a > b ? b : a;
  double by = large > 0x1p1000 ? 0x1p-10 : 1.0;
  large *= by;
  small *= by;
  int middle = (small > 0.41421356237309503 * large) | (small == __builtin_inf());
  int steep = b > a, left = tc_bits_f64(x) < 0;
  double t = (middle ? small - large : small) / (middle ? small + large : large);
  t = (large == 0.0) | (small == __builtin_inf()) ? 0.0 : t;
  double part = tc_arc_of_part_f64(t);
  part = (steep ^ left) ? -part : part;
  double eighths = middle ? (left ? 3.0 : 1.0) : steep ? 2.0 : left ? 4.0 : 0.0;
  double r = tc_angle_f64(eighths, part);
  return (x != x || y != y) ? __builtin_nan("") : tc_copysign_f64(r, y);
#else
  return __builtin_atan2(y, x);
#endif
}

/* helper: tc_arc_sine_f64 */
TC_INLINE double tc_arc_sine_f64(double x) {
  /* as tc_arc_sine_f32 */
  double a = __builtin_fabs(x), z = a > 0.5 ? (1.0 - a) * 0.5 : a * a;
  a = a > 0.5 ? __builtin_sqrt(z) : a;
  double p = 0.028757851367602328;
  p = tc_fma_f64(p, z, -0.014851887071528912);
  p = tc_fma_f64(p, z, 0.01740087944288715);
  p = tc_fma_f64(p, z, 0.005457506718563782);
  p = tc_fma_f64(p, z, 0.0103228143502052);
  p = tc_fma_f64(p, z, 0.011479177415181617);
  p = tc_fma_f64(p, z, 0.013971212973553311);
  p = tc_fma_f64(p, z, 0.017352392720869945);
  p = tc_fma_f64(p, z, 0.02237217294214989);
  p = tc_fma_f64(p, z, 0.030381944138531247);
  p = tc_fma_f64(p, z, 0.04464285714635543);
  p = tc_fma_f64(p, z, 0.07499999999998433);
  p = tc_fma_f64(p, z, 0.16666666666666669);
  return tc_fma_f64(p * z, a, a);
}

/* helper: tc_asin_f64 */
TC_INLINE double tc_asin_f64(double x) {
  double a = __builtin_fabs(x), r = tc_arc_sine_f64(x);
  r = a > 0.5 ? 1.5707963267948966 - (2.0 * r - 6.1232339957367660e-17) : r;
  return a != a ? x : tc_copysign_f64(r, x);
}

/* helper: tc_acos_f64 */
TC_INLINE double tc_acos_f64(double x) {
  double a = __builtin_fabs(x), r = tc_arc_sine_f64(x);
  double near = 1.5707963267948966 - (tc_copysign_f64(r, x) - 6.1232339957367660e-17);
  double far = x < 0.0 ? 3.1415926535897931 - (2.0 * r - 1.2246467991473532e-16) : 2.0 * r;
  return a > 0.5 ? far : near;
}
