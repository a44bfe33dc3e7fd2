"""Rounding is no bug; faults of many kinds are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tc
from tc.compiler import api
from tc.minifier import judge

Program = Callable[..., Any]


def verdict(program: Program, other: Program, *inputs: Any, backward: bool = False) -> str:
    torch.manual_seed(0)
    return judge.judge(program, lambda: other, inputs, backward).kind


def deep(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(30):
        x = torch.tanh(x @ w) + x
    return x


def deep_otherwise(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The same, adding up in another order."""
    for _ in range(30):
        x = torch.tanh((x[:, ::2] @ w[::2]) + (x[:, 1::2] @ w[1::2])) + x
    return x


def one_off(amount: float) -> Program:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x)
        y.view(-1)[-1] += amount
        return y

    return program


X = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
SHUFFLED = torch.randperm(64, generator=torch.Generator().manual_seed(0))
TIE = X.sum(0)[0]  # what eager gets for one column, to the last bit
LABELS = torch.arange(64).remainder(4) / 4 + 0.25  # a program may decide by them


def chosen(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.where(y == 0.75, x, x.cos()) + x[(y * 4).long()]


RIGHT: list[tuple[str, Program, Program, tuple[Any, ...]]] = [
    ("another order", deep, deep_otherwise, (X, X / 8)),
    (
        "half",
        lambda x: x.exp().sum(0),
        lambda x: x.float().exp().sum(0).bfloat16(),
        (X.bfloat16(),),
    ),
    ("sums", lambda x: x.sum(0), lambda x: x[SHUFFLED].sum(0), (X,)),
    ("cancelling", lambda x: (x + 1e4).mean() - 1e4, lambda x: x.add(1e4).T.mean() - 1e4, (X,)),
    ("same NaN", torch.log, lambda x: torch.log(x.clone()), (X,)),
    ("a choice", chosen, lambda x, y: chosen(x * (1 + 1e-7), y), (X, LABELS)),
    ("a tie", lambda x: x.sum(0) > TIE, lambda x: x[SHUFFLED].sum(0) > TIE, (X,)),
]
WRONG: list[tuple[str, str, Program, Program, tuple[Any, ...]]] = [
    ("one element", "wrong", torch.sin, one_off(0.05), (X,)),
    ("small scale", "wrong", lambda x: x * 1e-4, lambda x: x * 0, (X,)),
    ("bfloat16", "wrong", torch.relu, lambda x: x.relu() + x.abs() / 8, (X.bfloat16(),)),
    ("a mask", "wrong", lambda x: x > 0, lambda x: x <= 0, (X,)),
    ("integers", "wrong", lambda x: x + 1, lambda x: x + 2, (torch.arange(9),)),
    ("new NaN", "nan", torch.sin, lambda x: torch.log(x), (X,)),
    ("NaN gone", "nan", torch.log, lambda x: x.abs().log(), (X,)),
    ("shape", "wrong", lambda x: x.sum(0), lambda x: x.sum(0, keepdim=True), (X,)),
    ("type", "wrong", lambda x: x.sum(0), lambda x: x.sum(0).double(), (X,)),
    ("a number", "wrong", lambda x: x.shape[0], lambda x: x.shape[0] + 1, (X,)),
    ("a choice", "wrong", chosen, lambda x, y: chosen(x, y) * 1.25, (X, LABELS)),
    ("a label", "wrong", lambda y: y >= 0.75, lambda y: y >= 0.5, (LABELS,)),
    ("an index", "wrong", lambda y: (y * 4).int(), lambda y: (y * 4).int() + 1, (LABELS,)),
    ("count", "wrong", lambda x: (x, x + 1), lambda x: (x + 0,), (X,)),
]


@pytest.mark.parametrize(
    "program, other, inputs", [r[1:] for r in RIGHT], ids=[r[0] for r in RIGHT]
)
def test_rounding_is_no_bug(program: Program, other: Program, inputs: tuple[Any, ...]) -> None:
    assert verdict(program, other, *inputs) == "ok"


@pytest.mark.parametrize(
    "kind, program, other, inputs", [r[1:] for r in WRONG], ids=[r[0] for r in WRONG]
)
def test_a_fault_is_a_bug(
    kind: str, program: Program, other: Program, inputs: tuple[Any, ...]
) -> None:
    assert verdict(program, other, *inputs) == kind


def test_gradients_are_judged() -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
            return grads[0] * 2.5

    x = X.clone().requires_grad_()
    assert verdict(lambda x: x * 2, lambda x: Wrong.apply(x), x, backward=True) == "wrong"
    assert verdict(lambda x: x * 2, lambda x: x + x, x, backward=True) == "ok"


def test_backward_runs_only_where_forward_is_right() -> None:
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
            return x * factor

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> Any:
            raise ValueError("no backward")

    x = X.clone().requires_grad_()
    wrong = judge.judge(lambda x: x * 2, lambda: lambda x: Failing.apply(x, 3.0), [x], True)
    assert wrong.kind == "wrong" and wrong.detail is not None and wrong.detail["forward"]
    later = judge.judge(lambda x: x * 2, lambda: lambda x: Failing.apply(x, 2.0), [x], True)
    assert later.kind == "crash" and later.detail is not None and "forward" not in later.detail


def test_writes_to_inputs_are_judged() -> None:
    assert verdict(lambda x: x.add_(1), lambda x: x.add(1), X) == "wrong"


def test_writes_that_eager_does_not_report_are_no_difference() -> None:
    def eager(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.batch_norm(x, mean, var, training=True)

    def normed(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
        own = mean.clone(), var.clone()
        result = eager(x, *own)
        mean.copy_(own[0])
        var.copy_(own[1])
        return result

    inputs = X, torch.zeros(64), torch.ones(64)
    assert verdict(eager, normed, *inputs) == "ok"
    assert verdict(eager, lambda x, m, v: eager(x, m.clone(), v.clone()), *inputs) == "wrong"


def test_random_programs_are_not_judged() -> None:
    def other(x: torch.Tensor) -> torch.Tensor:
        torch.rand(1)
        return torch.rand_like(x)

    assert verdict(torch.rand_like, other, X) == "random"
    assert verdict(torch.rand_like, torch.rand_like, X) == "ok"


def test_a_program_that_eager_refuses_is_no_case() -> None:
    assert verdict(lambda x: x.view(7), lambda x: x.view(7), X) == "invalid"


def test_a_program_that_only_eager_refuses_is_a_failure() -> None:
    found = judge.judge(lambda x: x.view(7), lambda: lambda x: x, [X], False)
    assert found.kind == "accepts" and found.identity is not None
    assert found.identity.types == ("RuntimeError",)
    assert (
        judge.judge(lambda x: x.view(7), lambda: lambda x: x.view(9), [X], False).kind == "invalid"
    )


def test_writing_to_a_copy_that_is_a_leaf_is_no_difference() -> None:
    x = X.clone().requires_grad_()
    found = judge.judge(lambda x: x.add_(1), lambda: lambda x: x.detach().add_(1), [x], True)
    assert found.kind == "invalid"


def test_crashes_are_distinguished_by_stage_type_and_words() -> None:
    def raising(text: str) -> judge.Outcome:
        def program(x: torch.Tensor) -> torch.Tensor:
            raise ValueError(text)

        return judge.judge(torch.sin, lambda: program, [X], False)

    one, same, other = raising("no buf7 in /a/b.py"), raising("no buf12 in /c.py"), raising("no x")
    assert one.kind == "crash"
    assert one.identity == same.identity != other.identity


LAYOUTS = {
    "column": torch.arange(12).view(6, 2)[:, 1],
    "slice": torch.rand(4, 6)[1:3, ::2],
    "transposed": torch.rand(3, 5).t(),
    "expanded": torch.rand(4, 1).expand(4, 3),
    "overlapping": torch.rand(9).as_strided((4, 4), (1, 1), 2),
    "empty": torch.rand(0, 4).t(),
    "number": torch.tensor(2.0),
    "complex": torch.rand(3, 2, dtype=torch.complex64).conj().t(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_copies_have_the_strides_that_compiled_code_is_made_for(layout: str) -> None:
    value = LAYOUTS[layout]
    (copy,) = judge.clones([value])
    assert torch.equal(copy, value) and (copy.shape, copy.dtype) == (value.shape, value.dtype)
    if layout not in ("complex", "empty"):
        assert copy.stride() == value.stride()
    assert (
        copy.untyped_storage().data_ptr() != value.untyped_storage().data_ptr() or not copy.numel()
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize("layout", ["column", "slice", "expanded"])
def test_a_sound_compiler_is_not_accused_because_of_a_layout(layout: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x + 1).sum(0)

    outcome = judge.judge(program, lambda: tc.compile(program), [LAYOUTS[layout]], False)
    assert outcome.kind == "ok", outcome.message
    gm = torch.fx.symbolic_trace(program)
    made = api.with_settings("inductor", None, None)(gm, [LAYOUTS[layout]])
    outcome = judge.judge(program, lambda: made, [LAYOUTS[layout]], False)
    assert outcome.kind == "ok", outcome.message
