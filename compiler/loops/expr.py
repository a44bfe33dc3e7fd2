"""Value expressions: the scalars computed inside loop nests, immutable and interned.

In: built by `loops/lower`. Out: read by schedule, printers and the reference interpreter; equal
expressions are the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any
from weakref import WeakValueDictionary

import torch

from tc.compiler.loops import index as ix
from tc.compiler.loops.index import Atom, Index
from tc.compiler.loops.ops import SCALAR_OPS

UNKNOWN = 1 << 30
"""The upper bound of a cost that counts as unknown, because parts are shared too often."""
LONGEST = 4000
"""Characters of operands that a text holds; a chain is as long as a program makes it."""
READS = ("load", "at")
DIVISIONS = ("truncdiv", "floordiv", "remainder", "fmod")


class Expr:
    """A scalar value inside a loop nest.

    Attributes:
        op: a row of `SCALAR_OPS`, or one of
            ``const`` (value), ``load`` (buffer name, flat index), ``index`` (an index as int64),
            ``at`` (buffer name, flat index over ``x0, x1, …``, which are the operands; extents of
            those, None where they are known to be within; whether being outside of them is an
            error), for reads at computed positions,
            ``into`` (extents of ``x0, x1, …``, or None), a value and the positions ``x0, x1, …`` it
            goes to, at the root of the body of a `Scatter`; being outside of them is an error,
            ``scalar`` (name of a float computed in the wrapper),
            ``local`` (name of a value computed earlier in the same kernel), ``to`` (conversion),
            ``bits`` (the same bits as another type), ``where`` (both arms may be evaluated),
            ``select`` (only the chosen arm may be evaluated, the others' loads being out of range).
        args: operand expressions.
        data: for leaves, what the list above says in brackets.
    """

    __slots__ = (
        "__weakref__", "_at_least", "_at_most", "_cost", "_loads", "args", "data", "dtype", "op",
    )  # fmt: skip
    op: str
    args: tuple[Expr, ...]
    dtype: torch.dtype
    data: tuple[Any, ...]
    _cost: int
    _at_least: int  # a lower bound of the cost
    _at_most: int  # an upper bound, loads excluded
    _loads: tuple[Expr, ...] | None

    def __new__(
        cls, op: str, args: tuple[Expr, ...], dtype: torch.dtype, data: tuple[Any, ...] = ()
    ) -> Expr:
        key = (op, args, dtype, data if op != "const" else (type(data[0]), repr(data[0])))
        found = _exprs.get(key)
        if found is None:
            found = super().__new__(cls)
            found.op, found.args, found.dtype, found.data = op, args, dtype, data
            own = _own_cost(found)
            most = sum(arg._at_most for arg in args)
            found._at_most = 0 if op == "load" else min(own + most, UNKNOWN)
            found._at_least = own + max([arg._at_least for arg in args], default=0)
            found._cost = -1
            found._loads = None if args or op in READS else ()
            _exprs[key] = found
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return Expr, (self.op, self.args, self.dtype, self.data)

    def cost(self) -> int:
        """Rough cost of evaluating it once, in additions; shared subexpressions count once."""
        if self._cost < 0:
            self._cost = sum(_own_cost(node) for node in walk(self))
        return self._cost

    def exceeds(self, limit: int) -> bool:
        """Return whether its `cost` exceeds a limit, mostly without traversing it."""
        if self._cost < 0 and self._at_most + len(self.loads()) <= limit:
            return False
        return self._at_least > limit or self.cost() > limit

    def loads(self) -> tuple[Expr, ...]:
        """Return all loads in it."""
        if self._loads is None:
            below = [arg._loads for arg in self.args]
            if self.op in READS or None in below:
                self._loads = tuple(node for node in walk(self) if node.op in READS)
            else:
                self._loads = tuple(dict.fromkeys(chain(*below)))  # type: ignore[arg-type]
        return self._loads

    def __repr__(self) -> str:
        texts: dict[Expr, str] = {}
        for node in walk(self):
            inside = ", ".join([texts[arg] for arg in node.args]) if node.args else ""
            text_of = _TEXTS.get(node.op, _call)
            texts[node] = text_of(node, inside if len(inside) <= LONGEST else "...")
        return texts[self]


_exprs: WeakValueDictionary[tuple[Any, ...], Expr] = WeakValueDictionary()


def _call(node: Expr, inside: str) -> str:
    """Return a node's text as a function of its arguments' texts."""
    return f"{node.op}({inside})"


def _named(node: Expr, inside: str) -> str:
    return str(node.data[0])


def _converted(node: Expr, inside: str) -> str:
    return f"{node.op}.{short(node.dtype)}({inside})"


#: op -> its text, given that of its arguments; the others are written as calls
_TEXTS: dict[str, Callable[[Expr, str], str]] = {
    "const": lambda node, inside: repr(node.data[0]),
    "load": lambda node, inside: f"{node.data[0]}[{node.data[1]}]",
    "index": lambda node, inside: f"index({node.data[0]})",
    "scalar": _named,
    "local": _named,
    "at": lambda node, inside: f"{node.data[0]}[{node.data[1]} at {inside}]",
    "to": _converted,
    "bits": _converted,
}


def short(dtype: torch.dtype) -> str:
    """``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def _own_cost(node: Expr) -> int:
    row = SCALAR_OPS.get(node.op)
    if row is not None:
        return row.cost
    return 0 if node.op in ("const", "scalar", "local", "into") else 1


def _operands(node: Expr) -> Sequence[Expr]:
    return node.args


def walk(root: Expr, operands: Callable[[Expr], Sequence[Expr]] = _operands) -> list[Expr]:
    """Return all distinct nodes below and including ``root``, operands first.

    Args:
        operands: node -> those of its operands to follow; all by default.
    """
    seen: set[Expr] = set()
    order: list[Expr] = []
    stack = [root]
    while stack:
        node = stack[-1]
        if node in seen:
            stack.pop()
            continue
        size = len(stack)
        for arg in reversed(operands(node)):
            if arg not in seen:
                stack.append(arg)
        if len(stack) == size:
            seen.add(stack.pop())
            order.append(node)
    return order


def varies(value: Expr, variable: Atom) -> bool:
    """Return whether a value made of reads and loop variables depends on one of these."""
    return any(
        variable in node.data[0 if node.op == "index" else 1].atoms()
        for node in walk(value)
        if node.op in (*READS, "index")
    )


def is_affine(value: Expr, variables: Iterable[Index]) -> bool:
    """Return whether elements that a value loads are evenly apart along each loop.

    They are not where positions are found by divisions, as those of a slice that is laid flat.
    """
    indices = [use.data[1] for use in value.loads() if use.op == "load"]
    return all(ix.coefficient(index, v) is not None for v in variables for index in indices)


def needed(root: Expr) -> dict[Expr, Expr]:
    """Return the condition under which each node's value is needed: `TRUE` outside of `select`.

    A load may be out of range if its condition does not hold.
    """
    order = walk(root)
    found = dict.fromkeys(order, FALSE)
    found[root] = TRUE
    for node in reversed(order):
        when = found[node]
        conditions = [when] * len(node.args)
        if node.op == "select":
            test = node.args[0]
            conditions = [when, _both(when, test), _both(when, _negated(test))]
        for arg, condition in zip(node.args, conditions, strict=True):
            found[arg] = either(found[arg], condition)
    return found


def _negated(condition: Expr) -> Expr:
    return Expr("not", (condition,), torch.bool)


def _both(one: Expr, other: Expr) -> Expr:
    if one is TRUE or one is other:
        return other
    return FALSE if one is FALSE else Expr("and", (one, other), torch.bool)


def either(one: Expr, other: Expr) -> Expr:
    """Return whether at least one of two conditions holds."""
    if one is FALSE or one is other:
        return other
    if other is FALSE:
        return one
    always = TRUE in (one, other) or other is _negated(one)
    return TRUE if always else Expr("or", (one, other), torch.bool)


def positions(node: Expr) -> list[tuple[Expr, Index | None, bool]]:
    """Computed positions of an ``at`` or ``into``, with their bounds and whether to check them.

    A position without a bound is known to be within.
    """
    if node.op == "into":
        return [(a, b, True) for a, b in zip(node.args[1:], node.data[0], strict=True)]
    bounds, checked = node.data[2:]
    return [(a, b, checked) for a, b in zip(node.args, bounds, strict=True)]


def position_key(value: Expr, bound: Index | None, checked: bool) -> Expr:
    """Return the key under which a printer remembers a computed position."""
    return Expr("position", (value,), torch.int64, (bound, checked))


def extents(node: Expr) -> list[Index]:
    """Return the bounds that an ``at`` or ``into`` compares positions with; none for others."""
    found = positions(node) if node.op in ("at", "into") else []
    return [bound for _, bound, _ in found if bound is not None]


def can_fail(node: Expr) -> bool:
    """Return whether an operation can fail: a bad position, or an integer division by zero."""
    if node.op in ("at", "into"):
        return any(checked and bound is not None for _, bound, checked in positions(node))
    if node.op not in DIVISIONS or node.dtype.is_floating_point:
        return False
    divisor = node.args[1]
    return divisor.op != "const" or not divisor.data[0]


_NEUTRAL: dict[str, float | int | bool] = {"sum": 0, "prod": 1, "any": False, "all": True}


_RANGES = {
    dtype: (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    for dtype in (
        torch.int8, torch.int16, torch.int32, torch.int64,
        torch.uint8, torch.uint16, torch.uint32, torch.uint64,
    )
}  # fmt: skip


def constant(value: Any, dtype: torch.dtype) -> Expr:
    """Return a constant of a type; integers wrap around, as they do in kernels."""
    if dtype is torch.bool:
        value = bool(value)
    elif dtype.is_floating_point:
        value = float(value)
    else:
        low, high = _RANGES[dtype]
        value = int(value)
        if not low <= value <= high:
            value = (value - low) % (high - low + 1) + low
    return Expr("const", (), dtype, (value,))


TRUE, FALSE = constant(True, torch.bool), constant(False, torch.bool)


def neutral(kind: str, dtype: torch.dtype) -> Expr:
    """Return the neutral element of a reduction: ``sum prod any all``, or a max or min."""
    if kind in _NEUTRAL:
        return constant(_NEUTRAL[kind], dtype)
    highest = "max" not in kind
    if dtype is torch.bool:
        return constant(highest, dtype)
    if dtype.is_floating_point:
        return constant(float("inf") if highest else float("-inf"), dtype)
    limits = torch.iinfo(dtype)
    return constant(limits.max if highest else limits.min, dtype)


def load(buffer: str, index: Index, dtype: torch.dtype) -> Expr:
    """Return element ``index`` (counted in elements from the buffer's first) of a buffer."""
    return Expr("load", (), dtype, (buffer, index))


def index_value(index: Index) -> Expr:
    """Return an index as an int64 value."""
    value = index.constant
    return (
        constant(value, torch.int64)
        if value is not None
        else Expr("index", (), torch.int64, (index,))
    )


def rebuild(node: Expr, args: tuple[Expr, ...]) -> Expr:
    """Return the same operation on other operands."""
    return Expr(node.op, args, node.dtype, node.data)


def transform(root: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Rebuild an expression bottom-up, each node replaced by ``change(node)``; sharing is kept."""
    if not root.args:
        return change(root)
    done: dict[Expr, Expr] = {}
    for node in walk(root):
        args = tuple(done[arg] for arg in node.args)
        same = all(a is b for a, b in zip(args, node.args, strict=True))
        done[node] = change(node if same else rebuild(node, args))
    return done[root]


def substitute(root: Expr, values: Mapping[Atom, Index]) -> Expr:
    """Replace loop variables in all indices."""

    def change(node: Expr) -> Expr:
        if node.op in READS:
            index = ix.substitute(node.data[1], values)
            if index is node.data[1]:
                return node
            return Expr(node.op, node.args, node.dtype, (node.data[0], index, *node.data[2:]))
        if node.op == "index":
            return index_value(ix.substitute(node.data[0], values))
        return node

    return transform(root, change) if values else root
