"""Results written past the caches: the same values, whatever the lengths and the alignment."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from loop_harness import compare, lowered, program
from loop_programs import PROGRAMS, T, r

from tc.compiler.codegen.cpp import stream
from tc.compiler.core.machine import caches

LARGE = caches().last // 8  # elements of float32: two such tensors fill the last cache


@pytest.fixture
def everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stream whatever can be streamed."""
    monkeypatch.setattr(stream, "KEPT_PART", -1)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.usefixtures("everything")
def test_program_agrees_with_eager(name: str) -> None:
    fn, make = PROGRAMS[name]
    torch.manual_seed(0)
    compare(fn, make(33), "fake")


@pytest.mark.sample(1)
@pytest.mark.parametrize("width", [1, 15, 16, 511, 512, 1041])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.usefixtures("everything")
def test_lengths(width: int, threads: int) -> None:
    def fn(x: T, y: T) -> tuple[T, ...]:
        transposed = x.t().contiguous() + 1
        return x + y, F.softmax(x, -1), transposed, torch.cat([x, y], 1) * 2, (x > y).to(torch.int8)

    compare(fn, (r(280, width), r(280, width)), threads=threads, rtol=1e-5, atol=1e-5)


def streams(fn: Callable[..., T], *args: T) -> bool:
    return "tc_stream(" in program(lowered(fn, args, "fake")).c_source


def test_only_what_caches_cannot_hold_is_streamed() -> None:
    large, *others = (torch.empty(LARGE) for _ in range(3))  # only traced, never touched
    assert streams(lambda x, y, z: x * y + z, large, *others)
    assert not streams(lambda x: x * 2, r(1000))
    assert not streams(lambda x, row: (x * row).sum(-1), large.view(-1, 1024), r(1024))


def test_only_what_caches_cannot_hold_is_asked_for_ahead_of_sums() -> None:
    large, small = torch.empty(LARGE), r(100_000)
    sources = [program(lowered(lambda x: x.sum(), (x,), "fake")).c_source for x in (large, small)]
    assert ["__builtin_prefetch(" in source for source in sources] == [True, False]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "width, dtype, asked",
    [(512, torch.float32, 2), (127, torch.float32, 0), (128, torch.float32, 2),
     (128, torch.bfloat16, 0), (256, torch.bfloat16, 2)],
)  # fmt: skip
def test_long_parts_of_rows_are_asked_for_before_they_are_written(
    width: int, dtype: torch.dtype, asked: int
) -> None:
    parts = (r(9, width).to(dtype), r(9, width).to(dtype))
    source = program(lowered(lambda x, y: torch.cat([x, y], 1), parts, "fake")).c_source
    assert source.count("__builtin_prefetch(") == asked
    compare(lambda x, y: torch.cat([x, y], 1), parts)


@pytest.mark.sample(2)
@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("size", [64, 1000, 5000])
def test_sums_that_ask_ahead_agree_with_eager(size: int) -> None:
    compare(lambda x: (x.sum(), x.sum(-1), x.argmax(-1)), (r(5, size),), rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("everything")
def test_what_the_kernel_reads_again_is_not_streamed() -> None:
    def fn(x: T) -> tuple[T, T]:
        wide = x.exp() * x.sin() + x.cos()
        return wide, F.softmax(wide, -1)

    compare(fn, (r(20, 9000),), rtol=1e-5, atol=1e-6)
