"""Types, constants, conversions and scalar ops as Triton spells them.

In: an op of `SCALAR_OPS`, the type of its operands, their text. Out: the text of the result.
"""

from __future__ import annotations

import math

import torch

from tc.compiler.loops.ops import LOW_PRECISION, SCALAR_OPS

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


def spell(op: str, dtype: torch.dtype, args: list[str]) -> str:
    """Spell an op of `SCALAR_OPS` on operands of a type."""
    integer = f"tl.int{dtype.itemsize * 8}"
    row = SCALAR_OPS[op].triton
    return row.spelling(dtype).format(*args, t=TRITON_TYPES[dtype], i=integer)


def typed_constant(value: float | int | bool, dtype: torch.dtype) -> str:
    """Spell a constant so that it has exactly that type next to any operand."""
    return f"tl.full([], {literal(value, dtype)}, {TRITON_TYPES[dtype]})"


def constant(value: float | int | bool, dtype: torch.dtype) -> str:
    """Spell a constant; a float32 that Triton infers as such is a plain literal."""
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
