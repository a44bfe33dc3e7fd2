"""Alias analysis: whether each output of a captured graph is new memory, an input, or a view.

The graph runs once on fake tensors, which share and view memory as real ones do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._prims_common import is_non_overlapping_and_dense_or_false as dense

from tc.compiler.aot.artifact import (
    Constant,
    Dim,
    Fallback,
    Fresh,
    Output,
    SameInput,
    SameOutput,
    View,
)
from tc.compiler.aot.layouts import dim_key, elements_apart, extent
from tc.compiler.aot.run import Made, storage_key
from tc.compiler.core.symbolic import SYMBOLIC


@dataclass
class Outputs:
    """The plan of a graph's outputs.

    Attributes:
        plan: how each output of the captured graph is made.
        returned: what the compiled graph must return for it: values of the analysed run.
    """

    plan: list[Output] = field(default_factory=list)
    returned: list[Any] = field(default_factory=list)

    def fresh(self, value: Any) -> Fresh:
        """Add a value to the results of the compiled graph, each value once."""
        for i, known in enumerate(self.returned):
            if known is value:
                return Fresh(i)
        self.returned.append(value)
        return Fresh(len(self.returned) - 1)

    def dim(self, value: Any) -> Dim:
        """Return a size: a number, or a symbolic one that the compiled graph returns."""
        if isinstance(value, torch.SymInt):
            if value.node.expr.is_number:
                return int(value)
            for i, known in enumerate(self.returned):
                if isinstance(known, torch.SymInt) and known.node.expr == value.node.expr:
                    return Fresh(i)
            return self.fresh(value)
        return int(value)


def analyse_outputs(
    outputs: Sequence[Any], inputs: Sequence[Any], made: dict[int, Made], lines: Sequence[str]
) -> Outputs:
    """Return the plan by which each output is made.

    Args:
        outputs: outputs of the captured graph, after its run over ``inputs``.
        inputs: inputs of the run.
        made: storage -> first value of the captured graph that used it.
        lines: the user's line of each output.

    Raises:
        Fallback: outputs share memory in a way that the plan cannot express.
    """
    result = Outputs()
    owners: dict[int, int] = {}
    for i, value in enumerate(inputs):
        if isinstance(value, torch.Tensor):
            owners.setdefault(storage_key(value), i)
    holders: dict[int, list[torch.Tensor]] = {}
    for value in outputs:
        if isinstance(value, torch.Tensor):
            holders.setdefault(storage_key(value), []).append(value)
    for position, value in enumerate(outputs):
        known = _position_of(value, outputs[:position])
        try:
            if not isinstance(value, torch.Tensor):
                result.plan.append(_scalar(value, result))
            elif (same := _position_of(value, inputs)) is not None:
                result.plan.append(SameInput(same))
            elif known is not None:
                result.plan.append(SameOutput(known))
            elif (owner := owners.get(storage_key(value))) is not None:
                result.plan.append(_view(value, inputs[owner], SameInput(owner), result))
            else:
                result.plan.append(_new(value, holders[storage_key(value)], made, result))
        except Fallback as fallback:
            fallback.line = fallback.line or lines[position]
            raise
    return result


def _scalar(value: Any, result: Outputs) -> Output:
    if isinstance(value, SYMBOLIC):
        return result.fresh(value)
    return Constant(value)


def _new(
    value: torch.Tensor,
    sharing: list[torch.Tensor],
    made: dict[int, Made],
    result: Outputs,
) -> Output:
    """Plan an output in memory that the graph made: a new value, or a view of an earlier one."""
    distinct = {id(other) for other in sharing}
    if len(distinct) == 1 and dense(value):
        return result.fresh(value)
    first = made.get(storage_key(value))
    base = value if first is None else first.value
    if not all(_covers(base, other) for other in sharing):
        if len(distinct) == 1:
            return result.fresh(value)
        raise Fallback("outputs share memory that is larger than any value of the graph")
    if value is base:
        return result.fresh(value)
    return _view(value, base, result.fresh(base), result)


def _covers(base: torch.Tensor, view: torch.Tensor) -> bool:
    """Return whether all memory of a view is memory of a base whose elements lie apart."""
    if base is view:
        return True
    if base.dtype != view.dtype or not elements_apart(base):
        return False
    if any(isinstance(size, torch.SymInt) for t in (base, view) for size in t.shape):
        return bool(base.storage_offset() == 0)  # as all new tensors do
    start = view.storage_offset() - base.storage_offset()
    return start >= 0 and start + extent(view) <= extent(base)


def _view(value: torch.Tensor, base: torch.Tensor, of: SameInput | Fresh, result: Outputs) -> View:
    if value.dtype != base.dtype or value.is_conj() != base.is_conj():
        raise Fallback("an output views an input's memory as another type")
    if value.is_neg() != base.is_neg():
        raise Fallback("an output is a lazy negation of an input's memory")
    if value.requires_grad and not base.requires_grad:
        raise Fallback("a view carries gradients that what it views does not")
    if value.requires_grad and value is not base and not value._is_view():
        raise Fallback("a detached tensor carries gradients that were written to it")
    if torch.is_grad_enabled() and value.requires_grad and not _views_pass_gradients(value, base):
        raise Fallback("the gradient of a view takes another way than through views")
    if torch.is_grad_enabled() and value.requires_grad and not elements_apart(base):
        # that of `as_strided` is shared out among the elements in one place
        raise Fallback("a view carries gradients to a tensor whose elements share memory")
    return View(
        of,
        tuple(result.dim(size) for size in value.shape),
        tuple(result.dim(stride) for stride in value.stride()),
        result.dim(value.storage_offset() - base.storage_offset()),
        detached=base.requires_grad and not value.requires_grad,
        is_view=value._is_view(),
    )


def _views_pass_gradients(value: torch.Tensor, base: torch.Tensor) -> bool:
    """Return whether a view's gradient reaches what it views through torch's own views alone.

    A view made again by `as_strided` has the gradient of a view. That of an autograd.Function has
    the one that its class defines, and a view that was detached first has its own, or none,
    whatever was written to it since.
    """
    if value is base:
        return True
    if _viewed(value) is not _viewed(base):
        return False
    try:
        node = value.grad_fn
    except RuntimeError:  # one of several views made at once, of memory that was written to since
        return False
    while node is not None:
        if node is base.grad_fn or getattr(node, "variable", None) is base:
            return True
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return False
        before = [before for before, _ in node.next_functions if before is not None]
        node = before[0] if len(before) == 1 else None
    return False


def _viewed(value: torch.Tensor) -> torch.Tensor:
    """Return the tensor that a value is a view of, as autograd sees it; itself if it is none."""
    return value if value._base is None else value._base


def _position_of(value: Any, among: Iterable[Any]) -> int | None:
    return next((i for i, other in enumerate(among) if other is value), None)


def check_inputs(
    inputs: Sequence[Any], before: Sequence[Any], written: Mapping[int, str]
) -> tuple[int, ...]:
    """Return which inputs were written to.

    Args:
        inputs: inputs of the run, after it.
        before: layout of each input before the run.
        written: storages that some op wrote to -> the user's line of the first.

    Raises:
        Fallback: an input's shape changed, or one written to shares its memory with another.
    """
    mutated: list[int] = []
    storages: dict[int, int] = {}
    for i, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor):
            continue
        key = storage_key(value)
        if _layout_keys(layout_of(value)) != _layout_keys(before[i]):
            why = "the shape, strides or storage of an input are changed in place"
            raise Fallback(why, written.get(key, ""))
        if key in storages and key in written:
            why = "two inputs share memory and one of them is written to"
            raise Fallback(why, written[key])
        storages[key] = i
        if key in written:
            mutated.append(i)
    return tuple(mutated)


def layout_of(value: Any) -> Any:
    """Return the properties of an input that must not change: memory, dtype, shape and stride."""
    if not isinstance(value, torch.Tensor):
        return None
    return storage_key(value), value.dtype, (*value.shape, *value.stride())


def _layout_keys(layout: Any) -> Any:
    # Evaluated here, because a symbol may have become a constant since the layout was read.
    return (*layout[:2], *map(dim_key, layout[2]))
