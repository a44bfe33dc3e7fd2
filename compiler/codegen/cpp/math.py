"""C helper functions that generated kernels may call, as text, each with what it depends on.

In: the text of kernels. Out: the helpers they use, in order of dependency (`helpers_for`). The
float32 functions are branch-free polynomials that gcc vectorises; their coefficients are our own
weighted least-squares fits, and `ops.SCALAR_OPS` states their error bounds, which tests hold
against float64. Functions without a polynomial, and all of float64, come from libm.
"""

from __future__ import annotations

import re

HELPERS: dict[str, str] = {}

PRELUDE = """\
#ifdef __FMA__
#define tc_fma_f32 __builtin_fmaf
#else
#define tc_fma_f32(a, b, c) ((a) * (b) + (c))
#endif
#define TC_INLINE static inline __attribute__((always_inline))
"""


def _add(name: str, text: str) -> None:
    HELPERS[name] = "TC_INLINE " + text.strip() + "\n"


def _libm(names: str, arity: int) -> None:
    for name in names.split():
        for suffix, kind, tail in (("f32", "float", "f"), ("f64", "double", "")):
            key = f"tc_{name}_{suffix}"
            if key in HELPERS:
                continue
            given = ", ".join(f"{kind} x{k}" for k in range(arity))
            passed = ", ".join(f"x{k}" for k in range(arity))
            call = f"__builtin_{name}{tail}({passed})"
            _add(key, f"{kind} {key}({given}) {{ return {call}; }}")


for _suffix, _kind, _tail in (("f32", "float", "f"), ("f64", "double", "")):
    _add(
        f"tc_minimum_{_suffix}",
        f"""
{_kind} tc_minimum_{_suffix}({_kind} a, {_kind} b) {{ return (a < b || a != a) ? a : b; }}""",
    )
    _add(
        f"tc_maximum_{_suffix}",
        f"""
{_kind} tc_maximum_{_suffix}({_kind} a, {_kind} b) {{ return (a > b || a != a) ? a : b; }}""",
    )
    _add(
        f"tc_remainder_{_suffix}",
        f"""
{_kind} tc_remainder_{_suffix}({_kind} a, {_kind} b) {{
  {_kind} r = __builtin_fmod{_tail}(a, b);
  return (r != 0 && ((b < 0) != (r < 0))) ? r + b : r;
}}""",
    )
    _add(
        f"tc_floordiv_{_suffix}",
        f"""
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
        f"""
{_kind} tc_round_{_suffix}({_kind} x) {{ return __builtin_rint{_tail}(x); }}""",
    )
    _add(
        f"tc_abs_{_suffix}",
        f"""
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
        f"""
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
  long long size = b < 0 ? -b : b;
  long long over = (r != 0 && ((r < 0) != (a < 0))) ? -1 : (r >= size || r <= -size);
  return q + (((a < 0) != (b < 0)) ? -over : over);
#else
  return b == 0 ? 0 : b == -1 ? -a : a / b;
#endif"""
    _add(f"tc_truncdiv_{_suffix}", f"{_kind} tc_truncdiv_{_suffix}{_two} {{ {_divide} }}")
    _add(
        f"tc_fmod_{_suffix}",
        f"{_kind} tc_fmod_{_suffix}{_two} {{ return a - tc_truncdiv_{_suffix}(a, b) * b; }}",
    )
    _add(
        f"tc_floordiv_{_suffix}",
        f"""
{_kind} tc_floordiv_{_suffix}{_two} {{
  {_kind} q = tc_truncdiv_{_suffix}(a, b), r = ({_kind})(a - q * b);
  return ({_kind})(q - ((r != 0) & ((r < 0) != (b < 0))));
}}""",
    )
    _add(
        f"tc_remainder_{_suffix}",
        f"""
{_kind} tc_remainder_{_suffix}{_two} {{
  {_kind} q = tc_truncdiv_{_suffix}(a, b), r = ({_kind})(a - q * b);
  return ({_kind})(r + (((r != 0) & ((r < 0) != (b < 0))) ? b : 0));
}}""",
    )
    _add(
        f"tc_shl_{_suffix}",
        f"""
{_kind} tc_shl_{_suffix}{_two} {{
  return (b < 0 || b >= {_bits}) ? 0 : ({_kind})((unsigned long long)a << b);
}}""",
    )
    _over = f"(b < 0 || b >= {_bits}) ? (a < 0 ? -1 : 0)" if _signed else f"b >= {_bits} ? 0"
    _add(
        f"tc_shr_{_suffix}",
        f"""
{_kind} tc_shr_{_suffix}{_two} {{ return ({_kind})({_over} : (a >> b)); }}""",
    )
    _add(
        f"tc_ipow_{_suffix}",
        f"""
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
    """
long long tc_floordiv(long long a, long long b) {
  long long q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}""",
)
_add(
    "tc_mod",
    """
long long tc_mod(long long a, long long b) { long long r = a % b; return (r < 0) ? r + b : r; }""",
)
_add("tc_min", "long long tc_min(long long a, long long b) { return a < b ? a : b; }")
_add("tc_max", "long long tc_max(long long a, long long b) { return a > b ? a : b; }")
_add(
    "tc_clip",
    """
long long tc_clip(long long i, long long n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }""",
)
_add(
    "tc_bits_f32",
    """
unsigned tc_bits_f32(float x) { union { float f; unsigned u; } v = {x}; return v.u; }""",
)
_add(
    "tc_float_bits",
    """
float tc_float_bits(unsigned u) { union { unsigned u; float f; } v = {u}; return v.f; }""",
)
# gcc 12 stops with an internal error where it vectorises __builtin_signbit
_add("tc_signbit_f32", "int tc_signbit_f32(float x) { return (int)(tc_bits_f32(x) >> 31); }")
_add(
    "tc_signbit_f64",
    """
int tc_signbit_f64(double x) {
  union { double f; unsigned long long u; } v = {x};
  return (int)(v.u >> 63);
}""",
)
_add(
    "tc_bf16_to_f32",
    """
float tc_bf16_to_f32(unsigned short x) { return tc_float_bits((unsigned)x << 16); }""",
)
_add(
    "tc_f32_to_bf16",
    """
unsigned short tc_f32_to_bf16(float x) {
  unsigned u = tc_bits_f32(x);
  unsigned rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  return (unsigned short)(x != x ? 0x7fc0 : rounded);
}""",
)

# ---------------------------------------------------------------- float32 polynomials

_add(
    "tc_exp_f32",
    """
float tc_exp_f32(float x) {
  /* x = n*ln2 + r, e^r by a polynomial, 2^n in two halves so that denormals round once */
  float c = x > 89.0f ? 89.0f : x;
  c = c < -104.0f ? -104.0f : c;
  float n = c * 1.44269504088896341f + 12582912.0f;
  n -= 12582912.0f;
  float r = tc_fma_f32(n, -0.693145751953125f, c);
  r = tc_fma_f32(n, -1.42860677e-6f, r);
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
    "tc_exp2_f32",
    """
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
    """
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
    "tc_log_f32",
    """
float tc_log_f32(float x) {
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
  float t = tc_fma_f32(e, 1.42860677e-6f, p * f * s);
  t = tc_fma_f32(-0.5f, s, t) + f;
  t = tc_fma_f32(e, 0.693145751953125f, t);
  t = x == __builtin_inff() ? x : t;
  t = x == 0.0f ? -__builtin_inff() : t;
  return (x < 0.0f || x != x) ? __builtin_nanf("") : t;
}""",
)
_add("tc_log2_f32", "float tc_log2_f32(float x) { return (float)__builtin_log2((double)x); }")
_add("tc_log10_f32", "float tc_log10_f32(float x) { return (float)__builtin_log10((double)x); }")
_add(
    "tc_log1p_f32",
    """
float tc_log1p_f32(float x) {
  /* log(u) with u = 1 + x rounded, plus the rounding made good */
  float u = 1.0f + x;
  float lost = u > 2.0f ? (x - u) + 1.0f : x - (u - 1.0f);
  float r = tc_log_f32(u) + lost / u;
  r = u == 1.0f ? x : r;
  r = x == -1.0f ? -__builtin_inff() : r;
  return x == __builtin_inff() ? x : r;
}""",
)
_add(
    "tc_tanh_f32",
    """
float tc_tanh_f32(float x) {
  float a = __builtin_fabsf(x), s = x * x;
  float p = -0.0055286245982422225f;
  p = tc_fma_f32(p, s, 0.020483306527722296f);
  p = tc_fma_f32(p, s, -0.05369296452022254f);
  p = tc_fma_f32(p, s, 0.13330899709173108f);
  p = tc_fma_f32(p, s, -0.3333326287982437f);
  float small = tc_fma_f32(p * s, x, x);
  float e = tc_exp_f32(2.0f * (a > 10.0f ? 10.0f : a));
  float large = __builtin_copysignf(1.0f - 2.0f / (e + 1.0f), x);
  large = x != x ? x : large;
  return a < 0.65f ? small : large;
}""",
)
_add(
    "tc_erf_f32",
    """
float tc_erf_f32(float x) {
  /* x * Q(x^2) near zero, else 1 - exp(polynomial), as log(erfc) is smooth */
  float a = __builtin_fabsf(x), s = x * x;
  float p = 7.853857656532155e-05f;
  p = tc_fma_f32(p, s, -0.0008010192506152162f);
  p = tc_fma_f32(p, s, 0.005188327558400255f);
  p = tc_fma_f32(p, s, -0.026853811868307605f);
  p = tc_fma_f32(p, s, 0.11283585147013822f);
  p = tc_fma_f32(p, s, -0.37612625824092016f);
  p = tc_fma_f32(p, s, 1.128379165726689f);
  float t = a > 4.0f ? 4.0f : a;
  float q = -2.1095051486734784e-05f;
  q = tc_fma_f32(q, t, 0.0004344626301432312f);
  q = tc_fma_f32(q, t, -0.004171063092765316f);
  q = tc_fma_f32(q, t, 0.025119427549127122f);
  q = tc_fma_f32(q, t, -0.10828008965201472f);
  q = tc_fma_f32(q, t, -0.6333469061457095f);
  q = tc_fma_f32(q, t, -1.1295149305356857f);
  q = tc_fma_f32(q, t, 0.0001746844482313141f);
  float large = __builtin_copysignf(1.0f - tc_exp_f32(q), x);
  large = x != x ? x : large;
  return a < 1.0f ? x * p : large;
}""",
)
_libm(
    "sqrt floor ceil trunc fabs exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan", 1
)
_libm("sinh cosh tanh asinh acosh atanh erf erfc lgamma", 1)
_libm("pow atan2 hypot fmod copysign nextafter", 2)

_CALL = re.compile(r"\btc_\w+")


def helpers_for(text: str) -> str:
    """C source of all helpers that a text calls, those they call first."""
    order: list[str] = []

    def visit(source: str) -> None:
        for name in dict.fromkeys(_CALL.findall(source)):
            if name in HELPERS and name not in order:
                own = HELPERS[name]
                visit(own.replace(name, ""))
                order.append(name)

    visit(text)
    return PRELUDE + "".join(HELPERS[name] for name in order) if order else PRELUDE
