"""C of float32 logarithms, arcs and hyperbolic functions, without branches, so that gcc vectorises.

`math` takes them in among the helpers that kernels may call. Coefficients are our own weighted
least-squares fits; the reductions are the textbook ones (quotients, half angles, exponents).
"""

from __future__ import annotations

# x = 2^e * (1 + f); t is what {tail} makes of e, f and log(1 + f) = f - s/2 + f * s * p
_LOGARITHM = """\
float tc_{name}_f32(float x) {{
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
{tail}
  t = x == __builtin_inff() ? x : t;
  t = x == 0.0f ? -__builtin_inff() : t;
  return (x < 0.0f || x != x) ? __builtin_nanf("") : t;
}}"""
_TAILS = {
    "log": """\
  float t = tc_fma_f32(e, 1.42860677e-6f, p * f * s);
  t = tc_fma_f32(-0.5f, s, t) + f;
  t = tc_fma_f32(e, 0.693145751953125f, t);""",
    "log2": """\
  float t = tc_fma_f32(-0.5f, s, p * f * s) + f;
  t = tc_fma_f32(t, 1.44269504088896341f, e);""",
    "log10": """\
  float t = tc_fma_f32(-0.5f, s, p * f * s) + f;
  t = tc_fma_f32(e, 4.6050389811952137e-6f, t * 0.434294481903251828f);
  t = tc_fma_f32(e, 0.301025390625f, t);""",
}

ELEMENTARY: dict[str, str] = {
    f"tc_{name}_f32": _LOGARITHM.format(name=name, tail=tail) for name, tail in _TAILS.items()
} | {
    "tc_log1p_f32": """\
float tc_log1p_f32(float x) {
  /* log(u) with u = 1 + x rounded, plus the rounding made good */
  float u = 1.0f + x;
  float lost = u > 2.0f ? (x - u) + 1.0f : x - (u - 1.0f);
  float r = tc_log_f32(u) + lost / u;
  r = u == 1.0f ? x : r;
  r = x == -1.0f ? -__builtin_inff() : r;
  return x == __builtin_inff() ? x : r;
}""",
    "tc_arc_f32": """\
float tc_arc_f32(float q) {
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
}""",
    "tc_atan_f32": """\
float tc_atan_f32(float x) {
  /* of the smaller of |x| and 1/|x| */
  float a = __builtin_fabsf(x);
  float r = tc_arc_f32(a > 1.0f ? 1.0f / a : a);
  r = a > 1.0f ? 1.57079637050628662f - (r + 4.37113900018624283e-8f) : r;
  return tc_copysign_f32(r, x);
}""",
    "tc_atan2_f32": """\
float tc_atan2_f32(float y, float x) {
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
}""",
    "tc_arc_sine_f32": """\
float tc_arc_sine_f32(float x) {
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
}""",
    "tc_asin_f32": """\
float tc_asin_f32(float x) {
  float a = __builtin_fabsf(x), r = tc_arc_sine_f32(x);
  r = a > 0.5f ? 1.57079637050628662f - (2.0f * r + 4.37113900018624283e-8f) : r;
  return a != a ? x : tc_copysign_f32(r, x);
}""",
    "tc_acos_f32": """\
float tc_acos_f32(float x) {
  float a = __builtin_fabsf(x), r = tc_arc_sine_f32(x);
  float near = 1.57079637050628662f - (tc_copysign_f32(r, x) + 4.37113900018624283e-8f);
  float far = x < 0.0f ? 3.14159274101257324f - (2.0f * r + 8.74227800037248566e-8f) : 2.0f * r;
  return a > 0.5f ? far : near;
}""",
    "tc_tan_f32": "float tc_tan_f32(float x) { return tc_sin_f32(x) / tc_cos_f32(x); }",
    "tc_sinh_f32": """\
float tc_sinh_f32(float x) {
  /* from e^a - 1; for large a half of e^a alone, by halves, which do not overflow */
  float a = __builtin_fabsf(x), m = tc_expm1_f32(a), h = tc_exp_f32(0.5f * a);
  float r = a < 9.0f ? 0.5f * (m + m / (m + 1.0f)) : 0.5f * h * h;
  return tc_copysign_f32(r, x);
}""",
    "tc_cosh_f32": """\
float tc_cosh_f32(float x) {
  /* as sinh */
  float a = __builtin_fabsf(x), m = tc_exp_f32(a), h = tc_exp_f32(0.5f * a);
  return a < 9.0f ? 0.5f * m + 0.5f / m : 0.5f * h * h;
}""",
    "tc_atanh_f32": """\
float tc_atanh_f32(float x) {
  float a = __builtin_fabsf(x);
  float r = 0.5f * tc_log1p_f32(2.0f * a / (1.0f - a));
  return a != a ? x : tc_copysign_f32(r, x);
}""",
}
