"""C of float32 sine and cosine, whose arguments are reduced in one of two ways.

`math` takes them in among the helpers that kernels may call. Up to `NEAR` three products with
parts of pi/2 reduce an argument, each rounded once (Cody and Waite, with fused multiply-add);
beyond it float64 does, at five times the price. A loop cannot choose between the two for a single
element, so gcc is told that vector forms of the functions exist (under the names that the vector
ABI of x86-64 gives them), and those ask once for all their elements.
"""

from __future__ import annotations

#: bits of 1e5f: to there the results of the three products err by 1.6 ulps at most
NEAR = "0x47c35000"
# 2/pi in pieces of 29 bits, so that products with 24 bits are exact.
_PIECES = (
    "0x1.c820ff2p-175",
    "0x1.5993c4p-148",
    "0x1.b81b6c5p-117",
    "0x1.d1f534dp-88",
    "0x1.4fe13abp-59",
    "0x1.9391054p-30",
    "0x1.45f306dp-1",
)
_QUARTERS = "".join(
    f"  {{ double p = d * {piece}; turns += p - 4.0 * __builtin_rint(p * 0.25); }}\n"
    for piece in _PIECES
)

TURNS: dict[str, str] = {
    "tc_quarter_f32": """\
float tc_quarter_f32(float r, unsigned q) {
  /* sine of r + q quarter turns, r from -pi/4 to pi/4 */
  float s = r * r;
  float a = tc_fma_f32(-0.0001951083813518929f, s, 0.008332131487771994f);
  a = tc_fma_f32(a, s, -0.166666542253512f);
  float b = tc_fma_f32(2.4431203143804147e-05f, s, -0.0013887306024715548f);
  b = tc_fma_f32(b, s, 0.04166664565242636f);
  float sine = tc_fma_f32(a * s, r, r);
  float cosine = tc_fma_f32(b * s, s, tc_fma_f32(-0.5f, s, 1.0f));
  float y = (q & 1) ? cosine : sine;
  return tc_float_bits(tc_bits_f32(y) ^ (q & 2) << 30);
}""",
    "tc_turn_near_f32": """\
float tc_turn_near_f32(float x, unsigned q) {
  /* n, the low bits of t, quarter turns are taken off */
  float t = tc_fma_f32(x, 0.636619772367581343f, 12582912.0f), n = t - 12582912.0f;
  float r = tc_fma_f32(n, -1.57079637050628662109375f, x);
  r = tc_fma_f32(n, 4.37113900018624283e-8f, r);
  r = tc_fma_f32(n, 1.71512451e-15f, r);
  return tc_quarter_f32(r, tc_bits_f32(t) + q);
}""",
    "tc_turn_far_f32": f"""\
float tc_turn_far_f32(float x, unsigned q) {{
  /* quarter turns: x * 2/pi modulo 4, in pieces of 29 bits whose products are exact */
  double d = (double)x, turns = 0;
{_QUARTERS}  double n = __builtin_rint(turns);
  return tc_quarter_f32((float)((turns - n) * 1.5707963267948966), (unsigned)(int)n + q);
}}""",
    "tc_turn_f32": f"""\
float tc_turn_f32(float x, unsigned q) {{
  /* the same for an element wherever it stands */
  const float near = tc_turn_near_f32(x, q), far = tc_turn_far_f32(x, q);
  return (tc_bits_f32(x) & 0x7fffffffu) > {NEAR} ? far : near;
}}""",
}


def turning(name: str, quarters: int) -> str:
    """C of ``tc_<name>_f32``: the sine, so many quarter turns on."""
    return f"""\
#if defined(__FMA__) && defined(__x86_64__) && !defined(__clang__)
#define TC_ALONE __attribute__((visibility("hidden")))
TC_ALONE __attribute__((const, simd("notinbranch"))) float tc_{name}_f32(float x);
TC_ALONE float tc_{name}_one(float x) __asm__("tc_{name}_f32");
float tc_{name}_one(float x) {{ return tc_turn_f32(x, {quarters}); }}
#define TC_TURNS(isa, lanes, any) \\
  typedef float tc_{name}_##isa __attribute__((vector_size(4 * lanes))); \\
  typedef int tc_{name}_i##isa __attribute__((vector_size(4 * lanes))); \\
  TC_ALONE tc_{name}_##isa tc_{name}_of_##isa(tc_{name}_##isa x) \\
    __asm__("_ZGV" #isa "N" #lanes "v_tc_{name}_f32"); \\
  tc_{name}_##isa tc_{name}_of_##isa(tc_{name}_##isa x) {{ \\
    tc_{name}_##isa given = x, made; \\
    const float* in = (const float*)&given; \\
    float* out = (float*)&made; \\
    tc_{name}_i##isa far = ((tc_{name}_i##isa)x & 0x7fffffff) > {NEAR}; \\
    if (__builtin_expect(any, 0)) \\
      for (int i = 0; i < lanes; i++) out[i] = tc_turn_f32(in[i], {quarters}); \\
    else \\
      for (int i = 0; i < lanes; i++) out[i] = tc_turn_near_f32(in[i], {quarters}); \\
    return made; \\
  }}
TC_TURNS(b, 4, __builtin_ia32_movmskps((tc_{name}_b)far))
TC_TURNS(c, 8, __builtin_ia32_movmskps256((tc_{name}_c)far))
TC_TURNS(d, 8, __builtin_ia32_movmskps256((tc_{name}_d)far))
#ifdef __AVX512F__
TC_TURNS(e, 16, __builtin_ia32_ptestmd512(far, far, -1))
#endif
#undef TC_TURNS
#undef TC_ALONE
#else
TC_INLINE float tc_{name}_f32(float x) {{ return tc_turn_far_f32(x, {quarters}); }}
#endif
"""
