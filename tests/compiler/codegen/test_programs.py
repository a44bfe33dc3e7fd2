"""Whole programs: interpreter and generated C agree with eager, for sizes known and symbolic."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loop_harness import check, compare, copied, externs, lowered, program, trace
from loop_programs import PROGRAMS, T, r

import tc
from tc.compiler import codegen, loops, schedule
from tc.compiler.core.gate import Gate
from tc.compiler.runtime.build import find_compiler, kernel_flags
from tc.compiler.runtime.load import load


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_program_agrees_with_eager(name: str, mode: str) -> None:
    fn, make = PROGRAMS[name]
    torch.manual_seed(0)
    compare(fn, make(7), mode)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_symbolic_program_serves_another_size(name: str) -> None:
    fn, make = PROGRAMS[name]
    torch.manual_seed(0)
    call = load(program(lowered(fn, make(7), "symbolic")))
    for size in (9, 33):
        args = make(size)
        check(call(copied(args)), fn(*args))


@pytest.mark.parametrize("threads", [1, 3])
def test_large_enough_for_threads(threads: int) -> None:
    def fn(x: T, y: T) -> tuple[T, ...]:
        return F.softmax(x, -1), x.sum(), x.sum(0), x.amax(), (x * y).tanh(), x.mean((0, 1))

    compare(fn, (r(300, 700), r(700)), threads=threads, rtol=1e-5, atol=1e-4)


def test_inputs_that_are_not_contiguous() -> None:
    def fn(x: T, y: T) -> tuple[T, ...]:
        return x + y, (x * 2).sum(0), F.softmax(x, -1), x.reshape(-1) + 1

    compare(fn, (r(6, 5).t(), r(5, 12)[:, ::2]))
    compare(fn, (r(1, 6).expand(5, 6), r(5, 6)))


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_empty_tensors(shape: tuple[int, int]) -> None:
    def fn(x: T) -> tuple[T, ...]:
        return x + 1, x.sum(0), x.sum(1), x.sum(), torch.cat([x, x]), x.t().contiguous()

    compare(fn, (r(*shape),))


def test_zero_dimensional() -> None:
    compare(lambda x, y: (x + y, x.exp().sum(), y * x), (torch.tensor(2.0), torch.tensor(3)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision(dtype: torch.dtype) -> None:
    def fn(x: T, w: T) -> tuple[T, ...]:
        return F.layer_norm(x, (16,), w), F.softmax(x, -1), x.sum(0), (x * w).float(), x.exp()

    compare(fn, (r(9, 16).to(dtype), r(16).to(dtype)))


def test_an_input_is_written_to() -> None:
    def fn(x: T, y: T) -> T:
        total = x + y
        torch.ops.aten.copy_.default(x, total * 2)
        return total

    module = trace(fn, (r(3, 4), r(3, 4)))
    graph = loops.lower(module, Gate())
    call = load(codegen.generate(schedule.plan(graph, Gate()), threads=1))
    x, y = r(3, 4), r(3, 4)
    want = x + y
    (got,) = call([x, y])
    check((got, x), (want, want * 2))


def test_inputs_are_written_after_they_are_read() -> None:
    def fn(x: T, y: T) -> tuple[T, ...]:
        before, old = x.exp(), y * 1
        torch.ops.aten.copy_.default(x, y)
        torch.ops.aten.copy_.default(y, torch.zeros(3, 4))
        return before, old

    def swap(x: T, y: T) -> tuple[T, ...]:
        old = x.clone()
        torch.ops.aten.copy_.default(x, y)
        torch.ops.aten.copy_.default(y, old)
        return ()

    for written in (fn, swap):
        mine, theirs = [r(3, 4), r(3, 4)], []
        theirs = copied(mine)
        got = load(program(lowered(written, (r(3, 4), r(3, 4)))))(list(mine))
        check(got, written(*theirs))
        check(mine, theirs)


def test_outputs_that_are_inputs_views_and_constants() -> None:
    def fn(x: T) -> tuple[T, ...]:
        y = x.exp()
        return x, y, y.t(), x[1:], y + torch.tensor([1.0, 2.0, 3.0, 4.0])

    call = load(program(lowered(fn, (r(3, 4),))))
    x = r(3, 4)
    got = call([x])
    check(got, fn(x))
    assert got[0] is x
    assert got[2].data_ptr() == got[1].data_ptr()
    assert got[3].data_ptr() == x[1:].data_ptr()


def test_positions_of_some_dimensions_are_put_by_an_op_that_takes_gaps() -> None:
    def put(x: T, at: T, y: T) -> T:
        return torch.ops.aten.index_put(x, [None, at], y)

    at = torch.tensor([2, 0])
    compare(put, (r(3, 4), at, r(3, 2)))
    compare(lambda x, at, y: torch.ops.aten.index_put(x, [at], y, True), (r(3, 4), at, r(2, 4)))


@pytest.mark.sample(2)
@pytest.mark.parametrize("sides", [(48, 64), (40, 17), (16, 16)])
def test_tiles_are_transposed_up_to_the_end_of_memory(sides: tuple[int, int]) -> None:
    compare(lambda x, y: x.t() + y, (r(*sides), r(*sides[::-1])))
    compare(lambda x: x.permute(0, 2, 1).contiguous() * 2, (r(3, *sides),))


def test_a_refused_lowering_goes_to_aten() -> None:
    module = trace(lambda x: F.relu(x).exp() + 1, (r(3, 4),))
    gate = Gate(refuse_from={"loops.lower": 2})
    graph = loops.lower(module, gate)
    assert externs(graph) == ["aten.exp.default", "aten.add.Tensor"]
    x = r(3, 4)
    check(load(program(graph))([x]), F.relu(x).exp() + 1)


def test_out_of_range_reads_are_an_error() -> None:
    weights, tokens = r(5, 3), torch.tensor([0, 4, 99, -7])
    call = load(
        program(lowered(lambda w, t: F.embedding(t, w), (weights, torch.tensor([0, 1, 2, 3]))))
    )
    with pytest.raises(IndexError):
        call([weights, tokens])
    (got,) = call([weights, torch.tensor([0, 4, 0, 4])])
    check((got[:2],), weights[[0, 4]])


def test_an_op_keeps_its_workspace_for_the_gradient() -> None:
    layer, x = torch.nn.LSTM(4, 8, batch_first=True), r(2, 5, 4)
    compiled = tc.compile(layer)(x)[0]
    mine = torch.autograd.grad(compiled.sum(), list(layer.parameters()))
    theirs = torch.autograd.grad(layer(x)[0].sum(), list(layer.parameters()))
    check(mine, theirs)


def rows_that_are_set(x: torch.Tensor) -> torch.Tensor:
    return torch.nonzero(x) * 2 + 1


def positive_values(x: torch.Tensor) -> torch.Tensor:
    return (x[x > 0].exp() + 1).sum()


def different_values(x: torch.Tensor) -> list[torch.Tensor]:
    values, counts = torch.unique(x, return_counts=True)
    return [values + 1, counts * 2, values.sin()]


@pytest.mark.sample(2)
@pytest.mark.parametrize("function", [rows_that_are_set, positive_values, different_values])
def test_sizes_that_depend_on_data(function) -> None:
    compiled = tc.compile(function, fullgraph=True)
    for given in ([1.0, 0, 2], [0.0, 0, 0], [3.0, 3, -3], [1.0]):
        x = torch.tensor(given)
        torch.testing.assert_close(compiled(x), function(x))


def clamps_of_relus(x: T, y: T) -> T:
    a = x * y + x
    return ((torch.relu(a) - y * 0.5) * a + x).clamp(-2.0, 2.0) * y


CHAINS = [
    clamps_of_relus,
    lambda x, y: torch.minimum(torch.maximum(x * 2, y), x + y) + 1,
    lambda x, y: (x.clamp(-1, 1) * torch.relu(y)).sum(),
    lambda x, y: torch.where(x > y, x * 0.9 + y, F.leaky_relu(x)),
    lambda x, y: F.hardtanh(x) * F.hardswish(y),
    lambda x, y: F.gelu(x) + torch.sigmoid(y),
    lambda x, y: F.mish(x) * F.softplus(y),
    lambda x, y: x.sigmoid().log10() + y.tanh().atan().log1p(),
    lambda x, y: torch.atan2(x, y).sinh() - torch.asin(x.tan()).acos(),
    lambda x, y: F.max_pool2d(F.relu(x * y).view(1, 16, 64, 64), 2, return_indices=True),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("function", CHAINS)
def test_loops_run_in_vectors(function) -> None:
    compiler = find_compiler()
    if compiler.is_clang:
        pytest.skip("asks gcc what it did")
    source = program(lowered(function, (r(65536), r(65536)))).c_source
    command = [*compiler.command, *kernel_flags(compiler), "-fopt-info-vec", "-x", "c", "-"]
    reported = subprocess.run(
        [*command, "-o", "/dev/null"], input=source, capture_output=True, text=True, check=True
    )
    assert "loop vectorized" in reported.stderr


def test_bfloat16_is_rounded_as_in_eager_for_every_bit_pattern() -> None:
    every = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16).view(torch.bfloat16)

    def fn(x: T, y: T, z: T) -> tuple[T, ...]:
        return x * y + x, (x + y) * y, x.relu() * y, x.clamp(-2.0, 2.0) - y, x * y + z

    half = torch.full_like(every, 1.171875)
    wide = torch.full(every.shape, 0x7FFFFFFF, dtype=torch.int32).view(torch.float32)
    compare(fn, (every, half, half), rtol=0, atol=0)
    compare(fn, (half, every, wide), rtol=0, atol=0)


SHAPED: dict[str, Any] = {
    "stack": lambda x, y: torch.stack([x, y], 1),
    "flat": lambda x, y: (x + y).view(-1),
    "transposed": lambda x, y: (x + y).t(),
    "split": lambda x, y: (x * y).reshape(2, 3, 5).transpose(0, 2),
}


@pytest.mark.parametrize("name", SHAPED)
def test_a_result_returned_in_another_shape_is_allocated_in_it(name: str) -> None:
    args = (r(6, 5), r(6, 5))
    made = program(lowered(SHAPED[name], args, "fake"))
    assert "as_strided" not in made.wrapper_source
    [got] = load(made)(copied(args))
    assert not got._is_view()
    check((got,), SHAPED[name](*args))


NOT_SHAPED: dict[str, Any] = {
    "returned twice": lambda x, y: (z := x + y, z.view(-1)),
    "a part": lambda x, y: (x + y)[1:],
    "repeated": lambda x, y: (x + y).sum().expand(3),
    "read by a library": lambda x, y: (z := (x + y).view(5, 6), z @ x),
}


@pytest.mark.parametrize("name", NOT_SHAPED)
def test_a_result_that_others_see_is_returned_as_a_view(name: str) -> None:
    args = (r(6, 5), r(6, 5))
    made = program(lowered(NOT_SHAPED[name], args, "fake"))
    assert "as_strided" in made.wrapper_source
    check(load(made)(copied(args)), NOT_SHAPED[name](*args))


def _rows(size: int, dtype: torch.dtype) -> T:
    """Rows with ties, best values at the ends, infinities and NaN."""
    x = torch.randint(-5, 6, (9, size), generator=torch.Generator().manual_seed(size)).to(dtype)
    x[1], x[2, -1], x[3, 0] = 3, 100, 100
    x[4] = torch.arange(size)
    if dtype.is_floating_point:
        x[5, size // 2], x[6], x[7, size // 3] = torch.nan, -torch.inf, torch.inf
        x[8] = 0.0
        x[8, ::2] = -0.0
        x[2, 0], x[1, size - 1] = torch.nan, torch.nan
    return x


@pytest.mark.sample(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int16])
@pytest.mark.parametrize("size", [63, 65, 4100])
def test_positions_of_best_values_in_rows(size: int, dtype: torch.dtype) -> None:
    def fn(x: T) -> tuple[T, ...]:
        return x.argmax(-1), x.argmin(-1), *x.max(-1), (x * 2 - 1).argmin(-1), x[4:5].argmax()

    compare(fn, (_rows(size, dtype),))


def test_positions_are_looked_for_once_the_values_are_known() -> None:
    cheap = program(lowered(lambda x: x.argmax(-1), (r(5, 128),), "fake")).c_source
    expensive = program(lowered(lambda x: x.sin().exp().argmax(-1), (r(5, 128),), "fake")).c_source
    short = program(lowered(lambda x: x.argmax(-1), (r(5, 8),), "fake")).c_source
    assert ["sought_v0" in code for code in (cheap, expensive, short)] == [True, True, False]
    assert ["v_v0[" in code for code in (cheap, expensive)] == [False, True]


DTYPES = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32,
    torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool,
    torch.complex64,
)  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_bits_of_each_type_are_read_as_each_other(source: torch.dtype) -> None:
    """Every pair of types, whatever the width: a pair without a way to print it fails."""
    given = torch.arange(32, dtype=torch.uint8).reshape(2, 16)
    x = given.view(source) if source is not torch.bool else given.bool()

    def views(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.view(target).clone() for target in DTYPES if target is not torch.bool]

    def plus_one(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.view(t) + 1 for t in DTYPES[:5] if t.itemsize == x.dtype.itemsize]

    for function in (views, plus_one):
        for mine, theirs in zip(tc.compile(function)(x), function(x), strict=True):
            assert mine.dtype is theirs.dtype
            assert torch.equal(mine.view(torch.uint8), theirs.view(torch.uint8))
