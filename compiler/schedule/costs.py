"""The cost model: bytes moved and operations of each step of a plan, as formulas over sizes.

In: a step of a `Plan`. Out: its `Work`: bytes between memory and the step, and floating-point
operations, both as an `Index`. With them the time of a step is compared with the limits of the
machine (the roofline model: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009).

A kernel moves each element that it reads or writes once: repeated reads hit a cache or a register.
Elements at computed positions count once for each iteration, and at most as many as the buffer has.
The operations of an iteration are those of its expressions, elementary functions at the cost that
`Expr.cost` gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tc.compiler.loops import index as ix
from tc.compiler.loops.expr import Expr
from tc.compiler.loops.index import Index
from tc.compiler.loops.ir import Buffer, CopyInto, Extern, View, views_in
from tc.compiler.schedule.plan import (
    Accumulate,
    Kernel,
    Let,
    Plan,
    Product,
    Running,
    Section,
    Step,
    Store,
)


@dataclass(frozen=True)
class Work:
    """The work of a step.

    Attributes:
        moved: bytes read from and written to memory.
        operations: in floating point; products of matrices count a multiplication and an addition
            for each pair of factors.
    """

    moved: Index
    operations: Index


def work_of(step: Step, buffers: Mapping[str, Buffer]) -> Work | None:
    """Return the work of a step; None if it only manages memory or numbers.

    Args:
        buffers: the plan's buffers; see `buffers_of`.
    """
    if isinstance(step, Kernel):
        return _kernel(step, buffers)
    if isinstance(step, Extern):
        views = views_in((step.args, tuple(value for _, value in step.kwargs)))
        made = [b for b in step.results if b is not None and not step.takes_over]
        moved = [*(_bytes(v.sizes, v.dtype.itemsize) for v in views), *map(_whole, made)]
        return Work(_sum(moved), _products(step))
    if isinstance(step, CopyInto):
        return Work(_bytes(step.source.sizes, 2 * step.source.dtype.itemsize), ix.ZERO)
    return None


#: calls of ATen that compute nothing
_COPIES = (
    "aten.clone.", "aten.copy", "aten._to_copy.", "aten.repeat.", "aten.cat.", "aten.stack.",
    "aten.flip.", "aten.roll.", "aten.repeat_interleave.self_int", "aten.tile.",
)  # fmt: skip


def only_copies(step: Step) -> bool:
    """Return whether a step computes nothing, and only writes values elsewhere or in another order.

    A kernel that converts the type of values as it writes them computes something.
    """
    if isinstance(step, Product) or not isinstance(step, Kernel):
        target = step.target.removeprefix("torch.ops.") if isinstance(step, Extern) else ""
        return isinstance(step, CopyInto) or target.startswith(_COPIES)
    values = step.values()
    moves = all(isinstance(one, Store | Let) for one in step.statements())
    return moves and any(v.loads() for v in values) and all(map(_moves, values))


def _moves(value: Expr) -> bool:
    return value.cost() <= len(value.loads())


def buffers_of(plan: Plan) -> dict[str, Buffer]:
    """Return the buffers of a plan, inputs included, by name."""
    given = (item.buffer for item in plan.inputs if item.buffer is not None)
    return {buffer.name: buffer for buffer in (*given, *plan.buffers)}


def _kernel(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Work:
    touched: dict[tuple[str, Index], Index] = {}
    operations = ix.ZERO
    if isinstance(kernel, Product):
        operations = 2 * _iterations(kernel.space[:4])
        for factor in (kernel.left, kernel.right):
            _touch(factor, kernel.space, touched)
    for section in kernel.sections:
        loops, iterations = _loops(kernel, section)
        for statement in section.statements:
            _touch(statement.value, loops, touched)
            if isinstance(statement, Store):
                touched[statement.buffer, statement.index] = _elements(statement.index, loops)
            # Loads count as bytes, not as operations.
            arithmetic = max(statement.value.cost() - len(statement.value.loads()), 0)
            operations += (arithmetic + isinstance(statement, Accumulate | Running)) * iterations
    moved: dict[str, list[Index]] = {}
    for (name, _), elements in touched.items():
        if name in buffers:
            moved.setdefault(name, []).append(elements)
    parts = [_at_most(_sum(found), buffers[name]) for name, found in moved.items()]
    return Work(_sum(parts), operations)


def _loops(kernel: Kernel, section: Section) -> tuple[Sequence[Index], Index]:
    """Return the loops around a section, and the total number of their iterations."""
    loops = kernel.loops() if section.level == "inner" else kernel.outer
    if section.over is None:
        return loops, _iterations(loops)
    variable, low, high = section.over
    count = high - low
    if count.variables():  # from row to row another: half of it, as in a triangle
        count = ix.floordiv(ix.extent(variable), ix.const(2))
    return loops, _iterations([v for v in loops if v is not variable]) * count


def _touch(value: Expr, loops: Sequence[Index], touched: dict[tuple[str, Index], Index]) -> None:
    for read in value.loads():
        name, index = read.data[:2]
        touched[name, index] = _elements(index, loops)


def _elements(index: Index, loops: Sequence[Index]) -> Index:
    """Return the number of positions of an index, assuming that they are all distinct.

    An index of anything but loop variables is computed from values, one for each iteration.
    """
    named = index.variables()
    used = [v for v in loops if ix.atom_of(v) in named]
    return _iterations(used if len(used) == len(named) else loops)


def _iterations(variables: Sequence[Index]) -> Index:
    """Return the number of iterations of loops; a constant variable counts as one."""
    return ix.product([ix.extent(v) for v in variables if ix.atom_of(v) is not None])


def _at_most(elements: Index, buffer: Buffer) -> Index:
    return buffer.dtype.itemsize * ix.minimum(elements, buffer.numel)


def _whole(buffer: Buffer) -> Index:
    return _bytes(buffer.sizes, buffer.dtype.itemsize)


def _bytes(sizes: Sequence[Index], itemsize: int) -> Index:
    return itemsize * ix.product(list(sizes))


def _sum(parts: Sequence[Index]) -> Index:
    total = ix.ZERO
    for part in parts:
        total = total + part
    return total


# -- products of matrices, which ATen computes -----------------------------------------------
def _matmul(views: Sequence[View]) -> Index:
    """``[..., m, k]`` times ``[..., k, n]``, or the matrix times a vector."""
    left, right = views[-2:]
    columns = right.sizes[-1] if len(right.sizes) > 1 else ix.ONE
    return 2 * ix.product(list(left.sizes)) * columns


def _linear(views: Sequence[View]) -> Index:
    """``[..., k]`` times the transpose of ``[n, k]``."""
    rows, weight = views[:2]
    return 2 * ix.product(list(rows.sizes)) * weight.sizes[0]


def _attention(views: Sequence[View]) -> Index:
    """Two products: queries ``[b, h, q, d]`` with keys ``[b, h, k, d]``, and that with values."""
    query, key = views[:2]
    return 4 * ix.product(list(query.sizes)) * key.sizes[-2]


CONVOLUTIONS = ("aten.convolution.", "mkldnn._convolution_pointwise.")
#: prefix of a call's target -> the operations of the call, from its tensors in order
PRODUCTS: tuple[tuple[tuple[str, ...], Callable[[Sequence[View]], Index]], ...] = (
    (("aten.mm.", "aten.bmm.", "aten.mv.", "aten.dot.", "aten.addmm.", "aten.baddbmm.",
      "aten.addmv.", "aten.addbmm."), _matmul),
    (("mkldnn._linear_pointwise.", "mkl._mkl_linear."), _linear),
    (("aten._scaled_dot_product_flash_attention_for_cpu.default", "attention."), _attention),
)  # fmt: skip


def _products(step: Extern) -> Index:
    """Return the operations of a call; zero for unknown targets."""
    views: list[Any] = views_in(step.args)
    target = step.target.removeprefix("torch.ops.")
    if target.startswith(CONVOLUTIONS) and len(views) >= 2:
        (result, *_), weight = step.results, views[1]
        if result is None:
            return ix.ZERO
        # each element of the result takes one filter, [in / groups, ...]
        return 2 * result.numel * ix.product(list(weight.sizes[1:]))
    if target.startswith("aten.convolution_backward.") and len(views) >= 3:
        gradient, _, weight = views[:3]
        once = 2 * ix.product(list(gradient.sizes)) * ix.product(list(weight.sizes[1:]))
        return once * sum(made is not None for made in step.results[:2])
    for targets, formula in PRODUCTS:
        if target.startswith(targets) and len(views) >= 2:
            return formula(views)
    return ix.ZERO
