"""Matrix products as tc's kernels: each form agrees with eager, and each choice is reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from triton_harness import Choosing, Memory, favouring, tuned

from tc.compiler.core.gate import Gate
from tc.compiler.loops.ir import Extern
from tc.compiler.runtime.triton import load
from tc.compiler.schedule.plan import Plan, Product
from tc.trace import Autotune
from tc.trace.emit import capture_events

T = torch.Tensor
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
HALF, BF16 = torch.float16, torch.bfloat16


def r(*shape: int, dtype: torch.dtype = torch.float32) -> T:
    torch.manual_seed(1)
    return torch.randn(shape).to(dtype)


def ints(*shape: int) -> T:
    torch.manual_seed(2)
    return torch.randint(-8, 8, shape, dtype=torch.int8)


Case = tuple[Callable[..., Any], tuple[Any, ...]]
PRODUCTS: dict[str, Case] = {
    "alone": (lambda x, w: x @ w, (r(33, 20), r(20, 17))),
    "bias and gelu": (
        lambda x, w, b: F.gelu(x @ w + b),
        (r(33, 20), r(20, 17), r(17)),
    ),
    "residual and result": (
        lambda x, w, y: (lambda p: ((p + y).relu(), p))(x @ w),
        (r(33, 20), r(20, 17), r(33, 17)),
    ),
    "transposed": (lambda x, w: (x.t() @ w.t()) * 2, (r(20, 33), r(17, 20))),
    "two": (lambda x, w, v: ((x @ w).relu() @ v) + 1, (r(33, 20), r(20, 17), r(17, 40))),
    "parts of matrices": (lambda x, w: x[:, 4:] @ w[1:17] + 1, (r(33, 20), r(20, 17))),
    "no depth": (lambda x, w, b: torch.addmm(b, x, w), (r(5, 0), r(0, 7), r(7))),
    "linear": (lambda x, w, b: F.linear(x, w, b).relu(), (r(33, 20), r(17, 20), r(17))),
    "scaled": (
        lambda b, x, w: torch.addmm(b, x, w, beta=0.5, alpha=2),
        (r(33, 17), r(33, 20), r(20, 17)),
    ),
    "summand left out": (
        lambda b, x, w: torch.addmm(b, x, w, beta=0),
        (torch.full((17,), float("nan")), r(33, 20), r(20, 17)),
    ),
    "column of summands": (lambda b, x, w: torch.addmm(b, x, w), (r(33, 1), r(33, 20), r(20, 17))),
    "pairs": (lambda x, w: torch.bmm(x, w), (r(3, 33, 20), r(3, 20, 17))),
    "pairs, one matrix": (
        lambda x, w: torch.bmm(x, w.expand(3, 20, 17)) + 1,
        (r(3, 33, 20), r(20, 17)),
    ),
    "pairs in turn": (
        lambda x, w: torch.bmm(x.transpose(0, 1), w.transpose(1, 2)).relu(),
        (r(33, 3, 20), r(3, 17, 20)),
    ),
    "pairs and summands": (
        lambda b, x, w: torch.baddbmm(b, x, w, alpha=0.5),
        (r(1, 33, 17), r(3, 33, 20), r(3, 20, 17)),
    ),
    "heads": (
        lambda q, k: ((q @ k.transpose(-1, -2)) * 0.25).tanh(),
        (r(2, 3, 18, 8), r(2, 3, 21, 8)),
    ),
    "columns of one": (lambda x, w: (x @ w).sigmoid(), (r(40, 24), r(24, 1))),
}


def second(names: list[str]) -> str:
    return names[1]


def first_inside(names: list[str]) -> str:
    """The first way that computes factors where they are read."""
    return next((name for name in names if name.endswith("inside")), names[0])


def products(plan: Plan) -> list[Product]:
    return [kernel for kernel in plan.kernels() if isinstance(kernel, Product)]


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_with_what_follows(name: str, interpreter: None) -> None:
    fn, args = PRODUCTS[name]
    plan, program = tuned(fn, args, Choosing(second))
    assert products(plan)
    assert "tl.dot(" in program.triton_source
    assert not any(isinstance(step, Extern) for step in plan.steps)
    if name in ("bias and gelu", "linear", "heads"):
        assert len(plan.kernels()) == 1


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", [HALF, BF16])
@pytest.mark.parametrize("name", ["bias and gelu", "linear", "scaled", "pairs and summands"])
def test_products_in_low_precision(name: str, dtype: torch.dtype, interpreter: None) -> None:
    fn, args = PRODUCTS[name]
    plan, _ = tuned(fn, tuple(t.to(dtype) for t in args), Choosing(second))
    assert products(plan)


def test_summands_are_added_before_rounding(interpreter: None) -> None:
    x, w, b = torch.ones(16, 16), torch.full((16, 16), 16.0), torch.full((16,), 0.5)
    w[0] = 17  # the sum is 257, halfway between two numbers of this type
    args = tuple(t.to(BF16) for t in (x, w, b))
    _, program = tuned(lambda x, w, b: torch.addmm(b, x, w), args, Choosing(second))
    assert torch.equal(load(program)(list(args))[0], torch.full((16, 16), 258.0).to(BF16))


def test_every_tile_computes_the_same(interpreter: None) -> None:
    fn, args = PRODUCTS["bias and gelu"]
    offered: list[str] = []
    tuned(fn, args, Choosing(lambda names: offered.extend(names) or names[1]))  # type: ignore[func-returns-value]
    for tile in [name for name in offered if name.startswith("triton")]:
        plan, _ = tuned(fn, args, Choosing(lambda names, tile=tile: tile))
        assert str(products(plan)[0].cut) == tile


@pytest.mark.parametrize("name", ["bias and gelu", "pairs and summands", "linear"])
def test_where_the_library_is_faster_it_is_called(name: str, interpreter: None) -> None:
    fn, args = PRODUCTS[name]
    plan, program = tuned(fn, args, Choosing(lambda names: names[0]))
    assert "mm(" in program.wrapper_source
    refused = [d for d in plan.decisions if d.kind == "product"]
    assert [d.taken for d in refused] == [False]


def test_the_gate_may_refuse(interpreter: None) -> None:
    fn, args = PRODUCTS["linear"]
    plan, _ = tuned(fn, args, Choosing(second), gate=Gate({"schedule.product": 0}))
    assert not products(plan)
    assert "refused by the gate" in [d.reason for d in plan.decisions]


def test_products_whose_reader_looks_elsewhere_stand_alone(interpreter: None) -> None:
    fn = lambda x, w: (x @ w).flip(0) + 1  # noqa: E731
    plan, _ = tuned(fn, (r(33, 20), r(20, 17)), Choosing(second))
    assert [isinstance(kernel, Product) for kernel in plan.kernels()] == [True, False]


def test_float32_is_multiplied_as_torch_is_set(interpreter: None) -> None:
    fn, args = PRODUCTS["alone"]
    _, program = tuned(fn, args, Choosing(second))
    assert 'input_precision="ieee"' in program.triton_source
    torch.set_float32_matmul_precision("high")
    try:
        with capture_events() as events:
            _, program = tuned(fn, args, Choosing(second))
    finally:
        torch.set_float32_matmul_precision("highest")
    assert 'input_precision="tf32"' in program.triton_source
    assert "(tf32)" in events.of(Autotune)[0].question
    halves = tuple(t.to(HALF) for t in args)
    assert 'input_precision="ieee"' in tuned(fn, halves, Choosing(second))[1].triton_source


@settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # each run is of hundreds of ms
)
@given(
    sizes=st.tuples(st.integers(1, 3), *[st.integers(0, 70)] * 3),
    transposed=st.tuples(st.booleans(), st.booleans()),
    tile=st.integers(0, 99),
    biased=st.booleans(),
    dtype=st.sampled_from([torch.float32, BF16]),
)
def test_any_sizes(
    sizes: tuple[int, int, int, int],
    transposed: tuple[bool, bool],
    tile: int,
    biased: bool,
    dtype: torch.dtype,
    interpreter: None,
) -> None:
    b, m, k, n = sizes
    x = r(b, k, m).transpose(1, 2) if transposed[0] else r(b, m, k)
    w = r(b, n, k).transpose(1, 2) if transposed[1] else r(b, k, n)
    args = [t.to(dtype) for t in (x, w, r(n))]

    def fn(x: T, w: T, v: T) -> T:
        return torch.baddbmm(v, x, w) if biased else torch.bmm(x, w) + v

    plan, _ = tuned(fn, args, Choosing(lambda names: names[1 + tile % (len(names) - 1)]))
    assert bool(products(plan)) == (m * n > 0)


# ---------------------------------------------------------------- prologues

PROLOGUES: dict[str, Case] = {
    "cast": (lambda x, w: x.to(BF16) @ w, (r(33, 20), r(20, 17, dtype=BF16))),
    "scale": (lambda x, s, w: (x * s) @ w, (r(33, 20), r(20), r(20, 17))),
    "bias and relu": (lambda x, b, w: (x + b).relu() @ w + 1, (r(33, 20), r(20), r(20, 17))),
    "both": (lambda x, w: x.sin() @ w.cos(), (r(33, 20), r(20, 17))),
    "weights in int8": (
        lambda x, w, s: x @ (w.to(BF16) * s),
        (r(33, 20, dtype=BF16), ints(20, 17), r(17, dtype=BF16)),
    ),
    "transposed weights in int8": (
        lambda x, w, s: F.linear(x, w.to(BF16) * s[:, None]).relu(),
        (r(33, 20, dtype=BF16), ints(17, 20), r(17, dtype=BF16)),
    ),
    "broadcast batch": (
        lambda x, w: (x * 2) @ w,
        (r(2, 3, 18, 8), r(3, 8, 21)),
    ),
    "heads": (
        lambda q, k: torch.softmax((q * 0.5) @ k.transpose(-1, -2), -1),
        (r(2, 3, 18, 8), r(2, 3, 21, 8)),
    ),
    "of positions": (
        lambda x, w: torch.where(torch.arange(20) > 7, x, 0.0) @ w,
        (r(33, 20), r(20, 17)),
    ),
    "nothing to read": (lambda x: torch.full((5, 20), 0.5) @ x.exp(), (r(20, 17),)),
    "with itself": (lambda x: (lambda y: y @ y)(x.sin()), (r(20, 20),)),
    "infinite beyond": (lambda x, w: (1 / x) @ w, (r(5, 18), r(18, 17))),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", PROLOGUES)
def test_factors_are_computed_where_they_are_read(name: str, interpreter: None) -> None:
    fn, args = PROLOGUES[name]
    with capture_events() as events:
        plan, _ = tuned(fn, args, Choosing(first_inside))
    (made,) = products(plan)
    reported = [d for d in plan.decisions if d.kind == "prologue"]
    assert any(d.taken for d in reported)
    assert made.left.op != "load" or made.right.op != "load"
    (asked,) = [e for e in events.of(Autotune) if "inside" in str(e.seconds)]
    assert {"aten", asked.chosen} <= asked.seconds.keys()
    assert any(name.startswith("triton") and "inside" not in name for name in asked.seconds)


@pytest.mark.parametrize("which", [0, 1])
def test_where_that_is_slower_factors_have_kernels(which: int, interpreter: None) -> None:
    fn, args = PROLOGUES["bias and relu"]
    plan, _ = tuned(fn, args, Choosing(lambda names: names[which]))
    assert len(products(plan)) == which
    assert len(plan.kernels()) == 2
    reported = [d for d in plan.decisions if d.kind == "prologue"]
    assert [(d.taken, d.reason) for d in reported] == [
        (False, "measured: faster as a separate kernel")
    ][:which]


REFUSED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "returned": (
        lambda x, w: (lambda y: (y @ w, y))(x.sin()),
        (r(33, 20), r(20, 17)),
        "its result is read elsewhere, too",
    ),
    "read twice": (
        lambda x, w: (lambda y: y @ w + y)(x.sin()),
        (r(17, 17), r(17, 17)),
        "its result is read elsewhere, too",
    ),
    "sums": (lambda x, w: F.softmax(x, -1) @ w, (r(33, 20), r(20, 17)), "it sums up"),
    "several": (
        lambda x, w: x.sin() @ x.cos().t(),
        (r(17, 17), r(17, 17)),
        "it has several results",
    ),
    "looked up": (
        lambda t, w: F.embedding(t, w) @ w.t(),
        (torch.arange(9), r(20, 17)),
        "it looks up positions that are data",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_factors_that_stay_kernels_are_reported(name: str, interpreter: None) -> None:
    fn, args, reason = REFUSED[name]
    plan, _ = tuned(fn, args, Choosing(second))
    assert products(plan)
    reported = [(d.taken, d.reason) for d in plan.decisions if d.kind == "prologue"]
    assert (False, reason) in reported


# ---------------------------------------------------------------- symbolic sizes

SYMBOLIC: dict[str, Case] = {
    "rows": (lambda x, w, b: F.gelu(x @ w + b), (r(33, 20), r(20, 17), r(17))),
    "linear": (lambda x, w, b: F.linear(x, w, b), (r(33, 20), r(17, 20), r(17))),
    "prologue": (lambda x, b, w: (x + b).relu() @ w, (r(33, 20), r(20), r(20, 17))),
    "pairs": (lambda x, w: torch.bmm(x * 2, w).tanh(), (r(3, 33, 20), r(3, 20, 17))),
}


def larger(args: tuple[Any, ...], by: dict[int, int]) -> tuple[Any, ...]:
    """Tensors of other sizes."""
    return tuple(r(*(by.get(size, size) for size in a.shape), dtype=a.dtype) for a in args)


@pytest.mark.sample(3)
@pytest.mark.parametrize("which", [1, -1])
@pytest.mark.parametrize("name", SYMBOLIC)
def test_one_kernel_serves_all_sizes(name: str, which: int, interpreter: None) -> None:
    fn, args = SYMBOLIC[name]
    others = [larger(args, by) for by in ({33: 1}, {33: 130, 20: 21}, {17: 64, 20: 2}, {33: 0})]
    choose = Choosing(lambda names: names[which])
    plan, program = tuned(fn, args, choose, "symbolic", [args, *others])
    assert products(plan)
    assert "lambda" in program.triton_source


def test_sizes_of_a_class_share_an_answer(interpreter: None) -> None:
    memory = Memory()
    fn, _ = SYMBOLIC["linear"]
    known = []
    for rows in (33, 60, 70):
        args = (r(rows, 20), r(17, 20), r(17))
        with capture_events() as events:
            tuned(fn, args, favouring(second, memory), "symbolic")
        known += [event.known for event in events.of(Autotune)]
    assert known == [False, True, False]


def test_pointwise_kernels_of_symbolic_sizes_are_timed(interpreter: None) -> None:
    fn = lambda x: x.sin() + 1  # noqa: E731
    with capture_events() as events:
        _, program = tuned(
            fn, (r(40, 50),), Choosing(second), "symbolic", [(r(40, 50),), (r(3, 9),)]
        )
    (asked,) = events.of(Autotune)
    assert "n0 about 64" in asked.question
    assert "XBLOCK=256" in program.triton_source
