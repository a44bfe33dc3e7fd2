"""Triton kernels of the user's, called from compiled functions, under Triton's interpreter."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

import tc
from tc.compiler.core.user_kernels import parameters_written
from tc.trace import GraphBreak
from tc.trace.emit import capture_events

os.environ.setdefault("TRITON_INTERPRET", "1")
triton = pytest.importorskip("triton", reason="triton is not installed")
if not triton.knobs.runtime.interpret:
    pytest.skip("triton compiles in this process (TRITON_INTERPRET=0)", allow_module_level=True)
import triton.language as tl  # noqa: E402
from user_kernel import add, add_kernel  # noqa: E402

T = torch.Tensor


@triton.jit
def scale_kernel(x_ptr, factor, n, BLOCK: tl.constexpr = 16):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    place = x_ptr + at
    tl.store(place, tl.load(place, mask=mask) * factor, mask=mask)


@triton.jit
def store_one(place, value):
    tl.store(place, value)


@triton.jit
def helped_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    for k in range(BLOCK):
        source = x_ptr + k
        store_one(out_ptr + k, tl.load(source) + 1)


@triton.jit
def counting_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    places = tl.load(x_ptr + at, mask=at < n, other=0)
    tl.atomic_add(out_ptr + places, 1, mask=at < n)


@pytest.fixture(autouse=True)
def fresh() -> None:
    tc.reset()


def compare(fn: Any, *args: Any, breaks: int = 0, **options: Any) -> None:
    copies = [a.clone() if isinstance(a, T) else a for a in args]
    want = fn(*copies)
    with capture_events() as events:
        got = tc.compile(fn, **options)(*args)
    torch.testing.assert_close(got, want)
    for mine, theirs in zip(args, copies, strict=True):
        torch.testing.assert_close(mine, theirs)
    reported = [event for event in events.of(GraphBreak) if "Triton kernel" in event.title]
    assert len(reported) == breaks


def r(*shape: int) -> T:
    return torch.randn(shape)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_call_is_part_of_the_graph(backend: str) -> None:
    compare(lambda x, y: add(x.sin(), y * 2).cos(), r(40), r(40), backend=backend, fullgraph=True)


def test_sizes_may_be_dynamic() -> None:
    compiled = tc.compile(lambda x, y: add(x, y) * 2, dynamic=True, fullgraph=True)
    for size in (5, 40, 33):
        x, y = r(size), r(size)
        torch.testing.assert_close(compiled(x, y), (x + y) * 2)


def test_an_input_that_is_written_to() -> None:
    def fn(x: T, factor: float) -> T:
        y = x + 1
        scale_kernel[(3,)](x, factor, x.numel())
        return y + x

    compare(fn, r(40), 2.5, fullgraph=True)


def test_a_view_of_an_input_that_is_written_to() -> None:
    def fn(x: T) -> T:
        scale_kernel[(1, 1)](x[1], 3.0, 16, BLOCK=16)
        return x.sum()

    compare(fn, r(3, 16), fullgraph=True)


def test_the_same_tensor_read_and_written() -> None:
    def fn(x: T) -> T:
        y = x * 2
        add_kernel[(2,)](y, y, y, y.numel(), 16)
        return y

    compare(fn, r(32), fullgraph=True)


def test_kernels_that_call_kernels_and_count() -> None:
    def fn(x: T) -> tuple[T, T]:
        out = torch.zeros(8)
        helped_kernel[(1,)](x, out, BLOCK=8)
        counts = torch.zeros(4, dtype=torch.int32)
        counting_kernel[(1,)]((x.abs() * 2).long() % 4, counts, 7, BLOCK=8, num_warps=4)
        return out, counts

    compare(fn, r(8), fullgraph=True)


def test_tensors_that_share_memory_run_in_python() -> None:
    def fn(x: T) -> T:
        y = x + 1
        add_kernel[(1,)](y[:8], y[4:12], y[8:], 4, BLOCK=8)
        return y * 2

    compare(fn, r(16), breaks=1)


def test_gradients_go_around_a_kernel() -> None:
    def fn(x: T) -> T:
        return (add(x, x) * x).sum()

    grads = []
    for call in (fn, tc.compile(fn, fullgraph=True)):
        x = torch.arange(20.0).requires_grad_()
        call(x).backward()
        grads.append(x.grad)
    torch.testing.assert_close(grads[0], grads[1])


def test_kernels_with_other_constants_are_distinguished() -> None:
    def fn(x: T) -> tuple[T, T]:
        y, z = x.clone(), x.clone()
        scale_kernel[(1,)](y, 2.0, 40, BLOCK=16)
        scale_kernel[(1,)](z, 2.0, 40, BLOCK=32)
        return y, z

    compare(fn, r(40), fullgraph=True)


def test_an_empty_grid_does_nothing() -> None:
    compare(lambda x: add(x, x), r(0), fullgraph=True)


@pytest.mark.parametrize(
    ("kernel", "names"),
    [
        (add_kernel, {"out_ptr"}),
        (scale_kernel, {"x_ptr"}),
        (helped_kernel, {"out_ptr", "x_ptr"}),  # it passes both
        (counting_kernel, {"out_ptr", "x_ptr"}),  # a place is made of both
    ],
)
def test_what_a_kernel_may_write_to(kernel: Any, names: set[str]) -> None:
    pointers = {name for name in kernel.arg_names if name.endswith("_ptr")}
    assert parameters_written(kernel) & pointers == names


def test_a_kernel_without_source_may_write_to_all() -> None:
    class Unknown:
        arg_names = ("x", "y")
        fn = len

    assert parameters_written(Unknown()) == {"x", "y"}
