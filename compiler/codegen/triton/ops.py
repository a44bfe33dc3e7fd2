"""Triton spellings of the scalar ops: a row for each row of `SCALAR_OPS`.

In: an op, the type of its operands, their text. Out: the text of the result. ``{0}``, ``{1}`` are
operands, ``{t}`` is Triton's name of their type, ``{i}`` of the signed integer as wide. Names
without a dot are functions of `runtime/triton_math.py`. Float rows mean float32 and float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tc.compiler.core.table import Table
from tc.compiler.loops.ops import LOW_PRECISION

TRITON_TYPES: dict[torch.dtype, str] = {
    torch.float32: "tl.float32",
    torch.float64: "tl.float64",
    torch.int64: "tl.int64",
    torch.int32: "tl.int32",
    torch.int16: "tl.int16",
    torch.int8: "tl.int8",
    torch.uint8: "tl.uint8",
    torch.bool: "tl.int1",
    torch.bfloat16: "tl.bfloat16",
    torch.float16: "tl.float16",
}

#: the same types as Triton spells them in signatures
SHORT_NAMES: dict[torch.dtype, str] = {
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "i1",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
}


@dataclass(frozen=True)
class TritonOp:
    """Spellings of one scalar op, by the kind of its operands.

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
        """The spelling for operands of a type."""
        if dtype is torch.float64 and self.double:
            return self.double
        if dtype.is_floating_point:
            return self.floats
        if dtype is torch.bool and self.bools:
            return self.bools
        if dtype is torch.uint8 and self.bytes:
            return self.bytes
        return self.ints or self.floats


TRITON_OPS: Table[str, TritonOp] = Table("Triton spellings of scalar ops")


def spell(op: str, dtype: torch.dtype, args: list[str]) -> str:
    """Spell an op on operands of a type."""
    integer = f"tl.int{dtype.itemsize * 8}"
    return TRITON_OPS[op].spelling(dtype).format(*args, t=TRITON_TYPES[dtype], i=integer)


def _row(name: str, floats: str = "", ints: str = "", **special: str) -> None:
    TRITON_OPS.add(name, TritonOp(floats, ints, **special))


# arithmetic; `/` and `-x` are not what IEEE says in Triton, so they are spelled otherwise
_row("add", "({0} + {1})")
_row("sub", "({0} - {1})")
_row("mul", "({0} * {1})")
_row("div", "tl.div_rn({0}, {1})", double="({0} / {1})")
_row("neg", "({0} * -1.0)", "(-{0})")
_row("abs", "tl.abs({0})", bools="{0}")
_row("sign", "(({0} > 0).to({t}) - ({0} < 0).to({t}))", bools="{0}")
_row("truncdiv", ints="({0} // {1})")
_row("floordiv", "floor_divide({0}, {1})", "floor_div({0}, {1})")
_row("remainder", "floor_remainder({0}, {1})", "floor_mod({0}, {1})")
_row("fmod", "libdevice.fmod({0}, {1})", "({0} % {1})")
_NAN = "propagate_nan=tl.PropagateNan.ALL"
_row("minimum", f"tl.minimum({{0}}, {{1}}, {_NAN})", "tl.minimum({0}, {1})", bools="({0} & {1})")
_row("maximum", f"tl.maximum({{0}}, {{1}}, {_NAN})", "tl.maximum({0}, {1})", bools="({0} | {1})")
_row("copysign", "libdevice.copysign({0}, {1})")

# comparison
_row("eq", "({0} == {1})")
_row("ne", "({0} != {1})")
_row("lt", "({0} < {1})")
_row("le", "({0} <= {1})")
_row("gt", "({0} > {1})")
_row("ge", "({0} >= {1})")
_row("isnan", "({0} != {0})")
_row("isinf", '(tl.abs({0}) == float("inf"))')
_row("signbit", "({0}.to({i}, bitcast=True) < 0)")

# bits and logic
_row("and", ints="({0} & {1})")
_row("or", ints="({0} | {1})")
_row("xor", ints="({0} ^ {1})")
_row("not", ints="(~{0})", bools="({0} == 0)", bytes="({0} ^ 255)")
_row("shl", ints="shift_left({0}, {1})")
_row("shr", ints="shift_right({0}, {1})")

# rounding
_row("floor", "tl.floor({0})")
_row("ceil", "tl.ceil({0})")
_row("trunc", "libdevice.trunc({0})")
_row("round", "libdevice.rint({0})")

# roots, exponentials, logarithms; Triton's own exp and sin are quicker and less exact
_row("sqrt", "tl.sqrt_rn({0})", double="tl.sqrt({0})")
_row("rsqrt", "libdevice.rsqrt({0})")
for _name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p"):
    _row(_name, f"libdevice.{_name}({{0}})")
_row("pow", "libdevice.pow({0}, {1})")
_row("ipow", ints="integer_pow({0}, {1})")
_row("random", ints="philox({0}, {1})")

# trigonometric, hyperbolic, error functions
for _name in ("sin", "cos", "tan", "asin", "acos", "atan"):
    _row(_name, f"libdevice.{_name}({{0}})")
_row("atan2", "libdevice.atan2({0}, {1})")
for _name in ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma"):
    _row(_name, f"libdevice.{_name}({{0}})")
_row("hypot", "libdevice.hypot({0}, {1})")
_row("nextafter", "libdevice.nextafter({0}, {1})")


def typed_constant(value: float | int | bool, dtype: torch.dtype) -> str:
    """Spell a constant so that it has exactly that type, whatever stands beside it."""
    return f"tl.full([], {literal(value, dtype)}, {TRITON_TYPES[dtype]})"


def constant(value: float | int | bool, dtype: torch.dtype) -> str:
    """Spell a constant; a float32 that Triton takes for one by itself is spelled plainly."""
    size = abs(value)
    plain = dtype is torch.float32 and not (0 < size < 2**-126 or 3.4e38 < size < float("inf"))
    return literal(value, dtype) if plain else typed_constant(value, dtype)


def literal(value: float | int | bool, dtype: torch.dtype) -> str:
    """Spell a number as Python."""
    if dtype is torch.bool:
        return str(bool(value))
    if not dtype.is_floating_point:
        return str(int(value))
    value = float(value)
    return repr(value) if math.isfinite(value) else f'float("{value}")'


def convert(text: str, source: torch.dtype, target: torch.dtype) -> str:
    """Spell a conversion as eager does it."""
    if source is target:
        return text
    for low, other in ((source, target), (target, source)):
        if low in LOW_PRECISION and other is not torch.float32:
            return convert(convert(text, source, torch.float32), torch.float32, target)
    if target is torch.bool:
        return f"({text} != 0)"
    if source.is_floating_point and target in (torch.uint8, torch.int8, torch.int16):
        return f"{text}.to(tl.int64).to({TRITON_TYPES[target]})"
    return f"{text}.to({TRITON_TYPES[target]})"
