"""Matrix products: merged, transposed, without their bias; the result stays eager's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loop_harness import check, trace
from torch import fx

import tc
from tc.compiler import library
from tc.compiler.core.gate import Gate
from tc.compiler.routines import products

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def nothing_is_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products as small as those of tests are computed by loops otherwise."""
    monkeypatch.setattr(products, "TINY_WORK_ON_CPU", 0)


def arranged(fn: Callable[..., Any], args: Sequence[Any], mode: str = "fake") -> fx.GraphModule:
    """The graph of a function after all passes, which was seen to compute what eager does."""
    module = trace(fn, args, mode)
    library.arrange(module, Gate())
    module.recompile()
    got = module(*args)
    check(got if isinstance(got, tuple | list) else (got,), fn(*args))
    return module


def count(module: fx.GraphModule, op: Any) -> int:
    return len(module.graph.find_nodes(op="call_function", target=op))


def recurrent(x: torch.Tensor, w: torch.Tensor, u: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    h = x.new_zeros(x.shape[1], w.shape[1])
    for t in range(x.shape[0]):
        h = torch.tanh(torch.addmm(b, x[t], w) + h @ u)
    return h


def network() -> tuple[torch.Tensor, ...]:
    return r(8, 2, 4), r(6, 4).t(), r(6, 6).t(), r(6)


def r(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def test_products_of_slices_become_one() -> None:
    module = arranged(recurrent, network())
    assert count(module, aten.mm.default) == 1 + 8
    assert count(module, aten.addmm.default) == 0  # its bias is added by loops


def test_a_slice_counted_from_the_end_is_found_again() -> None:
    module = arranged(lambda x, w: x[-1] @ w + x[0] @ w, (r(3, 2, 4), r(4, 5)))
    assert count(module, aten.mm.default) == 1


def test_few_slices_of_many_are_left_alone() -> None:
    module = arranged(lambda x, w: x[0] @ w + x[1] @ w, (r(9, 2, 4), r(4, 5)))
    assert count(module, aten.mm.default) == 2


def test_a_matrix_read_across_by_many_products_is_transposed_once() -> None:
    module = arranged(recurrent, network())
    copies = module.graph.find_nodes(op="call_function", target=aten.clone.default)
    assert [node.meta["val"].stride() for node in copies] == [(6, 1)]
    once = arranged(lambda x, w: F.linear(x, w), (r(2, 4), r(6, 4)))
    assert count(once, aten.clone.default) == 0


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_loops_add_the_bias(mode: str) -> None:
    def fn(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.linear(x, w, b).view(-1, 2, w.shape[0]))

    module = arranged(fn, (r(4, 3), r(6, 3), r(6)), mode)
    assert (count(module, aten.mm.default), count(module, aten.addmm.default)) == (1, 0)


def test_loops_add_the_bias_of_a_result_that_is_returned_too() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        kept = F.linear(x, w, b)
        return F.gelu(kept), kept.view(2, -1)

    module = arranged(fn, (r(4, 3), r(6, 3), r(6)))
    assert (count(module, aten.mm.default), count(module, aten.addmm.default)) == (1, 0)


def test_a_product_kept_for_its_gradient_gets_its_bias_from_loops() -> None:
    x, w, b = (t.requires_grad_() for t in (r(4, 3), r(6, 3), r(6)))
    compiled = tc.compile(lambda x, w, b: F.gelu(F.linear(x, w, b)))
    got, expected = compiled(x, w, b), F.gelu(F.linear(x, w, b))
    check((got,), expected)
    tangent = r(4, 6)
    check(
        torch.autograd.grad(got, (x, w, b), tangent),
        torch.autograd.grad(expected, (x, w, b), tangent),
    )


@pytest.mark.parametrize(
    ("fn", "dtype"),
    [
        (lambda x, w, b: F.linear(x, w, b), torch.float32),  # nothing reads it
        (lambda x, w, b: (F.linear(x, w, b), x.exp()), torch.float32),  # the caller alone does
        (lambda x, w, b: F.linear(F.linear(x, w, b), w, b), torch.float32),  # products do
        (lambda x, w, b: F.linear(x, w, b).exp(), torch.bfloat16),  # rounded once in eager
        (lambda x, w, b: torch.addmm(b, x, w, beta=2).exp(), torch.float32),
        (lambda x, w, b: torch.addmm(x, x, w).exp(), torch.float32),  # no row
    ],
)
def test_the_bias_stays(fn: Callable[..., Any], dtype: torch.dtype) -> None:
    args = [t.to(dtype) for t in (r(3, 3), r(3, 3), r(3))]
    module = arranged(fn, args)
    assert count(module, aten.mm.default) == 0


def test_a_gate_that_refuses_leaves_the_graph_as_it_was() -> None:
    module = trace(recurrent, network())
    before = str(module.graph)
    decisions = library.arrange(module, Gate({"library": 1}))
    assert str(module.graph) == before
    assert decisions and not any(decision.taken for decision in decisions)
