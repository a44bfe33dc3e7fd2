"""Reductions: sums, extrema, products, counts, and ops composed of them (variance, softmax, ...).

In: calls of ATen reductions. Out: reduction nodes and pointwise values around them. Variance is
computed in two passes (mean first), which is as exact as Welford's recurrence, and vectorises.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, constant, is_affine
from tc.compiler.loops.index import Index
from tc.compiler.loops.lower.builder import (
    Builder,
    NotLowered,
    Tensor,
    converted,
    loop_vars,
    scalar_value,
    supported,
)
from tc.compiler.loops.lower.pointwise import apply, choose, compare, like, power
from tc.compiler.loops.lower.registry import Call, dimension, lowering, tensor
from tc.compiler.loops.ops import CHEAP, compute_dtype

Sizes = tuple[Index, ...]
#: elements of a vector of float32
SHORT = 16


@dataclass(frozen=True)
class Axes:
    """Which dimensions of a tensor are reduced, and the sizes that remain."""

    source: Sizes
    dims: frozenset[int]
    keep: bool

    @property
    def sizes(self) -> Sizes:
        """Sizes of the result."""
        kept = ((d, extent) for d, extent in enumerate(self.source))
        return tuple(
            ix.ONE if d in self.dims else extent
            for d, extent in kept
            if self.keep or d not in self.dims
        )

    @property
    def count(self) -> Index:
        """The number of elements that are reduced to one result."""
        return ix.product([self.source[d] for d in sorted(self.dims)])

    def kept(self) -> tuple[Index, ...]:
        """Return a variable of the source for each dimension of the result."""
        variables = loop_vars(self.source)
        return tuple(
            ix.ZERO if d in self.dims else variables[d]
            for d in range(len(self.source))
            if self.keep or d not in self.dims
        )

    def reduced(self) -> tuple[Index, ...]:
        """Return the variables summed over."""
        variables = loop_vars(self.source)
        return tuple(variables[d] for d in sorted(self.dims) if variables[d] is not ix.ZERO)


def axes(source: Tensor, dims: Any, keep: Any) -> Axes:
    """Read the ``dim`` and ``keepdim`` arguments of a reduction."""
    rank = len(source.sizes)
    if dims is None or (isinstance(dims, list | tuple) and not dims):
        chosen = frozenset(range(rank))
    else:
        listed = dims if isinstance(dims, list | tuple) else [dims]
        chosen = frozenset(d for d in (dimension(d, rank) for d in listed) if d < rank)
    return Axes(source.sizes, chosen, bool(keep))


def reduced(
    b: Builder, kind: str, source: Tensor, over: Axes, dtype: torch.dtype, body: Expr | None = None
) -> Tensor:
    """One reduction of ``body`` (default: the elements) in the type ``dtype``."""
    supported(dtype)
    supported(source.dtype)
    if body is None:
        body = converted(b.element(source, loop_vars(over.source)), compute_dtype(dtype))
    outer = outer_dims(b, over)
    if outer is not None:
        steps, b.strides = b.strides, None
        parts = reduced(b, kind, source, outer, compute_dtype(dtype), body)
        b.strides = steps
        return reduced(b, kind, parts, Axes(outer.sizes, over.dims, over.keep), dtype)
    return b.reduce(kind, dtype, over.kept(), over.reduced(), body, over.sizes)


def outer_dims(b: Builder, over: Axes) -> Axes | None:
    """Return the outer dimensions of a reduction whose inner ones are shorter than a vector.

    To reduce these first makes vectors of what is between and within them.
    """
    kept = [d for d, size in enumerate(over.source) if d not in over.dims and size is not ix.ONE]
    last = max(kept, default=0)
    outer = frozenset(d for d in over.dims if d < last)
    inner = ix.product([over.source[d] for d in over.dims if d > last]).constant
    iterations = ix.product([over.source[d] for d in outer]).constant
    short = inner is not None and 1 < inner < SHORT
    if not outer or not short or (iterations or SHORT) < SHORT or b.device.type != "cpu":
        return None
    return Axes(over.source, outer, True)


def spread(b: Builder, value: Tensor, over: Axes) -> Expr:
    """Return a reduction's result, dimensions kept, broadcast to the reduced elements."""
    variables = loop_vars(over.source)
    index = [ix.ZERO if d in over.dims else variables[d] for d in range(len(over.source))]
    return b.element(value, index)


@lowering("sum", "sum.dim_IntList")
def _sum(b: Builder, call: Call) -> Tensor:
    source = tensor(call["self"])
    return reduced(b, "sum", source, axes(source, call.get("dim"), call.get("keepdim")), call.dtype)


@lowering("prod", "prod.dim_int")
def _prod(b: Builder, call: Call) -> Tensor:
    source = tensor(call["self"])
    return reduced(
        b, "prod", source, axes(source, call.get("dim"), call.get("keepdim")), call.dtype
    )


@lowering("amax", "amin", "max", "min")
def _extreme(b: Builder, call: Call) -> Tensor:
    source = tensor(call["self"])
    kind = call.op.overloadpacket.__name__.removeprefix("a")
    over = axes(source, call.get("dim"), call.get("keepdim"))
    if source.dtype is torch.bool:
        kind = "any" if kind == "max" else "all"
    return reduced(b, kind, source, over, call.dtype)


@lowering("max.dim", "min.dim")
def _extreme_dim(b: Builder, call: Call) -> tuple[Tensor, Tensor]:
    source = tensor(call["self"])
    kind = call.op.overloadpacket.__name__
    over = axes(source, call["dim"], call["keepdim"])
    if source.dtype is torch.bool:
        raise NotLowered("max of bools")
    source = shared(b, source)
    values = reduced(b, kind, source, over, source.dtype)
    b.strides = b.reader.strides(call.fake[1])
    return values, _arg(b, f"arg{kind}", source, over)


def _arg(b: Builder, kind: str, source: Tensor, over: Axes) -> Tensor:
    body = b.element(source, loop_vars(over.source))
    return b.reduce(kind, torch.int64, over.kept(), over.reduced(), body, over.sizes)


@lowering("argmax", "argmin")
def _argmax(b: Builder, call: Call) -> Tensor:
    source = tensor(call["self"])
    supported(source.dtype)
    if source.dtype is torch.bool:
        raise NotLowered("argmax of bools")
    over = axes(source, call.get("dim"), call.get("keepdim"))
    return _arg(b, call.op.overloadpacket.__name__, source, over)


@lowering("any", "any.dim", "any.dims", "all", "all.dim", "all.dims")
def _any(b: Builder, call: Call) -> Tensor:
    source = tensor(call["self"])
    if call.dtype is not torch.bool:
        raise NotLowered("any of bytes")
    over = axes(source, call.get("dim"), call.get("keepdim"))
    return reduced(b, call.op.overloadpacket.__name__, source, over, torch.bool)


@lowering("linalg_vector_norm")
def _norm(b: Builder, call: Call) -> Tensor:
    source, order, wide = tensor(call["self"]), call["ord"], compute_dtype(call.dtype)
    over = axes(source, call.get("dim"), call.get("keepdim"))
    if not isinstance(order, int | float) or over.count is ix.ZERO:
        raise NotLowered(f"norm of order {order}, or of nothing")
    x = converted(b.element(source, loop_vars(over.source)), wide)
    size = apply("abs", x)
    if over.count is ix.ONE and order != 0:  # eager computes no power, which may be infinite
        return reduced(b, "max", source, over, call.dtype, size)
    if abs(order) == math.inf or order == 1:
        kind = "sum" if order == 1 else "max" if order > 0 else "min"
        return reduced(b, kind, source, over, call.dtype, size)
    if order == 0:
        body = choose(compare("ne", x, like(0, x)), like(1, x), like(0, x))
        return reduced(b, "sum", source, over, call.dtype, body)
    steps, b.strides = b.strides, None
    powers = reduced(b, "sum", source, over, wide, power(x if order == 2 else size, order))
    b.strides = steps
    return b.value(call.sizes, call.dtype, power(b.element(powers), 1 / order))


# ---------------------------------------------------------------- made of sums


def mean_of(b: Builder, source: Tensor, over: Axes, dtype: torch.dtype) -> Expr:
    """Return the mean over ``over`` at each result element (dimensions as ``over.keep`` says)."""
    total = reduced(b, "sum", source, over, compute_dtype(dtype))
    count = scalar_value(over.count, compute_dtype(dtype))
    return apply("div", b.element(total), count)


@lowering("mean", "mean.dim")
def _mean(b: Builder, call: Call) -> Tensor:
    source = tensor(call["self"])
    over = axes(source, call.get("dim"), call.get("keepdim"))
    steps, b.strides = b.strides, None
    value = mean_of(b, source, over, call.dtype)
    b.strides = steps
    return b.value(call.sizes, call.dtype, value)


def variance(
    b: Builder, source: Tensor, over: Axes, dtype: torch.dtype, correction: float
) -> tuple[Expr, Tensor, Axes]:
    """Return variance at each result element (dimensions kept), the mean, and the axes, kept.

    Raises:
        NotLowered: the elements are integers, for which ATen raises the right error.
    """
    if not source.dtype.is_floating_point:
        raise NotLowered(f"the variance of {source.dtype}")
    b.strides = None
    count = scalar_value(over.count, compute_dtype(dtype))
    squares, mean, kept = _squares(b, shared(b, source), over, compute_dtype(dtype))
    divisor = count
    if correction:
        less = apply("sub", count, like(correction, count))
        divisor = apply("maximum", less, like(0, count))
    return apply("div", b.element(squares), divisor), mean, kept


def _squares(
    b: Builder, source: Tensor, over: Axes, wide: torch.dtype
) -> tuple[Tensor, Tensor, Axes]:
    """Return the sum of squared distances from the mean, the mean, and the axes, kept.

    Where outer dimensions are reduced first, each of their sums has a mean of its own, and what
    rounding left between it and the exact one is summed, too; then they are joined (Chan, Golub and
    LeVeque, "Algorithms for computing the sample variance: analysis and recommendations", 1983).
    """
    kept, outer = Axes(over.source, over.dims, True), outer_dims(b, over)
    first = kept if outer is None else outer
    mean = _kept_mean(b, source, first, wide)
    x = converted(b.element(source, loop_vars(over.source)), wide)
    gap = apply("sub", x, spread(b, mean, first))
    squares = reduced(b, "sum", source, first, wide, apply("mul", gap, gap))
    if outer is None:
        return squares, mean, kept
    count, rest = scalar_value(outer.count, wide), Axes(outer.sizes, over.dims, True)
    gaps = reduced(b, "sum", source, first, wide, gap)
    left = apply("div", b.element(gaps), count)
    near = _kept_mean(b, mean, rest, wide)
    far = apply("add", apply("sub", b.element(mean), spread(b, near, rest)), left)
    more = _kept_mean(b, b.value(outer.sizes, wide, far), rest, wide)
    apart = apply("sub", far, spread(b, more, rest))
    between = apply("sub", apply("mul", apart, apart), apply("mul", left, left))
    joined = apply("add", b.element(squares), apply("mul", between, count))
    exact = b.value(rest.sizes, wide, apply("add", b.element(near), b.element(more)))
    return reduced(b, "sum", mean, rest, wide, joined), exact, kept


def _kept_mean(b: Builder, source: Tensor, over: Axes, wide: torch.dtype) -> Tensor:
    total = reduced(b, "sum", source, over, wide)
    value = apply("div", b.element(total), scalar_value(over.count, wide))
    return b.value(over.sizes, wide, value)


def _correction(call: Call) -> float:
    if "unbiased" in call.args:
        return 1.0 if call["unbiased"] else 0.0
    value = call.get("correction")
    if value is None:
        return 1.0
    if isinstance(value, Index):
        value = value.constant
    if not isinstance(value, int | float):
        raise NotLowered("symbolic correction")
    return float(value)


def dropped(b: Builder, value: Expr, over: Axes, sizes: Sizes, dtype: torch.dtype) -> Tensor:
    """Return a value over kept dimensions, with the sizes the result has."""
    from_sizes = Axes(over.source, over.dims, True).sizes
    whole = unnamed(b, value, from_sizes, dtype)
    if from_sizes == sizes:
        return b.value(sizes, dtype, b.element(whole))
    variables = iter(loop_vars(sizes))
    index = [ix.ZERO if d in over.dims else next(variables) for d in range(len(over.source))]
    return b.value(sizes, dtype, b.element(whole, index))


def unnamed(b: Builder, value: Expr, sizes: Sizes, dtype: torch.dtype) -> Tensor:
    """Return a value as an unnamed tensor."""
    uses, b.uses = b.uses, 1
    result = b.value(sizes, dtype, value)
    b.uses = uses
    return result


_VARIANCES = ("var", "var.dim", "var.correction")


@lowering(*_VARIANCES, "std", "std.dim", "std.correction")
def _var(b: Builder, call: Call) -> Tensor:
    source = tensor(call["self"])
    over = axes(source, call.get("dim"), call.get("keepdim"))
    steps = b.strides
    value, _, _ = variance(b, source, over, call.dtype, _correction(call))
    if call.op.overloadpacket.__name__ == "std":
        value = apply("sqrt", value)
    b.strides = steps
    return dropped(b, value, over, call.sizes, call.dtype)


@lowering("var_mean", "var_mean.dim", "var_mean.correction")
def _var_mean(b: Builder, call: Call) -> tuple[Tensor, Tensor]:
    source = tensor(call["self"])
    over = axes(source, call.get("dim"), call.get("keepdim"))
    value, mean, _ = variance(b, source, over, call.dtype, _correction(call))
    b.strides = b.reader.strides(call.fake[0])
    first = dropped(b, value, over, call.sizes, call.dtype)
    b.strides = b.reader.strides(call.fake[1])
    return first, dropped(b, _as_welford(b.element(mean), over), over, call.sizes, call.dtype)


def _as_welford(mean: Expr, over: Axes) -> Expr:
    """Return a mean as ATen updates it: to NaN by what follows an infinite element.

    ATen's is infinite where the last element alone is, which is not looked for here.
    """
    if over.count.constant == 1:
        return mean
    return choose(apply("isinf", mean, dtype=torch.bool), like(math.nan, mean), mean)


@lowering("_softmax", "_log_softmax")
def _softmax(b: Builder, call: Call) -> Tensor:
    source = tensor(call["self"])
    over = axes(source, call["dim"], True)
    steps, b.strides = b.strides, None
    wide = compute_dtype(call.dtype)
    uses, b.uses = b.uses, 2
    source = shared(b, source)
    peak = reduced(b, "max", source, over, wide)
    x = converted(b.element(source, loop_vars(over.source)), wide)
    gap = apply("sub", x, spread(b, peak, over))
    log = call.op.overloadpacket.__name__ == "_log_softmax"
    if log:
        total = reduced(b, "sum", source, over, wide, apply("exp", gap))
        scale = b.value(over.sizes, wide, apply("log", b.element(total)))
        value = apply("sub", gap, spread(b, scale, over))
    else:
        powers = b.value(over.source, wide, apply("exp", gap), loop_vars(over.source))
        power = b.element(powers, loop_vars(over.source))
        total = reduced(b, "sum", powers, over, wide, power)
        share = b.value(over.sizes, wide, apply("div", constant(1, wide), b.element(total)))
        b.realize(share.cell)
        value = apply("mul", power, spread(b, share, over))
    b.uses, b.strides = uses, steps
    return b.value(call.sizes, call.dtype, value)


def shared(b: Builder, source: Tensor) -> Tensor:
    """Realize a value that is read more than once, if computing or finding it is expensive."""
    variables = [v for v in loop_vars(source.sizes) if v is not ix.ZERO]
    if source.cell.body.exceeds(CHEAP) or not is_affine(b.element(source), variables):
        b.realize(source.cell)
    return source


@lowering("native_layer_norm")
def _layer_norm(b: Builder, call: Call) -> tuple[Tensor, Tensor, Tensor]:
    source = tensor(call["input"])
    supported(source.dtype)
    rank, width = len(source.sizes), len(call["normalized_shape"])
    over = Axes(source.sizes, frozenset(range(rank - width, rank)), True)
    wide = compute_dtype(source.dtype)
    steps = b.strides
    value, mean, kept = variance(b, source, over, wide, 0)
    shifted = apply("add", value, scalar_value(call["eps"], wide))
    uses, b.uses = b.uses, 3
    scale = b.value(kept.sizes, wide, apply("rsqrt", shifted))
    b.uses, b.strides = uses, steps
    x = converted(b.element(source, loop_vars(over.source)), wide)
    result = apply("mul", apply("sub", x, spread(b, mean, kept)), spread(b, scale, kept))
    variables = loop_vars(over.source)
    for name, op in (("weight", "mul"), ("bias", "add")):
        if call[name] is not None:
            factor = b.element(tensor(call[name]), variables[rank - width :])
            result = apply(op, result, converted(factor, wide))
    out = b.value(call.sizes, call.dtype, result)
    return out, as_type(b, mean, call.fake[1]), as_type(b, scale, call.fake[2])


def as_type(b: Builder, value: Tensor, fake: torch.Tensor) -> Tensor:
    """Return a statistic in the type the op returns it in."""
    sizes = b.reader.sizes(fake)
    if value.dtype is fake.dtype and value.sizes == sizes:
        return value
    b.strides = b.reader.strides(fake)
    return b.value(
        b.reader.sizes(fake), fake.dtype, b.element(value, loop_vars(b.reader.sizes(fake)))
    )
