"""Functions of generated Triton kernels: roundings and reductions with torch's semantics.

In and out: Triton values inside kernels. Needs triton; imported by generated code alone.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def floor_div(a, b):
    """``a // b`` of integers, rounded down."""
    quotient = a // b
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient)


@triton.jit
def floor_mod(a, b):
    """``a % b`` of integers, with the sign of ``b``."""
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def floor_remainder(a, b):
    """``a % b`` of floats, with the sign of ``b``."""
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def floor_divide(a, b):
    """``a // b`` of floats: exact where ``a`` is a multiple of ``b``."""
    rest = libdevice.fmod(a, b)
    whole = (a - rest) / b
    whole = tl.where((rest != 0) & ((rest < 0) != (b < 0)), whole - 1, whole)
    down = tl.floor(whole)
    down = tl.where(whole - down > 0.5, down + 1, down)
    down = tl.where(whole != 0, down, libdevice.copysign(whole * 0, a / b))
    return tl.where(b == 0, a / b, down)


@triton.jit
def shift_left(a, b):
    """``a << b``; 0 where ``b`` is no valid shift."""
    valid = (b >= 0) & (b < a.dtype.primitive_bitwidth)
    return tl.where(valid, a << tl.where(valid, b, 0).to(a.dtype), 0).to(a.dtype)


@triton.jit
def shift_right(a, b):
    """``a >> b``; the sign alone where ``b`` is no valid shift."""
    valid = (b >= 0) & (b < a.dtype.primitive_bitwidth)
    sign = tl.where(a < 0, -1, 0).to(a.dtype)
    return tl.where(valid, a >> tl.where(valid, b, 0).to(a.dtype), sign).to(a.dtype)


@triton.jit
def integer_pow(a, b):
    """``a ** b``; a negative power of anything but 1 and -1 is 0."""
    result = a * 0 + 1
    square = a
    power = tl.where(b < 0, -b, b)
    for _ in range(63):
        result = tl.where((power & 1) != 0, result * square, result)
        square = square * square
        power = power >> 1
    odd = (b & 1) != 0
    base = a.to(tl.int64)  # an unsigned one has no -1 to be compared with
    inverse = tl.where(base == 1, 1, tl.where(base == -1, tl.where(odd, -1, 1), 0))
    return tl.where(b < 0, inverse.to(result.dtype), result)


@triton.jit
def clip(position, extent):
    """Return a position read from memory, clipped to the valid range."""
    return tl.minimum(tl.maximum(position, 0), extent - 1)


@triton.jit
def _multiply(a, b):
    return a * b


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _smaller(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def reduce_sum(x):
    """Row sums of a block."""
    return tl.sum(x, 1, keep_dims=True)


@triton.jit
def reduce_prod(x):
    """Row products."""
    return tl.reduce(x, 1, _multiply, keep_dims=True)


@triton.jit
def reduce_max(x):
    """Row maxima; NaN wins."""
    return tl.reduce(x, 1, _larger, keep_dims=True)


@triton.jit
def reduce_min(x):
    """Row minima; NaN wins."""
    return tl.reduce(x, 1, _smaller, keep_dims=True)


@triton.jit
def reduce_any(x):
    """Return whether any element of a row is true."""
    return tl.max(x.to(tl.int32), 1, keep_dims=True) != 0


@triton.jit
def reduce_all(x):
    """Return whether all elements of a row are true."""
    return tl.min(x.to(tl.int32), 1, keep_dims=True) != 0


@triton.jit
def better_max(value, place, best, best_place):
    """Return whether a candidate beats the maximum: NaN first, then size, then the earlier."""
    nan, best_nan = value != value, best != best
    same = (value == best) | (nan & best_nan)
    return (value > best) | (nan & (best == best)) | (same & (place < best_place))


@triton.jit
def better_min(value, place, best, best_place):
    """Return whether a candidate beats the minimum so far."""
    nan, best_nan = value != value, best != best
    same = (value == best) | (nan & best_nan)
    return (value < best) | (nan & (best == best)) | (same & (place < best_place))


@triton.jit
def _pick_max(value, place, other, other_place):
    take = better_max(other, other_place, value, place)
    return tl.where(take, other, value), tl.where(take, other_place, place)


@triton.jit
def _pick_min(value, place, other, other_place):
    take = better_min(other, other_place, value, place)
    return tl.where(take, other, value), tl.where(take, other_place, place)


@triton.jit
def reduce_argmax(value, place):
    """Return the position of the maximum of each row."""
    _, found = tl.reduce((value, place), 1, _pick_max, keep_dims=True)
    return found


@triton.jit
def reduce_argmin(value, place):
    """Return the position of the minimum of each row."""
    _, found = tl.reduce((value, place), 1, _pick_min, keep_dims=True)
    return found


@triton.jit
def _add(a, b):
    return a + b


@triton.jit
def _newer_max(total, value):
    """Return whether a newer value is chosen: it is not less, or NaN."""
    return (value >= total) | (value != value)


@triton.jit
def _newer_min(total, value):
    return (value <= total) | (value != value)


@triton.jit
def _last_max(a, b):
    return tl.where(_newer_max(a, b), b, a)


@triton.jit
def _last_min(a, b):
    return tl.where(_newer_min(a, b), b, a)


@triton.jit
def _log_of_sum(a, b):
    low = tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
    high = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    alone = (low == high) & (tl.abs(low) == float("inf"))
    return tl.where(alone, b, libdevice.log1p(libdevice.exp(low - high)) + high)


@triton.jit
def scan_sum(x, before):
    """Running row sums of a block, on top of those of the blocks before."""
    return before + tl.associative_scan(x, 1, _add)


@triton.jit
def scan_prod(x, before):
    """Running row products."""
    return before * tl.associative_scan(x, 1, _multiply)


@triton.jit
def scan_max(x, before):
    """Running row maxima; NaN wins."""
    return _last_max(before, tl.associative_scan(x, 1, _last_max))


@triton.jit
def scan_min(x, before):
    """Running row minima; NaN wins."""
    return _last_min(before, tl.associative_scan(x, 1, _last_min))


@triton.jit
def scan_logsumexp(x, before):
    """Running logarithms of the sums of exponentials."""
    return _log_of_sum(before, tl.associative_scan(x, 1, _log_of_sum))


@triton.jit
def _newest_max(value, place, other, other_place):
    take = _newer_max(value, other)
    return tl.where(take, other, value), tl.where(take, other_place, place)


@triton.jit
def _newest_min(value, place, other, other_place):
    take = _newer_min(value, other)
    return tl.where(take, other, value), tl.where(take, other_place, place)


@triton.jit
def scan_argmax(value, place, before, before_place):
    """Return running row maxima, and the position of the newest of equal ones."""
    best, found = tl.associative_scan((value, place), 1, _newest_max)
    return _newest_max(before, before_place, best, found)


@triton.jit
def scan_argmin(value, place, before, before_place):
    """Return running row minima, and the position of the newest of equal ones."""
    best, found = tl.associative_scan((value, place), 1, _newest_min)
    return _newest_min(before, before_place, best, found)


@triton.jit
def last_of(totals, place, block: tl.constexpr):
    """Return the last total of each row of a block, to which the next block adds."""
    last = tl.where(place == block - 1, totals, tl.zeros_like(totals))
    return tl.sum(last, 1, keep_dims=True).to(totals.dtype)


@triton.jit
def philox(seed, counter):
    """64 random bits of a position in the stream of a seed; see `ops.philox`."""
    key = seed.to(tl.uint32) + tl.zeros_like(counter).to(tl.uint32)
    left = counter.to(tl.uint32)
    right = ((counter ^ seed).to(tl.uint64, bitcast=True) >> 32).to(tl.uint32)
    for _ in tl.static_range(10):
        high = tl.umulhi(left, 0xD256D193)
        right, left = left * 0xD256D193, high ^ key ^ right
        key += 0x9E3779B9
    return ((left.to(tl.uint64) << 32) | right.to(tl.uint64)).to(tl.int64, bitcast=True)
