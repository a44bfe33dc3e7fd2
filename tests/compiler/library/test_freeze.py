"""Frozen inputs are read no more, and what follows from them alone is computed once."""

from __future__ import annotations

import torch
from loop_harness import trace

import tc
from tc.compiler import library
from tc.compiler.core.gate import Gate

aten = torch.ops.aten
T = torch.Tensor


def scaled(x: T, w: T) -> T:
    return torch.mm(x, (w * 2).exp().t()).relu()


def example() -> tuple[T, T]:
    return torch.randn(40, 4), torch.randn(50, 4)


def test_what_follows_from_constants_is_folded_and_laid_out() -> None:
    x, w = example()
    module = trace(scaled, (x, w))
    library.freeze(module, {"w_1": w}, Gate())
    library.arrange(module, Gate())
    module.recompile()
    called = [str(n.target) for n in module.graph.nodes if n.op == "call_function"]
    assert called == ["aten.mm.default", "aten.relu.default"]
    (constant,) = module.graph.find_nodes(op="get_attr")
    assert getattr(module, constant.target).stride() == (50, 1)  # was (1, 4): read across
    torch.testing.assert_close(module(x, torch.zeros_like(w)), scaled(x, w))


def test_random_draws_and_larger_results_are_not_folded() -> None:
    x, w = example()
    module = trace(lambda x, w: x[0, 0] + torch.bernoulli(w.sigmoid()) + w.expand(9, 50, 4), (x, w))
    library.freeze(module, {"w_1": w}, Gate())
    assert module.graph.find_nodes(op="call_function", target=aten.bernoulli.default)
    assert module.graph.find_nodes(op="call_function", target=aten.expand.default)
    assert not module.graph.find_nodes(op="call_function", target=aten.sigmoid.default)


def test_an_input_that_is_written_to_stays_an_input() -> None:
    x, w = example()
    module = trace(lambda x, w: (x @ w.t(), w.copy_(w + 1))[0], (x, w))
    library.freeze(module, {"w_1": w}, Gate())
    assert not module.graph.find_nodes(op="get_attr")


def test_a_gate_that_refuses_folds_nothing() -> None:
    x, w = example()
    module = trace(scaled, (x, w))
    library.freeze(module, {"w_1": w}, Gate({"library": 1}))
    module.recompile()
    assert module.graph.find_nodes(op="call_function", target=aten.exp.default)
    torch.testing.assert_close(module(x, torch.zeros_like(w)), scaled(x, w))


def test_convolutions_of_one_dimension_keep_their_kernels() -> None:
    model = torch.nn.Sequential(torch.nn.Conv1d(4, 6, 3), torch.nn.BatchNorm1d(6), torch.nn.ReLU())
    x = torch.randn(2, 4, 9)
    with torch.no_grad():
        frozen = tc.compile(model.eval(), options={"freezing": True})
        torch.testing.assert_close(frozen(x), model(x))
