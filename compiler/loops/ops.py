"""The scalar-op table: how each op is named, typed, evaluated, and spelled in C and in Triton.

In: nothing. Out: `SCALAR_OPS`, read by the printer, the constant folder, the reference interpreter
and all code generators. Rows compute in float32, float64, integers and bool only: lower precision
is converted when loaded and rounded when stored.

In a C spelling ``{0}``, ``{1}`` are operands, ``{t}`` the suffix of the operands' type (``f32``,
``f64``, ``i64``, ``i32``, …), ``{c_in}`` their C type and ``{k}`` a cast to the result's type where
C would have widened it. A name that starts with ``tc_`` is a helper in `core/c_helpers/`.

In a Triton spelling ``{t}`` is Triton's name of the operands' type, ``{i}`` that of the signed
integer as wide. Names without a dot are functions of `runtime/triton_math.py`.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from tc.compiler.core.table import Table

_CALLED = re.compile(r"(?<![.\w])([a-z_]\w*)\(")

Operands = Literal["any", "float", "int", "bool", "number", "wide"]
Result = Literal["same", "bool"]


@dataclass(frozen=True)
class Triton:
    """Spellings of one scalar op in Triton, by the type of its operands.

    Attributes:
        floats: for float32 and float64; empty if the op takes none.
        ints: for integers; empty if the same as for floats.
        bools: for bools; empty if the same as for integers.
        bytes: for uint8 where it differs from the other integers.
        double: for float64 where it differs from float32.
    """

    floats: str = ""
    ints: str = ""
    bools: str = ""
    double: str = ""
    bytes: str = ""

    def spelling(self, dtype: torch.dtype) -> str:
        """Return the spelling for operands of a type."""
        if dtype is torch.float64 and self.double:
            return self.double
        if dtype.is_floating_point:
            return self.floats
        if dtype is torch.bool and self.bools:
            return self.bools
        if dtype is torch.uint8 and self.bytes:
            return self.bytes
        return self.ints or self.floats

    def called(self) -> set[str]:
        """Return the functions of `runtime/triton_math.py` that the spellings call."""
        texts = " ".join((self.floats, self.ints, self.bools, self.double, self.bytes))
        return {name for name in _CALLED.findall(texts) if not hasattr(builtins, name)}


@dataclass(frozen=True)
class ScalarOp:
    """One scalar operation.

    Attributes:
        arity: number of operands, all of one type.
        operands: which types it takes; ``wide`` is int64 alone.
        result: ``same`` type as the operands, or ``bool``.
        python: evaluates it on tensors (elementwise); the meaning all spellings must have.
        c: its spelling in C.
        triton: its spellings in Triton.
        cost: rough cost in additions; above `CHEAP` it is not computed twice to save a buffer.
        ulps: error bound of the float32 spelling in units in the last place, for tests.
    """

    name: str
    arity: int
    operands: Operands
    result: Result
    python: Callable[..., Any]
    c: str
    triton: Triton
    cost: int = 1
    ulps: float = 0.0


CHEAP = 4
SCALAR_OPS: Table[str, ScalarOp] = Table("scalar ops")


def _row(
    name: str,
    arity: int,
    operands: Operands,
    python: Callable[..., Any],
    c: str,
    triton: Triton | str,
    cost: int = 1,
    result: Result = "same",
    ulps: float = 0.0,
) -> None:
    spellings = Triton(triton) if isinstance(triton, str) else triton
    row = ScalarOp(name, arity, operands, result, python, c, spellings, cost, ulps)
    SCALAR_OPS.add(name, row)


def _shift(op: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: op(a, b)


# Triton's `/` and `-x` do not follow IEEE; its own exp and sin are faster and less exact than
# those of libdevice.
_NAN = "propagate_nan=tl.PropagateNan.ALL"

# arithmetic
_row("add", 2, "number", torch.add, "{k}({0} + {1})", "({0} + {1})")
_row("sub", 2, "number", torch.sub, "{k}({0} - {1})", "({0} - {1})")
_row("mul", 2, "number", torch.mul, "{k}({0} * {1})", "({0} * {1})")
_row(
    "div",
    2,
    "float",
    torch.true_divide,
    "tc_div_{t}({0}, {1})",
    Triton("tl.div_rn({0}, {1})", double="({0} / {1})"),
    3,
)
_row("neg", 1, "number", torch.neg, "{k}(-{0})", Triton("({0} * -1.0)", "(-{0})"))
_row("abs", 1, "number", torch.abs, "tc_abs_{t}({0})", Triton("tl.abs({0})", bools="{0}"))
_row(
    "sign",
    1,
    "number",
    torch.sign,
    "({0} > 0 ? ({c_in})1 : {0} < 0 ? ({c_in})-1 : ({c_in})0)",
    Triton("(({0} > 0).to({t}) - ({0} < 0).to({t}))", bools="{0}"),
    2,
)
_row(
    "truncdiv",
    2,
    "int",
    lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "tc_truncdiv_{t}({0}, {1})",
    Triton(ints="({0} // {1})"),
    8,
)
_row(
    "floordiv",
    2,
    "number",
    lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "tc_floordiv_{t}({0}, {1})",
    Triton("floor_divide({0}, {1})", "floor_div({0}, {1})"),
    8,
)
_row(
    "remainder",
    2,
    "number",
    torch.remainder,
    "tc_remainder_{t}({0}, {1})",
    Triton("floor_remainder({0}, {1})", "floor_mod({0}, {1})"),
    8,
)
_row(
    "fmod",
    2,
    "number",
    torch.fmod,
    "tc_fmod_{t}({0}, {1})",
    Triton("libdevice.fmod({0}, {1})", "({0} % {1})"),
    8,
)
_row(
    "minimum",
    2,
    "any",
    torch.minimum,
    "tc_minimum_{t}({0}, {1})",
    Triton(f"tl.minimum({{0}}, {{1}}, {_NAN})", "tl.minimum({0}, {1})", bools="({0} & {1})"),
)
_row(
    "maximum",
    2,
    "any",
    torch.maximum,
    "tc_maximum_{t}({0}, {1})",
    Triton(f"tl.maximum({{0}}, {{1}}, {_NAN})", "tl.maximum({0}, {1})", bools="({0} | {1})"),
)
_row(
    "copysign",
    2,
    "float",
    torch.copysign,
    "tc_copysign_{t}({0}, {1})",
    "libdevice.copysign({0}, {1})",
)

# comparison
_row("eq", 2, "any", torch.eq, "({0} == {1})", "({0} == {1})", result="bool")
_row("ne", 2, "any", torch.ne, "({0} != {1})", "({0} != {1})", result="bool")
_row("lt", 2, "any", torch.lt, "({0} < {1})", "({0} < {1})", result="bool")
_row("le", 2, "any", torch.le, "({0} <= {1})", "({0} <= {1})", result="bool")
_row("gt", 2, "any", torch.gt, "({0} > {1})", "({0} > {1})", result="bool")
_row("ge", 2, "any", torch.ge, "({0} >= {1})", "({0} >= {1})", result="bool")
_row("isnan", 1, "float", torch.isnan, "({0} != {0})", "({0} != {0})", result="bool")
_row(
    "isinf",
    1,
    "float",
    torch.isinf,
    "(tc_abs_{t}({0}) == (({c_in})__builtin_inf()))",
    '(tl.abs({0}) == float("inf"))',
    result="bool",
)
_row(
    "signbit",
    1,
    "float",
    torch.signbit,
    "tc_signbit_{t}({0})",
    "({0}.to({i}, bitcast=True) < 0)",
    result="bool",
)

# bits and logic; bool is a type whose values are 0 and 1
_row("and", 2, "int", torch.bitwise_and, "{k}({0} & {1})", Triton(ints="({0} & {1})"))
_row("or", 2, "int", torch.bitwise_or, "{k}({0} | {1})", Triton(ints="({0} | {1})"))
_row("xor", 2, "int", torch.bitwise_xor, "{k}({0} ^ {1})", Triton(ints="({0} ^ {1})"))
_row(
    "not",
    1,
    "int",
    torch.bitwise_not,
    "tc_not_{t}({0})",
    Triton(ints="(~{0})", bools="({0} == 0)", bytes="({0} ^ 255)"),
)
_row(
    "shl",
    2,
    "int",
    _shift(torch.bitwise_left_shift),
    "tc_shl_{t}({0}, {1})",
    Triton(ints="shift_left({0}, {1})"),
    2,
)
_row(
    "shr",
    2,
    "int",
    _shift(torch.bitwise_right_shift),
    "tc_shr_{t}({0}, {1})",
    Triton(ints="shift_right({0}, {1})"),
    2,
)


def philox(seed: torch.Tensor, counter: torch.Tensor) -> torch.Tensor:
    """64 random bits of each position of the stream of a seed: Philox 2x32 in ten rounds.

    After Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011); the
    upper half of the seed changes the upper half of the counter.

    Args:
        seed: int64.
        counter: int64, of the seed's shape or one it broadcasts with.
    """
    low = 0xFFFFFFFF
    key, left, right = seed & low, counter & low, ((counter >> 32) ^ (seed >> 32)) & low
    for _ in range(10):
        product = left * 0xD256D193
        left, right = ((product >> 32) & low) ^ key ^ right, product & low
        key = (key + 0x9E3779B9) & low
    return (left << 32) | right


_row("random", 2, "wide", philox, "tc_random_{t}({0}, {1})", Triton(ints="philox({0}, {1})"), 60)

# rounding
_row("floor", 1, "float", torch.floor, "tc_floor_{t}({0})", "tl.floor({0})")
_row("ceil", 1, "float", torch.ceil, "tc_ceil_{t}({0})", "tl.ceil({0})")
_row("trunc", 1, "float", torch.trunc, "tc_trunc_{t}({0})", "libdevice.trunc({0})")
_row("round", 1, "float", torch.round, "tc_round_{t}({0})", "libdevice.rint({0})")

# roots, exponentials, logarithms
_row(
    "sqrt",
    1,
    "float",
    torch.sqrt,
    "tc_sqrt_{t}({0})",
    Triton("tl.sqrt_rn({0})", double="tl.sqrt({0})"),
    4,
)
_row("rsqrt", 1, "float", torch.rsqrt, "(1 / tc_sqrt_{t}({0}))", "libdevice.rsqrt({0})", 6, ulps=2)
_row("exp", 1, "float", torch.exp, "tc_exp_{t}({0})", "libdevice.exp({0})", 14, ulps=2)
_row("exp2", 1, "float", torch.exp2, "tc_exp2_{t}({0})", "libdevice.exp2({0})", 12, ulps=2)
_row("expm1", 1, "float", torch.expm1, "tc_expm1_{t}({0})", "libdevice.expm1({0})", 16, ulps=3)
_row("log", 1, "float", torch.log, "tc_log_{t}({0})", "libdevice.log({0})", 12, ulps=2)
_row("log2", 1, "float", torch.log2, "tc_log2_{t}({0})", "libdevice.log2({0})", 12, ulps=3)
_row("log10", 1, "float", torch.log10, "tc_log10_{t}({0})", "libdevice.log10({0})", 12, ulps=3)
_row("log1p", 1, "float", torch.log1p, "tc_log1p_{t}({0})", "libdevice.log1p({0})", 16, ulps=3)
_row("pow", 2, "float", torch.pow, "tc_pow_{t}({0}, {1})", "libdevice.pow({0}, {1})", 40, ulps=1)
_row("ipow", 2, "int", torch.pow, "tc_ipow_{t}({0}, {1})", Triton(ints="integer_pow({0}, {1})"), 20)

# trigonometric, hyperbolic, error functions
_row("sin", 1, "float", torch.sin, "tc_sin_{t}({0})", "libdevice.sin({0})", 16, ulps=2)
_row("cos", 1, "float", torch.cos, "tc_cos_{t}({0})", "libdevice.cos({0})", 16, ulps=2)
_row("tan", 1, "float", torch.tan, "tc_tan_{t}({0})", "libdevice.tan({0})", 32, ulps=4)
_row("asin", 1, "float", torch.asin, "tc_asin_{t}({0})", "libdevice.asin({0})", 20, ulps=3)
_row("acos", 1, "float", torch.acos, "tc_acos_{t}({0})", "libdevice.acos({0})", 20, ulps=3)
_row("atan", 1, "float", torch.atan, "tc_atan_{t}({0})", "libdevice.atan({0})", 20, ulps=3)
_row(
    "atan2",
    2,
    "float",
    torch.atan2,
    "tc_atan2_{t}({0}, {1})",
    "libdevice.atan2({0}, {1})",
    24,
    ulps=4,
)
_row("sinh", 1, "float", torch.sinh, "tc_sinh_{t}({0})", "libdevice.sinh({0})", 32, ulps=4)
_row("cosh", 1, "float", torch.cosh, "tc_cosh_{t}({0})", "libdevice.cosh({0})", 32, ulps=4)
_row("tanh", 1, "float", torch.tanh, "tc_tanh_{t}({0})", "libdevice.tanh({0})", 16, ulps=6)
_row("asinh", 1, "float", torch.asinh, "tc_asinh_{t}({0})", "libdevice.asinh({0})", 20, ulps=3)
_row("acosh", 1, "float", torch.acosh, "tc_acosh_{t}({0})", "libdevice.acosh({0})", 20, ulps=3)
_row("atanh", 1, "float", torch.atanh, "tc_atanh_{t}({0})", "libdevice.atanh({0})", 20, ulps=3)
_row("erf", 1, "float", torch.erf, "tc_erf_{t}({0})", "libdevice.erf({0})", 20, ulps=7)
_row("erfc", 1, "float", torch.erfc, "tc_erfc_{t}({0})", "libdevice.erfc({0})", 24, ulps=4)
_row("lgamma", 1, "float", torch.lgamma, "tc_lgamma_{t}({0})", "libdevice.lgamma({0})", 60, ulps=8)
_row(
    "hypot",
    2,
    "float",
    torch.hypot,
    "tc_hypot_{t}({0}, {1})",
    "libdevice.hypot({0}, {1})",
    20,
    ulps=2,
)
_row(
    "nextafter",
    2,
    "float",
    torch.nextafter,
    "tc_nextafter_{t}({0}, {1})",
    "libdevice.nextafter({0}, {1})",
    20,
)

C_TYPES: dict[torch.dtype, tuple[str, str]] = {
    torch.float32: ("float", "f32"),
    torch.float64: ("double", "f64"),
    torch.int64: ("long long", "i64"),
    torch.int32: ("int", "i32"),
    torch.int16: ("short", "i16"),
    torch.int8: ("signed char", "i8"),
    torch.uint8: ("unsigned char", "u8"),
    torch.bool: ("unsigned char", "b8"),
    torch.bfloat16: ("unsigned short", "bf16"),
    torch.float16: ("unsigned short", "f16"),
}
LOW_PRECISION = (torch.bfloat16, torch.float16)


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which values stored as ``dtype`` are computed."""
    return torch.float32 if dtype in LOW_PRECISION else dtype
