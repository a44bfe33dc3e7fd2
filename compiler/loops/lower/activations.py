"""Activation functions and their gradients, spelled in scalar ops.

In: calls of ATen activations. Out: pointwise values. Formulas follow eager's to the rounding of
one or two operations.
"""

from __future__ import annotations

import math

from tc.compiler.loops.expr import Expr
from tc.compiler.loops.lower.builder import Builder, Tensor, scalar_value
from tc.compiler.loops.lower.pointwise import apply, choose, compare, elementwise, like
from tc.compiler.loops.lower.registry import Call, lowering

SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
GELU_CUBIC = 0.044715


def add(a: Expr, b: Expr) -> Expr:
    """a + b."""
    return apply("add", a, b)


def sub(a: Expr, b: Expr) -> Expr:
    """a - b."""
    return apply("sub", a, b)


def mul(a: Expr, b: Expr) -> Expr:
    """a * b."""
    return apply("mul", a, b)


def scale(a: Expr, by: float) -> Expr:
    """a times a constant."""
    return mul(a, like(by, a))


def logistic(x: Expr) -> Expr:
    """1 / (1 + exp(-x))."""
    return apply("div", like(1, x), add(like(1, x), apply("exp", apply("neg", x))))


def clamped(x: Expr, low: float, high: float) -> Expr:
    """x limited to a range."""
    return apply("minimum", apply("maximum", x, like(low, x)), like(high, x))


@lowering("relu")
def _relu(b: Builder, call: Call) -> Tensor:
    return elementwise(b, call, lambda x: apply("maximum", x, like(0, x)), ("self",))


@lowering("sigmoid")
def _sigmoid(b: Builder, call: Call) -> Tensor:
    return elementwise(b, call, logistic, ("self",))


@lowering("silu")
def _silu(b: Builder, call: Call) -> Tensor:
    def body(x: Expr) -> Expr:
        return apply("div", x, add(like(1, x), apply("exp", apply("neg", x))))

    return elementwise(b, call, body, ("self",))


@lowering("gelu")
def _gelu(b: Builder, call: Call) -> Tensor:
    tanh = call.get("approximate", "none") == "tanh"

    def body(x: Expr) -> Expr:
        if tanh:
            cubic = mul(mul(x, x), x)
            inner = scale(add(x, scale(cubic, GELU_CUBIC)), SQRT_2_OVER_PI)
            return mul(scale(x, 0.5), add(like(1, x), apply("tanh", inner)))
        return mul(scale(x, 0.5), add(like(1, x), apply("erf", scale(x, math.sqrt(0.5)))))

    return elementwise(b, call, body, ("self",))


@lowering("gelu_backward")
def _gelu_backward(b: Builder, call: Call) -> Tensor:
    tanh = call.get("approximate", "none") == "tanh"

    def exact(g: Expr, x: Expr) -> Expr:
        cdf = scale(add(like(1, x), apply("erf", scale(x, math.sqrt(0.5)))), 0.5)
        density = scale(apply("exp", scale(mul(x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
        return mul(g, add(cdf, mul(x, density)))

    def approximate(g: Expr, x: Expr) -> Expr:
        square = mul(x, x)
        inner = scale(add(x, scale(mul(square, x), GELU_CUBIC)), SQRT_2_OVER_PI)
        t = apply("tanh", inner)
        left = scale(add(like(1, x), t), 0.5)
        slope = scale(add(like(1, x), scale(square, 3 * GELU_CUBIC)), SQRT_2_OVER_PI)
        right = mul(mul(scale(x, 0.5), sub(like(1, x), mul(t, t))), slope)
        return mul(g, add(left, right))

    return elementwise(b, call, approximate if tanh else exact, ("grad_output", "self"))


@lowering("silu_backward")
def _silu_backward(b: Builder, call: Call) -> Tensor:
    def body(g: Expr, x: Expr) -> Expr:
        s = logistic(x)
        return mul(mul(g, s), add(like(1, x), mul(x, sub(like(1, x), s))))

    return elementwise(b, call, body, ("grad_output", "self"))


@lowering("sigmoid_backward")
def _sigmoid_backward(b: Builder, call: Call) -> Tensor:
    def body(g: Expr, y: Expr) -> Expr:
        return mul(g, mul(sub(like(1, y), y), y))

    return elementwise(b, call, body, ("grad_output", "output"))


@lowering("tanh_backward")
def _tanh_backward(b: Builder, call: Call) -> Tensor:
    def body(g: Expr, y: Expr) -> Expr:
        return mul(g, sub(like(1, y), mul(y, y)))

    return elementwise(b, call, body, ("grad_output", "output"))


@lowering("threshold_backward")
def _threshold_backward(b: Builder, call: Call) -> Tensor:
    threshold = call["threshold"]

    def body(g: Expr, x: Expr) -> Expr:
        return choose(compare("le", x, scalar_value(threshold, x.dtype)), like(0, g), g)

    return elementwise(b, call, body, ("grad_output", "self"))


@lowering("leaky_relu")
def _leaky_relu(b: Builder, call: Call) -> Tensor:
    slope = call["negative_slope"]

    def body(x: Expr) -> Expr:
        return choose(compare("gt", x, like(0, x)), x, mul(x, scalar_value(slope, x.dtype)))

    return elementwise(b, call, body, ("self",))


@lowering("elu")
def _elu(b: Builder, call: Call) -> Tensor:
    alpha, outer, inner = call["alpha"], call["scale"], call["input_scale"]

    def body(x: Expr) -> Expr:
        a, s, i = (scalar_value(value, x.dtype) for value in (alpha, outer, inner))
        below = mul(mul(apply("expm1", mul(x, i)), a), s)
        return choose(compare("gt", x, like(0, x)), mul(x, s), below)

    return elementwise(b, call, body, ("self",))


@lowering("hardtanh")
def _hardtanh(b: Builder, call: Call) -> Tensor:
    low, high = call["min_val"], call["max_val"]

    def body(x: Expr) -> Expr:
        above = apply("maximum", x, scalar_value(low, x.dtype))
        return apply("minimum", above, scalar_value(high, x.dtype))

    return elementwise(b, call, body, ("self",))


@lowering("hardsigmoid")
def _hardsigmoid(b: Builder, call: Call) -> Tensor:
    return elementwise(
        b, call, lambda x: apply("div", clamped(add(x, like(3, x)), 0, 6), like(6, x)), ("self",)
    )


@lowering("hardswish")
def _hardswish(b: Builder, call: Call) -> Tensor:
    def body(x: Expr) -> Expr:
        return apply("div", mul(x, clamped(add(x, like(3, x)), 0, 6)), like(6, x))

    return elementwise(b, call, body, ("self",))


@lowering("softplus")
def _softplus(b: Builder, call: Call) -> Tensor:
    beta, threshold = call["beta"], call["threshold"]

    def body(x: Expr) -> Expr:
        s = scalar_value(beta, x.dtype)
        scaled = mul(x, s)
        smooth = apply("div", apply("log1p", apply("exp", scaled)), s)
        return choose(compare("gt", scaled, scalar_value(threshold, x.dtype)), x, smooth)

    return elementwise(b, call, body, ("self",))


@lowering("mish")
def _mish(b: Builder, call: Call) -> Tensor:
    def body(x: Expr) -> Expr:
        return mul(x, apply("tanh", apply("log1p", apply("exp", x))))

    return elementwise(b, call, body, ("self",))


@lowering("logit")
def _logit(b: Builder, call: Call) -> Tensor:
    eps = call.get("eps")

    def body(x: Expr) -> Expr:
        if eps is not None:
            x = clamped(x, eps, 1 - eps)
        return apply("log", apply("div", x, sub(like(1, x), x)))

    return elementwise(b, call, body, ("self",))


@lowering("native_dropout_backward")
def _native_dropout_backward(b: Builder, call: Call) -> Tensor:
    factor = call["scale"]

    def body(g: Expr, mask: Expr) -> Expr:
        return mul(g, mul(mask, scalar_value(factor, g.dtype)))

    return elementwise(b, call, body, ("grad_output", "mask"))
