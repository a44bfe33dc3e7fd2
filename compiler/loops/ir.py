"""The loop graph: buffers, the loop nests that compute them, and calls to ATen between them.

In: built by `loops/lower`. Out: `LoopGraph`, which prints itself, is run by `loops/interpret.py`
and scheduled by `schedule/`. All nodes are immutable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tc.compiler.core.artifacts import Artifact, Decision
from tc.compiler.errors import VerifyError
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, short, walk
from tc.compiler.loops.index import Atom, Index


def _shape(sizes: tuple[Index, ...], strides: tuple[Index, ...]) -> str:
    text = f"[{', '.join(map(str, sizes))}]"
    if strides == contiguous(sizes):
        return text
    return f"{text}:({', '.join(map(str, strides))})"


def _loops(variables: tuple[Index, ...]) -> str:
    return ", ".join(f"{v} < {ix.extent(v)}" for v in variables) or "()"


def _argument(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_argument, value))}]"
    return str(value)


def contiguous(sizes: tuple[Index, ...]) -> tuple[Index, ...]:
    """Return the strides of a row-major tensor."""
    strides: list[Index] = []
    step = ix.ONE
    for extent in reversed(sizes):
        strides.append(step)
        step = step * (extent if extent is not ix.ZERO else ix.ONE)
    return tuple(reversed(strides))


def row_major(variables: Sequence[Index]) -> Index:
    """Return the position of loop variables in their loops, the last one running fastest."""
    position = ix.ZERO
    for variable in variables:
        position = position * ix.extent(variable) + variable
    return position


@dataclass(frozen=True)
class Buffer:
    """Memory of a tensor: of an input, or of the result of a node."""

    name: str
    dtype: torch.dtype
    sizes: tuple[Index, ...]
    strides: tuple[Index, ...]

    @property
    def numel(self) -> Index:
        """Number of elements."""
        return ix.product(self.sizes)

    def __str__(self) -> str:
        return f"{self.name}: {short(self.dtype)}{_shape(self.sizes, self.strides)}"


@dataclass(frozen=True)
class Origin:
    """The origin of a node: the fx node, the op that it calls, the user's line."""

    node: str
    op: str
    line: str = ""

    @property
    def place(self) -> str:
        """The user's ``file:line``, without the function it is in."""
        return self.line.partition(" in ")[0]

    def __hash__(self) -> int:
        return hash(self.node)  # the common case; a chain of n ops evaluates this n² times


@dataclass(frozen=True)
class Pointwise:
    """``for vars: buffer[index] = body``."""

    buffer: Buffer
    vars: tuple[Index, ...]
    index: Index
    body: Expr
    origins: tuple[Origin, ...] = ()

    def __str__(self) -> str:
        return f"{self.buffer} = for {_loops(self.vars)}: [{self.index}] = {self.body}"


@dataclass(frozen=True)
class Scatter(Pointwise):
    """``for vars, in any order: buffer[index] = kind of buffer[index] and body``.

    Attributes:
        index: over ``vars`` and ``x0, x1, …``, positions that are computed.
        body: an ``into``: the value, and ``x0, x1, …``.
        base: the buffer's initial content, whose memory it takes over; nothing else reads the base.
        kind: ``sum max min``, or ``set``, where any of several values for one position may stay.
    """

    base: str = ""
    kind: str = "sum"

    def __str__(self) -> str:
        place = f"[{self.index}] {self.kind}= {self.body}"
        return f"{self.buffer} over {self.base} = for {_loops(self.vars)}: {place}"


@dataclass(frozen=True)
class Reduction:
    """``for vars: buffer[index] = kind over reduced of body``.

    Attributes:
        kind: ``sum prod max min any all argmax argmin``; empty ranges give the neutral element.
            ``dot`` is the sum of a product of two loads, as in products of matrices.
    """

    buffer: Buffer
    vars: tuple[Index, ...]
    reduced: tuple[Index, ...]
    index: Index
    kind: str
    body: Expr
    origins: tuple[Origin, ...] = ()

    def __str__(self) -> str:
        inner = f"{self.kind} for {_loops(self.reduced)}: {self.body}"
        return f"{self.buffer} = for {_loops(self.vars)}: [{self.index}] = {inner}"


@dataclass(frozen=True)
class Scan:
    """``for vars, scanned in order: buffer[index] = kind over body so far``.

    Attributes:
        scanned: the loop variable that runs in order.
        kind: a row of `scans.SCANS`.
        body: the scanned value, in the type of the accumulator.
    """

    buffer: Buffer
    vars: tuple[Index, ...]
    scanned: Index
    index: Index
    kind: str
    body: Expr
    origins: tuple[Origin, ...] = ()

    def __str__(self) -> str:
        running = f"running {self.kind} for {_loops((self.scanned,))}: {self.body}"
        return f"{self.buffer} = for {_loops(self.vars)}: [{self.index}] = {running}"


@dataclass(frozen=True)
class View:
    """A strided view of a buffer, which is passed to ATen or returned."""

    buffer: str
    dtype: torch.dtype
    sizes: tuple[Index, ...]
    strides: tuple[Index, ...]
    offset: Index

    def __str__(self) -> str:
        start = f" + {self.offset}" if self.offset is not ix.ZERO else ""
        return f"{self.buffer}{start}{_shape(self.sizes, self.strides)}"


@dataclass(frozen=True)
class SymValue:
    """A number the wrapper computes: an integer over sizes."""

    index: Index

    def __str__(self) -> str:
        return str(self.index)


@dataclass(frozen=True)
class Ref:
    """A Python value made by an extern or scalar node, by name."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Extern:
    """``results = target(*args, **kwargs)`` in the wrapper.

    Attributes:
        target: spelled as Python, e.g. ``aten.mm.default``.
        args: Python values, `View`, `SymValue`, `Ref`, nested in tuples and lists.
        results: buffers made; None for an output that is not a tensor or unused.
        unpack: the target returns a tuple.
        takes_over: buffers whose memory the results use: written in place (then nothing else
            reads them), or viewed.
    """

    target: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    results: tuple[Buffer | None, ...]
    unpack: bool
    origins: tuple[Origin, ...] = ()
    takes_over: tuple[str, ...] = ()

    @property
    def path(self) -> tuple[str, ...]:
        """The names that ``target`` is made of."""
        return tuple(self.target.split("."))

    def __str__(self) -> str:
        made = ", ".join("_" if b is None else str(b) for b in self.results)
        given = [_argument(value) for value in self.args]
        given += [f"{name}={_argument(value)}" for name, value in self.kwargs]
        return f"{made} = {self.target}({', '.join(given)})"


@dataclass(frozen=True)
class ScalarNode:
    """``name = function(*args)``: a Python number the wrapper computes (float of a size, item…)."""

    name: str
    function: str
    args: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.name} = {self.function}({', '.join(map(_argument, self.args))})"


@dataclass(frozen=True)
class CopyInto:
    """Write a value into a graph input: an input mutation that functionalisation deferred."""

    input: str
    source: View

    def __str__(self) -> str:
        return f"{self.input}.copy_({self.source})"


Nest = Pointwise | Reduction | Scan
Node = Pointwise | Reduction | Scan | Extern | ScalarNode | CopyInto


@dataclass(frozen=True)
class Input:
    """A graph input: a tensor in ``buffer``, or a number called ``symbol``."""

    name: str
    buffer: Buffer | None
    symbol: str | None = None

    def __str__(self) -> str:
        return f"input {self.buffer if self.buffer is not None else self.name}"


@dataclass(frozen=True)
class LoopGraph(Artifact):
    """All loop nests and ATen calls of a graph, in topological order.

    Attributes:
        outputs: `View`, `SymValue`, `Ref`, constants (None, numbers), or an input's name as `Ref`.
        constants: name -> tensor.
        decisions: calls that could not or must not be lowered, and the reasons.
    """

    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Any, ...]
    constants: tuple[tuple[str, Any], ...] = ()
    decisions: tuple[Decision, ...] = ()

    def verify(self) -> None:
        """Check that each buffer is made once, before it is read, with the type it is read as."""
        dtypes = {i.buffer.name: i.buffer.dtype for i in self.inputs if i.buffer is not None}
        dtypes.update((name, tensor.dtype) for name, tensor in self.constants)
        for node in self.nodes:
            for name in reads(node):
                if name not in dtypes:
                    raise VerifyError(f"LoopGraph: {name} is read before it is computed")
            if isinstance(node, Nest):
                for use in node.body.loads():
                    if dtypes[use.data[0]] != use.dtype:
                        raise VerifyError(f"LoopGraph: {use} is loaded as {use.dtype}")
                self._check_variables(node)
            for buffer in writes(node):
                if buffer.name in dtypes:
                    raise VerifyError(f"LoopGraph: {buffer.name} is computed twice")
                dtypes[buffer.name] = buffer.dtype

    @staticmethod
    def _check_variables(node: Nest) -> None:
        bound: set[Atom] = set()
        for variable in (*node.vars, *inner_loops(node)):
            bound |= variable.atoms()
        for leaf in walk(node.body):
            if leaf.op in ("load", "index"):
                used: Index = leaf.data[-1]
                if not used.variables() <= bound:
                    raise VerifyError(f"LoopGraph: {node.buffer.name} uses a free variable: {leaf}")

    def __str__(self) -> str:
        lines = [str(item) for item in self.inputs]
        lines += [f"{name} = constant" for name, _ in self.constants]
        lines += [str(node) for node in self.nodes]
        lines.append(f"return {', '.join(map(str, self.outputs))}")
        return "\n".join(lines)


def inner_loops(node: Nest) -> tuple[Index, ...]:
    """Return the inner loops, over the elements of a row: those that are reduced or scanned."""
    if isinstance(node, Scan):
        return (node.scanned,)
    return node.reduced if isinstance(node, Reduction) else ()


def views_in(value: Any) -> list[View]:
    """Return all views in a nested argument."""
    if isinstance(value, View):
        return [value]
    if isinstance(value, tuple | list):
        return [view for item in value for view in views_in(item)]
    return []


def reads(node: Node) -> list[str]:
    """Return names of the buffers a node reads, in order, without repetition."""
    if isinstance(node, Nest):
        names = [use.data[0] for use in node.body.loads()]
        return list(dict.fromkeys([*names, node.base] if isinstance(node, Scatter) else names))
    if isinstance(node, Extern):
        values = [*node.args, *(value for _, value in node.kwargs)]
        return list(dict.fromkeys(view.buffer for view in views_in(values)))
    if isinstance(node, ScalarNode):
        return list(dict.fromkeys(view.buffer for view in views_in(node.args)))
    return [node.source.buffer] if isinstance(node, CopyInto) else []


def writes(node: Node) -> list[Buffer]:
    """Return the buffers a node makes."""
    if isinstance(node, Nest):
        return [node.buffer]
    return [b for b in node.results if b is not None] if isinstance(node, Extern) else []
