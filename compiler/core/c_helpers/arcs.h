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
