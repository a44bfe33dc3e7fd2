"""Loop nests simplified by the ranges of their values.

In: `LoopGraph`. Out: the same graph, in which

- comparisons, minima and maxima whose result is known are gone, and with them the choices
  between arms, such as the wrap-around of indices that cannot be negative;
- computed positions that are within their bounds are marked (their bound is None): kernels read
  there without a check;
- integers and truth values that a 16-bit float has exactly are not rounded to one and back;
- 64-bit integers that are positions, or become floats, are computed in 32 bits if they fit:
  twice as many are in a vector.

The gate is asked for ``loops.ranges`` before each nest that changes.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from tc.compiler.core.gate import Gate
from tc.compiler.loops.expr import Expr, constant, rebuild, transform, walk
from tc.compiler.loops.ir import LoopGraph, Nest, Node
from tc.compiler.loops.ranges import COMPARISONS, Ranges

#: what is narrowed together with its operands
ARITHMETIC = ("add", "sub", "mul", "minimum", "maximum", "neg", "abs")
#: operations that a range may simplify
REFINED = frozenset((*COMPARISONS, "minimum", "maximum", "at", "into", "to"))
#: 16-bit floats -> the integer up to which they have all
EXACT = {torch.bfloat16: 1 << 8, torch.float16: 1 << 11}
NARROW, WIDE = torch.int32, torch.int64


def refine(graph: LoopGraph, gate: Gate) -> LoopGraph:
    """Simplify every loop nest by the ranges of its values."""
    makers: dict[str, Nest] = {}
    ranges = Ranges(makers)
    nodes: list[Node] = []
    with gate.counting("loops.refine", len(graph.nodes)):
        for node in graph.nodes:
            if isinstance(node, Nest):
                node = _refined(node, ranges, gate)
                makers[node.buffer.name] = node
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _refined(nest: Nest, ranges: Ranges, gate: Gate) -> Nest:
    if not any(map(_may_change, walk(nest.body))):
        return nest
    body = transform(nest.body, lambda node: simpler(node, ranges))
    if body is nest.body or not gate.allow("loops.ranges", nest.buffer.name):
        return nest
    return replace(nest, body=body)


def _may_change(node: Expr) -> bool:
    if node.op not in REFINED:
        return False
    source = node.args[0].dtype
    if source in EXACT:
        return node.op == "to" and node.args[0].op == "to"
    return node.op in ("at", "into") or not (source.is_floating_point or source is torch.bool)


def simpler(node: Expr, ranges: Ranges) -> Expr:
    """Return a value of the same bits, simplified; its operands are simplified already."""
    op = node.op
    if op in ("where", "select") and node.args[0].op == "const":
        return node.args[1 if node.args[0].data[0] else 2]
    if not _may_change(node):
        return node
    if op in COMPARISONS:
        known = ranges.decided(node)
        return node if known is None else constant(known, torch.bool)
    if op in ("minimum", "maximum"):
        one, other = node.args if op == "minimum" else node.args[::-1]
        if ranges.at_most(one, other):
            return node.args[0]
        return node.args[1] if ranges.at_most(other, one) else node
    if op == "to":
        [value] = node.args
        if value.dtype in EXACT:
            return _unrounded(node, ranges) or node
        if not node.dtype.is_floating_point or not _worth_narrowing(value, ranges):
            return node
        return rebuild(node, (narrowed(value, ranges),))
    return _placed(node, ranges)


def _unrounded(node: Expr, ranges: Ranges) -> Expr | None:
    """Return an integer as a float, if it is rounded to 16 bits in between and these have it."""
    inner = node.args[0]
    if inner.op != "to" or inner.dtype not in EXACT or node.dtype is not torch.float32:
        return None
    [number] = inner.args
    if number.op == "to" and number.dtype is torch.float32:
        [number] = number.args
    if number.dtype.is_floating_point:
        return None
    value = ranges.of(number)
    exact = max(-value.low, value.high) <= EXACT[inner.dtype]
    return Expr("to", (number,), node.dtype) if exact else None


def _placed(node: Expr, ranges: Ranges) -> Expr:
    """Return a read, or what is scattered, without bounds for positions known to be within."""
    first, place = (0, 2) if node.op == "at" else (1, 0)
    bounds, args = list(node.data[place]), list(node.args)
    for k, bound in enumerate(bounds):
        value = ranges.of(args[first + k])
        if bound is None or not value.within(bound):
            continue
        bounds[k] = None
        if value.fits(NARROW) and args[first + k].dtype is WIDE:
            args[first + k] = narrowed(args[first + k], ranges)
    data = (*node.data[:place], tuple(bounds), *node.data[place + 1 :])
    return Expr(node.op, tuple(args), node.dtype, data)


def _worth_narrowing(value: Expr, ranges: Ranges) -> bool:
    """Return whether a 64-bit integer that fits in 32 bits is computed, rather than loaded."""
    if value.dtype is not WIDE or value.op in ("load", "at", "const", "local"):
        return False
    return ranges.of(value).fits(NARROW)


def narrowed(value: Expr, ranges: Ranges) -> Expr:
    """Return a 64-bit integer that fits in 32 bits as such a one, computed so as far as it can."""
    if value.op == "const":
        return constant(value.data[0], NARROW)
    if value.op == "to":
        [given] = value.args
        return given if given.dtype is NARROW else Expr("to", (given,), NARROW)
    parts = value.args[1:] if value.op in ("where", "select") else value.args
    computed = value.op in ARITHMETIC or value.op in ("where", "select")
    if not computed or not all(ranges.of(part).fits(NARROW) for part in parts):
        return Expr("to", (value,), NARROW)
    kept = value.args[: len(value.args) - len(parts)]
    return Expr(value.op, (*kept, *(narrowed(part, ranges) for part in parts)), NARROW)
