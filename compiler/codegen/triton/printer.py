"""Printing of value expressions as statements of a Triton kernel.

In: value expressions and the block they are computed in (`Space`). Out: lines that compute them,
each shared subexpression once, and the text of the result. Both arms of a `select` are computed in
all lanes, with the loads of each arm masked by the condition.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

import torch

from tc.compiler.codegen.printer import spelling
from tc.compiler.codegen.triton.ops import (
    TRITON_TYPES,
    constant,
    convert,
    spell,
    typed_constant,
)
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, extents, neutral, positions
from tc.compiler.loops.index import Atom, Index
from tc.compiler.loops.ops import SCALAR_OPS

INLINE_LENGTH = 60
SIMPLE = ("const", "local")
NAMED = ("load", "at")  # read once, even where a later statement needs them again


def triton_operation(atom: Atom, spell: ix.AtomPrinter) -> str:
    """Spell an operation of an index in Triton, whose quotients round towards zero."""
    a, b = atom.args
    if atom.kind in ("min", "max"):
        return f"tl.{atom.kind}imum({ix.render(a, spell)}, {ix.render(b, spell)})"
    if ix.is_at_least(a, 0):
        sign = "//" if atom.kind == "floordiv" else "%"
        return f"({ix.factor(a, spell)} {sign} {ix.factor(b, spell)})"
    name = "floor_div" if atom.kind == "floordiv" else "floor_mod"
    return f"{name}({ix.render(a, spell)}, {ix.render(b, spell)})"


triton_atom = spelling(triton_operation)


def triton_index(index: Index) -> str:
    """Spell an index in Triton."""
    return ix.render(index, triton_atom)


@dataclass(frozen=True)
class Axis:
    """One direction of a block.

    Attributes:
        name: its positions in the kernel, ``x`` or ``r``.
        variables: loop variables made of them.
        mask: which positions exist; empty if all do.
    """

    name: str
    variables: tuple[Index, ...]
    mask: str

    def runs_in(self, index: Index) -> bool:
        """Return whether the index moves along this axis."""
        mine = {ix.atom_of(v) for v in self.variables}
        return not mine.isdisjoint(index.variables())


@dataclass(frozen=True)
class Space:
    """The block a statement is computed in."""

    axes: tuple[Axis, ...]

    def mask(self, index: Index | None = None) -> list[str]:
        """Masks of the axes an index moves along (of all, without index)."""
        used = (a for a in self.axes if a.mask and (index is None or a.runs_in(index)))
        return [axis.mask for axis in used]

    def spread(self, index: Index) -> str:
        """Return an index as a block of the whole shape, broadcast along unused axes."""
        return spread(triton_index(index), index, self.axes)


def spread(text: str, index: Index, axes: tuple[Axis, ...]) -> str:
    """Return the text of an index, as a block of the whole shape of the axes."""
    still = [f"{axis.name} * 0" for axis in axes if not axis.runs_in(index)]
    return " + ".join([*([text] if text != "0" or not still else []), *still])


class BlockPrinter:
    """Prints expressions of one block; knows what has been computed there already.

    Attributes:
        evict: buffer -> the eviction policy of its loads (`tl.load`).
    """

    def __init__(
        self,
        emit: Callable[[str], None],
        fresh: Callable[[], str],
        space: Space,
        known: MutableMapping[Expr, str],
    ) -> None:
        self.emit, self.fresh, self.space, self.known = emit, fresh, space, known
        self.chosen = ""
        self.evict: Mapping[str, str] = {}
        self.arms: dict[str, MutableMapping[Expr, str]] = {}

    def within(self, chosen: str) -> BlockPrinter:
        """Return a printer for one arm of a `select`: loads happen only where it is chosen."""
        chosen = f"{self.chosen} & {chosen}" if self.chosen else chosen
        known = self.arms.setdefault(chosen, ChainMap({}, self.known))
        arm = BlockPrinter(self.emit, self.fresh, self.space, known)
        arm.chosen, arm.arms, arm.evict = chosen, self.arms, self.evict
        return arm

    def value(self, root: Expr) -> str:
        """Emit the statements that a value needs, and return its text."""
        if root in self.known:
            return self.known[root]
        counts: dict[Expr, int] = {}
        for node in self._order(root, counts):
            text = self._spell(node)
            inline = counts.get(node, 0) <= 1 and len(text) <= INLINE_LENGTH
            inline = (inline or node is root) and node.op not in NAMED
            if node.op in SIMPLE or inline:
                self.known[node] = text
            else:
                self.known[node] = self.named(text)
        return self.known[root]

    def operand(self, root: Expr) -> str:
        """Like `value`, for where a bare literal would not have its type."""
        self.value(root)
        return self._typed(root)

    def named(self, text: str) -> str:
        """Give a value a name of its own."""
        name = self.fresh()
        self.emit(f"{name} = {text}")
        return name

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
            stack.extend((arg, False) for arg in reversed(needed))
        return order

    def _spell(self, node: Expr) -> str:
        op = node.op
        if op == "const":
            return constant(node.data[0], node.dtype)
        if op == "load":
            return self._load(node.data[0], node.data[1], triton_index(node.data[1]))
        if op == "index":
            return self._index(node.data[0])
        if op == "local":
            return str(node.data[0])
        if op == "scalar":
            return f"tl.full([], {node.data[0]}, tl.float64)"
        if op == "select":
            return self._select(node)
        if op == "at":
            return self._at(node)
        if op == "to":
            return convert(self._typed(node.args[0]), node.args[0].dtype, node.dtype)
        if op == "bits":
            return f"{self._typed(node.args[0])}.to({TRITON_TYPES[node.dtype]}, bitcast=True)"
        if op == "where":
            return f"tl.where({', '.join(self.known[arg] for arg in node.args)})"
        return self._operation(node)

    def _operation(self, node: Expr) -> str:
        dtype = node.args[0].dtype
        row = SCALAR_OPS[node.op].triton.spelling(dtype)
        # A bare literal takes the type of the operand beside it, in Triton's own operators only.
        own = row.startswith(("(", "tl.")) and ".to(" not in row
        beside = len(node.args) > 1 and any(arg.op != "const" for arg in node.args)
        literal = own and beside
        args = [self.known[arg] if literal else self._typed(arg) for arg in node.args]
        return spell(node.op, dtype, args)

    def _typed(self, arg: Expr) -> str:
        return typed_constant(arg.data[0], arg.dtype) if arg.op == "const" else self.known[arg]

    def _index(self, index: Index) -> str:
        text = triton_index(index)
        return f"({text}).to(tl.int64)" if index.variables() else f"tl.full([], {text}, tl.int64)"

    def _load(self, buffer: str, index: Index, text: str, some: Sequence[str] = ()) -> str:
        """Return a read; ``some``: conditions under which the buffer has elements at all."""
        masks = [*self.space.mask(index), *some]
        if self.chosen:
            text = spread(text, index, self.space.axes)
            masks = [*self.space.mask(), self.chosen, *some]
        place = f"{buffer}_ptr" if text == "0" else f"{buffer}_ptr + {text}"
        given = [place, *([" & ".join(masks)] if masks else [])]
        if buffer in self.evict:
            given.append(f'eviction_policy="{self.evict[buffer]}"')
        return f"tl.load({', '.join(given)})"

    def _select(self, node: Expr) -> str:
        condition, yes, no = node.args
        test = self.known[condition]
        if not test.isidentifier():
            test = self.known[condition] = self.named(test)
        first = self.within(test).value(yes)
        second = self.within(f"({test} == 0)").value(no)
        return f"tl.where({test}, {first}, {second})"

    def _at(self, node: Expr) -> str:
        buffer, index = node.data[:2]
        text_of: dict[str, str] = {}
        for k, (arg, bound, _) in enumerate(positions(node)):
            position = self._typed(arg)
            if bound is not None:
                position = f"clip({position}, {triton_index(bound)})"
            text_of[f"x{k}"] = self.named(position)
        empty = [bound for bound in extents(node) if not ix.is_at_least(bound, 1)]
        some = [f"({triton_index(bound)} > 0)" for bound in empty]
        return self._load(
            buffer, index, ix.render(index, spelling(triton_operation, text_of)), some
        )


def masked(value: str, mask: str, otherwise: str) -> str:
    """Return the value where the mask holds, else the neutral element."""
    return f"tl.where({mask}, {value}, {otherwise})" if mask else value


def neutral_of(kind: str, dtype: torch.dtype) -> str:
    """Return the text of the value that changes no reduction of that kind."""
    return typed_constant(neutral(kind, dtype).data[0], dtype)
