"""Whole programs: Triton kernels under its interpreter agree with eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loop_harness import check, copied, lowered
from loop_programs import PROGRAMS

T = torch.Tensor
pytestmark = [
    pytest.mark.usefixtures("interpreter"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


def r(*shape: int) -> T:
    return torch.randn(shape)


def compare(fn: Callable[..., Any], args: Any, mode: str = "fake", **tolerance: float) -> None:
    from triton_harness import compare_gpu

    torch.manual_seed(0)
    compare_gpu(fn, args, mode, **tolerance)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_program_agrees_with_eager(name: str, mode: str) -> None:
    fn, make = PROGRAMS[name]
    compare(fn, make(7), mode)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["block", "reductions", "padded", "size_as_value"])
def test_symbolic_program_serves_another_size(name: str) -> None:
    from triton_harness import gpu_program

    from tc.compiler.runtime.triton import load

    fn, make = PROGRAMS[name]
    call = load(gpu_program(lowered(fn, make(7), "symbolic")))
    for size in (9, 33):
        args = make(size)
        check(call(copied(args)), fn(*args), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_rows_too_long_to_be_held(mode: str) -> None:
    def fn(x: T) -> tuple[T, ...]:
        return x.sum(1), F.softmax(x, 1), (x > 3).any(1), (x < 9).all(1)

    compare(fn, (r(2, 5000),), mode, rtol=1e-4, atol=1e-4)


def test_extremes_of_long_rows() -> None:
    compare(lambda x: (x.amax(1), x.argmax(1), x.argmin(1)), (r(1, 4100),))


def test_columns() -> None:
    compare(lambda x: (x.sum(0), x / x.abs().sum(0)), (r(90, 17),), rtol=1e-4, atol=1e-4)


def test_long_reductions_are_cut_in_parts() -> None:
    def fn(x: T, y: T) -> tuple[T, ...]:
        return (x * y).sum(), x.mean(), (x > 9).any(), x.sum(1)

    compare(fn, (r(2, 20001), r(20001)), rtol=1e-4, atol=1e-3)


def test_long_columns_are_cut_in_parts() -> None:
    def fn(x: T) -> tuple[T, ...]:
        return x.sum(0), x.amax(0), x.var(0)

    compare(fn, (r(1100, 5),), rtol=1e-4, atol=1e-4)


def test_elements_are_not_written_in_the_order_of_a_column_sum() -> None:
    from triton_harness import compare_gpu

    program = compare_gpu(lambda x, w: (x.sum(0), F.layer_norm(x, (16,), w)), (r(9, 16), r(16)))
    assert "//" not in program.triton_source


def test_nan_wins_and_the_first_of_equals() -> None:
    x = torch.tensor([[1.0, float("nan"), 3.0], [float("-inf")] * 3, [2.0, 2.0, 1.0]])
    compare(lambda x: (x.amax(1), x.amin(1), x.argmax(1), x.argmin(1), x.sum(1)), (x,))


def test_integer_reductions() -> None:
    x = torch.randint(-3, 3, (4, 11))
    compare(lambda x: (x.sum(1), x.amax(1), x.argmax(1), x.prod(1), x.amin(0)), (x,))


def test_positions_over_several_dimensions() -> None:
    compare(lambda x: (x.t().exp().argmax(), x.argmax(), x.t().argmin()), (r(5, 6),))


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_float_types(dtype: torch.dtype, mode: str) -> None:
    def fn(x: T, w: T) -> tuple[T, ...]:
        return F.layer_norm(x, (16,), w), F.softmax(x, -1), x.sum(0), (x * w).float(), x.exp() / 3

    compare(fn, (r(9, 16).to(dtype), r(16).to(dtype)), mode)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_empty_tensors(shape: tuple[int, int]) -> None:
    compare(lambda x: (x + 1, x.sum(0), x.sum(1), x.sum(), torch.cat([x, x])), (r(*shape),))


def test_inputs_that_are_not_contiguous() -> None:
    def fn(x: T, y: T) -> tuple[T, ...]:
        return x + y, (x * 2).sum(0), F.softmax(x, -1), x.reshape(-1) + 1

    compare(fn, (r(6, 5).t(), r(5, 12)[:, ::2]))
    compare(fn, (r(1, 6).expand(5, 6), r(5, 6)))


def test_gradients() -> None:
    from torch import fx, nn
    from torch._subclasses import FakeTensorMode
    from triton_harness import gpu_program

    from tc.compiler import aot, loops
    from tc.compiler.aot.training import training
    from tc.compiler.core.gate import Gate
    from tc.compiler.runtime.triton import load

    def fn(x: T, w: T, v: T) -> T:
        return F.gelu(F.layer_norm(x, (8,), w) @ v).softmax(-1).pow(2).mean()

    args = [r(6, 8), r(8), r(8, 5)]
    with FakeTensorMode() as fakes:
        inputs = [fakes.from_tensor(a).requires_grad_() for a in args]
    parts = training(fx.symbolic_trace(fn), inputs, Gate())
    calls = [
        load(gpu_program(loops.lower(g.module, Gate()))) for g in (parts.forward, parts.backward)
    ]
    mine, theirs = ([nn.Parameter(a.clone()) for a in args] for _ in range(2))
    (got,), want = aot.wrap_training(parts, *calls)(*mine), fn(*theirs)
    got.backward()
    want.backward()
    torch.testing.assert_close(got, want)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """All scans are made of loops, as on a GPU."""
    from tc.compiler.loops.lower import scan

    monkeypatch.setattr(scan, "_better_here", lambda *_: None)


LOOPED = 4500  # too long to be held


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("length", [37, LOOPED])
def test_scans(length: int, mode: str, always: None) -> None:
    def fn(x: T) -> tuple[T, ...]:
        sums = x.cumsum(1)
        return sums, (x / 9).exp().cumprod(1), x.logcumsumexp(1), *x.cummax(1), *x.cummin(1)

    x = r(2, length)
    x[1, 30] = float("nan")
    compare(fn, (x,), mode, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [37, LOOPED])
def test_scans_among_other_passes(length: int, always: None) -> None:
    def fn(x: T) -> tuple[T, ...]:
        y = x.softmax(1).cumsum(1)
        return y, y.softmax(1), (y * 2).cumsum(1) / y.amax(1, keepdim=True)

    compare(fn, (r(3, length),), rtol=1e-4, atol=1e-4)


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool, torch.bfloat16])
def test_scans_of_other_types_across_memory(dtype: torch.dtype) -> None:
    x = (r(70, 9) * 3).to(dtype)
    compare(lambda x: (x.cumsum(0), *x.cummax(0), *x.cummin(0)), (x,))


def test_rows_read_again_are_to_stay_in_the_caches() -> None:
    """Weights, which all rows share, are left to the caches' own rules."""
    from triton_harness import compare_gpu

    fn = lambda x, w: F.layer_norm(x, (5000,), w)  # noqa: E731
    source = compare_gpu(fn, (r(3, 5000), r(5000)), rtol=1e-4, atol=1e-4).triton_source
    loads = [line for line in source.splitlines() if "tl.load(" in line]
    reported = [line.partition("eviction_policy=")[2].strip('")') for line in loads]
    assert reported == ["evict_last", "evict_last", "evict_first", ""]
    assert "in1_ptr" in loads[-1]


def test_nothing_is_read_of_memory_that_may_have_no_elements() -> None:
    from triton_harness import gpu_program

    from tc.compiler.runtime.triton import load

    def fn(x: T, places: T) -> T:
        return (x * 2)[: x.shape[0] // 100][places]

    def make(size: int, places: int) -> tuple[T, T]:
        return r(size, 3), torch.zeros(places, dtype=torch.int64)

    program = gpu_program(lowered(fn, make(200, 4), "symbolic"))
    assert "// 100) > 0" in program.triton_source
    call = load(program)
    for given in (make(200, 4), make(301, 5)):
        check(call(copied(given)), fn(*given))


def test_equal_kernels_are_one_function() -> None:
    from triton_harness import compare_gpu

    def layers(x: T, *weights: T) -> T:
        for weight in weights:
            x = F.layer_norm(x @ weight, (16,)).relu()
        return x

    program = compare_gpu(layers, (r(4, 16), r(16, 16), r(16, 16), r(16, 16)))
    assert program.triton_source.count("@triton.jit") == len(program.kernels) == 1
    assert program.wrapper_source.count(f"{program.kernels[0].name}(") == 3
    assert len(dict(program.provenance)[program.kernels[0].name]) >= 3


def test_kernels_of_other_types_are_other_functions() -> None:
    from triton_harness import compare_gpu

    def copies(x: T, y: T) -> tuple[T, T]:
        return x.t().contiguous(), y.t().contiguous()

    given = torch.arange(40).view(5, 8)
    program = compare_gpu(copies, (given, given.to(torch.int32)))
    kinds = [types for _, types in program.arguments]
    assert sorted({*sum(kinds, ())}) == ["*i32", "*i64"]


def test_inputs_that_kernels_write_to_are_named() -> None:
    from triton_harness import gpu_program

    def fn(x: T, y: T, z: T) -> T:
        y.add_(x)
        z.copy_(z.flip(0))
        return x + 1

    compare(fn, (r(4, 9), r(4, 9), r(7)))
    graph = lowered(torch.func.functionalize(fn), (r(4, 9), r(4, 9), r(7)))
    program = gpu_program(graph)  # a CUDA graph must not have these inputs at another address
    assert program.written == (1, 2)
    assert program.wrapper_source.count(".copy_(") == 1


def test_copies_into_inputs_share_a_call() -> None:
    from triton_harness import gpu_program

    def fn(x: T, y: T, n: T) -> T:
        z = x.sum()
        for tensor in (x, y, n):
            tensor.copy_(tensor.flip(0))
        return z

    args = (r(9, 4), r(8), torch.arange(6))
    compare(fn, args)
    source = gpu_program(lowered(torch.func.functionalize(fn), args)).wrapper_source
    assert (source.count("_foreach_copy_("), source.count(".copy_(")) == (1, 1)
