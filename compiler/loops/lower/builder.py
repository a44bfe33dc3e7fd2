"""The builder: collects loop nests while a graph is lowered, and decides which values get buffers.

In: sizes, types and value expressions from the lowerings. Out: nodes of a `LoopGraph`. A value
stays an expression (a *cell* without buffer) until a user needs it in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tc.compiler.core.gate import Gate
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import READS, Expr, constant, load, substitute, walk
from tc.compiler.loops.index import Atom, Index
from tc.compiler.loops.ir import (
    Buffer,
    Extern,
    Node,
    Origin,
    Pointwise,
    Reduction,
    Ref,
    Scan,
    Scatter,
    View,
    contiguous,
)
from tc.compiler.loops.lower.sympy_boundary import SizeReader
from tc.compiler.loops.ops import C_TYPES, CHEAP, LOW_PRECISION, compute_dtype

MAX_BODY_COST = 600
MAX_BODY_LOADS = 24
Sizes = tuple[Index, ...]


class NotLowered(Exception):
    """This call cannot be expressed in loops; it goes to ATen."""


def supported(dtype: torch.dtype) -> None:
    """Raise for types that kernels do not support.

    Raises:
        NotLowered: it is such a type.
    """
    if dtype not in C_TYPES:
        raise NotLowered(f"{dtype}")


def loop_vars(sizes: Sequence[Index], prefix: str = "i") -> tuple[Index, ...]:
    """Return a loop variable for each dimension; dimensions of size 1 have the index 0."""
    return tuple(
        ix.ZERO if extent is ix.ONE else ix.var(f"{prefix}{position}", extent)
        for position, extent in enumerate(sizes)
    )


def respelled(body: Expr, variables: Sequence[Index]) -> Expr:
    """Return a value over the loop variables of its node, whose sizes may be spelled differently.

    A loop variable is identified by its name and its size. Two shapes of an operation may spell one
    size differently (``8*((s0 + 7)//8)``, ``s0 + (8 - s0 % 8) % 8``), so that a value over the
    variables of the first is not a value over those of the second.
    """
    if all(v is ix.ZERO or ix.extent(v).constant is not None for v in variables):
        return body
    own = {ix.atom_of(variable) for variable in variables}
    named = {f"i{position}": variable for position, variable in enumerate(variables)}
    values: dict[Atom, Index] = {}
    for node in walk(body):
        if node.op in READS or node.op == "index":
            index: Index = node.data[0 if node.op == "index" else 1]
            for atom in index.variables():
                if atom not in own and atom.name in named:
                    values[atom] = named[atom.name]
    return substitute(body, values)


def bindings(variables: Sequence[Index], values: Sequence[Index]) -> dict[Atom, Index]:
    """Atoms of the variables -> values, identities left out."""
    found: dict[Atom, Index] = {}
    for variable, value in zip(variables, values, strict=True):
        atom = ix.atom_of(variable)
        if atom is not None and variable is not value:
            found[atom] = value
    return found


def linear(indices: Sequence[Index], strides: Sequence[Index]) -> Index:
    """Return flat index of an element."""
    total = ix.ZERO
    for position, stride in zip(indices, strides, strict=True):
        total = total + position * stride
    return total


@dataclass(eq=False)
class Cell:
    """A tensor value while lowering.

    Attributes:
        body: its element at ``vars``, in the type that it is computed in.
        buffer: its memory, if any; ``layout`` is then the flat index.
        strides: the layout that it gets when it is realized.
    """

    dtype: torch.dtype
    sizes: Sizes
    strides: tuple[Index, ...]
    vars: tuple[Index, ...]
    body: Expr
    origins: tuple[Origin, ...] = ()
    buffer: str | None = None
    layout: Index = ix.ZERO


@dataclass(frozen=True)
class Tensor:
    """A view of a cell: element ``vars`` is the cell's element ``index``."""

    cell: Cell
    sizes: Sizes
    vars: tuple[Index, ...]
    index: tuple[Index, ...]

    @property
    def dtype(self) -> torch.dtype:
        """The type its elements have in eager code."""
        return self.cell.dtype

    def view(self, sizes: Sizes, index: Sequence[Index], variables: tuple[Index, ...]) -> Tensor:
        """Return a view of this view: element ``variables`` is my element ``index``."""
        values = bindings(self.vars, index)
        into = tuple(ix.substitute(position, values) for position in self.index)
        return Tensor(self.cell, sizes, variables, into)


@dataclass
class Builder:
    """Nodes so far, and the fx node being lowered.

    Attributes:
        device: the device that the loops run on.
        randoms: whether loops may draw random numbers, in another order than eager's.
        reader: reads the sizes of fake tensors.
    """

    gate: Gate
    device: torch.device
    randoms: bool = False
    reader: SizeReader = field(default_factory=SizeReader)
    seed: Expr | None = None
    draws: int = 0
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    origin: Origin = field(default_factory=lambda: Origin("", ""))
    strides: tuple[Index, ...] | None = None
    uses: int = 1
    counter: int = 0
    inlined: dict[Origin, None] = field(default_factory=dict)
    reductions: dict[tuple[Any, ...], Buffer] = field(default_factory=dict)

    def begin(self, origin: Origin) -> None:
        """Begin the next fx node."""
        self.origin = origin
        self.inlined.clear()

    def origins(self) -> tuple[Origin, ...]:
        """Return the origins of a new value: the inlined nodes, and the one being lowered."""
        return (*self.inlined, self.origin)

    def name(self) -> str:
        """Return a fresh buffer name."""
        self.counter += 1
        return f"buf{self.counter - 1}"

    def draw(self) -> tuple[Expr, int]:
        """Return the seed of this run and the number of the next random draw."""
        if not self.randoms:
            raise NotLowered("random numbers are drawn in eager's order (fallback_random)")
        if self.seed is None:
            buffer = Buffer(self.name(), torch.int64, (ix.ONE,), (ix.ONE,))
            args = (-(2**63), 2**63 - 1, [1])
            where = () if self.device.type == "cpu" else (("device", self.device),)
            self.nodes.append(
                Extern("aten.randint.low", args, where, (buffer,), False, (self.origin,))
            )
            self.seed = load(buffer.name, ix.ZERO, torch.int64)
        self.draws += 1
        return self.seed, self.draws - 1

    # ------------------------------------------------------------ values in

    def memory(self, buffer: Buffer) -> Tensor:
        """Return the tensor held by a buffer."""
        variables = loop_vars(buffer.sizes)
        return self.window(
            buffer.name, buffer.dtype, buffer.sizes, linear(variables, buffer.strides)
        )

    def window(self, name: str, dtype: torch.dtype, sizes: Sizes, layout: Index) -> Tensor:
        """Return the tensor whose element ``loop_vars(sizes)`` is at ``layout`` in a buffer."""
        variables = loop_vars(sizes)
        body = converted(load(name, layout, dtype), compute_dtype(dtype))
        cell = Cell(dtype, sizes, contiguous(sizes), variables, body, (), name, layout)
        return Tensor(cell, sizes, variables, variables)

    def value(
        self,
        sizes: Sizes,
        dtype: torch.dtype,
        body: Expr,
        variables: tuple[Index, ...] | None = None,
    ) -> Tensor:
        """Return a pointwise result over ``loop_vars(sizes)``; an expensive one gets a buffer.

        Raises:
            NotLowered: kernels have no such type.
        """
        supported(dtype)
        if variables is None:
            variables = loop_vars(sizes)
            body = respelled(body, variables)
        strides = self.strides
        if strides is None or len(strides) != len(sizes):
            strides = contiguous(sizes)
        # Eager rounds each result, so this one is rounded even if it never reaches memory.
        body = rounded_to(body, dtype)
        cell = Cell(dtype, sizes, strides, variables, body, self.origins())
        shared = self.uses > 1 and body.exceeds(CHEAP)
        large = body.exceeds(MAX_BODY_COST) or len(body.loads()) > MAX_BODY_LOADS
        if shared or large or not self.gate.allow("loops.inline", self.origin.node):
            self.realize(cell)
        return Tensor(cell, sizes, variables, variables)

    def reduce(
        self,
        kind: str,
        dtype: torch.dtype,
        kept: Sequence[Index],
        reduced: Sequence[Index],
        body: Expr,
        sizes: Sizes,
    ) -> Tensor:
        """Return a reduction over ``reduced``.

        ``kept`` has a variable (or 0) for each dimension of ``sizes``.
        """
        strides = self.strides
        if strides is None or len(strides) != len(sizes):
            strides = contiguous(sizes)
        if not reduced:
            return self._reduce_nothing(kind, dtype, kept, body, sizes)
        rename = bindings(kept, loop_vars(sizes)) if len(kept) == len(sizes) else {}
        rename.update(bindings(reduced, loop_vars([ix.extent(v) for v in reduced], "r")))
        inner = tuple(ix.substitute(v, rename) for v in reduced)
        outer = tuple(v for v in loop_vars(sizes) if v is not ix.ZERO)
        flat = linear(loop_vars(sizes), strides)
        body = substitute(body, rename)
        key = (kind, dtype, sizes, strides, inner, body)
        if key in self.reductions:
            return self.memory(self.reductions[key])
        buffer = self.reductions[key] = Buffer(self.name(), dtype, sizes, strides)
        self.nodes.append(Reduction(buffer, outer, inner, flat, kind, body, self.origins()))
        return self.memory(buffer)

    def _reduce_nothing(
        self, kind: str, dtype: torch.dtype, kept: Sequence[Index], body: Expr, sizes: Sizes
    ) -> Tensor:
        """Return the result of a reduction over dimensions of size 1."""
        body = substitute(body, bindings(kept, loop_vars(sizes)))
        body = constant(0, torch.int64) if kind in ("argmax", "argmin") else of_one(kind, body)
        uses, self.uses = self.uses, 2
        result = self.value(sizes, dtype, body)
        self.uses = uses
        return result

    def scan(self, kind: str, dtype: torch.dtype, dim: int, body: Expr, sizes: Sizes) -> Tensor:
        """Return a scan of ``body`` along ``dim``.

        ``body``, over ``loop_vars(sizes)``, has the accumulator's type already.
        """
        strides = self.strides
        if strides is None or len(strides) != len(sizes):
            strides = contiguous(sizes)
        variables = loop_vars(sizes)
        body = respelled(body, variables)
        outer = tuple(v for d, v in enumerate(variables) if v is not ix.ZERO and d != dim)
        buffer = Buffer(self.name(), dtype, sizes, strides)
        flat = linear(variables, strides)
        self.nodes.append(Scan(buffer, outer, variables[dim], flat, kind, body, self.origins()))
        return self.memory(buffer)

    def scatter(
        self,
        kind: str,
        base: Cell,
        variables: Sequence[Index],
        into: Sequence[Index | Expr],
        value: Expr,
    ) -> Tensor:
        """Scatter ``value``, over ``variables``, into the elements ``into`` of a new cell.

        Args:
            base: the initial content; nothing else uses it.
            into: a position for each dimension; those that are int64 values have to be in range.
        """
        name = self.realize(base)
        places: list[Index] = []
        values: list[Expr] = []
        for position, extent in zip(into, base.sizes, strict=True):
            if isinstance(position, Expr):
                values.append(position)
                position = ix.var(f"x{len(values) - 1}", extent)
            places.append(position)
        extents = tuple(s for p, s in zip(into, base.sizes, strict=True) if isinstance(p, Expr))
        body = Expr("into", (converted(value, base.dtype), *values), base.dtype, (extents,))
        buffer = Buffer(self.name(), base.dtype, base.sizes, base.strides)
        loops = tuple(v for v in variables if v is not ix.ZERO)
        index = linear(places, base.strides)
        self.nodes.append(Scatter(buffer, loops, index, body, self.origins(), base=name, kind=kind))
        return self.memory(buffer)

    # ------------------------------------------------------------ values out

    def element(self, tensor: Tensor, index: Sequence[Index] | None = None) -> Expr:
        """Return the value at an index (default: at the tensor's own variables).

        Raises:
            NotLowered: kernels have no such type.
        """
        supported(tensor.dtype)
        into = tensor.index
        if tensor.cell.buffer is None:
            self.inlined.update(dict.fromkeys(tensor.cell.origins))
        if index is not None:
            values = bindings(tensor.vars, index)
            into = tuple(ix.substitute(position, values) for position in into)
        return substitute(tensor.cell.body, bindings(tensor.cell.vars, into))

    def broadcast(self, tensor: Tensor, sizes: Sizes) -> Tensor:
        """Expand to ``sizes``; an expensive value is realized rather than computed repeatedly."""
        if tensor.sizes == sizes:
            return tensor
        lead = len(sizes) - len(tensor.sizes)
        variables = loop_vars(sizes)
        index = [
            ix.ZERO if extent is ix.ONE else variables[lead + position]
            for position, extent in enumerate(tensor.sizes)
        ]
        if tensor.cell.body.exceeds(CHEAP):
            self.realize(tensor.cell)
        return tensor.view(sizes, index, variables)

    def realize(self, cell: Cell) -> str:
        """Give a cell a buffer, which a new loop nest computes."""
        if cell.buffer is not None:
            return cell.buffer
        strides = cell.strides
        buffer = Buffer(self.name(), cell.dtype, cell.sizes, strides)
        layout = linear(cell.vars, strides)
        loops = tuple(v for v in cell.vars if v is not ix.ZERO)
        body = converted(cell.body, cell.dtype)
        self.nodes.append(Pointwise(buffer, loops, layout, body, cell.origins))
        cell.buffer, cell.layout = buffer.name, layout
        cell.body = converted(load(buffer.name, layout, cell.dtype), compute_dtype(cell.dtype))
        return buffer.name

    def strided(self, tensor: Tensor, strides: tuple[Index, ...] | None = None) -> View | None:
        """Return the tensor as a strided view of a buffer, or None if it is none."""
        name = self.realize(tensor.cell)
        flat = ix.substitute(tensor.cell.layout, bindings(tensor.cell.vars, tensor.index))
        offset = ix.substitute(flat, bindings(tensor.vars, [ix.ZERO] * len(tensor.vars)))
        if ix.ZERO in tensor.sizes:  # no index has a coefficient to read strides from
            steps = contiguous(tensor.sizes) if strides is None else strides
            return View(name, tensor.dtype, tensor.sizes, steps, offset)
        found: list[Index] = []
        for position, variable in enumerate(tensor.vars):
            atom = ix.atom_of(variable)
            if atom is None:
                default = contiguous(tensor.sizes)[position]
                found.append(default if strides is None else strides[position])
                continue
            step = ix.substitute(flat, {atom: ix.ONE}) - ix.substitute(flat, {atom: ix.ZERO})
            if step.variables():
                return None
            found.append(step)
        if linear(tensor.vars, found) + offset is not flat:
            return None
        return View(name, tensor.dtype, tensor.sizes, tuple(found), offset)

    def view(self, tensor: Tensor, strides: tuple[Index, ...] | None = None) -> View:
        """Return the tensor as a strided view, copied if necessary."""
        found = self.strided(tensor, strides)
        return found if found is not None else self.copy(tensor, strides)

    def copy(self, tensor: Tensor, strides: tuple[Index, ...] | None = None) -> View:
        """Return the tensor in memory of its own."""
        steps = contiguous(tensor.sizes) if strides is None else strides
        body = self.element(tensor)
        cell = Cell(tensor.dtype, tensor.sizes, steps, tensor.vars, body, self.origins())
        name = self.realize(cell)
        return View(name, tensor.dtype, tensor.sizes, steps, ix.ZERO)


#: ops whose result is one of their operands, except for the sign -> the first of these
CHOOSING = {"maximum": 0, "minimum": 0, "neg": 0, "abs": 0, "where": 1, "select": 1}
#: ops whose result is a number that a type has where it has the operands
CLOSED = frozenset(("floor", "ceil", "trunc", "round", "sign", "fmod", "copysign"))


def is_exact(value: Expr, dtype: torch.dtype) -> bool:
    """Return whether a value computed in a wider type is sure to be one of the type ``dtype``."""
    if dtype not in LOW_PRECISION or value.dtype is not compute_dtype(dtype):
        return False
    if value.op == "to":
        return value.args[0].dtype is dtype
    if value.op == "const":
        number: float = value.data[0]
        return number != number or float(torch.tensor(number, dtype=dtype, device="cpu")) == number
    first = 0 if value.op in CLOSED else CHOOSING.get(value.op)
    return first is not None and all(is_exact(arg, dtype) for arg in value.args[first:])


def rounded_to(value: Expr, dtype: torch.dtype) -> Expr:
    """Return a value rounded to a type, in the type that this is computed in.

    A choice is the same of rounded operands, because rounding keeps order and signs; so constants
    are rounded here, and what was rounded before is not again.
    """
    wide = compute_dtype(dtype)
    if is_exact(value, dtype):
        return value
    if dtype not in LOW_PRECISION or value.dtype is not wide:
        return converted(converted(value, dtype), wide)
    if value.op == "const":
        number = torch.tensor(value.data[0], dtype=wide, device="cpu").to(dtype)
        return constant(float(number), wide)
    first = CHOOSING.get(value.op)
    if first is not None:
        chosen = value.args[first:]
        if sum(arg.op != "const" and not is_exact(arg, dtype) for arg in chosen) <= 1:
            args = (*value.args[:first], *(rounded_to(arg, dtype) for arg in chosen))
            return Expr(value.op, args, wide, value.data)
    return converted(converted(value, dtype), wide)


def converted(value: Expr, dtype: torch.dtype) -> Expr:
    """Convert a value to another type."""
    if value.dtype is dtype:
        return value
    source = value.args[0] if value.op == "to" else value
    if source.dtype is dtype and value.dtype is compute_dtype(dtype):
        return source
    if value.op == "const":
        number = value.data[0]
        if dtype is torch.bool:
            return constant(number != 0, dtype)
        plain = dtype in (torch.float32, torch.float64)
        if plain or (not value.dtype.is_floating_point and dtype is torch.int64):
            return constant(number, dtype)
    return Expr("to", (value,), dtype)


def of_one(kind: str, value: Expr) -> Expr:
    """Return the reduction or scan of a single value: the value, but sums begin with 0.0, and so
    that of -0.0 is 0.0."""
    if kind not in ("sum", "logsumexp") or not value.dtype.is_floating_point:
        return value
    return Expr("add", (value, constant(0.0, value.dtype)), value.dtype)


def scalar_value(value: Any, dtype: torch.dtype) -> Expr:
    """Return a Python number, size or wrapper scalar as a value."""
    if isinstance(value, Index):
        number = value.constant
        if number is not None:
            return converted(constant(number, torch.int64), dtype)
        return converted(Expr("index", (), torch.int64, (value,)), dtype)
    if isinstance(value, Ref):
        return converted(Expr("scalar", (), torch.float64, (value.name,)), dtype)
    if isinstance(value, complex):
        raise NotLowered("complex numbers")
    if isinstance(value, float) and not dtype.is_floating_point and dtype is not torch.bool:
        value = int(value)
    return constant(value, dtype)
