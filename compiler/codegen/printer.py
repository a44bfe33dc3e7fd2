"""Shared printing of value expressions as statements of a C-like language.

In: value expressions and a way to spell indices and locals. Out: lines that compute them, each
shared subexpression once, and the text of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Protocol

import torch

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, can_fail, extents, position_key, positions, walk
from tc.compiler.loops.index import Atom, Index
from tc.compiler.loops.ops import C_TYPES, LOW_PRECISION, SCALAR_OPS

INLINE_LENGTH = 70
# Loop-invariant values of at least this cost are hoisted.
HOIST_COST = 2
FIXABLE = ("const", "load", "index", "scalar", "local", "at")
# Types that C promotes to int, whose results have to be truncated.
WIDENED = (torch.int16, torch.int8, torch.uint8, torch.bool)


def c_type(dtype: torch.dtype) -> str:
    """Return the C type of a tensor type."""
    return C_TYPES[dtype][0]


def suffix(dtype: torch.dtype) -> str:
    """Return the suffix of helper functions for a type."""
    return C_TYPES[dtype][1]


def spelling(
    operation: Callable[[Atom, ix.AtomPrinter], str],
    names: Mapping[str, str] = MappingProxyType({}),
) -> ix.AtomPrinter:
    """Return the function that spells atoms in a language, with names for some variables.

    Args:
        operation: spells a quotient, remainder, minimum or maximum; the printer spells operands.
        names: names of some variables: the computed positions.
    """

    def spell(atom: Atom) -> str:
        if atom.kind in ix.NAMED:
            return names.get(atom.name, atom.name)
        return operation(atom, spell)

    return spell


def _c_operation(atom: Atom, spell: ix.AtomPrinter) -> str:
    """Spell a quotient, remainder, minimum or maximum in C."""
    a, b = atom.args
    if atom.kind not in ("min", "max") and ix.is_at_least(a, 0):
        sign = "/" if atom.kind == "floordiv" else "%"
        return f"({ix.factor(a, spell)} {sign} {ix.factor(b, spell)})"
    return f"tc_{atom.kind}({ix.render(a, spell)}, {ix.render(b, spell)})"


_C_ATOM = spelling(_c_operation)


def c_index(index: Index) -> str:
    """Spell an index in C."""
    return ix.render(index, _C_ATOM)


def c_constant(value: float | int | bool, dtype: torch.dtype) -> str:
    """Spell a constant in C."""
    if dtype.is_floating_point:
        tail = "" if dtype is torch.float64 else "f"
        if math.isnan(value):
            return f'__builtin_nan{tail}("")'
        if math.isinf(value):
            return f"{'-' if value < 0 else ''}__builtin_inf{tail}()"
        if dtype is not torch.float64 and abs(value) > 3.4028235677973366e38:
            return f"{'-' if value < 0 else ''}__builtin_inff()"
        text = repr(float(value)) + tail
        return f"({text})" if value < 0 or text.startswith("-") else text
    if dtype is torch.bool:
        return str(int(value))
    if dtype is torch.int64:
        return "(-9223372036854775807LL - 1)" if value == -(2**63) else f"{int(value)}LL"
    return f"(({c_type(dtype)}){int(value)})"


def _same_bits(text: str, source: torch.dtype, target: torch.dtype) -> str:
    """Spell the bits of a value as another type of the same width."""
    if source is target:
        return text
    if all(d in LOW_PRECISION or not d.is_floating_point for d in (source, target)):
        return (
            f"(({c_type(target)}){text})"  # 16-bit floats are their bits; C compilers wrap around
        )
    return f"tc_bits_{suffix(source)}_{suffix(target)}({text})"


def c_convert(text: str, source: torch.dtype, target: torch.dtype) -> str:
    """Spell a conversion in C."""
    kind = c_type(target)
    if source in LOW_PRECISION:
        text, source = f"tc_{suffix(source)}_to_f32({text})", torch.float32
    if source is target:
        return text
    if target is torch.bool:
        return f"({kind})({text} != 0)"
    if target in LOW_PRECISION:
        return f"tc_f32_to_{suffix(target)}({c_convert(text, source, torch.float32)})"
    if source.is_floating_point and target in (torch.uint8, torch.int8, torch.int16):
        return f"({kind})(long long){text}"
    return f"({kind}){text}"


class Lines(Protocol):
    """The interface of the block that expressions are printed into (`cpp.block.Block`)."""

    def emit(self, line: str) -> None:
        """Add a line."""

    def declare(self, kind: str, name: str, value: str = "") -> None:
        """Declare a variable."""

    def open(self, head: str) -> None:
        """Start a block."""

    def otherwise(self) -> None:
        """End a block and start that of its ``else``."""

    def close(self) -> None:
        """End a block."""


class ExprPrinter:
    """Prints expressions of one block of C, and remembers the values computed there already.

    Attributes:
        inline: whether no statement may precede the expression, which may not be needed.
        runs: while hoisting, whether the loop runs at all, in C; empty if it is known to. What an
            iteration would find wrong is no fault where there is none.
    """

    def __init__(
        self,
        lines: Lines,
        local: Callable[[str], str],
        names: list[int],
        short_nans: bool = False,
        inline: bool = False,
    ):
        self.lines, self.local, self.names = lines, local, names
        self.short_nans, self.inline = short_nans, inline
        self.known: dict[Expr, str] = {}
        self.runs = ""

    def hoist(self, root: Expr, fixed: Callable[[Expr], bool]) -> None:
        """Emit the largest loop-invariant parts of a value before the next loop.

        Args:
            root: a value computed in that loop.
            fixed: whether a leaf (or an indirect read, by its index) stays the same.
        """
        same: dict[Expr, bool] = {}
        for node in self._order(root, {}):
            steady = fixed(node) if node.op in FIXABLE else bool(node.args) and node.op != "into"
            same[node] = steady and all(same.get(a, a in self.known) for a in node.args)
        for node in same:
            if node.op in ("at", "into") and not same[node]:
                for arg, bound, checked in positions(node):
                    if same.get(arg):
                        self.position(arg, bound, checked)
            for part in node.args:
                if same.get(part) and not same[node] and part.cost() >= HOIST_COST:
                    text = self.value(part)
                    self.known[part] = text if text.isidentifier() else self._named(part, text)

    def nested(self, inline: bool = False) -> ExprPrinter:
        """Return a printer for a block inside this one, or for a part of an expression."""
        inner = ExprPrinter(self.lines, self.local, self.names, self.short_nans, inline)
        inner.known, inner.runs = dict(self.known), self.runs
        return inner

    def value(self, root: Expr) -> str:
        """Emit the statements that a value needs, and return its text."""
        if root in self.known:
            return self.known[root]
        counts: dict[Expr, int] = {}
        order = self._order(root, counts)
        # gcc uses masked loads for the loads in an arm, at several times the cost.
        arms = {arg for node in order if node.op == "where" for arg in node.args}
        for node in order:
            if node in self.known:
                continue
            text = self._spell(node)
            simple = self.inline or node.op in ("const", "local", "scalar")
            shared = counts.get(node, 0) > 1 or (node in arms and not simple)
            if node is root or simple or (not shared and len(text) <= INLINE_LENGTH):
                self.known[node] = text
            else:
                self.known[node] = self._named(node, text)
        return self.known[root]

    def _order(self, root: Expr, counts: dict[Expr, int]) -> list[Expr]:
        """Return the nodes to print, operands first, except those that only an arm needs."""
        order: list[Expr] = []
        seen: set[Expr] = set()
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                order.append(node)
                continue
            counts[node] = counts.get(node, 0) + 1
            if node in seen or node in self.known:
                continue
            seen.add(node)
            stack.append((node, True))
            needed = node.args[:1] if node.op == "select" else node.args
            needed = node.args[0].args if _rounds(node) else needed
            stack.extend((arg, False) for arg in reversed(needed))
        return order

    def fresh(self) -> str:
        """Return an unused name."""
        self.names[0] += 1
        return f"t{self.names[0]}"

    def _named(self, node: Expr, text: str) -> str:
        name = self.fresh()
        self.lines.declare(f"const {c_type(node.dtype)}", name, text)
        return name

    def _spell(self, node: Expr) -> str:
        op, dtype = node.op, node.dtype
        if op == "const":
            return c_constant(node.data[0], dtype)
        if op == "load":
            return f"{node.data[0]}[{c_index(node.data[1])}]"
        if op == "index":
            return f"(long long)({c_index(node.data[0])})"
        if op == "local":
            return self.local(node.data[0])
        if op == "scalar":
            return str(node.data[0])
        if op == "select":
            return self._select(node)
        if op == "at":
            return self._at(node)
        if op == "to" and _rounds(node):
            inner = node.args[0]
            plain = "plain_" if self.short_nans and inner.dtype is torch.bfloat16 else ""
            return f"tc_round_{plain}{suffix(inner.dtype)}({self.value(inner.args[0])})"
        args = [self.known[arg] for arg in node.args]
        if op == "to":
            given = node.args[0].dtype
            if self.short_nans and dtype is torch.bfloat16 and given is torch.float32:
                return f"tc_f32_to_plain_bf16({args[0]})"
            if (number := _whole_number(node)) is not None:
                wide = _computed_in(dtype)
                text = c_convert(self.known[number], number.dtype, wide)
                text = SCALAR_OPS["trunc"].c.format(text, t=suffix(wide), k="", c_in=c_type(wide))
                return c_convert(f"({text} + {c_constant(0.0, wide)})", wide, dtype)
            return c_convert(args[0], given, dtype)
        if op == "where":
            return f"({args[0]} ? {args[1]} : {args[2]})"
        if op == "bits":
            return _same_bits(args[0], node.args[0].dtype, dtype)
        if can_fail(node):
            self._fault(f"(long long)({args[1]} == 0) << 1")
        row = SCALAR_OPS[op]
        from_type = node.args[0].dtype
        cast = f"({c_type(dtype)})" if dtype in WIDENED else ""
        return row.c.format(*args, t=suffix(from_type), k=cast, c_in=c_type(from_type))

    def _select(self, node: Expr) -> str:
        condition, yes, no = node.args
        test = self.known[condition]
        if _plain(yes) and _plain(no):
            return f"({test} ? {self.nested(True).value(yes)} : {self.nested(True).value(no)})"
        name = self.fresh()
        self.lines.declare(c_type(node.dtype), name)
        self.lines.open(f"if ({test})")
        self.lines.emit(f"{name} = {self.nested().value(yes)};")
        self.lines.otherwise()
        self.lines.emit(f"{name} = {self.nested().value(no)};")
        self.lines.close()
        return name

    def _at(self, node: Expr) -> str:
        """An element that is read; of a buffer without elements, where every position is a fault,
        nothing is."""
        element = self.element(node.data[0], node.data[1], node)
        empty = [bound for bound in extents(node) if not ix.is_at_least(bound, 1)]
        if not empty:
            return element
        some = " && ".join(f"{c_index(bound)} > 0" for bound in empty)
        return f"({some} ? {element} : ({c_type(node.dtype)})0)"

    def element(self, buffer: str, index: Index, node: Expr) -> str:
        """Return an element at the computed positions of an ``at`` or ``into``."""
        text_of: dict[str, str] = {}
        for k, position in enumerate(positions(node)):
            text = self.position(*position)
            narrow = position[0].dtype is not torch.int64
            text_of[f"x{k}"] = f"(long long){text}" if narrow else text
        return f"{buffer}[{ix.render(index, spelling(_c_operation, text_of))}]"

    def offset(
        self, positions: Iterable[tuple[str, Expr, Index | None, bool]], index: Index
    ) -> str:
        """Return an index over computed positions: names, values, bounds, whether to check."""
        text_of = {n: f"(long long){self.position(g, b, c)}" for n, g, b, c in positions}
        return ix.render(index, spelling(_c_operation, text_of))

    def skip_outside(self, node: Expr) -> None:
        """Emit branches to the next iteration if a position of an ``into`` is out of range.

        A predicted branch costs nothing, while a chain of clamps delays the memory access.
        """
        for value, bound, checked in positions(node):
            key = position_key(value, bound, checked)
            if bound is not None and key not in self.known:
                text = self.value(value)
                self.known[key] = name = self.fresh()
                self.lines.declare("const long long", name, text)
                self.lines.open(f"if ((unsigned long long){name} >= {c_index(bound)})")
                self.lines.emit("fault |= 1;")
                self.lines.emit("continue;")
                self.lines.close()

    def position(self, value: Expr, bound: Index | None, checked: bool) -> str:
        """Emit a computed position; returns its name.

        It is clipped and, if so asked, checked, unless it is known to be within.
        """
        key = position_key(value, bound, checked)
        if key not in self.known:
            given = self.value(value)
            if bound is None:
                if not given.isidentifier() and value.op != "load":
                    given = self.known[value] = self._named(value, given)
                self.known[key] = given
                return given
            name = self.fresh()
            clipped = f"tc_clip({given}, {c_index(bound)})"
            self.lines.declare("const long long", name, clipped)
            if checked:
                self._fault(f"{name} != {given}")
            self.known[key] = name
        return self.known[key]

    def _fault(self, bits: str) -> None:
        """Emit a check."""
        self.lines.emit(f"fault |= {self.runs} ? {bits} : 0;" if self.runs else f"fault |= {bits};")


def _rounds(node: Expr) -> bool:
    """Return whether a node rounds a float32 to a 16-bit type and converts it back."""
    inner = node.args[0] if node.op == "to" and node.dtype is torch.float32 else node
    if inner is node or inner.op != "to" or inner.dtype not in LOW_PRECISION:
        return False
    return inner.args[0].dtype is torch.float32


def _computed_in(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in LOW_PRECISION else dtype


def _whole_number(node: Expr) -> Expr | None:
    """Return the number that a node takes to an integer and back, or None.

    C compilers that need not preserve traps make one truncation of the two conversions, and with it
    -0.0 of -0.5, whose reciprocal has another sign than that of 0. So it is spelled as truncation
    here, and a sum with zero.
    """
    inner = node.args[0]
    if inner.op != "to" or inner.dtype not in (torch.int32, torch.int64):
        return None
    number = inner.args[0]
    same = node.dtype.is_floating_point and _computed_in(number.dtype) is _computed_in(node.dtype)
    return number if same else None


def has_short_nans(value: Expr) -> bool:
    """Return whether NaNs in a value stay NaN when truncated to bfloat16.

    Arithmetic preserves the bits of a NaN operand, and makes new NaNs without low bits.
    """
    for node in walk(value):
        if node.op in ("scalar", "bits"):
            return False
        exact = node.dtype is torch.bfloat16 or not node.dtype.is_floating_point
        if node.op in ("load", "at") and not exact:
            return False
    return True


def _plain(value: Expr) -> bool:
    """Return whether a value can be an arm of a conditional expression without statements."""
    nodes = walk(value)
    return len(nodes) <= 3 and not any(n.op in ("at", "select") or can_fail(n) for n in nodes)
