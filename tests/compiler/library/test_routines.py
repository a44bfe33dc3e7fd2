"""Routines by measurement: the fastest one is taken, and every one gives eager's result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from loop_harness import check, trace
from torch import fx

import tc
from tc.compiler import library
from tc.compiler.core.gate import Gate
from tc.compiler.core.tune import Way
from tc.compiler.library import routines
from tc.compiler.library.routines import ONEDNN
from tc.compiler.routines import products
from tc.compiler.runtime.tuned import tuner

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(products, "MOST_ROWS_OF_SMALL", 0)  # such products are no question
    yield


class Clock:
    """A machine on which each way takes the seconds given; each is run once all the same."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = seconds
        self.asked = 0

    def __call__(self, ways: Mapping[str, Way], rounds: int) -> dict[str, float]:
        self.asked += 1
        for way in ways.values():
            way()
        return {name: self.seconds[name] for name in ways}


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.mm(x, w)


def linear(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.addmm(b, x, w)


def operands(kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Matrices of 128 x 160 and 160 x 192, read as their letters say: transposed or not."""
    x, w = torch.randn(128, 160), torch.randn(160, 192)
    x = x.t().contiguous().t() if kind[0] == "t" else x
    return x, (w.t().contiguous().t() if kind[1] == "t" else w)


def arranged(module: fx.GraphModule, clock: Clock, thorough: bool = True) -> list[str]:
    """Arrange a graph on a machine; returns the kinds of the decisions taken."""
    timed = replace(tuner(thorough), measure=clock)
    decisions = library.arrange(module, Gate(), None, timed)
    module.recompile()
    return [decision.kind for decision in decisions if decision.taken]


@pytest.mark.parametrize("kind", ["nn", "nt", "tn", "tt"])
def test_onednn_computes_what_aten_does(kind: str) -> None:
    args = operands(kind)
    module = trace(product, args, "fake")
    assert arranged(module, Clock(aten=2, onednn=1, transposed=3)) == ["onednn"]
    assert not module.graph.find_nodes(op="call_function", target=aten.mm.default)
    check((module(*args),), product(*args))


def test_the_bias_is_added_by_onednn_where_no_loop_reads_the_result() -> None:
    args = (*operands("nt"), torch.randn(192))
    module = trace(linear, args, "fake")
    assert arranged(module, Clock(aten=2, onednn=1, transposed=3)) == ["onednn"]
    (call,) = module.graph.find_nodes(op="call_function", target=ONEDNN)
    assert call.args[2] is not None
    check((module(*args),), linear(*args))


def test_a_matrix_is_transposed_once_for_all_its_products() -> None:
    x, w = operands("nt")

    def fn(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x @ w, (x + 1) @ w

    module = trace(fn, (x, w), "fake")
    assert arranged(module, Clock(aten=2, onednn=3, transposed=1)) == ["transpose_matrix"]
    assert len(module.graph.find_nodes(op="call_function", target=aten.clone.default)) == 1
    check(module(x, w), fn(x, w))


def test_what_is_hardly_faster_is_not_taken() -> None:
    module = trace(product, operands("nn"), "fake")
    assert arranged(module, Clock(aten=1.04, onednn=1)) == []


def test_by_default_one_product_shows_whether_to_continue() -> None:
    module = trace(product, operands("nn"), "fake")
    slow = Clock(aten=1, onednn=2)
    assert arranged(module, slow, thorough=False) == [] and slow.asked == 1


def test_by_default_each_product_is_timed_where_onednn_is_faster() -> None:
    module = trace(product, operands("nn"), "fake")
    fast = Clock(aten=2, onednn=1)
    assert arranged(module, fast, thorough=False) == ["onednn"] and fast.asked == 2


def test_answers_are_kept_on_disk() -> None:
    clock = Clock(aten=2, onednn=1)
    for _ in range(2):
        arranged(trace(product, operands("nn"), "fake"), clock)
    assert clock.asked == 1


def test_damaged_answers_are_measured_again(tmp_path: Path) -> None:
    clock = Clock(aten=2, onednn=1)
    arranged(trace(product, operands("nn"), "fake"), clock)
    (entry,) = [path for path in (tmp_path / "tuned").rglob("*") if path.is_file()]
    entry.write_bytes(entry.read_bytes()[:-3])
    arranged(trace(product, operands("nn"), "fake"), clock)
    assert clock.asked == 2


def test_small_products_are_no_question() -> None:
    clock = Clock(aten=2, onednn=1)
    arranged(trace(product, (torch.randn(8, 8), torch.randn(8, 8)), "fake"), clock)
    assert clock.asked == 0


def test_reduced_precision_is_left_to_aten(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(aten=2, onednn=1)
    module = trace(product, operands("nn"), "fake")
    torch.set_float32_matmul_precision("medium")
    try:
        assert arranged(module, clock) == []
    finally:
        torch.set_float32_matmul_precision("highest")
    monkeypatch.setattr(torch.backends.mkldnn.matmul, "fp32_precision", "bf16")
    assert arranged(module, clock) == []
    assert clock.asked == 0


def convolutions(x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return torch.conv2d(torch.conv2d(x, k, padding=1).relu(), k, stride=2).relu()


@pytest.mark.parametrize(("seconds", "taken"), [(1.0, ["channels_last"]), (3.0, [])])
def test_layouts_of_convolutions_are_timed(seconds: float, taken: list[str]) -> None:
    clock = Clock(contiguous=2, channels_last=seconds)
    args = torch.randn(2, 4, 9, 9), torch.randn(4, 4, 3, 3)
    module = trace(convolutions, args, "fake")
    assert arranged(module, clock) == taken and clock.asked == 2
    check((module(*args),), convolutions(*args))


def test_the_users_random_numbers_stay_the_same() -> None:
    torch.manual_seed(0)
    args = operands("nt")
    before = torch.get_rng_state()
    tc.compile(product, options={"max_autotune": True})(*args)
    assert torch.equal(torch.get_rng_state(), before)


def test_max_autotune_reports_times_and_choice() -> None:
    x, w = (part.requires_grad_() for part in operands("nt"))
    with tc.trace.capture_events() as reported:
        compiled = tc.compile(product, mode="max-autotune")
        compiled(x, w).sum().backward()
    tuned = reported.of(tc.trace.Autotune)
    assert len(tuned) == 3  # forward, and a gradient for each matrix
    assert all(min(event.seconds.values()) > 0 for event in tuned)
    grads = x.grad, w.grad
    x.grad = w.grad = None
    product(x, w).sum().backward()
    torch.testing.assert_close(grads, (x.grad, w.grad))


def test_times_are_reported_again_where_a_graph_is_found_on_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tc.config, "fx_graph_cache", True)
    reported = []
    for _ in range(2):
        tc.reset()
        with tc.trace.capture_events() as events:
            tc.compile(product, mode="max-autotune")(*operands("nt"))
        reported.append((events.of(tc.trace.Autotune), events.of(tc.trace.Cache)[0].hit))
    ((made,), first), ((again,), second) = reported
    assert (first, second) == (False, True)
    assert again == replace(made, known=True)


def test_a_product_of_a_product_that_was_replaced(monkeypatch):
    monkeypatch.setattr(routines, "_fastest", lambda *_: "onednn")
    x, w = torch.randn(256, 256), torch.randn(256, 256)
    tc.reset()
    got = tc.compile(lambda x, w: x @ w @ w.t())(x, w)
    torch.testing.assert_close(got, x @ w @ w.t(), rtol=1e-3, atol=1e-2)
