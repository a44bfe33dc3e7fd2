"""Pointwise ops: arithmetic, comparison, logic, rounding, elementary functions, conversion.

In: calls of elementwise ATen ops. Out: values over the broadcast sizes. Operands are converted to
the type torch promotes to, computed in `compute_dtype` of it, and rounded where they are stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tc.compiler.loops.expr import Expr, constant
from tc.compiler.loops.index import Index
from tc.compiler.loops.lower.builder import (
    Builder,
    NotLowered,
    Tensor,
    converted,
    rounded_to,
    scalar_value,
    supported,
)
from tc.compiler.loops.lower.registry import Call, lowering, tensor
from tc.compiler.loops.ops import compute_dtype

Body = Callable[..., Expr]


def apply(op: str, *args: Expr, dtype: torch.dtype | None = None) -> Expr:
    """One scalar op; ``dtype`` if the result's type is not the operands'."""
    return Expr(op, args, dtype or args[-1].dtype)


def compare(op: str, a: Expr, b: Expr) -> Expr:
    """Return a comparison."""
    return Expr(op, (a, b), torch.bool)


def choose(condition: Expr, yes: Expr, no: Expr) -> Expr:
    """``yes if condition else no``, both evaluated."""
    return Expr("where", (condition, yes, no), yes.dtype)


def like(value: float, other: Expr) -> Expr:
    """Return a constant of another value's type."""
    return constant(value, other.dtype)


def category(value: Any) -> int:
    """0 bool, 1 int, 2 float, as torch's promotion ranks them."""
    if isinstance(value, torch.dtype):
        return 2 if value.is_floating_point else (0 if value is torch.bool else 1)
    return 0 if isinstance(value, bool) else (1 if isinstance(value, int | Index) else 2)


def promoted(values: list[Any]) -> torch.dtype:
    """Return the type to which torch promotes tensors, 0-d tensors and numbers."""
    ranks: list[list[torch.dtype]] = [[], [], []]
    for value in values:
        if isinstance(value, Tensor):
            ranks[0 if value.sizes else 1].append(value.dtype)
        else:
            plain = (torch.bool, torch.int64, torch.get_default_dtype())
            ranks[2].append(plain[category(value)])
    result: torch.dtype | None = None
    for dtypes in ranks:
        if not dtypes:
            continue
        here = dtypes[0]
        for dtype in dtypes[1:]:
            here = torch.promote_types(here, dtype)
        if result is None or category(here) > category(result):
            result = here
    assert result is not None
    return result


def operand(b: Builder, value: Any, sizes: tuple[Index, ...], dtype: torch.dtype) -> Expr:
    """Return an operand broadcast to the result's sizes, in the type to compute in."""
    wanted = compute_dtype(dtype)
    if isinstance(value, Tensor):
        return converted(b.element(b.broadcast(value, sizes)), wanted)
    return scalar_value(value, wanted)


def rounded(b: Builder, value: Any, sizes: tuple[Index, ...], dtype: torch.dtype) -> Expr:
    """Do as `operand`, for ops whose eager kernels round numbers and 0-d tensors to ``dtype``.

    It shows where results jump: the float16 next to 0.1 equals the number 0.1.
    """
    return rounded_to(operand(b, value, sizes, dtype), dtype)


def rounded_on_cpu(b: Builder, value: Any, sizes: tuple[Index, ...], dtype: torch.dtype) -> Expr:
    """Do as `rounded` on a CPU, and as `operand` on a GPU, for ops whose eager kernels do so.

    Sums and powers do: numbers that ``dtype`` cannot hold are infinities there.
    """
    given = rounded if b.device.type == "cpu" else operand
    return given(b, value, sizes, dtype)


def elementwise(
    b: Builder,
    call: Call,
    body: Body,
    names: tuple[str, ...],
    compute: torch.dtype | None = None,
    operand: Callable[..., Expr] = operand,
) -> Tensor:
    """Compute ``body`` on the named arguments; the type defaults to the result's."""
    sizes, dtype = call.sizes, call.dtype
    supported(dtype)
    compute = compute or dtype
    supported(compute)
    return b.value(sizes, dtype, body(*(operand(b, call[name], sizes, compute) for name in names)))


# ---------------------------------------------------------------- tables of plain rows

UNARY = (
    "abs neg sign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh "
    "cosh tanh asinh acosh atanh erf erfc lgamma"
)
ROUNDING = "floor ceil trunc round"
BINARY = {
    "mul": "mul",
    "maximum": "maximum",
    "minimum": "minimum",
    "atan2": "atan2",
    "hypot": "hypot",
    "copysign": "copysign",
    "fmod": "fmod",
    "remainder": "remainder",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "bitwise_left_shift": "shl",
    "bitwise_right_shift": "shr",
    "__lshift__": "shl",
    "__rshift__": "shr",
    "floor_divide": "floordiv",
}
COMPARISONS = "eq ne lt le gt ge"
LOGICAL = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}


def _unary(op: str) -> None:
    @lowering(op)
    def lower(b: Builder, call: Call) -> Tensor:
        if op in ("abs", "neg", "sign") and call.dtype is torch.bool:
            return elementwise(b, call, lambda x: x, ("self",))
        return elementwise(b, call, lambda x: apply(op, x), ("self",))


def _rounding(op: str) -> None:
    @lowering(op)
    def lower(b: Builder, call: Call) -> Tensor:
        floating = call.dtype.is_floating_point
        return elementwise(b, call, lambda x: apply(op, x) if floating else x, ("self",))


def _binary(name: str, op: str) -> None:
    @lowering(
        f"{name}.Tensor", f"{name}.Scalar", f"{name}.Scalar_Tensor", name, f"{name}.Tensor_Scalar"
    )
    def lower(b: Builder, call: Call) -> Tensor:
        if call.dtype is torch.bool:
            used = {"mul": "and", "maximum": "or", "minimum": "and"}.get(op, op)
            if used not in ("and", "or", "xor"):
                raise NotLowered(f"{name} on bool")
        else:
            used = op
        if used in ("and", "or", "xor", "shl", "shr") and call.dtype.is_floating_point:
            raise NotLowered(f"{name} on {call.dtype}: the op itself says what is wrong")
        given = rounded if op in ("fmod", "remainder") else operand
        return elementwise(
            b, call, lambda x, y: apply(used, x, y), ("self", "other"), operand=given
        )


def _comparison(op: str) -> None:
    @lowering(f"{op}.Tensor", f"{op}.Scalar")
    def lower(b: Builder, call: Call) -> Tensor:
        wanted = promoted([call["self"], call["other"]])
        return elementwise(
            b, call, lambda x, y: compare(op, x, y), ("self", "other"), wanted, rounded
        )


def _logical(name: str, op: str) -> None:
    @lowering(name)
    def lower(b: Builder, call: Call) -> Tensor:
        return elementwise(b, call, lambda x, y: apply(op, x, y), ("self", "other"), torch.bool)


for _name in UNARY.split():
    _unary(_name)
for _name in ROUNDING.split():
    _rounding(_name)
for _name, _op in BINARY.items():
    _binary(_name, _op)
for _name in COMPARISONS.split():
    _comparison(_name)
for _name, _op in LOGICAL.items():
    _logical(_name, _op)


# ---------------------------------------------------------------- rows with a twist


@lowering("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Tensor", "rsub.Scalar")
def _add(b: Builder, call: Call) -> Tensor:
    name, alpha = call.op.overloadpacket.__name__, call.get("alpha", 1)
    op = "add" if name == "add" else "sub"
    if call.dtype is torch.bool:
        if op == "sub" or alpha != 1:
            raise NotLowered("subtraction of bools")
        return elementwise(b, call, lambda x, y: apply("or", x, y), ("self", "other"))

    def body(x: Expr, y: Expr) -> Expr:
        if name == "rsub":
            x, y = y, x
        if alpha != 1:
            y = apply("mul", y, rounded_on_cpu(b, alpha, call.sizes, call.dtype))
        return apply(op, x, y)

    return elementwise(b, call, body, ("self", "other"), operand=rounded_on_cpu)


@lowering("div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode", "true_divide.Tensor")
def _div(b: Builder, call: Call) -> Tensor:
    mode = call.get("rounding_mode")
    integral = not call.dtype.is_floating_point

    def body(x: Expr, y: Expr) -> Expr:
        if mode is None:
            return apply("div", x, y)
        if mode == "floor":
            return apply("floordiv", x, y)
        return apply("truncdiv", x, y) if integral else apply("trunc", apply("div", x, y))

    if mode not in (None, "floor", "trunc"):
        raise NotLowered(f"rounding_mode={mode}")
    return elementwise(b, call, body, ("self", "other"))


@lowering("nextafter")
def _nextafter(b: Builder, call: Call) -> Tensor:
    if compute_dtype(call.dtype) is not call.dtype:
        raise NotLowered(f"the neighbours of a number in {call.dtype} are not those in float32")
    return elementwise(b, call, lambda x, y: apply("nextafter", x, y), ("self", "other"))


@lowering("reciprocal")
def _reciprocal(b: Builder, call: Call) -> Tensor:
    return elementwise(b, call, lambda x: apply("div", like(1, x), x), ("self",))


@lowering("square")
def _square(b: Builder, call: Call) -> Tensor:
    return elementwise(b, call, lambda x: apply("mul", x, x), ("self",))


@lowering("isnan", "isinf")
def _isnan(b: Builder, call: Call) -> Tensor:
    op = call.op.overloadpacket.__name__
    wanted = tensor(call["self"]).dtype
    if not wanted.is_floating_point:
        return b.value(call.sizes, torch.bool, constant(False, torch.bool))
    return elementwise(b, call, lambda x: apply(op, x, dtype=torch.bool), ("self",), wanted)


@lowering("signbit")
def _signbit(b: Builder, call: Call) -> Tensor:
    wanted = tensor(call["self"]).dtype
    if not wanted.is_floating_point:
        return elementwise(b, call, lambda x: compare("lt", x, like(0, x)), ("self",), wanted)
    return elementwise(b, call, lambda x: apply("signbit", x, dtype=torch.bool), ("self",), wanted)


@lowering("logical_not")
def _logical_not(b: Builder, call: Call) -> Tensor:
    return elementwise(b, call, lambda x: apply("not", x), ("self",), torch.bool)


@lowering("bitwise_not")
def _bitwise_not(b: Builder, call: Call) -> Tensor:
    if call.dtype.is_floating_point:
        raise NotLowered(f"bitwise_not on {call.dtype}: the op itself says what is wrong")
    return elementwise(b, call, lambda x: apply("not", x), ("self",))


@lowering("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _pow(b: Builder, call: Call) -> Tensor:
    exponent = call["exponent"]
    if isinstance(exponent, Index):
        exponent = exponent.constant if exponent.constant is not None else exponent
    if not call.dtype.is_floating_point:
        if call.dtype is torch.bool or not isinstance(exponent, int):
            raise NotLowered("integer power by a tensor")
        return elementwise(b, call, lambda x, y: apply("ipow", x, y), ("self", "exponent"))
    # Powers of -inf and -0 differ from square roots of these, which eager takes where the exponent
    # is a number, but for float16 on a CPU.
    roots = not (call.dtype is torch.float16 and b.device.type == "cpu")
    body: Body = lambda x, y: apply("pow", x, y)  # noqa: E731
    if isinstance(exponent, int | float):
        if float(exponent) in _POWERS and (roots or abs(exponent) != 0.5):
            return elementwise(b, call, _POWERS[float(exponent)], ("self",))
    elif call.op is torch.ops.aten.pow.Tensor_Scalar and roots:
        body = _power_or_root
    return elementwise(b, call, body, ("self", "exponent"), operand=rounded_on_cpu)


def _power_or_root(x: Expr, y: Expr) -> Expr:
    found = apply("pow", x, y)
    for exponent in (0.5, -0.5):
        found = choose(compare("eq", y, like(exponent, y)), _POWERS[exponent](x), found)
    return found


def _one_over(x: Expr) -> Expr:
    return apply("div", like(1, x), x)


_POWERS: dict[float, Body] = {
    0.0: lambda x: like(1, x),
    1.0: lambda x: x,
    2.0: lambda x: apply("mul", x, x),
    3.0: lambda x: apply("mul", apply("mul", x, x), x),
    0.5: lambda x: apply("sqrt", x),
    -0.5: lambda x: _one_over(apply("sqrt", x)),
    -1.0: _one_over,
    -2.0: lambda x: _one_over(apply("mul", x, x)),
}


def power(x: Expr, exponent: float) -> Expr:
    """Return a value raised to a number."""
    body = _POWERS.get(exponent)
    return apply("pow", x, like(exponent, x)) if body is None else body(x)


@lowering("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def _where(b: Builder, call: Call) -> Tensor:
    sizes, dtype = call.sizes, call.dtype
    supported(dtype)
    condition = operand(b, call["condition"], sizes, torch.bool)
    yes, no = (operand(b, call[name], sizes, dtype) for name in ("self", "other"))
    return b.value(sizes, dtype, choose(condition, yes, no))


@lowering("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(b: Builder, call: Call) -> Tensor:
    sizes, dtype = call.sizes, call.dtype
    supported(dtype)
    mask = operand(b, call["mask"], sizes, torch.bool)
    value, kept = (operand(b, call[name], sizes, dtype) for name in ("value", "self"))
    return b.value(sizes, dtype, choose(mask, value, kept))


@lowering("clamp", "clamp.Tensor", "clamp_min", "clamp_min.Tensor", "clamp_max", "clamp_max.Tensor")
def _clamp(b: Builder, call: Call) -> Tensor:
    names = ["self"]
    steps = []
    for name, op in (("min", "maximum"), ("max", "minimum")):
        if call.get(name) is not None:
            names.append(name)
            steps.append(op)

    def body(x: Expr, *bounds: Expr) -> Expr:
        for op, bound in zip(steps, bounds, strict=True):
            x = apply(op, x, bound)
        return x

    return elementwise(b, call, body, tuple(names))


@lowering("fmax", "fmin")
def _fmax(b: Builder, call: Call) -> Tensor:
    op = "maximum" if call.op.overloadpacket.__name__ == "fmax" else "minimum"
    if not call.dtype.is_floating_point:
        if call.dtype is torch.bool:
            op = "or" if op == "maximum" else "and"
        return elementwise(b, call, lambda x, y: apply(op, x, y), ("self", "other"))

    def body(x: Expr, y: Expr) -> Expr:
        x_nan, y_nan = (apply("isnan", v, dtype=torch.bool) for v in (x, y))
        return choose(x_nan, y, choose(y_nan, x, apply(op, x, y)))

    return elementwise(b, call, body, ("self", "other"))


@lowering("addcmul", "addcdiv")
def _addcmul(b: Builder, call: Call) -> Tensor:
    op = "mul" if call.op.overloadpacket.__name__ == "addcmul" else "div"
    value = call.get("value", 1)

    def body(x: Expr, y: Expr, z: Expr) -> Expr:
        if value == 1:
            return apply("add", x, apply(op, y, z))
        scaled = apply("mul", scalar_value(value, x.dtype), y)
        return apply("add", x, apply(op, scaled, z))

    return elementwise(b, call, body, ("self", "tensor1", "tensor2"))


@lowering("lerp.Scalar", "lerp.Tensor")
def _lerp(b: Builder, call: Call) -> Tensor:
    def body(x: Expr, y: Expr, w: Expr) -> Expr:
        gap = apply("sub", y, x)
        near = compare("lt", apply("abs", w), like(0.5, w))
        low = apply("add", x, apply("mul", w, gap))
        high = apply("sub", y, apply("mul", gap, apply("sub", like(1, w), w)))
        return choose(near, low, high)

    return elementwise(b, call, body, ("self", "end", "weight"))


@lowering("frac")
def _frac(b: Builder, call: Call) -> Tensor:
    return elementwise(b, call, lambda x: apply("sub", x, apply("trunc", x)), ("self",))


@lowering("nan_to_num")
def _nan_to_num(b: Builder, call: Call) -> Tensor:
    if not call.dtype.is_floating_point:
        return elementwise(b, call, lambda x: x, ("self",))
    limits = torch.finfo(call.dtype)
    nan, high, low = (call.get(name) for name in ("nan", "posinf", "neginf"))

    def body(x: Expr) -> Expr:
        top = like(limits.max if high is None else high, x)
        bottom = like(limits.min if low is None else low, x)
        finite = choose(compare("eq", x, like(math.inf, x)), top, x)
        finite = choose(compare("eq", x, like(-math.inf, x)), bottom, finite)
        return choose(apply("isnan", x, dtype=torch.bool), like(nan or 0.0, x), finite)

    return elementwise(b, call, body, ("self",))


# ---------------------------------------------------------------- conversion and copies


@lowering("_to_copy")
def _to_copy(b: Builder, call: Call) -> Tensor:
    source = tensor(call["self"])
    supported(call.dtype)
    supported(source.dtype)
    return b.value(call.sizes, call.dtype, b.element(source))


@lowering("clone", "lift_fresh_copy", "contiguous", "prims::copy_strided")
def _clone(b: Builder, call: Call) -> Tensor:
    supported(call.dtype)
    source = call["self"] if "self" in call.args else call["a"]
    return b.value(call.sizes, call.dtype, b.element(tensor(source)))


@lowering("copy")
def _copy(b: Builder, call: Call) -> Tensor:
    supported(call.dtype)
    value = operand(b, call["src"], call.sizes, call.dtype)
    return b.value(call.sizes, call.dtype, value)
