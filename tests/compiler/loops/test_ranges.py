"""Ranges hold whatever a value is, and reads at computed positions agree with eager."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from loop_harness import check, compare, copied, lowered, program, trace
from loop_programs import T, r

from tc.compiler.core.gate import Gate
from tc.compiler.errors import IndexOutOfRange
from tc.compiler.loops import index as ix
from tc.compiler.loops import lower
from tc.compiler.loops.expr import (
    DIVISIONS,
    Expr,
    constant,
    index_value,
    load,
    positions,
    transform,
    walk,
)
from tc.compiler.loops.interpret import evaluate
from tc.compiler.loops.ir import LoopGraph, Nest
from tc.compiler.loops.ops import SCALAR_OPS
from tc.compiler.loops.ranges import COMPARISONS, TRANSFERS, Range, Ranges
from tc.compiler.loops.refine import simpler
from tc.compiler.runtime.load import load as load_program

INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
FLOATS = (torch.float32, torch.float64)
#: bounds at which integers wrap around, and floats are tiny, huge or infinite
EDGES: dict[bool, tuple[float, ...]] = {
    False: (0, 1, -1, 2, -2, 3, 7, -7, 100, -100, 127, 128, -128, 255, 2**31 - 1, -(2**31), 2**62),
    True: (0.0, 1.0, -1.0, 0.5, -0.5, 0.1, 3.7, -3.7, 1e-42, 1e-30, -1e30, 1e38, 16777217.0),
}


def drawn_range(draw: random.Random, dtype: torch.dtype) -> tuple[Range, list[float]]:
    """A range, and values in it, bounds included."""
    floats = dtype.is_floating_point
    pool = EDGES[floats]
    if not floats:
        limits = torch.iinfo(dtype)
        pool = tuple(x for x in pool if limits.min <= x <= limits.max)
    low, high = sorted(draw.choices(pool, k=2))
    values = [low, high]
    for _ in range(4):
        values.append(draw.uniform(low, high) if floats else draw.randint(int(low), int(high)))
    exact = torch.tensor(values, dtype=dtype).tolist()
    return Range(min(exact), max(exact)), exact


def holds(found: Range, value: float) -> bool:
    return found.nan if value != value else found.low <= value <= found.high


@pytest.mark.sample(5)
@pytest.mark.parametrize("op", TRANSFERS)
def test_results_are_in_the_range_of_an_operation(op: str) -> None:
    row, draw = SCALAR_OPS[op], random.Random(f"ranges {op}")
    types = {"float": FLOATS, "int": INTS}.get(row.operands, (*INTS, *FLOATS))
    for _ in range(300):
        dtype = draw.choice(types)
        args = [load(name, ix.ZERO, dtype) for name in ("a", "b")[: row.arity]]
        given = [drawn_range(draw, dtype) for _ in args]
        known = {arg: limits for arg, (limits, _) in zip(args, given, strict=True)}
        found = Ranges({}, None, known).of(Expr(op, tuple(args), dtype))
        for values in zip(*(values for _, values in given), strict=True):
            operands = [torch.tensor(v, dtype=dtype) for v in values]
            if op in DIVISIONS and values[1] in (0, -1):  # the processor's own error
                continue
            result = row.python(*operands).to(dtype).item()
            assert holds(found, result), (dtype, given, values, result, found)


@pytest.mark.sample(3)
@pytest.mark.parametrize("source", (*INTS, *FLOATS, torch.bfloat16))
def test_results_are_in_the_range_of_a_conversion(source: torch.dtype) -> None:
    draw = random.Random(f"conversions {source}")
    for target in (*INTS, *FLOATS, torch.bfloat16, torch.float16, torch.bool):
        for _ in range(60):
            limits, values = drawn_range(draw, source)
            value = load("a", ix.ZERO, source)
            found = Ranges({}, None, {value: limits}).of(Expr("to", (value,), target))
            for item in values:
                result = torch.tensor(item, dtype=source).to(target).item()
                assert holds(found, result), (target, limits, item, result, found)


# ---------------------------------------------------------------- values of random expressions


def drawn_value(draw: random.Random, depth: int, variables: tuple[ix.Index, ...]) -> Expr:
    """A random integer over loop variables, an index of a tensor that a program computes."""
    if depth == 0:
        if draw.random() < 0.3:
            return constant(draw.choice(EDGES[False][:9]), torch.int64)
        return index_value(
            draw.choice(variables) * draw.choice((1, 1, 2, -1)) + draw.choice((0, 3))
        )
    a, b = (drawn_value(draw, depth - 1, variables) for _ in range(2))
    kind = draw.choice(("binary", "binary", "wrap", "where", "float", "divide"))
    if kind == "binary":
        op = draw.choice(("add", "sub", "minimum", "maximum", "mul"))
        return Expr(op, (a, b), torch.int64)
    if kind == "divide":
        divisor = constant(draw.choice((2, 3, 5)), torch.int64)
        op = draw.choice(("floordiv", "remainder", "truncdiv"))
        return Expr(op, (a, divisor), torch.int64)
    if kind == "float":
        as_float = Expr("to", (a,), torch.float32)
        factor = constant(draw.choice((0.5, 1 / 3, -1.5)), torch.float32)
        return Expr("to", (Expr("mul", (as_float, factor), torch.float32),), torch.int64)
    test = Expr(draw.choice(COMPARISONS), (a, b), torch.bool)
    if kind == "where":
        return Expr("where", (test, a, b), torch.int64)
    negative = Expr("lt", (a, constant(0, torch.int64)), torch.bool)
    shifted = Expr("add", (a, constant(draw.choice((5, 64)), torch.int64)), torch.int64)
    return Expr("where", (negative, shifted, a), torch.int64)


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(12))
def test_refined_expressions_have_the_same_values(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(60):
        sizes = (draw.randint(1, 9), draw.randint(1, 9))
        variables = tuple(ix.var(f"i{k}", n) for k, n in enumerate(sizes))
        value = drawn_value(draw, draw.randint(1, 4), variables)
        scope = {
            "i0": torch.arange(sizes[0])[:, None].expand(sizes),
            "i1": torch.arange(sizes[1])[None].expand(sizes),
        }
        before = evaluate(value, scope, {}, True).expand(sizes)
        ranges = Ranges({})
        for node in walk(value):  # each part alone: a wrong one may not show in the whole
            found = ranges.of(node)
            shown = evaluate(node, scope, {}, True).expand(sizes).flatten().tolist()
            assert all(holds(found, item) for item in shown), (node, found)
        after = transform(value, functools.partial(simpler, ranges=ranges))
        assert torch.equal(evaluate(after, scope, {}, True).expand(sizes), before), (value, after)


# ---------------------------------------------------------------- programs


def drawn_index(draw: random.Random, length: int, inside: bool) -> tuple[str, Callable[[], T]]:
    """The text of a 1-D index of some elements of ``length``, some of them negative."""
    count = draw.randint(3, 40)
    low, high = (-length, length - 1) if inside else (-length - 3, length + 2)
    kind = draw.choice(("clamp", "scale", "remainder", "wrap", "input"))
    text = {
        "clamp": f"(torch.arange({count}) - {count // 2}).clamp({low}, {high})",
        "scale": f"(torch.arange({count}) * {(high + 1) / count!r} - 0.0).floor().long()",
        "remainder": f"(torch.arange({count}) * 7 % {high + 1})",
        "wrap": f"(torch.arange({count}) - {min(count, length)}).clamp(max={high})",
        "input": "i",
    }[kind]
    return text, lambda: torch.randint(low, high + 1, (count,))


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("seed", range(10))
def test_reads_at_computed_positions_agree_with_eager(seed: int, mode: str) -> None:
    draw = random.Random(f"programs {seed}")
    for _ in range(4):
        inside = draw.random() < 0.7
        rows, columns = draw.randint(4, 20), draw.randint(4, 300)
        row, rows_of = drawn_index(draw, rows, True)
        column, columns_of = drawn_index(draw, columns, inside)
        body = draw.choice(
            (
                "x[:, {c}] * 2",
                "x[{r}[:, None], {c}].sin()",
                "x[{r}[:, None], {c}].sum(0)",
                "x[{r}].sum(0)",
                "torch.sigmoid(x[:, {c}]) - x[:, {c}.flip(0)]",
                "x.t()[{c}].max(0).values",
                "torch.stack([x, -x])[:, {r}[:, None], {c}]",
            )
        )
        row = "j" if row == "i" else row
        text = f"lambda x, i, j: {body.format(r=row, c=column)}"
        fn = eval(text, {"torch": torch})
        torch.manual_seed(seed)
        args = (r(rows, columns), columns_of(), rows_of())
        agree(fn, args, mode, text)


def agree(fn: Callable[..., Any], args: tuple[T, ...], mode: str, text: str) -> None:
    """Compiled code computes what eager does, or fails where it does."""
    try:
        want = fn(*copied(args))
    except IndexError:
        call = load_program(program(lowered(fn, args, mode)))
        with pytest.raises(IndexOutOfRange):
            call(copied(args))
        return
    call = load_program(program(lowered(fn, args, mode), threads=1))
    check(call(copied(args)), want)


def reads(graph: LoopGraph) -> list[Expr]:
    nests = [node for node in graph.nodes if isinstance(node, Nest)]
    return [n for nest in nests for n in walk(nest.body) if n.op == "at"]


def nearest(size: int, count: int) -> T:
    return (torch.arange(count) * (size / count)).floor().long()


def source(size: int, count: int) -> T:
    return ((torch.arange(count) + 0.5) * (size / count) - 0.5).clamp(min=0.0)


def bilinear(x: T) -> T:
    rows, columns = source(12, 24), source(10, 30)
    top, left = rows.long(), columns.long()
    bottom, right = (top + 1).clamp(max=11), (left + 1).clamp(max=9)
    down, across = (rows - top)[:, None], columns - left
    above = x[:, :, top[:, None], left].lerp(x[:, :, top[:, None], right], across)
    below = x[:, :, bottom[:, None], left].lerp(x[:, :, bottom[:, None], right], across)
    return above.lerp(below, down)


RESAMPLED: dict[str, Callable[[T], T]] = {
    "bilinear": bilinear,
    "nearest": lambda x: x[:, :, nearest(12, 31)[:, None], nearest(10, 7)] + 1,
    "reflected": lambda x: x[..., 9 - (9 - (torch.arange(14) - 2).abs()).abs()] + 1,
    "replicated": lambda x: x[..., (torch.arange(14) - 2).clamp(0, 9)] + 1,
    "from the end": lambda x: x[..., torch.arange(14) % 20 - 10] + 1,
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", RESAMPLED)
def test_positions_that_the_program_computes_are_within(name: str) -> None:
    graph = compare(RESAMPLED[name], (r(2, 3, 12, 10),), rtol=1e-4, atol=1e-5)
    found = [position for node in reads(graph) for position in positions(node)]
    assert found
    assert all(bound is None for _, bound, _ in found)
    assert all(value.dtype is torch.int32 for value, _, _ in found)


def test_a_symbolic_position_is_below_its_size() -> None:
    fn = lambda x: x[(torch.arange(x.shape[0]) + 3).clamp(max=x.shape[0] - 1)] * 2  # noqa: E731
    graph = compare(fn, (r(7, 3),), "symbolic")
    [node] = reads(graph)
    assert [bound for _, bound, _ in positions(node)] == [None]
    assert node.args[0].dtype is torch.int64  # the size may be any


def test_positions_of_data_keep_their_bounds() -> None:
    fn = lambda x, i: x[i.clamp(min=0)]  # noqa: E731
    args = r(5), torch.tensor([1, -3, 4])
    graph = compare(fn, args)
    [node] = reads(graph)
    assert all(bound is not None for _, bound, _ in positions(node))
    with pytest.raises(IndexOutOfRange):
        load_program(program(graph))([r(5), torch.tensor([1, 5, 0])])


def test_positions_of_nan_keep_their_bounds() -> None:
    fn = lambda x, y: x[y.clamp(0, 4).long()]  # noqa: E731
    [node] = reads(lowered(fn, (r(5), r(3).abs()), "fake"))
    assert all(bound is not None for _, bound, _ in positions(node))


def test_the_gate_can_refuse_ranges() -> None:
    traced = trace(RESAMPLED["bilinear"], (r(2, 3, 12, 10),), "fake")
    graph = lower(traced, Gate(refuse_from={"loops.ranges": 1}))
    assert any(b is not None for node in reads(graph) for _, b, _ in positions(node))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_small_integers_are_not_rounded_to_16_bits_and_back(dtype: torch.dtype) -> None:
    def rounded(fn: Callable[..., T], *args: T) -> bool:
        nests = [node for node in compare(fn, args).nodes if isinstance(node, Nest)]
        every = [n for nest in nests for n in walk(nest.body)]
        return any(
            n.op == "to" and n.args[0].dtype is dtype and n.args[0].op == "to" for n in every
        )

    x = r(40).to(dtype)
    assert not rounded(lambda x, i: (i > 1).to(dtype) * x, x, torch.arange(40) % 3)
    assert not rounded(lambda x: torch.arange(40).to(dtype) * x, x)
    assert rounded(lambda x: (torch.arange(40) * 777).to(dtype) * x, x)
