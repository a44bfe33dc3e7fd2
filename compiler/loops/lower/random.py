"""Random numbers drawn in loops, counter-based with one seed a run, if eager's are not required.

In: calls of ATen's random ops. Out: pointwise values of `ops.philox`, whose counter has the number
of the draw in its upper bits and the position of the element in its lower ones. The seed comes from
torch's default generator, so ``torch.manual_seed`` determines the numbers, but they differ from
eager's. ATen draws normal numbers, which it does faster.
"""

from __future__ import annotations

import torch

from tc.compiler.loops.expr import Expr, constant, index_value
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import contiguous
from tc.compiler.loops.lower.builder import (
    Builder,
    NotLowered,
    Tensor,
    converted,
    linear,
    loop_vars,
    supported,
)
from tc.compiler.loops.lower.pointwise import apply, compare, like
from tc.compiler.loops.lower.registry import Call, lowering, tensor
from tc.compiler.loops.ops import compute_dtype

I64 = torch.int64
#: digits of a uniform number: as many as the type can hold below 1
DIGITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
POSITIONS = 40  # bits of a counter that count elements; those above count draws


def drawn(b: Builder, call: Call, sizes: tuple[Index, ...]) -> Expr:
    """64 random bits an element, as int64."""
    if call.get("generator") is not None:
        raise NotLowered("a generator of its own")
    seed, draw = b.draw()
    position = index_value(linear(loop_vars(sizes), contiguous(sizes)))
    return Expr("random", (seed, apply("add", position, constant(draw << POSITIONS, I64))), I64)


def fraction(bits: Expr, dtype: torch.dtype) -> Expr:
    """Return a number in [0, 1) of the highest bits, in the type that ``dtype`` is computed in."""
    if dtype not in DIGITS:
        raise NotLowered(f"random numbers of type {dtype}")
    digits, compute = DIGITS[dtype], compute_dtype(dtype)
    whole = apply("shr", bits, constant(64 - digits, I64))
    whole = apply("and", whole, constant((1 << digits) - 1, I64))
    narrow = whole if digits > 31 else converted(whole, torch.int32)  # converts in vectors
    return apply("mul", converted(narrow, compute), constant(2.0**-digits, compute))


def uniform(b: Builder, call: Call, low: float, high: float) -> Tensor:
    """Numbers in [low, high)."""
    value = fraction(drawn(b, call, call.sizes), call.dtype)
    if (low, high) != (0, 1):
        value = apply("add", apply("mul", value, like(high - low, value)), like(low, value))
    return b.value(call.sizes, call.dtype, value)


def _above_zero(value: Expr) -> Expr:
    """Return a number in (0, 1] for one in [0, 1)."""
    return apply("sub", like(1, value), value)


def kept(b: Builder, call: Call, probability: float) -> Expr:
    """Return whether an element is kept (dropout, Bernoulli)."""
    value = fraction(drawn(b, call, call.sizes), torch.float32)
    return compare("lt", value, like(probability, value))


@lowering("rand", "rand_like")
def _rand(b: Builder, call: Call) -> Tensor:
    return uniform(b, call, 0, 1)


@lowering("uniform")
def _uniform(b: Builder, call: Call) -> Tensor:
    return uniform(b, call, call["from"], call["to"])


@lowering("exponential")
def _exponential(b: Builder, call: Call) -> Tensor:
    if call.dtype is torch.float64:
        raise NotLowered("exponential numbers of 53 digits")
    value = apply("log", _above_zero(fraction(drawn(b, call, call.sizes), torch.float32)))
    return b.value(call.sizes, call.dtype, apply("mul", value, like(-1 / call["lambd"], value)))


@lowering("bernoulli.p")
def _bernoulli(b: Builder, call: Call) -> Tensor:
    supported(call.dtype)
    value = converted(kept(b, call, call["p"]), compute_dtype(call.dtype))
    return b.value(call.sizes, call.dtype, value)


@lowering("native_dropout")
def _native_dropout(b: Builder, call: Call) -> tuple[Tensor, Tensor]:
    supported(call.dtype)
    if call["train"] is False:
        raise NotLowered("nothing is dropped")
    keep = 1 - call["p"]
    mask = b.value(call.sizes, torch.bool, kept(b, call, keep))
    value = b.element(tensor(call["input"]))
    value = apply("mul", value, converted(b.element(mask), value.dtype))
    factor = like(1 / keep if keep else 0, value)
    return b.value(call.sizes, call.dtype, apply("mul", value, factor)), mask


@lowering("randint", "randint.low")
def _randint(b: Builder, call: Call) -> Tensor:
    supported(call.dtype)
    low, span = call.get("low", 0), call["high"]
    if isinstance(low, Index) or isinstance(span, Index) or not 0 < span - low < 2**31:
        raise NotLowered("a range that is symbolic, or wide")
    word = apply("shr", drawn(b, call, call.sizes), constant(32, I64))
    word = apply("and", word, constant(0xFFFFFFFF, I64))
    scaled = apply("shr", apply("mul", word, constant(span - low, I64)), constant(32, I64))
    value = apply("add", scaled, constant(low, I64))
    return b.value(call.sizes, call.dtype, converted(value, compute_dtype(call.dtype)))
