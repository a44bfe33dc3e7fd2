"""The C spelling of every scalar op, over a grid with special values, against float64 or ints."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import mpmath
import pytest
import torch

import tc
from tc.compiler import codegen, schedule
from tc.compiler.core.gate import Gate
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, load
from tc.compiler.loops.ir import Buffer, Input, LoopGraph, Pointwise, View
from tc.compiler.loops.ops import SCALAR_OPS, ScalarOp
from tc.compiler.runtime.load import load as build

SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-40, -1e-40, 3e38, -3e38, 0.5]
GRID = torch.cat(
    [
        torch.tensor(SPECIAL, dtype=torch.float64),
        torch.linspace(-12, 12, 4001, dtype=torch.float64),
        torch.logspace(-38, 38, 1201, dtype=torch.float64),
        -torch.logspace(-38, 38, 301, dtype=torch.float64),
        torch.linspace(-120, 120, 501, dtype=torch.float64),
    ]
)
INTEGERS = [0, 1, -1, 2, 3, -3, 7, -8, 100, -100]
LARGE = [2**62, -(2**62), 2**63 - 1, -(2**63), 2**53 + 1, 10**17 + 3]


def run(op: ScalarOp, *args: torch.Tensor) -> torch.Tensor:
    """One op on tensors, through C."""
    count = args[0].numel()
    i = ix.var("i0", count)
    dtype = torch.bool if op.result == "bool" else args[0].dtype
    inputs = [Buffer(f"in{k}", a.dtype, (ix.const(count),), (ix.ONE,)) for k, a in enumerate(args)]
    out = Buffer("buf0", dtype, (ix.const(count),), (ix.ONE,))
    body = Expr(op.name, tuple(load(b.name, i, b.dtype) for b in inputs), dtype)
    graph = LoopGraph(
        tuple(Input(b.name, b) for b in inputs),
        (Pointwise(out, (i,), i, body),),
        (View("buf0", dtype, out.sizes, out.strides, ix.ZERO),),
    )
    graph.verify()
    call = build(codegen.generate(schedule.plan(graph, Gate()), threads=1))
    result: torch.Tensor = call([a.contiguous() for a in args])[0]
    return result


def pairs(values: torch.Tensor, count: int) -> tuple[torch.Tensor, ...]:
    """All pairs of some of the values."""
    few = torch.cat([values[:12], values[12 :: max(1, len(values) // count)]])
    left, right = torch.meshgrid(few, few, indexing="ij")
    return left.reshape(-1), right.reshape(-1)


def ulps(got: torch.Tensor, want: torch.Tensor) -> float:
    """Largest error in units of the last place of the exact result."""
    exact = want.to(got.dtype)
    same = (exact == got) | (exact.isnan() & got.isnan())
    assert (got.isnan() == exact.isnan()).all(), "NaN where there should be none, or none where"
    step = (
        torch.nextafter(exact.abs(), torch.tensor(math.inf, dtype=got.dtype)) - exact.abs()
    ).double()
    tiny = torch.finfo(got.dtype).tiny  # results below it may be flushed to zero
    same |= (exact.abs() < tiny) & (got.abs() <= tiny)
    error = ((got.double() - want.double()).abs() / step)[~same & exact.isfinite()]
    off = ~same & ~exact.isfinite()
    assert (
        not off.any() or float((got[off].double() / torch.finfo(got.dtype).max).abs().min()) > 0.999
    )
    return float(error.max()) if error.numel() else 0.0


FLOATS = [row for _, row in SCALAR_OPS.rows() if row.operands in ("any", "float", "number")]
# Where a result cancels to nearly zero, relative error says nothing: held by absolute error.
CANCELLING = ("lgamma", "remainder", "fmod", "floordiv")


@pytest.mark.sample(3)
@pytest.mark.parametrize("op", FLOATS, ids=lambda row: row.name)
def test_float32_keeps_its_bound(op: ScalarOp) -> None:
    values = GRID.float().double()
    args = (values,) if op.arity == 1 else pairs(values, 60)
    got = run(op, *(a.float() for a in args))
    want: torch.Tensor = op.python(*(a for a in args))
    if op.name in ("nextafter", *CANCELLING):
        want = op.python(*(a.float() for a in args))
    if op.result == "bool":
        assert torch.equal(got, want)
    elif op.name in CANCELLING:
        kept = want.isfinite()  # eager's vector code loses large quotients
        torch.testing.assert_close(got[kept], want[kept], rtol=1e-4, atol=1e-5)
    else:
        assert ulps(got, want) <= max(op.ulps, 0.5)


NANS = (torch.arange(1, 1 << 23, 4099, dtype=torch.int32) | 0x7F800000).view(torch.float32)


@pytest.mark.sample(6)
@pytest.mark.parametrize("op", [op for op in FLOATS if op.arity == 1], ids=lambda row: row.name)
def test_nans_stay_nans_whatever_their_bits(op: ScalarOp) -> None:
    want: torch.Tensor = op.python(NANS)
    assert torch.equal(run(op, NANS).isnan(), want.isnan())


NARROW = {
    "asin": torch.linspace(-1, 1, 40001),
    "acos": torch.linspace(-1, 1, 40001),
    "atanh": torch.linspace(-1, 1, 40001),
    "atan": torch.linspace(-3, 3, 40001),
    "tan": torch.linspace(-1e4, 1e4, 40001),
    "sinh": torch.linspace(-89.3, 89.3, 40001),
    "cosh": torch.linspace(-89.3, 89.3, 40001),
    "log2": torch.linspace(0.5, 2, 40001),
    "log10": torch.linspace(0.5, 2, 40001),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", NARROW)
def test_elementary_functions_keep_their_bound_where_they_bend(name: str) -> None:
    op = SCALAR_OPS[name]
    assert ulps(run(op, NARROW[name]), op.python(NARROW[name].double())) <= op.ulps


def test_angles_of_axes_are_exact() -> None:
    axes = torch.tensor([0.0, -0.0, math.inf, -math.inf, 1.0, -1.0])
    y, x = (side.flatten() for side in torch.meshgrid(axes, axes, indexing="ij"))
    got, want = run(SCALAR_OPS["atan2"], y, x), torch.atan2(y.double(), x.double()).float()
    assert torch.equal(got, want) and torch.equal(got.signbit(), want.signbit())


@pytest.mark.parametrize("divisor", [3.0, 255.0, 0.22, -0.45, 1e-38, 3e38, 1.1754944e-38, 7.0])
def test_division_by_a_constant_is_division(divisor: float) -> None:
    torch.manual_seed(0)
    values = torch.cat([GRID.float(), torch.randn(4096), torch.arange(4096.0)])
    got = tc.compile(lambda x: x / divisor)(values)
    want = values / divisor
    assert torch.equal(got.isnan(), want.isnan())
    exact = want.abs() >= 1e-30  # below it the second part is a number too small to be held
    assert torch.equal(got[exact], want[exact])
    torch.testing.assert_close(got, want, equal_nan=True, rtol=2e-7, atol=1.2e-38)


@pytest.mark.parametrize("bound", [0.0, -2.5, math.inf, math.nan])
def test_clamps_by_a_constant_keep_nans(bound: float) -> None:
    values = GRID.float()
    for function in (torch.clamp_min, torch.clamp_max):
        got = tc.compile(lambda x, f=function: f(x, bound))(values)
        torch.testing.assert_close(got, function(values, bound), equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_turns_near_quarters_keep_their_bound(name: str) -> None:
    """Arguments next to multiples of pi/2, where reducing them costs most digits."""
    quarter = (torch.arange(1, 70000, dtype=torch.float64) * (math.pi / 2)).float()
    up = torch.full_like(quarter, math.inf)
    values = torch.cat([quarter, torch.nextafter(quarter, up), torch.nextafter(quarter, -up)])
    op = SCALAR_OPS[name]
    assert ulps(run(op, values), op.python(values.double())) <= op.ulps


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_turns_are_the_same_beside_large_arguments(name: str) -> None:
    small = torch.linspace(-1e5, 1e5, 509)
    beside = small.clone()
    beside[::9] = 1e30
    op = SCALAR_OPS[name]
    alone, mixed = run(op, small), run(op, beside)
    kept = beside == small
    assert torch.equal(alone[kept], mixed[kept])
    assert torch.equal(alone[7:12], run(op, small[7:12]))


@pytest.mark.sample(6)
@pytest.mark.parametrize("op", FLOATS, ids=lambda row: row.name)
def test_float64_agrees(op: ScalarOp) -> None:
    args = (GRID,) if op.arity == 1 else pairs(GRID, 60)
    got, want = run(op, *args), op.python(*args)
    torch.testing.assert_close(got, want, equal_nan=True, rtol=1e-12, atol=1e-14)


# The functions that tc computes in float64: arguments, and the largest error found, rounded
# up, in units in the last place.
RANGES: dict[str, tuple[float, float, float]] = {
    "exp": (-708, 709, 1.5),
    "exp2": (-1020, 1023, 1.5),
    "expm1": (-40, 700, 2.5),
    "log": (1e-300, 1e300, 1.5),
    "log2": (1e-300, 1e300, 1.5),
    "log10": (1e-300, 1e300, 1.5),
    "log1p": (-0.999, 1e3, 2),
    "sin": (-1e6, 1e6, 2),
    "cos": (-1e6, 1e6, 2),
    "tan": (-1e6, 1e6, 4),
    "asin": (-1, 1, 3),
    "acos": (-1, 1, 2),
    "atan": (-30, 30, 2.5),
    "sinh": (-700, 700, 4),
    "cosh": (-700, 700, 4),
    "tanh": (-22, 22, 4),
    "asinh": (-1e5, 1e5, 3),
    "acosh": (1, 1e5, 3),
    "atanh": (-0.999, 0.999, 3),
    "erf": (-6, 6, 3),
    "erfc": (-5, 26, 6),
}


def exactly(name: str, x: float) -> mpmath.mpf:
    """A function of one number, with 140 bits."""
    with mpmath.workprec(140):
        value = mpmath.mpf(x)
        spelled: dict[str, Callable[[mpmath.mpf], mpmath.mpf]] = {
            "exp2": lambda v: mpmath.power(2, v),
            "log2": lambda v: mpmath.log(v) / mpmath.log(2),
        }
        result: mpmath.mpf = spelled.get(name, getattr(mpmath, name, None))(value)  # type: ignore[misc]
        return result


def worst(got: torch.Tensor, exact: list[mpmath.mpf]) -> float:
    """Largest error in units in the last place of the exact results."""
    found = 0.0
    for value, want in zip(got.tolist(), exact, strict=True):
        if 1e-307 < abs(want) < 1.7e308:
            found = max(found, float(abs(mpmath.mpf(value) - want) / math.ulp(float(abs(want)))))
    return found


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", RANGES)
def test_float64_keeps_its_bound(name: str) -> None:
    low, high, bound = RANGES[name]
    draw = random.Random(name)
    numbers = [draw.uniform(low, high) for _ in range(300)]
    numbers += [draw.uniform(max(low, -1.2), min(high, 1.2)) for _ in range(300)]
    numbers += [math.exp(draw.uniform(-27, math.log(high))) for _ in range(300)]
    if name in ("log", "log2", "log10"):
        numbers += [1 + draw.uniform(-1, 1) * 10 ** draw.uniform(-8, -1) for _ in range(300)]
    if name in ("sin", "cos", "tan"):
        numbers += [k * math.pi / 2 for k in range(1, 300)]
    numbers = [number for number in numbers if low <= number <= high]
    got = run(SCALAR_OPS[name], torch.tensor(numbers, dtype=torch.float64))
    assert worst(got, [exactly(name, number) for number in numbers]) <= bound


@pytest.mark.parametrize("name", ["pow", "atan2", "hypot"])
def test_float64_of_two_keeps_its_bound(name: str) -> None:
    draw = random.Random(name)
    left = [draw.choice((-1, 1)) * 10 ** draw.uniform(-3, 3) for _ in range(900)]
    right = [draw.choice((-1, 1)) * 10 ** draw.uniform(-3, 3) for _ in range(900)]
    if name == "pow":
        left = [abs(a) for a in left]
        ends = [700 / max(abs(math.log(a)), 1e-3) for a in left]
        right = [draw.uniform(-end, end) for end in ends]
    tensors = [torch.tensor(side, dtype=torch.float64) for side in (left, right)]
    functions = {"pow": mpmath.power, "atan2": mpmath.atan2, "hypot": mpmath.hypot}
    with mpmath.workprec(140):
        exact = [
            functions[name](mpmath.mpf(a), mpmath.mpf(b)) for a, b in zip(left, right, strict=True)
        ]
    assert worst(run(SCALAR_OPS[name], *tensors), exact) <= 2


EDGES = [0.0, 1.0, 0.5, 2.0, 3.0, math.inf, math.nan, 5e-324, 1e-310, 2.3e-308, 1e308, 1.7e308]
EDGES += [2.0**30, 2.0**31, 1e22, 709.78, 745.2, 1023.5, 1075.0, 27.3, 1 / 3]


@pytest.mark.sample(6)
@pytest.mark.parametrize("op", FLOATS, ids=lambda row: row.name)
def test_edges_of_float64(op: ScalarOp) -> None:
    """Signs of zero, infinities, NaN, subnormal and huge numbers, beside each other in vectors."""
    numbers = torch.tensor([*EDGES, *(-edge for edge in EDGES)], dtype=torch.float64)
    args: tuple[torch.Tensor, ...] = (numbers,)
    if op.arity == 2:
        left, right = torch.meshgrid(numbers, numbers, indexing="ij")
        args = left.reshape(-1), right.reshape(-1)
    got, want = run(op, *args), op.python(*args)
    if op.result == "bool":
        assert torch.equal(got, want)
        return
    kept = want.isfinite() | (op.name not in CANCELLING)  # eager's lose large quotients
    got, want = got[kept], want[kept]
    torch.testing.assert_close(got, want, equal_nan=True, rtol=1e-12, atol=5e-308)
    known = ~want.isnan() & ((want == 0) == (got == 0))
    if op.name not in CANCELLING:
        assert torch.equal(got.signbit()[known], want.signbit()[known])


@pytest.mark.sample(6)
@pytest.mark.parametrize("op", [op for op in FLOATS if op.arity == 1], ids=lambda row: row.name)
def test_signs_of_zero_in_float32(op: ScalarOp) -> None:
    zeros = torch.tensor([0.0, -0.0] * 20)
    got, want = run(op, zeros), op.python(zeros)
    assert torch.equal(got, want) or want.isnan().all()
    if op.result != "bool":
        assert torch.equal(got.signbit(), want.signbit()) or want.isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_quotients_are_exact(dtype: torch.dtype) -> None:
    """Those that libm computes stand among those that vectors compute."""
    torch.manual_seed(0)
    a, b = (torch.randn(999).to(dtype) * 10.0 ** torch.randint(-9, 9, (999,)) for _ in "ab")
    for name in ("fmod", "remainder"):
        want = SCALAR_OPS[name].python(a.double(), b.double()).to(dtype)
        got = run(SCALAR_OPS[name], a, b)
        if name == "fmod":
            assert torch.equal(
                got,
                torch.tensor(
                    [math.fmod(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)],
                    dtype=dtype,
                ),
            )
        torch.testing.assert_close(got, want)


INTS: list[tuple[ScalarOp, torch.dtype]] = [
    (row, dtype)
    for _, row in SCALAR_OPS.rows()
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
    if row.operands in ("any", "int", "number") or (row.operands == "wide" and dtype is torch.int64)
]
DIVISIONS = ("truncdiv", "floordiv", "remainder", "fmod")


@pytest.mark.sample(6)
@pytest.mark.parametrize("op, dtype", INTS, ids=lambda value: getattr(value, "name", str(value)))
def test_integers_agree(op: ScalarOp, dtype: torch.dtype) -> None:
    numbers = INTEGERS + (LARGE if dtype is torch.int64 and op.name != "ipow" else [])
    chosen = [n for n in numbers if dtype is not torch.uint8 or n >= 0]
    keep: Callable[[int], bool] = lambda n: n != 0 if op.name in DIVISIONS else 0 <= n < 8  # noqa: E731
    if op.name in ("shl", "shr", "ipow") or op.name in DIVISIONS:
        right = [n for n in chosen if keep(n)]
    else:
        right = chosen
    grid = list(itertools.product(chosen, right))
    if op.name in DIVISIONS:
        grid = [(a, b) for a, b in grid if not (b == -1 and a == -(2**63))]
    left = torch.tensor([a for a, _ in grid]).to(dtype)
    args = (left, torch.tensor([b for _, b in grid]).to(dtype))[: op.arity]
    assert torch.equal(run(op, *args), op.python(*args))


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["and", "or", "xor", "not", "eq", "lt", "maximum", "minimum"])
def test_bools_agree(name: str) -> None:
    op = SCALAR_OPS[name]
    args = (torch.tensor([False, False, True, True]), torch.tensor([False, True, False, True]))
    assert torch.equal(run(op, *args[: op.arity]), op.python(*args[: op.arity]))


def same_bits(got: torch.Tensor, want: torch.Tensor, integers: torch.dtype) -> bool:
    """Whether two tensors are the same, whatever their NaNs are made of."""
    number = ~want.isnan()
    return torch.equal(got.isnan(), want.isnan()) and torch.equal(
        got.view(integers)[number], want.view(integers)[number]
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_low_precision_number_is_widened_exactly(dtype: torch.dtype) -> None:
    numbers = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)
    widened = tc.compile(lambda x: x.float().neg())(numbers)
    assert same_bits(widened, numbers.float().neg(), torch.int32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrowing_rounds_as_eager(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31 - 1, (1 << 18,), generator=draw).to(torch.int32)
    scales = 10.0 ** torch.arange(-9, 7).repeat_interleave(1 << 14)
    around = torch.randn(1 << 18, generator=draw) * scales
    halves = (torch.arange(1 << 18) + 0.5) * 2.0**-24  # ties, in subnormals as well
    compiled = tc.compile(lambda x: x.to(dtype))
    for numbers in (bits.view(torch.float32), around, halves):
        assert same_bits(compiled(numbers), numbers.to(dtype), torch.int16)


def test_rounding_to_float16_between_operations() -> None:
    """Each result is rounded, and so is a number that is added, as in eager."""
    numbers = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.float16)
    got = tc.compile(lambda x: (x * 1.1 + 0.3) * 0.7)(numbers)
    product = (numbers.float() * 1.1).half().float()
    want = ((product + torch.tensor(0.3).half()).half().float() * 0.7).half()
    assert same_bits(got, want, torch.int16)
    assert same_bits(got, (numbers * 1.1 + 0.3) * 0.7, torch.int16)


WRAPPING = {
    "sum": lambda a, b: a + b > a,
    "difference": lambda a, b: a - 1 < a,
    "product": lambda a, b: a * 2 // 2,
    "magnitude": lambda a, b: a.abs() >= 0,
    "negation": lambda a, b: -a < 0,
    "choice": lambda a, b: torch.where(a + 1 < a, 1, 0),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("name", WRAPPING)
def test_integers_wrap_around_before_they_are_compared(name, dtype):
    ends = torch.iinfo(dtype)
    a = torch.tensor([ends.max, ends.min, 5, -7, 1] * 7, dtype=dtype)
    b = torch.tensor([1, -1, 3, ends.max // 2, ends.min] * 7, dtype=dtype)
    assert torch.equal(tc.compile(WRAPPING[name])(a, b), WRAPPING[name](a, b))


@pytest.mark.sample(3)
@pytest.mark.parametrize("whole", [torch.int32, torch.int64, torch.int8], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_whole_numbers_are_no_negative_zeros(whole, dtype):
    def function(x):
        return 1 / x.to(whole), x.to(whole).to(dtype), x.round().to(whole).to(dtype) * -1

    x = torch.tensor([-0.3, 0.3, -0.0, 0.0, -1.5, 2.5] * 7, dtype=dtype)
    for got, wanted in zip(tc.compile(function)(x), function(x), strict=True):
        assert torch.equal(got, wanted) and torch.equal(got.signbit(), wanted.signbit())


JUMPING = {
    "eq": lambda x: x == 0.1,
    "lt": lambda x: x < 0.1,
    "ge": lambda x: x >= torch.tensor(0.1),
    "fmod": lambda x: x.fmod(0.1),
    "remainder": lambda x: x % torch.tensor(0.1),
    "hardshrink": lambda x: torch.nn.functional.hardshrink(x, 0.1),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", JUMPING)
def test_numbers_are_rounded_to_the_type_they_are_compared_in(name, dtype):
    x = torch.tensor([0.1, 0.2, 0.3, 1.0, -1.0, 0.7, -0.1, 0.5] * 5).to(dtype)
    torch.testing.assert_close(tc.compile(JUMPING[name])(x), JUMPING[name](x), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_exponentials_have_a_logarithm(dtype):
    """Denormal results are no zeros: a program that takes their logarithm gets no infinity."""
    lowest = -103.5 if dtype is torch.float32 else -744.5
    x = torch.linspace(lowest, lowest + 25, 4099, dtype=dtype)
    found, expected = tc.compile(torch.exp)(x), torch.exp(x.double())
    step = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    assert ((found.double() - expected).abs() <= 1.1 * step + 2e-7 * expected).all()
    beyond = torch.tensor([-math.inf, -1e30, 3 * lowest, math.inf, math.nan], dtype=dtype)
    torch.testing.assert_close(tc.compile(torch.exp)(beyond), torch.exp(beyond), equal_nan=True)


def test_the_entropy_of_unlikely_classes_is_finite():
    def entropy(logits):
        p = logits.softmax(-1)
        return -(p * p.log()).sum(-1)

    logits = torch.tensor([[0.0, -88.0, -95.0, -101.0]] * 3, requires_grad=True)
    found, expected = tc.compile(entropy)(logits), entropy(logits)
    torch.testing.assert_close(found, expected)
    [got], [wanted] = (torch.autograd.grad(one.sum(), logits) for one in (found, expected))
    torch.testing.assert_close(got, wanted)
