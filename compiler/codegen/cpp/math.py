"""C helper functions that generated kernels may call, as text, each with what it depends on.

In: the text of kernels. Out: the helpers they use, in order of dependency (`helpers_for`). The
float32 functions are branch-free polynomials that gcc vectorises; their coefficients are our own
weighted least-squares fits, and `ops.SCALAR_OPS` states their error bounds, which tests hold
against float64. Functions without a polynomial, and all of float64, come from libm.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from tc.compiler.codegen.cpp.elementary import ELEMENTARY
from tc.compiler.codegen.cpp.microkernels import DOTS, VECTORS
from tc.compiler.codegen.cpp.moves import MOVES
from tc.compiler.codegen.cpp.outer import OUTER
from tc.compiler.codegen.cpp.range_reduction import TURNS, turning

HELPERS: dict[str, str] = {}

PRELUDE = """\
/* gcc would turn chains of clamps into chains of masks, at twice the price, and branches between
   two functions into jumps, which no vector takes */
#pragma GCC optimize ("no-thread-jumps", "no-tree-dominator-opts", "no-tree-pre")
#ifdef __FMA__
#define tc_fma_f32 __builtin_fmaf
#define tc_fma_f64 __builtin_fma
#else
#define tc_fma_f32(a, b, c) ((a) * (b) + (c))
#define tc_fma_f64(a, b, c) ((a) * (b) + (c))
#endif
#define TC_INLINE static inline __attribute__((always_inline))
"""


def _add(name: str, text: str) -> None:
    HELPERS[name] = f"TC_INLINE {text}\n"


def _libm(names: tuple[str, ...], arity: int) -> None:
    for name in names:
        for suffix, kind, tail in (("f32", "float", "f"), ("f64", "double", "")):
            key = f"tc_{name}_{suffix}"
            if key in HELPERS:
                continue
            given = ", ".join(f"{kind} x{k}" for k in range(arity))
            passed = ", ".join(f"x{k}" for k in range(arity))
            call = f"__builtin_{name}{tail}({passed})"
            _add(key, f"{kind} {key}({given}) {{ return {call}; }}")


# Two choices one after the other: gcc does not vectorise loops with several nested ones. One, of a
# constant, is made of bits: of two such choices of floats where one needs the other it makes jumps.
for _suffix, _kind, _tail, _word in (
    ("f32", "float", "f", "unsigned"),
    ("f64", "double", "", "unsigned long long"),
):
    for _name, _sign in (("minimum", "<"), ("maximum", ">")):
        _add(
            f"tc_{_name}_{_suffix}",
            f"""\
{_kind} tc_{_name}_{_suffix}({_kind} a, {_kind} b) {{
  if (__builtin_constant_p(b) && b == b) {{
    union {{ {_kind} x; {_word} u; }} mine = {{a}}, other = {{b}};
    const {_word} taken = -({_word})(b {_sign} a);
    mine.u = (other.u & taken) | (mine.u & ~taken);
    return mine.x;
  }}
  const {_kind} chosen = a {_sign} b ? a : b;
  return a != a ? a : chosen;
}}""",
        )
    _add(
        f"tc_remainder_{_suffix}",
        f"""\
{_kind} tc_remainder_{_suffix}({_kind} a, {_kind} b) {{
  {_kind} r = __builtin_fmod{_tail}(a, b);
  return (r != 0 && ((b < 0) != (r < 0))) ? r + b : r;
}}""",
    )
    _add(
        f"tc_floordiv_{_suffix}",
        f"""\
{_kind} tc_floordiv_{_suffix}({_kind} a, {_kind} b) {{
  {_kind} r = __builtin_fmod{_tail}(a, b), q = (a - r) / b, f;
  if (b == 0) return a / b;
  if (r != 0 && ((b < 0) != (r < 0))) q -= 1;
  f = __builtin_floor{_tail}(q);
  if (q == 0) return __builtin_copysign{_tail}(0, a / b);
  return q - f > ({_kind})0.5 ? f + 1 : f;
}}""",
    )
    _add(
        f"tc_round_{_suffix}",
        f"""\
{_kind} tc_round_{_suffix}({_kind} x) {{ return __builtin_rint{_tail}(x); }}""",
    )
    _add(
        f"tc_abs_{_suffix}",
        f"""\
{_kind} tc_abs_{_suffix}({_kind} x) {{ return __builtin_fabs{_tail}(x); }}""",
    )

for _suffix, _kind in (
    ("i64", "long long"),
    ("i32", "int"),
    ("i16", "short"),
    ("i8", "signed char"),
    ("u8", "unsigned char"),
    ("b8", "unsigned char"),
):
    _two = f"({_kind} a, {_kind} b)"
    _bits = {"i64": 64, "i32": 32, "i16": 16}.get(_suffix, 8)
    _signed = _suffix.startswith("i")
    _add(f"tc_minimum_{_suffix}", f"{_kind} tc_minimum_{_suffix}{_two} {{ return a < b ? a : b; }}")
    _add(f"tc_maximum_{_suffix}", f"{_kind} tc_maximum_{_suffix}{_two} {{ return a > b ? a : b; }}")
    _add(
        f"tc_abs_{_suffix}",
        f"""\
{_kind} tc_abs_{_suffix}({_kind} x) {{
  return ({_kind})({"x < 0 ? -x : x" if _signed else "x"});
}}""",
    )
    _not = "!x" if _suffix == "b8" else "~x"
    _add(
        f"tc_not_{_suffix}", f"{_kind} tc_not_{_suffix}({_kind} x) {{ return ({_kind})({_not}); }}"
    )
    _divide = f"return ({_kind})((double)a / (double)b);"
    if _suffix == "i64":
        # Two steps in float64 are exact and vectorise; the second divides what the first left.
        _divide = """
#ifdef __AVX512DQ__
  long long q = (long long)((double)a / (double)b), r = a - q * b;
  q += (long long)((double)r / (double)b);
  r = a - q * b;
  unsigned long long left = r < 0 ? 0ULL - (unsigned long long)r : (unsigned long long)r;
  unsigned long long size = b < 0 ? 0ULL - (unsigned long long)b : (unsigned long long)b;
  long long over = (r != 0 && ((r < 0) != (a < 0))) ? -1 : (left >= size);
  return q + (((a < 0) != (b < 0)) ? -over : over);
#else
  return b == 0 ? 0 : b == -1 ? -a : a / b;
#endif"""
    _add(f"tc_truncdiv_{_suffix}", f"{_kind} tc_truncdiv_{_suffix}{_two} {{ {_divide}\n}}")
    _add(
        f"tc_fmod_{_suffix}",
        f"{_kind} tc_fmod_{_suffix}{_two} {{ return a - tc_truncdiv_{_suffix}(a, b) * b; }}",
    )
    _add(
        f"tc_floordiv_{_suffix}",
        f"""\
{_kind} tc_floordiv_{_suffix}{_two} {{
  {_kind} q = tc_truncdiv_{_suffix}(a, b), r = ({_kind})(a - q * b);
  return ({_kind})(q - ((r != 0) & ((r < 0) != (b < 0))));
}}""",
    )
    _add(
        f"tc_remainder_{_suffix}",
        f"""\
{_kind} tc_remainder_{_suffix}{_two} {{
  {_kind} q = tc_truncdiv_{_suffix}(a, b), r = ({_kind})(a - q * b);
  return ({_kind})(r + (((r != 0) & ((r < 0) != (b < 0))) ? b : 0));
}}""",
    )
    _add(
        f"tc_shl_{_suffix}",
        f"""\
{_kind} tc_shl_{_suffix}{_two} {{
  return (b < 0 || b >= {_bits}) ? 0 : ({_kind})((unsigned long long)a << b);
}}""",
    )
    _over = f"(b < 0 || b >= {_bits}) ? (a < 0 ? -1 : 0)" if _signed else f"b >= {_bits} ? 0"
    _add(
        f"tc_shr_{_suffix}",
        f"""\
{_kind} tc_shr_{_suffix}{_two} {{ return ({_kind})({_over} : (a >> b)); }}""",
    )
    _add(
        f"tc_ipow_{_suffix}",
        f"""\
{_kind} tc_ipow_{_suffix}{_two} {{
  {_kind} r = 1;
  if (b < 0) return a == 1 ? 1 : a == ({_kind})-1 ? ((b & 1) ? ({_kind})-1 : 1) : 0;
  while (b) {{
    if (b & 1) r = ({_kind})(r * a);
    a = ({_kind})(a * a);
    b = ({_kind})(b >> 1);
  }}
  return r;
}}""",
    )

_add(
    "tc_floordiv",
    """\
long long tc_floordiv(long long a, long long b) {
  long long q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}""",
)
_add(
    "tc_mod",
    """\
long long tc_mod(long long a, long long b) { long long r = a % b; return (r < 0) ? r + b : r; }""",
)
_add("tc_min", "long long tc_min(long long a, long long b) { return a < b ? a : b; }")
_add("tc_max", "long long tc_max(long long a, long long b) { return a > b ? a : b; }")
_add(
    "tc_clip",
    """\
long long tc_clip(long long i, long long n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }""",
)
_add(
    "tc_bits_f32",
    """\
unsigned tc_bits_f32(float x) { union { float f; unsigned u; } v = {x}; return v.u; }""",
)
_add(
    "tc_float_bits",
    """\
float tc_float_bits(unsigned u) { union { unsigned u; float f; } v = {u}; return v.f; }""",
)
# gcc 12 stops with an internal error where it vectorises __builtin_signbit
_add("tc_signbit_f32", "int tc_signbit_f32(float x) { return (int)(tc_bits_f32(x) >> 31); }")
_add(
    "tc_signbit_f64",
    """\
int tc_signbit_f64(double x) {
  union { double f; unsigned long long u; } v = {x};
  return (int)(v.u >> 63);
}""",
)
_add(
    "tc_div_f32",
    """\
float tc_div_f32(float a, float b) {
#ifdef __FMA__
  /* a constant: its reciprocal in two parts of 24 bits, of one sign so that infinity stays */
  const double whole = 1.0 / (double)b;
  const float near = (float)whole;
  const int beyond = __builtin_fabs((double)near) > __builtin_fabs(whole);
  const float most = tc_float_bits(tc_bits_f32(near) - beyond), rest = (float)(whole - most);
  if (__builtin_constant_p(b) && rest != 0 && __builtin_fabs(whole) > 1e-30 && \
__builtin_fabs(whole) < 1e30)
    return tc_fma_f32(a, most, a * rest);
#endif
  return a / b;
}""",
)
_add("tc_div_f64", "double tc_div_f64(double a, double b) { return a / b; }")
_add(
    "tc_bf16_to_f32",
    """\
float tc_bf16_to_f32(unsigned short x) { return tc_float_bits((unsigned)x << 16); }""",
)
_add(
    "tc_f32_to_bf16",
    """\
unsigned short tc_f32_to_bf16(float x) {
  unsigned u = tc_bits_f32(x);
  unsigned rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  return (unsigned short)(x != x ? 0x7fc0 : rounded);
}""",
)
_add(
    "tc_f32_to_plain_bf16",
    """\
unsigned short tc_f32_to_plain_bf16(float x) {
  unsigned u = tc_bits_f32(x);
  return (unsigned short)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}""",
)
_add(
    "tc_round_plain_bf16",
    """\
float tc_round_plain_bf16(float x) {
  unsigned u = tc_bits_f32(x);
  return tc_float_bits((u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u);
}""",
)
_add(
    "tc_round_bf16",
    """\
float tc_round_bf16(float x) {
  unsigned u = tc_bits_f32(x);
  float rounded = tc_float_bits((u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u);
  return x != x ? x : rounded;
}""",
)
# The _Float16 of gcc is converted one by one; these are integer operations, made in vectors.
_add(
    "tc_f16_to_f32",
    """\
float tc_f16_to_f32(unsigned short x) {
  /* exponent rebiased by a product, which also makes subnormals right */
  float scaled = tc_float_bits(((unsigned)x & 0x7fff) << 13) * 0x1p112f;
  unsigned u = tc_bits_f32(scaled);
  u = (x & 0x7c00) == 0x7c00 ? u | 0x7f800000u : u;
  return tc_float_bits(u | ((unsigned)x & 0x8000) << 16);
}""",
)
_add(
    "tc_f32_to_f16",
    """\
unsigned short tc_f32_to_f16(float x) {
  unsigned u = tc_bits_f32(x), a = u & 0x7fffffffu;
  unsigned normal = (a + 0xfff + ((a >> 13) & 1) - 0x38000000u) >> 13;
  /* below 2^-14 adding a half leaves the multiple of 2^-24 in the last bits, rounded */
  unsigned small = tc_bits_f32(tc_float_bits(a) + 0.5f) - 0x3f000000u;
  unsigned h = a < 0x38800000u ? small : a >= 0x477ff000u ? 0x7c00u : normal;
  h = a > 0x7f800000u ? 0x7e00u : h;
  return (unsigned short)(h | (u >> 16 & 0x8000u));
}""",
)
_add(
    "tc_round_f16",
    """\
float tc_round_f16(float x) { return tc_f16_to_f32(tc_f32_to_f16(x)); }""",
)
for _name, _text in MOVES.items():
    _add(_name, _text)
HELPERS["tc_lanes"] = VECTORS
HELPERS["tc_dots_f32"] = DOTS
HELPERS["tc_outer_f32"] = OUTER

# ---------------------------------------------------------------- float32 polynomials

_add(
    "tc_exp_f32",
    """\
float tc_exp_f32(float x) {
  /* x = n*ln2 + r, e^r by a polynomial; n, the low bits of t, makes 2^(n-1). Clamped is only what n
     is made of, by integers, which takes one instruction; r, from x itself, still is inf or NaN.
     Results below 1.9e-38 are 0: denormals would cost as much again. */
  int c = (int)tc_bits_f32(x);
  c = c < 0x42b20000 ? c : 0x42b20000; /* 89 */
  float t = tc_fma_f32(tc_float_bits((unsigned)c), 1.44269504088896341f, 12583038.0f);
  float n = t - 12583038.0f;
  float r = tc_fma_f32(n, -0.693145751953125f, x);
  r = tc_fma_f32(n, -1.42860677e-6f, r);
  float p = 0.0027687211986631155f;
  p = tc_fma_f32(p, r, 0.016748391091823578f);
  p = tc_fma_f32(p, r, 0.08333601057529449f);
  p = tc_fma_f32(p, r, 0.3333286046981812f);
  p = tc_fma_f32(p, r, 0.9999998807907104f);
  p = tc_fma_f32(tc_fma_f32(p, r, 2.0f), r, 2.0f);
  float y = p * tc_float_bits(tc_bits_f32(t) << 23);
  return x < -86.9f ? 0.0f : y;
}""",
)
_add(
    "tc_exp2_f32",
    """\
float tc_exp2_f32(float x) {
  float c = x > 129.0f ? 129.0f : x;
  c = c < -151.0f ? -151.0f : c;
  float n = (c + 12582912.0f) - 12582912.0f;
  float r = (c - n) * 0.693147180559945f;
  float p = 0.0013814464763831323f;
  p = tc_fma_f32(p, r, 0.008368780622495624f);
  p = tc_fma_f32(p, r, 0.041668394258952864f);
  p = tc_fma_f32(p, r, 0.16666520105543342f);
  p = tc_fma_f32(p, r, 0.4999999341226183f);
  p = tc_fma_f32(p, r * r, r) + 1.0f;
  int i = (int)n, half = i >> 1;
  p *= tc_float_bits((unsigned)(half + 127) << 23);
  return p * tc_float_bits((unsigned)(i - half + 127) << 23);
}""",
)
_add(
    "tc_expm1_f32",
    """\
float tc_expm1_f32(float x) {
  /* 2^n * (e^r - 1) + (2^n - 1); n = 0 near zero, so nothing cancels there */
  float c = x > 89.0f ? 89.0f : x;
  c = c < -30.0f ? -30.0f : c;
  float n = c * 1.44269504088896341f + 12582912.0f;
  n -= 12582912.0f;
  float r = tc_fma_f32(n, -0.693145751953125f, c);
  r = tc_fma_f32(n, -1.42860677e-6f, r);
  float p = 0.0001984588433100923f;
  p = tc_fma_f32(p, r, 0.0013940720446702817f);
  p = tc_fma_f32(p, r, 0.008333389575290985f);
  p = tc_fma_f32(p, r, 0.041666359813421566f);
  p = tc_fma_f32(p, r, 0.16666666368835367f);
  p = tc_fma_f32(p, r, 0.5000000044401725f);
  p = tc_fma_f32(p, r * r, r);
  int i = (int)n, half = i >> 1;
  float a = tc_float_bits((unsigned)(half + 127) << 23);
  float b = tc_float_bits((unsigned)(i - half + 127) << 23);
  float big = tc_fma_f32(p, a, a - 1.0f / b) * b;
  return i == 0 ? (x == 0 ? x : p) : big;
}""",
)
_add(
    "tc_tanh_f32",
    """\
float tc_tanh_f32(float x) {
  /* x * P(x^2) / Q(x^2), exactly 1 at `most`. With fused multiply-add no result is beyond 1: all
     floats were tried. Clamps are dear, gcc makes masks of them. */
#ifdef __FMA__
  const float most = 8.13919258f;
#else
  const float most = 9.1f;
#endif
  float c = x > most ? most : x;
  c = c < -most ? -most : c;
  float s = c * c;
  float p = -1.2033567769788744e-11f;
  p = tc_fma_f32(p, s, 3.0355453131138605e-08f);
  p = tc_fma_f32(p, s, 2.791191244329072e-05f);
  p = tc_fma_f32(p, s, 0.0038635919931375036f);
  p = tc_fma_f32(p, s, 0.13676136005227238f);
  p = tc_fma_f32(p, s, 0.9999999985631803f);
  float q = 1.2806927950423841e-06f;
  q = tc_fma_f32(q, s, 0.0003930281383907765f);
  q = tc_fma_f32(q, s, 0.02722850761260931f);
  q = tc_fma_f32(q, s, 0.47009467945539624f);
  q = tc_fma_f32(q, s, 1.0f);
#ifdef __FMA__
  return c * p / q;
#else
  float y = c * p / q;
  y = y > 1.0f ? 1.0f : y;
  return y < -1.0f ? -1.0f : y;
#endif
}""",
)
_add(
    "tc_erf_f32",
    """\
float tc_erf_f32(float x) {
  /* x * P(x^2) / Q(x^2), exactly 1 at `most`. With fused multiply-add no result is beyond 1: all
     floats were tried. Clamps are dear, gcc makes masks of them. */
#ifdef __FMA__
  const float most = 3.6404109f;
#else
  const float most = 4.0f;
#endif
  float c = x > most ? most : x;
  c = c < -most ? -most : c;
  float s = c * c;
  float p = 1.986787026403537e-06f;
  p = tc_fma_f32(p, s, 0.00028455946063062624f);
  p = tc_fma_f32(p, s, 0.0038831534346449575f);
  p = tc_fma_f32(p, s, 0.053101153481292816f);
  p = tc_fma_f32(p, s, 0.19354094216092999f);
  p = tc_fma_f32(p, s, 1.1283791394195886f);
  float q = 3.741988321657581e-05f;
  q = tc_fma_f32(q, s, 0.0011855208271748592f);
  q = tc_fma_f32(q, s, 0.015206872183381712f);
  q = tc_fma_f32(q, s, 0.11534825404354832f);
  q = tc_fma_f32(q, s, 0.5048537509515316f);
  q = tc_fma_f32(q, s, 1.0f);
#ifdef __FMA__
  return c * p / q;
#else
  float y = c * p / q;
  y = y > 1.0f ? 1.0f : y;
  return y < -1.0f ? -1.0f : y;
#endif
}""",
)
for _name, _text in {**ELEMENTARY, **TURNS}.items():
    _add(_name, _text)
for _name, _shift in (("sin", 0), ("cos", 1)):
    HELPERS[f"tc_{_name}_f32"] = turning(_name, _shift)

# ---------------------------------------------------------------- float64 polynomials

_add(
    "tc_bits_f64",
    """\
long long tc_bits_f64(double x) { union { double f; long long u; } v = {x}; return v.u; }""",
)
_add(
    "tc_double_bits",
    """\
double tc_double_bits(long long u) { union { long long u; double f; } v = {u}; return v.f; }""",
)
_add(
    "tc_exp_f64",
    """\
double tc_exp_f64(double x) {
  double c = x > 710.0 ? 710.0 : x;
  c = c < -746.0 ? 0.0 : c;
  double shifted = c * 1.44269504088896340736 + 6755399441055744.0;
  double n = shifted - 6755399441055744.0;
  double r = tc_fma_f64(n, -6.93147180369123816490e-01, c);
  r = tc_fma_f64(n, -1.90821492927058770002e-10, r);
  double p = 2.4005223896767192e-08;
  p = tc_fma_f64(p, r, 2.7630127735485173e-07);
  p = tc_fma_f64(p, r, 2.7560257512437315e-06);
  p = tc_fma_f64(p, r, 2.4801487301653156e-05);
  p = tc_fma_f64(p, r, 0.00019841267273704185);
  p = tc_fma_f64(p, r, 0.0013888888961351609);
  p = tc_fma_f64(p, r, 0.008333333334013968);
  p = tc_fma_f64(p, r, 0.041666666666372504);
  p = tc_fma_f64(p, r, 0.16666666666666805);
  p = tc_fma_f64(p, r, 0.5000000000000046);
  p = tc_fma_f64(p, r * r, r) + 1.0;
  /* the low bits of the shifted value are n */
  long long i = tc_bits_f64(shifted) - 0x4338000000000000LL, half = i >> 1;
  p *= tc_double_bits((half + 1023) << 52);
  p *= tc_double_bits((i - half + 1023) << 52);
  return x < -746.0 ? 0.0 : p;
}""",
)
_add(
    "tc_log_f64",
    """\
double tc_log_f64(double x) {
  double scaled = x < 2.2250738585072014e-308 ? x * 18014398509481984.0 : x;
  double lift = x < 2.2250738585072014e-308 ? -54.0 : 0.0;
  long long u = tc_bits_f64(scaled) - 0x3fe6a09e667f3bcdLL;
  double e = tc_double_bits((u >> 52) + 0x4338000000000000LL) - 6755399441055744.0 + lift;
  double f = tc_double_bits((u & 0xfffffffffffffLL) + 0x3fe6a09e667f3bcdLL) - 1.0;
  double s = f / (2.0 + f), z = s * s, h = 0.5 * f * f;
  double p = 0.14694972894022681;
  p = tc_fma_f64(p, z, 0.15326779947523045);
  p = tc_fma_f64(p, z, 0.1818294475028973);
  p = tc_fma_f64(p, z, 0.22222213223347428);
  p = tc_fma_f64(p, z, 0.2857142856993072);
  p = tc_fma_f64(p, z, 0.40000000000328145);
  p = tc_fma_f64(p, z, 0.6666666666666576);
  double t = tc_fma_f64(s, h + p * z, e * 1.90821492927058770002e-10);
  t = e * 6.93147180369123816490e-01 - ((h - t) - f);
  t = x == __builtin_inf() ? x : t;
  t = x == 0.0 ? -__builtin_inf() : t;
  return (x < 0.0 || x != x) ? __builtin_nan("") : t;
}""",
)
_add(
    "tc_pow_f32",
    """\
float tc_pow_f32(float x, float y) {
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
}""",
)
_libm(("sqrt", "floor", "ceil", "trunc", "fabs", "exp", "exp2", "expm1"), 1)
_libm(("log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan"), 1)
_libm(("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma"), 1)
# Lanes of 64 bits spare the shuffles that narrow ones need around a wide product.
_add(
    "tc_random_i64",
    """\
long long tc_random_i64(long long seed, long long counter) {
  unsigned long long low = 0xffffffff, key = seed & low, left = counter & low, p;
  unsigned long long right = (unsigned long long)(counter ^ seed) >> 32;
  for (int round = 0; round < 10; round++) {
    p = left * 0xD256D193ULL, left = (p >> 32) ^ key ^ right, right = p & low;
    key = (key + 0x9E3779B9U) & low; }
  return (long long)((left << 32) | right);
}""",
)
_libm(("pow", "atan2", "hypot", "fmod", "copysign", "nextafter"), 2)

_CALL = re.compile(r"\btc_\w+")


def helpers_for(names: Iterable[str]) -> str:
    """C source of some helpers and of all that they call, those that are called first."""
    order: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in order:
            for called in _calls(name):
                visit(called)
            order[name] = None

    for name in names:
        visit(name)
    return PRELUDE + "".join(HELPERS[name] for name in order)


@functools.cache
def _calls(name: str) -> tuple[str, ...]:
    """The other helpers that a helper names, in order."""
    found = dict.fromkeys(_CALL.findall(HELPERS[name]))
    return tuple(other for other in found if other in HELPERS and other != name)
