"""When the parts of an expression are needed, and what an expression's text is."""

from __future__ import annotations

import torch

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import FALSE, LONGEST, TRUE, Expr, constant, either, load, needed

A, B = (load(name, ix.const(0), torch.bool) for name in "ab")
X, Y = (load(name, ix.const(0), torch.float32) for name in "xy")


def _select(test: Expr, yes: Expr, no: Expr) -> Expr:
    return Expr("select", (test, yes, no), yes.dtype)


def test_arms_are_needed_where_they_are_chosen():
    when = needed(_select(A, X, Y))
    assert when[A] is TRUE and when[X] is A
    assert when[Y] is Expr("not", (A,), torch.bool)


def test_conditions_of_nested_choices_add_up():
    when = needed(_select(A, _select(B, X, Y), constant(0.0, torch.float32)))
    assert when[X] is Expr("and", (A, B), torch.bool) and when[B] is A


def test_what_is_needed_elsewhere_is_needed_anyhow():
    assert needed(Expr("add", (_select(A, X, Y), X), torch.float32))[X] is TRUE
    both = Expr("add", (_select(A, X, Y), _select(B, X, Y)), torch.float32)
    assert needed(both)[X] is Expr("or", (B, A), torch.bool)
    assert needed(_select(A, X, X))[X] is TRUE
    assert needed(_select(A, A, B))[A] is TRUE


def test_either_knows_what_always_and_never_holds():
    assert either(FALSE, A) is A and either(A, FALSE) is A
    assert either(TRUE, A) is TRUE and either(A, TRUE) is TRUE and either(A, A) is A


def test_the_text_of_a_chain_is_bounded_whatever_its_depth_and_sharing():
    deep = shared = X
    for _ in range(5000):
        deep = Expr("sin", (deep,), torch.float32)
    for _ in range(200):
        shared = Expr("add", (shared, shared), torch.float32)
    assert repr(Expr("mul", (Expr("sin", (X,), torch.float32), Y), torch.float32)) == (
        "mul(sin(x[0]), y[0])"
    )
    for value in (deep, shared):
        assert len(repr(value)) < 3 * LONGEST and "..." in repr(value)
