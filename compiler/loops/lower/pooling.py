"""Pooling over small windows, which are unrolled so that pools fuse with neighbouring ops.

In: calls of ATen's 2-D pools (1-D ones come as those). Out: values that read each tap of a window;
taps outside of the tensor are left out by `select`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, constant, index_value
from tc.compiler.loops.index import Index
from tc.compiler.loops.lower.builder import (
    Builder,
    NotLowered,
    Tensor,
    converted,
    loop_vars,
    supported,
)
from tc.compiler.loops.lower.indexing import below, both, select
from tc.compiler.loops.lower.pointwise import apply, choose, compare, like
from tc.compiler.loops.lower.registry import Call, lowering, number, tensor
from tc.compiler.loops.ops import compute_dtype

MAX_TAPS = 16


@dataclass(frozen=True)
class Tap:
    """One element of a window: its index in the source, and where it is inside (None: always)."""

    at: tuple[Index, ...]
    inside: Expr | None


def _pair(value: Sequence[object], default: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    numbers = [number(item) for item in value]
    if not numbers:
        return default
    return (numbers[0], numbers[-1])


def _floating(source: Tensor) -> None:
    if not source.dtype.is_floating_point:
        raise NotLowered("a pool of integers")
    supported(source.dtype)


def taps(b: Builder, call: Call, source: Tensor, dilation: tuple[int, int]) -> Iterator[Tap]:
    """Yield the elements of the window around each element of the result, in memory's order."""
    _floating(source)
    kernel = _pair(call["kernel_size"])
    stride, padding = _pair(call["stride"], kernel), _pair(call["padding"])
    if kernel[0] * kernel[1] > MAX_TAPS:
        raise NotLowered(f"a window of more than {MAX_TAPS} elements")
    if stride[0] < kernel[0] or stride[1] < kernel[1]:
        b.realize(source.cell)  # read more than once
    variables = loop_vars(call.sizes)
    for offsets in product(*map(range, kernel)):
        at, inside = list(variables), None
        for d, offset in enumerate(offsets, start=-2):
            shift = offset * dilation[d] - padding[d]
            at[d] = variables[d] * stride[d] + shift
            tests = [compare("ge", index_value(at[d]), constant(0, torch.int64))] * (shift < 0)
            # Without ceil_mode all of the window lies inside of the padded input.
            if call["ceil_mode"] or padding[d] > (kernel[d] - 1 - offset) * dilation[d]:
                tests.append(below(at[d], source.sizes[d]))
            for test in tests:
                inside = test if inside is None else both(inside, test)
        yield Tap(tuple(at), inside)


@lowering("max_pool2d_with_indices")
def _max_pool(b: Builder, call: Call) -> tuple[Tensor, Tensor]:
    source = tensor(call["self"])
    return _best(b, call, source, taps(b, call, source, _pair(call["dilation"])))


@lowering("adaptive_max_pool2d")
def _adaptive_max_pool(b: Builder, call: Call) -> tuple[Tensor, Tensor]:
    source = tensor(call["self"])
    return _best(b, call, source, _adaptive(b, call, source))


def _best(b: Builder, call: Call, source: Tensor, found: Iterable[Tap]) -> tuple[Tensor, Tensor]:
    """Return the largest value of each window, and its place in the source's last two dimensions.

    The first of equal ones is taken, and the last NaN.
    """
    wide = compute_dtype(call.dtype)
    lowest = constant(-math.inf, wide)
    best: Expr | None = None
    place: Expr | None = None
    first: Expr | None = None
    for tap in found:
        read = converted(b.element(source, tap.at), wide)
        value = read if tap.inside is None else select(tap.inside, read, lowest)
        flat = index_value(tap.at[-2] * source.sizes[-1] + tap.at[-1])
        if best is None or place is None:
            best, place, first = value, flat, tap.inside
            continue
        better = apply("or", compare("gt", value, best), apply("isnan", value, dtype=torch.bool))
        if first is not None and tap.inside is not None:  # no earlier tap was inside
            better = apply("or", better, both(tap.inside, apply("not", first)))
            first = apply("or", first, tap.inside)
        elif first is not None:
            better = apply("or", better, apply("not", first))
            first = None
        best, place = apply("maximum", best, value), choose(better, flat, place)
    assert best is not None and place is not None
    values = b.value(call.sizes, call.dtype, best)
    return values, b.value(call.sizes, torch.int64, place)


@lowering("max_pool2d_with_indices_backward")
def _max_pool_gradient(b: Builder, call: Call) -> Tensor:
    """Sum for each element the gradients of the windows of which it is the maximum."""
    grad, place, wide = (
        tensor(call["grad_output"]),
        tensor(call["indices"]),
        compute_dtype(call.dtype),
    )
    supported(call.dtype)
    for source in (grad, place):
        b.realize(source.cell)  # all elements of a window read its gradient
    variables = loop_vars(call.sizes)
    here = index_value(variables[-2] * call.sizes[-1] + variables[-1])
    none = constant(0, wide)
    total: Expr | None = None
    windows = list(_windows(call, grad.sizes, variables))
    step = call.fake.stride()[-1]
    if len(windows) > 1 and isinstance(step, int) and step == 1:
        raise NotLowered("windows overlap along what is vectorised")  # 4 times as slow as ATen
    for at, inside in windows:
        chosen = compare("eq", b.element(place, at), here)
        part = choose(chosen, converted(b.element(grad, at), wide), none)
        part = part if inside is None else select(inside, part, none)
        total = part if total is None else apply("add", total, part)
    assert total is not None
    return b.value(call.sizes, call.dtype, total)


def _windows(
    call: Call, results: Sequence[Index], variables: Sequence[Index]
) -> Iterator[tuple[tuple[Index, ...], Expr | None]]:
    """Yield the windows that may hold an element, each with the test whether there is one."""
    kernel, dilation = _pair(call["kernel_size"]), _pair(call["dilation"])
    stride, padding = _pair(call["stride"], kernel), _pair(call["padding"])
    reach = [(kernel[d] - 1) * dilation[d] + 1 for d in (0, 1)]
    counts = [-(-reach[d] // stride[d]) for d in (0, 1)]
    if counts[0] * counts[1] > MAX_TAPS:
        raise NotLowered(f"more than {MAX_TAPS} windows around an element")
    for offsets in product(*map(range, counts)):
        at, inside = list(variables), None
        for d, offset in enumerate(offsets, start=-2):
            at[d] = (variables[d] + padding[d]) // ix.const(stride[d]) - offset
            tests = [compare("ge", index_value(at[d]), constant(0, torch.int64))] * (offset > 0)
            last = (ix.extent(variables[d]) - 1 + padding[d]) // ix.const(stride[d]) - offset
            if not ix.is_at_least(results[d] - 1 - last, 0):
                tests.append(below(at[d], results[d]))
            for test in tests:
                inside = test if inside is None else both(inside, test)
        yield tuple(at), inside


@lowering("avg_pool2d")
def _avg_pool(b: Builder, call: Call) -> Tensor:
    if call["ceil_mode"]:
        raise NotLowered("an average over windows that reach beyond the padding")
    source, wide = tensor(call["self"]), compute_dtype(call.dtype)
    total = count = None
    size = 0
    for tap in taps(b, call, source, (1, 1)):
        read = converted(b.element(source, tap.at), wide)
        one = constant(1, wide)
        if tap.inside is not None:
            read = select(tap.inside, read, like(0, read))
            one = choose(tap.inside, one, like(0, one))
        total = read if total is None else apply("add", total, read)
        count = one if count is None else apply("add", count, one)
        size += 1
    assert total is not None and count is not None
    given = call.get("divisor_override")
    if given is not None or call["count_include_pad"]:
        count = constant(size if given is None else number(given), wide)
    return b.value(call.sizes, call.dtype, apply("div", total, count))


def _adaptive(b: Builder, call: Call, source: Tensor) -> Iterator[Tap]:
    """Yield the elements of the window of each element of an adaptive pool's result.

    Where n elements become m along a dimension, element i is made of those from ⌊i n / m⌋ to before
    ⌈(i + 1) n / m⌉.
    """
    _floating(source)
    variables = loop_vars(call.sizes)
    along = [_window(variables[d], source.sizes[d]) for d in (-2, -1)]
    if math.prod(map(len, along)) > MAX_TAPS:
        raise NotLowered(f"a window of more than {MAX_TAPS} elements")
    if max(map(len, along)) > 1:
        b.realize(source.cell)  # windows may overlap
    for (row, in_rows), (column, in_columns) in product(*along):
        inside = in_rows if in_columns is None else in_columns
        if in_rows is not None and in_columns is not None:
            inside = both(in_rows, in_columns)
        yield Tap((*variables[:-2], row, column), inside)


def _window(variable: Index, extent: Index) -> list[tuple[Index, Expr | None]]:
    """Return the places of the elements of a window along a dimension, with their tests."""
    start, stop = _ends(variable, ix.extent(variable), extent)
    given, made = number(extent), number(ix.extent(variable))
    sizes = [-(-(i + 1) * given // made) - i * given // made for i in range(made)]
    return [
        (start + k, below(start + k, stop) if k >= min(sizes) else None) for k in range(max(sizes))
    ]


def _ends(place: Index, count: Index, extent: Index) -> tuple[Index, Index]:
    """Return the first element of the window of one of ``count`` results, and the one after it."""
    return place * extent // count, ((place + 1) * extent + count - 1) // count


def _shared(value: Expr, at: Sequence[Index], made: Sequence[Index], of: Sequence[Index]) -> Expr:
    """Divide by how many elements the window of an element of an adaptive pool's result has."""
    for d in (-2, -1):
        start, stop = _ends(at[d], made[d], of[d])
        value = apply("div", value, converted(index_value(stop - start), value.dtype))
    return value


@lowering("_adaptive_avg_pool2d")
def _adaptive_average(b: Builder, call: Call) -> Tensor:
    source, wide = tensor(call["self"]), compute_dtype(call.dtype)
    total: Expr | None = None
    for tap in _adaptive(b, call, source):
        read = converted(b.element(source, tap.at), wide)
        read = read if tap.inside is None else select(tap.inside, read, like(0, read))
        total = read if total is None else apply("add", total, read)
    assert total is not None
    mean = _shared(total, loop_vars(call.sizes), call.sizes, source.sizes)
    return b.value(call.sizes, call.dtype, mean)


@lowering("_adaptive_avg_pool2d_backward")
def _adaptive_average_gradient(b: Builder, call: Call) -> Tensor:
    """Return for each element its share of the gradient of the window that holds it."""
    grad, sizes = tensor(call["grad_output"]), call.sizes
    if any(ix.mod(sizes[d], grad.sizes[d]) is not ix.ZERO for d in (-2, -1)):
        # Divisions of positions have no vector form: several times as slow as ATen.
        raise NotLowered("windows overlap")
    supported(call.dtype)
    b.realize(grad.cell)  # all elements of a window read its gradient
    variables = list(loop_vars(sizes))
    for d in (-2, -1):
        variables[d] = variables[d] // (sizes[d] // grad.sizes[d])
    read = converted(b.element(grad, variables), compute_dtype(call.dtype))
    return b.value(sizes, call.dtype, _shared(read, variables, grad.sizes, sizes))
