"""Simplification rules of value expressions, and the pass that applies them.

In: `LoopGraph`. Out: the same graph with simpler values. Each rule preserves the value bit for bit,
NaN and signed zeros included; the gate is asked for ``loops.rule.<name>``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from tc.compiler.core.gate import Gate
from tc.compiler.core.notes import MOST_FIRINGS, Notes
from tc.compiler.core.rewrite import Any_, Firing, Match, Rewriter, Rule, Shape, match
from tc.compiler.loops.expr import Expr, constant, rebuild
from tc.compiler.loops.ir import LoopGraph, Nest, Node
from tc.compiler.loops.ops import LOW_PRECISION, SCALAR_OPS

X, Y = Any_("x"), Any_("y")
#: values of a higher cost are recorded as `LONG` only
PRINTED_COST = 100
LONG = "(a long value)"
#: the highest power of an integer that is spelled as products
MOST_SQUARED = 64


def _is(*values: float | int | bool) -> Callable[[Any], bool]:
    """Return a predicate: a constant of one of these values, sign of zero included."""

    def test(node: Any) -> bool:
        return node.op == "const" and any(
            node.data[0] == v and math.copysign(1, node.data[0]) == math.copysign(1, v)
            for v in values
        )

    return test


def _fold(node: Expr) -> Expr | None:
    """Evaluate an op on constants, in the type it is computed in."""
    args = [torch.tensor(arg.data[0], dtype=arg.dtype, device="cpu") for arg in node.args]
    if node.op in ("floordiv", "truncdiv", "remainder", "fmod") and not args[1]:
        return None
    result = SCALAR_OPS[node.op].python(*args).to(node.dtype)
    return constant(result.item(), node.dtype)


def _fold_rule(op: str, arity: int) -> Rule:
    operands = tuple(Any_(f"x{k}", lambda n: n.op == "const") for k in range(arity))
    return Rule(
        f"fold_{op}",
        Match(op, operands, "node"),
        lambda node, **_: _fold(node),
        f"{op} of constants → constant",
    )


def _power_of_two(node: Any) -> bool:
    if node.op != "const" or node.dtype not in (torch.float32, torch.float64):
        return False
    mantissa, exponent = math.frexp(node.data[0])
    return abs(mantissa) == 0.5 and exponent != 1 and -100 < exponent < 100


def _reciprocal(x: Expr, c: Expr) -> Expr:
    return Expr("mul", (x, constant(1.0 / c.data[0], c.dtype)), x.dtype)


def _product(x: Expr, c: Expr) -> Expr:
    """A power of an integer by squaring; a loop in it would keep the kernel's from vectors."""
    result: Expr | None = None
    square, exponent = x, int(c.data[0])
    while True:
        if exponent & 1:
            result = square if result is None else Expr("mul", (result, square), x.dtype)
        exponent >>= 1
        if not exponent:
            break
        square = Expr("mul", (square, square), x.dtype)
    return constant(1, x.dtype) if result is None else result


def _of_narrow(op: str) -> Match:
    """Match an op on the sign of an element, computed in another type."""
    return match("to", match(op, match("to", X), name="sign"), name="node")


def _in_bits(node: Expr, sign: Expr, x: Expr) -> Expr | None:
    """Compute an op on the sign of a 16-bit float without the two conversions."""
    if node.dtype is not x.dtype or x.dtype not in LOW_PRECISION:
        return None
    op, mask = ("xor", -0x8000) if sign.op == "neg" else ("and", 0x7FFF)
    bits = Expr("bits", (x,), torch.int16)
    return Expr("bits", (Expr(op, (bits, constant(mask, torch.int16)), torch.int16),), x.dtype)


EXPONENT = Any_("c", lambda n: n.op == "const" and 0 <= n.data[0] <= MOST_SQUARED)
POWER = Any_("c", _power_of_two)
TRUE, FALSE = Any_("c", _is(True)), Any_("c", _is(False))
RULES: tuple[Rule, ...] = (
    Rule("mul_one", match("mul", X, Any_("c", _is(1))), lambda x, c: x, "x * 1 → x"),
    Rule("one_mul", match("mul", Any_("c", _is(1)), X), lambda x, c: x, "1 * x → x"),
    Rule("div_one", match("div", X, Any_("c", _is(1))), lambda x, c: x, "x / 1 → x"),
    Rule("sub_zero", match("sub", X, Any_("c", _is(0.0))), lambda x, c: x, "x - 0 → x"),
    Rule(
        "add_zero",
        match("add", X, Any_("c", lambda n: _is(0)(n) and not n.dtype.is_floating_point)),
        lambda x, c: x,
        "n + 0 → n, for integers (for floats -0.0 + 0 is 0)",
    ),
    Rule("div_power", match("div", X, POWER), _reciprocal, "x / 2**k → x * 2**-k"),
    Rule("integer_power", match("ipow", X, EXPONENT), _product, "n ** k → products, k known"),
    Rule("neg_neg", match("neg", match("neg", X)), lambda x: x, "--x → x"),
    Rule("abs_abs", match("abs", match("abs", X, name="a")), lambda x, a: a, "||x|| → |x|"),
    Rule(
        "abs_neg", match("abs", match("neg", X)), lambda x: Expr("abs", (x,), x.dtype), "|-x| → |x|"
    ),
    Rule("neg_bits", _of_narrow("neg"), _in_bits, "-x → its bits, in 16-bit floats"),
    Rule("abs_bits", _of_narrow("abs"), _in_bits, "|x| → its bits, in 16-bit floats"),
    Rule("not_not", match("not", match("not", X)), lambda x: x, "~~x → x"),
    Rule("and_true", match("and", X, TRUE), lambda x, c: _bool(x), "x & True → x"),
    Rule("true_and", match("and", TRUE, X), lambda x, c: _bool(x), "True & x → x"),
    Rule("or_false", match("or", X, FALSE), lambda x, c: x, "x | 0 → x"),
    Rule("where_same", match("where", Any_("c"), X, X), lambda c, x: x, "x if c else x → x"),
    Rule("where_true", match("where", TRUE, X, Y), lambda c, x, y: x, "x if True"),
    Rule("where_false", match("where", FALSE, X, Y), lambda c, x, y: y, "y if False"),
    Rule("select_true", match("select", TRUE, X, Y), lambda c, x, y: x, "x if True"),
    Rule(
        "select_false",
        match("select", FALSE, X, Y),
        lambda c, x, y: y,
        "y if False",
    ),
    Rule("same_max", match("maximum", X, X), lambda x: x, "max(x, x) → x"),
    Rule("same_min", match("minimum", X, X), lambda x: x, "min(x, x) → x"),
    *(_fold_rule(name, row.arity) for name, row in SCALAR_OPS.rows()),
)


def _abs(x: Expr) -> Expr:
    return Expr("abs", (x,), x.dtype)


def _bool(x: Expr) -> Expr | None:
    return x if x.dtype is torch.bool else None


EXPR_SHAPE: Shape[Expr] = Shape(
    op=lambda node: node.op,
    operands=lambda node: node.args,
    rebuild=lambda node, operands: rebuild(node, tuple(operands)),
)


def simplifier(gate: Gate, observe: Callable[[Firing], None] | None = None) -> Rewriter[Expr]:
    """Return a function that rewrites value expressions."""
    return Rewriter(RULES, EXPR_SHAPE, lambda name: gate.allow(f"loops.rule.{name}"), observe)


def simplify(graph: LoopGraph, gate: Gate) -> LoopGraph:
    """Apply the rules to every loop nest."""
    rewriter = simplifier(gate, None if gate.notes is None else observer_of(gate.notes))
    nodes: list[Node] = []
    with gate.counting("loops.simplify", len(graph.nodes)):
        for node in graph.nodes:
            if isinstance(node, Nest):
                if gate.notes is not None:
                    place = node.origins[-1].place if node.origins else ""
                    gate.notes.place = (node.buffer.name, place)
                node = replace(node, body=rewriter.rewrite(node.body))
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def observer_of(notes: Notes) -> Callable[[Firing], None]:
    """Return an observer that records applied rules, without the text of long values."""

    def text(value: Expr) -> str:
        return LONG if value.exceeds(PRINTED_COST) else str(value)

    def observe(firing: Firing) -> None:
        listed = notes.fired < MOST_FIRINGS
        texts = (text(firing.before), text(firing.after)) if listed else ("", "")
        notes.firing(f"loops.rule.{firing.rule}", *texts)

    return observe
