"""Rules keep values bit for bit; each fires, is numbered and can be refused."""

from __future__ import annotations

import pytest
import torch
from loop_harness import lowered

from tc.compiler.core.gate import Gate
from tc.compiler.core.rewrite import Any_, Firing, Match, Rule
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, constant, load, walk
from tc.compiler.loops.interpret import evaluate
from tc.compiler.loops.rules import RULES, simplifier

SPECIAL = [0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 0.3, 1e-40, 3e38]
VALUES = {
    torch.float32: torch.tensor(SPECIAL),
    torch.float16: torch.tensor(SPECIAL).half(),
    torch.int64: torch.tensor([0, 1, -1, 5, -7, 2**62]),
    torch.bool: torch.tensor([False, True]),
}
I = ix.var("i0", 10)  # noqa: E741


def instance(pattern: Match | Any_, dtype: torch.dtype, bound: dict[str, Expr]) -> Expr:
    """An expression the pattern matches."""
    if pattern.name is not None and pattern.name in bound:
        return bound[pattern.name]
    if isinstance(pattern, Any_):
        candidates = [load(f"in_{pattern.name}", I, dtype)]
        candidates += [constant(v, dtype) for v in (1, 0, 2, 0.0, True, False)]
        made = next(c for c in candidates if pattern.when is None or pattern.when(c))
    else:
        choice = pattern.op in ("where", "select")
        operands = [
            instance(sub, torch.bool if choice and not k else dtype, bound)
            for k, sub in enumerate(pattern.operands)
        ]
        made = Expr(pattern.op, tuple(operands), dtype)
    if pattern.name is not None:
        bound[pattern.name] = made
    return made


def dtype_of(rule: Rule) -> torch.dtype:
    if rule.pattern.op in ("and", "or", "not"):
        return torch.bool
    if rule.name in ("neg_bits", "abs_bits"):
        return torch.float16
    return torch.int64 if rule.name == "add_zero" else torch.float32


SHAPED = [rule for rule in RULES if not rule.name.startswith("fold_")]


@pytest.mark.parametrize("rule", SHAPED, ids=lambda rule: rule.name)
def test_rule_keeps_every_bit(rule: Rule) -> None:
    dtype = dtype_of(rule)
    before = instance(rule.pattern, dtype, {})
    firings: list[Firing] = []
    after = simplifier(Gate(), firings.append).rewrite(before)
    assert rule.name in [firing.rule for firing in firings]
    values = VALUES[dtype]
    scope = {"i0": torch.arange(len(values)), "in_x": values, "in_y": values.flip(0)}
    scope["in_c"] = torch.arange(len(values)) % 2 == 0
    old, new = (evaluate(e, scope, {}, True).expand(len(values)) for e in (before, after))
    assert torch.equal(old.nan_to_num(7), new.nan_to_num(7)) and torch.equal(
        old.isnan(), new.isnan()
    )
    if dtype.is_floating_point:
        assert torch.equal(old.signbit(), new.signbit())


def test_constants_fold() -> None:
    two = constant(2, torch.int64)
    value = Expr("mul", (Expr("add", (two, two), torch.int64), two), torch.int64)
    assert simplifier(Gate()).rewrite(value) is constant(8, torch.int64)


def test_firings_are_numbered_and_refused_from_one_on() -> None:
    x = load("in_x", I, torch.float32)
    one = constant(1, torch.float32)
    value = Expr("mul", (Expr("mul", (x, one), torch.float32), one), torch.float32)
    firings: list[Firing] = []
    assert simplifier(Gate(), firings.append).rewrite(value) is x
    assert [(f.number, f.rule) for f in firings] == [(1, "mul_one"), (2, "mul_one")]
    gate = Gate(refuse_from={"loops.rule": 2})
    assert simplifier(gate).rewrite(value) is Expr("mul", (x, one), torch.float32)


def test_lowering_applies_them() -> None:
    graph = lowered(lambda x: (x * 1 - 0) / 2, (torch.randn(4),))
    assert str(graph.nodes[0]).endswith("[i0] = mul(x_1[i0], 0.5)")


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_powers_of_integers_are_products(dtype: torch.dtype) -> None:
    x = load("a", ix.ZERO, dtype)
    values = torch.tensor([0, 1, 2, 3, 7, 100, 127], dtype=dtype)
    for exponent in (0, 1, 2, 3, 5, 8, 13, 64):
        power = Expr("ipow", (x, constant(exponent, dtype)), dtype)
        made = simplifier(Gate()).rewrite(power)
        assert all(node.op != "ipow" for node in walk(made))
        for position, base in enumerate(values):
            scope = {"a": values[position : position + 1]}
            got = evaluate(made, scope, {}, True).reshape(())
            assert got == torch.pow(base, exponent), (base, exponent)
