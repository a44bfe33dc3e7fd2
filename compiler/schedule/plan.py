"""The plan: kernels and ATen calls in order, with allocations.

In: built by `schedule/stage.py` from a `LoopGraph`. Out: `Plan`, which codegen prints as C and
Python, and which prints itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch

from tc.compiler.core.artifacts import Artifact, Decision
from tc.compiler.errors import VerifyError
from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr, short
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import Buffer, CopyInto, Extern, Input, Origin, ScalarNode

#: elements of the longest rows that are copied so that rows are side by side, where that pays
LONGEST_COPIED = 32


@dataclass(frozen=True)
class Let:
    """A named value in a register."""

    name: str
    value: Expr

    def __str__(self) -> str:
        return f"{self.name} = {self.value}"


@dataclass(frozen=True)
class Store:
    """A value written to memory."""

    buffer: str
    index: Index
    value: Expr

    def __str__(self) -> str:
        return f"{self.buffer}[{self.index}] = {self.value}"


@dataclass(frozen=True)
class Atomic(Store):
    """A value combined into memory at a computed position, possibly concurrently with others.

    Attributes:
        buffer: the result, in the memory of ``base``.
        index, value, base, kind: see `loops.ir.Scatter`.
    """

    base: str = ""
    kind: str = "sum"

    def __str__(self) -> str:
        return f"{self.buffer} over {self.base}[{self.index}] {self.kind}= {self.value}"


@dataclass(frozen=True)
class Accumulate:
    """A value added to an accumulator; ``name`` is the reduction's result after the loop."""

    name: str
    kind: str
    value: Expr
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{self.name} = {self.kind}({self.value})"


@dataclass(frozen=True)
class Running:
    """A step of a scan: ``name`` is the accumulator after this element.

    Attributes:
        kind: a row of `loops.scans.SCANS`.
        value: the scanned value, in the accumulator's type.
        dtype: the type of ``name``.
    """

    name: str
    kind: str
    value: Expr
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{self.name} = running {self.kind}({self.value})"


Statement = Let | Store | Accumulate | Running


@dataclass(frozen=True)
class Section:
    """Statements that run once for each row (`row`) or for each inner element (`inner`).

    Attributes:
        over: an outer variable and the range of it to which this section is restricted.
    """

    level: Literal["row", "inner"]
    statements: tuple[Statement, ...]
    over: tuple[Index, Index, Index] | None = None


@dataclass(frozen=True)
class Scratch:
    """Thread-private memory of one row's length."""

    name: str
    dtype: torch.dtype
    extent: Index


@dataclass(frozen=True)
class Kernel:
    """One C function.

    Attributes:
        outer: loops over rows, outermost first, run in parallel.
        inner: loops over the elements of a row; none for pointwise kernels.
        lane: the outer loop variable that is vectorised instead of the innermost inner one,
            for reductions that run across rows of memory.
        members: names of the buffers computed here, also those that never reach memory.
        tile: the last two outer loops if some loads run along the first of them; those are read
            tile by tile and transposed, so that both loads and stores run along memory.
        seen: symbolic sizes, with values for which there is a second version of the loops.
    """

    name: str
    outer: tuple[Index, ...]
    inner: tuple[Index, ...]
    sections: tuple[Section, ...]
    lane: Index | None = None
    scratch: tuple[Scratch, ...] = ()
    members: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()
    tile: tuple[Index, Index] | None = None
    seen: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{self.name}: for {_loops(self.outer)}" + (f" lane {self.lane}" if self.lane else "")
        ]
        lines += [f"    a version for {name} = {value}" for name, value in self.seen]
        lines += [f"    scratch {s.name}: {short(s.dtype)}[{s.extent}]" for s in self.scratch]
        for section in self.sections:
            indent = "    "
            if section.over is not None:
                variable, low, high = section.over
                lines.append(f"    for {low} <= {variable} < {high}")
                indent = "        "
            if section.level == "inner":
                lines.append(f"    for {_loops(self.inner)}")
                indent = "        "
            lines += [f"{indent}{statement}" for statement in section.statements]
        return "\n".join(lines)

    def statements(self) -> list[Statement]:
        """Return all statements in order."""
        return [statement for section in self.sections for statement in section.statements]

    def values(self) -> list[Expr]:
        """Return all expressions, in order."""
        return [statement.value for statement in self.statements()]

    def loops(self) -> tuple[Index, ...]:
        """Return all loop variables."""
        return (*self.outer, *self.inner)

    @cached_property
    def stored(self) -> tuple[str, ...]:
        """Buffers written, in order."""
        private = {s.name for s in self.scratch}
        names = [s.buffer for s in self.statements() if isinstance(s, Store)]
        return tuple(name for name in dict.fromkeys(names) if name not in private)

    def bases(self) -> dict[str, str]:
        """Scattered buffer -> the buffer whose memory it takes over."""
        return {s.buffer: s.base for s in self.statements() if isinstance(s, Atomic)}

    @cached_property
    def loaded(self) -> tuple[str, ...]:
        """Buffers read and not written here, in order."""
        own = {s.name for s in self.scratch} | set(self.stored)
        names = [use.data[0] for value in self.values() for use in value.loads()]
        return tuple(name for name in dict.fromkeys(names) if name not in own)


@dataclass(frozen=True)
class Tile:
    """The tile sizes of a matrix product.

    Attributes:
        rows, columns: size of the part of the result that a block computes.
        depth: elements of a row and a column multiplied in one iteration.
        warps: threads of a block, in groups of 32.
        stages: stages of the software pipeline of loads.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int

    def __str__(self) -> str:
        size = f"{self.rows}x{self.columns}x{self.depth}"
        return f"triton {size}, {self.warps} warps, {self.stages} stages"


#: the name of the product's float32 accumulator in its statements
TOTAL = Expr("local", (), torch.float32, ("total",))


@dataclass(frozen=True)
class Product(Kernel):
    """A batch of matrix products with an epilogue: statements on each element, which read `TOTAL`.

    Attributes:
        result: the buffer of the replaced call; in memory only if a statement stores it.
        space: loop variables: pair of matrices, row and column of its product, and the depth in
            the left and in the right factor.
        left, right: an element of the factors, by those variables.
        precision: precision of float32 factors in Triton's terms: ``ieee`` or ``tf32``.
        cut: the tile sizes; None until they are chosen.
    """

    result: str = ""
    space: tuple[Index, ...] = (ix.ZERO,) * 5
    left: Expr = TOTAL
    right: Expr = TOTAL
    precision: str = "ieee"
    cut: Tile | None = None

    def __str__(self) -> str:
        one, row, column, along, down = self.space
        head = f"total = sum for {_loops((one, row, column))} over {_loops((along, down))}"
        how = self.precision if self.cut is None else f"{self.precision}, {self.cut}"
        return f"{head}: {self.left} * {self.right} ({how})\n{super().__str__()}"

    def values(self) -> list[Expr]:
        """Return all expressions, in order."""
        return [self.left, self.right, *super().values()]

    def loops(self) -> tuple[Index, ...]:
        """Return all loop variables."""
        return self.space


@dataclass(frozen=True)
class Proposal:
    """A call, and kernels that could replace it.

    Attributes:
        producers: kernels that only compute its factors (prologues).
        follower: the pointwise kernel that reads its result (epilogue).
        ways: the product with its epilogue: with factors from memory and, if there are producers,
            with fused prologues.
    """

    call: Extern
    producers: tuple[Kernel, ...]
    follower: Kernel | None
    ways: tuple[Product, ...]

    def left_over(self, chosen: Product) -> tuple[Kernel, ...]:
        """Return the producers that a product still needs."""
        return tuple(p for p in self.producers if set(p.stored) & set(chosen.loaded))


def _loops(variables: tuple[Index, ...]) -> str:
    return ", ".join(f"{v} < {ix.extent(v)}" for v in variables) or "()"


@dataclass(frozen=True)
class Allocate:
    """Allocate a buffer.

    ``reuse`` is a dead buffer of the same shape whose memory it takes over.
    """

    buffer: Buffer
    reuse: str | None = None

    def __str__(self) -> str:
        return f"allocate {self.buffer}" + (f" over {self.reuse}" if self.reuse else "")


@dataclass(frozen=True)
class Free:
    """Free buffers that are not read again."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"free {', '.join(self.names)}"


@dataclass(frozen=True)
class BumpVersions:
    """Report to autograd that inputs were written to, through the buffers in their memory."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"written {', '.join(self.names)}"


Step = Kernel | Extern | ScalarNode | CopyInto | BumpVersions | Allocate | Free


@dataclass(frozen=True)
class Plan(Artifact):
    """The input of codegen: steps in order, inputs, outputs, and the decisions."""

    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Any, ...]
    constants: tuple[tuple[str, Any], ...]
    buffers: tuple[Buffer, ...]
    decisions: tuple[Decision, ...] = ()

    def kernels(self) -> list[Kernel]:
        """Return the kernels in order."""
        return [step for step in self.steps if isinstance(step, Kernel)]

    def verify(self) -> None:
        """Check that kernels read only what exists and write only what was allocated."""
        alive = {i.buffer.name for i in self.inputs if i.buffer is not None}
        alive |= {name for name, _ in self.constants}
        for step in self.steps:
            if isinstance(step, Allocate):
                alive.add(step.buffer.name)
            elif isinstance(step, Free):
                alive -= set(step.names)
            elif isinstance(step, Kernel):
                for name in (*step.loaded, *step.stored):
                    if name not in alive:
                        raise VerifyError(f"Plan: {step.name} uses {name}, which has no memory")
            elif isinstance(step, Extern):
                alive |= {b.name for b in step.results if b is not None}

    def __str__(self) -> str:
        return self.text({})

    def text(self, functions: Mapping[str, str]) -> str:
        """Return the plan as text, with what several kernels compute alike written once.

        Args:
            functions: name of a kernel -> that of the function which it calls.
        """
        lines = [str(item) for item in self.inputs]
        first: dict[str, str] = {}
        for step in self.steps:
            function = functions.get(step.name) if isinstance(step, Kernel) else None
            if isinstance(step, Kernel) and function is not None:
                use = _use(step)
                shown = first.setdefault(function, use)
                if shown is not use:
                    lines.append(f"{use} as {shown}")
                    continue
            lines.append(str(step))
        lines.append(f"return {', '.join(map(str, self.outputs))}")
        return "\n".join(lines)


def _use(kernel: Kernel) -> str:
    """Return ``name(buffers read; buffers written)``."""
    return f"{kernel.name}({', '.join(kernel.loaded)}; {', '.join(kernel.stored)})"
