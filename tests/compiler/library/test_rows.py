"""GEMMs with few rows: computed by built-in kernels, equal to eager's."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loop_harness import check, copied, externs, planned, program, trace
from support import crossed

import tc
from tc.compiler import library
from tc.compiler.core.gate import Gate
from tc.compiler.core.machine import caches
from tc.compiler.loops.interpret import interpret
from tc.compiler.loops.ir import LoopGraph
from tc.compiler.loops.lower.graph import lower
from tc.compiler.routines import products
from tc.compiler.runtime.load import load
from tc.compiler.schedule.interpret import interpret as interpret_plan

wide = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX512", reason="not chosen without AVX-512"
)


def r(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def arranged(fn: Any, args: tuple[torch.Tensor, ...], threads: int = 1) -> LoopGraph:
    """The loops of a function after the library stage; all ways to run them equal eager."""
    module = trace(fn, args)
    library.arrange(module, Gate())
    graph = lower(module, Gate())
    graph.verify()
    want = fn(*args)
    rounding = {"atol": 5e-5, "rtol": 2e-5}  # of sums of up to a few hundred products near 1
    check(interpret(graph, copied(args)), want, **rounding)
    check(interpret_plan(planned(graph), copied(args)), want, **rounding)
    check(load(program(graph, threads))(copied(args)), want, **rounding)
    return graph


@pytest.mark.sample(2)
@wide
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 19, 32, 64])
def test_any_number_of_few_rows(rows: int) -> None:
    graph = arranged(lambda x, w: x @ w.t(), (r(rows, 48), r(70, 48)))
    assert externs(graph) == []


@pytest.mark.sample(2)
@wide
@pytest.mark.parametrize("width", [32, 33, 35, 64, 100])
@pytest.mark.parametrize("threads", [1, 3])
def test_any_width(width: int, threads: int) -> None:
    graph = arranged(F.linear, (r(6, 16), r(width, 16), r(width)), threads)
    assert externs(graph) == []


@pytest.mark.sample(3)
@wide
@pytest.mark.parametrize("rows", [1, 5, 64])
@pytest.mark.parametrize("width", [4, 5, 7, 10, 18])
def test_few_columns(rows: int, width: int) -> None:
    graph = arranged(F.linear, (r(rows, 272) / 16, r(width, 272), r(width)))
    assert [getattr(node, "kind", "") for node in graph.nodes] == ["dot", ""]


@wide
def test_what_follows_is_computed_with_the_product() -> None:
    def layer(x: Any, w: Any, b: Any, y: Any) -> Any:
        return y + F.gelu(F.linear(x, w, b)).view(2, 4, 40)

    graph = arranged(layer, (r(8, 32), r(40, 32), r(40), r(2, 4, 40)))
    assert externs(graph) == []
    assert len(planned(graph).kernels()) == 1


@wide
def test_products_of_one_shape_stay_apart() -> None:
    def three(x: Any, q: Any, k: Any, v: Any) -> Any:
        return x @ q.t(), x @ k.t() + x @ v.t()

    graph = arranged(three, (r(4, 32), r(32, 32), r(32, 32), r(32, 32)))
    assert externs(graph) == []
    assert len(planned(graph).kernels()) == 3


@wide
def test_a_row_reduction_after_it_is_a_kernel_of_its_own() -> None:
    graph = arranged(lambda x, w: (x @ w.t()).softmax(-1), (r(4, 48), r(48, 48)))
    assert len(planned(graph).kernels()) == 2


@wide
def test_operands_that_loops_make_and_windows_of_tensors() -> None:
    def windows(x: Any, w: Any) -> Any:
        return (x * 2 + 1) @ w.t(), x[1:4] @ w[8:72].t()

    graph = arranged(windows, (r(5, 32), r(96, 32)))
    assert externs(graph) == []


@wide
def test_infinities_and_nans_spread_as_in_eager() -> None:
    x, w = r(3, 32), r(40, 32)
    x[0, 3], w[5, 7], w[9, 0] = float("nan"), float("inf"), float("-inf")
    arranged(lambda x, w: x @ w.t(), (x, w))


@pytest.mark.parametrize(
    "shapes",
    [
        ((65, 32), (40, 32)),  # more rows
        ((16, 30), (40, 30)),  # a rest
        ((60, 64), (3, 64)),  # few columns
    ],
)
def test_others_are_left_to_aten(shapes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    x, w = (r(*shape) for shape in shapes)
    assert externs(arranged(lambda x, w: x @ w.t(), (x, w))) == ["aten.mm.default"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
def test_other_types_are_left_to_aten(dtype: torch.dtype) -> None:
    x, w = torch.ones(6, 32, dtype=dtype), torch.ones(40, 32, dtype=dtype)
    assert externs(arranged(lambda x, w: x @ w.t(), (x, w))) == ["aten.mm.default"]


@pytest.fixture
def second_cache_of_a_megabyte(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge as on one machine: how large a small matrix may be depends on the second cache."""
    held = dataclasses.replace(caches(), second=1 << 20)
    monkeypatch.setattr(products, "caches", lambda: held)


def test_a_matrix_that_lies_as_it_is_read_is_left_to_aten_where_it_is_large(
    second_cache_of_a_megabyte: None,
) -> None:
    graph = arranged(lambda x, w: x @ w, (r(6, 32), r(32, 4000)))
    assert externs(graph) == ["aten.mm.default"]


@pytest.mark.sample(2)
@wide
@pytest.mark.parametrize(
    "rows", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15, 16, 19, 27, 28, 29, 43, 64, 97, 128]
)
def test_any_number_of_rows_of_a_small_matrix(rows: int) -> None:
    graph = arranged(lambda x, w: x @ w, (r(rows, 37), r(37, 75)))
    assert externs(graph) == []


@pytest.mark.sample(2)
@wide
@crossed(
    width=[2, 3, 15, 16, 17, 31, 33, 64, 100, 127, 128, 257, 300], rows=[5, 64], threads=[1, 3]
)
def test_any_width_of_a_small_matrix(rows: int, width: int, threads: int) -> None:
    def both(x: Any, w: Any, b: Any, other: Any) -> Any:
        return torch.addmm(b, x, w), (x + 1) @ other

    args = r(rows, 113) / 8, r(113, width), r(width), r(113, width)
    assert externs(arranged(both, args, threads)) == []


@pytest.mark.sample(3)
@wide
@pytest.mark.parametrize("depth", [2, 3, 16, 17, 300])
def test_any_depth_of_a_small_matrix(depth: int) -> None:
    graph = arranged(lambda x, w: x @ w, (r(33, depth) / 16, r(depth, 50)))
    assert externs(graph) == []


@pytest.mark.sample(2)
@wide
@pytest.mark.parametrize("rows", [1, 6, 40])
def test_rows_that_lie_transposed_and_windows_of_small_matrices(rows: int) -> None:
    def windows(x: Any, w: Any, y: Any) -> Any:
        across = x.t()[:rows]
        return (
            across @ w,
            across @ w[:, 3:40],
            y[:, 5:] @ w[1:, 8:],
            (x + 1).t()[:rows] @ (w * 2),
        )

    graph = arranged(windows, (r(30, 40), r(30, 48), r(rows, 34)))
    assert externs(graph) == []


@wide
def test_what_follows_of_a_small_matrix_is_computed_with_the_product() -> None:
    def layer(x: Any, w: Any, b: Any, y: Any) -> Any:
        return y + F.gelu(torch.addmm(b, x, w)).view(2, 4, 44)

    graph = arranged(layer, (r(8, 32), r(32, 44), r(44), r(2, 4, 44)))
    assert externs(graph) == []
    assert len(planned(graph).kernels()) == 1


@wide
def test_results_that_are_only_stored_are_written_once() -> None:
    args = r(20, 32), r(32, 44)
    for fn, gathered in ((lambda x, w: x @ w, False), (lambda x, w: (x @ w).relu(), True)):
        assert ("float tile[" in program(arranged(fn, args)).c_source) == gathered


@wide
def test_infinities_spread_from_small_matrices_as_in_eager() -> None:
    x, w = r(20, 32), r(32, 45)
    x[0, 3], w[5, 7], w[9, 44] = float("nan"), float("inf"), float("-inf")
    arranged(lambda x, w: x @ w, (x, w))


@wide
def test_gradients_of_a_small_layer() -> None:
    x, w, b = (t.requires_grad_() for t in (r(24, 48), r(60, 48), r(60)))
    compiled = tc.compile(lambda x, w, b: torch.tanh(F.linear(x, w, b)))
    with tc.trace.capture_events() as reported:
        got = torch.autograd.grad(compiled(x, w, b).sum(), (x, w, b))
    made = [d for event in reported.of(tc.trace.Fusion) for d in event.facts["decisions"]]
    (small,) = [d for d in made if d["reason"] == "at most 128 rows of a small matrix"]
    assert small["taken"] and len(small["nodes"]) == 2
    want = torch.autograd.grad(torch.tanh(F.linear(x, w, b)).sum(), (x, w, b))
    check(got, want, atol=2e-5, rtol=2e-5)


@wide
@pytest.mark.parametrize("transposed", [False, True])
def test_without_vectors_of_512_bits(monkeypatch: pytest.MonkeyPatch, transposed: bool) -> None:
    monkeypatch.setenv("CC", "gcc -U__AVX512F__")
    fn = (lambda x, w: x @ w.t()) if transposed else (lambda x, w: x @ w)
    arranged(fn, (r(17, 48), r(48, 48)))


def reasons(rows: int, depth: int, width: int) -> list[str]:
    """Why products of contiguous matrices are taken."""
    module = trace(lambda x, w: x @ w, (r(rows, depth), r(depth, width)), "fake")
    return [decision.reason for decision in library.arrange(module, Gate()) if decision.taken]


@pytest.mark.sample(3)
@wide
@pytest.mark.parametrize(
    ("taken", "refused"),
    [
        ((128, 64, 64), (129, 64, 64)),  # rows
        ((5, 256, 256), (5, 256, 257)),  # elements of the matrix
        ((4, 512, 512), (5, 512, 512)),
        ((4, 256, 1024), (4, 257, 1024)),
        ((9, 1024, 20), (9, 1025, 20)),  # depth
        ((128, 64, 256), (128, 64, 257)),  # results
        ((90, 90, 2), (90, 90, 1)),  # columns
        ((90, 2, 90), (90, 1, 90)),
    ],
)
def test_borders_of_small_matrices(
    second_cache_of_a_megabyte: None,
    taken: tuple[int, int, int],
    refused: tuple[int, int, int],
) -> None:
    assert reasons(*taken) == ["at most 128 rows of a small matrix"]
    assert reasons(*refused) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("transposed", [False, True])
def test_tiny_products_are_loops(dtype: torch.dtype, transposed: bool) -> None:
    w = r(9, 7).to(dtype) if transposed else r(7, 9).to(dtype)
    fn = (
        (lambda x, w, b: F.relu(x @ w.t() + b))
        if transposed
        else (lambda x, w, b: F.relu(x @ w + b))
    )
    assert not externs(arranged(fn, (r(5, 7).to(dtype), w, r(9).to(dtype))))


def test_a_tiny_linear_layer_is_loops_with_its_bias() -> None:
    assert not externs(arranged(F.linear, (r(2, 8), r(8, 8), r(8))))


def test_empty_products_and_whole_numbers_are_left_to_aten() -> None:
    whole = torch.arange(6).reshape(2, 3)
    assert externs(arranged(lambda x, w: x @ w, (whole, whole.t().contiguous())))
    assert externs(arranged(lambda x, w: x @ w, (r(2, 0), r(0, 3))))


def test_operands_of_two_types_are_refused_as_by_aten() -> None:
    compiled = tc.compile(lambda x, w: x @ w)
    with pytest.raises(RuntimeError, match="same dtype"):
        compiled(r(2, 3), r(3, 4).double())
