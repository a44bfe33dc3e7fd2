"""Chooses which dimensions of an input get symbols, in the form that torch's fake tensors take."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tc.compiler.capture.dynamism import Mark, marks_of
from tc.compiler.core.sources import AttrSource, Source

Dynamic = frozenset[int] | Literal["all", "none"]
#: dynamic dimensions of a tensor at a source
Sizes = Callable[[Source, torch.Tensor], frozenset[int]]


def plain_context(
    tensor: torch.Tensor,
    dynamic: Dynamic,
    duck: bool,
    demands: Mapping[int, Mark],
    strides: Collection[int] = (),
) -> Any:
    """Return torch's symbolic context of a plain tensor; the base of a view gets no symbols.

    Strides follow the sizes, where any is dynamic; `strides` are dynamic where none is.
    """
    from torch.fx.experimental.symbolic_shapes import (
        DimDynamic,
        StatelessSymbolicContext,
    )

    symbol = DimDynamic.DUCK if duck else DimDynamic.DYNAMIC
    chosen = _chosen(tensor, dynamic)
    sizes = [symbol if i in chosen else DimDynamic.STATIC for i in range(tensor.dim())]
    for dim, mark in demands.items():  # each gets its own symbol
        unbacked = mark.kind == "unbacked" and mark.low is mark.high is None
        sizes[dim] = DimDynamic.UNBACKED if unbacked else DimDynamic.DYNAMIC
    base = tensor._base if tensor._is_view() else None
    free = () if chosen else strides
    inferred = [DimDynamic.INFER_STRIDE] * tensor.dim()
    return StatelessSymbolicContext(
        dynamic_sizes=sizes,
        dynamic_strides=[
            DimDynamic.DUCK if i in free else s for i, s in enumerate(inferred)
        ],
        constraint_sizes=[_constraint(demands.get(i)) for i in range(tensor.dim())],
        view_base_context=None
        if base is None
        else plain_context(base, "none", duck, {}),
    )


def wrapper_context(
    tensor: Any,
    source: Source,
    dynamic: Dynamic,
    sizes: Sizes,
    to_torch: Callable[[Source], Any],
) -> tuple[Any, bool]:
    """Return torch's symbolic context of a wrapper subclass and of the tensors that it wraps.

    Args:
        tensor: the live wrapper.
        source: where it comes from.
        dynamic: dynamic dimensions of the wrapper, and of wrapped tensors of its shape.
        sizes: returns the dynamic dimensions of each wrapped tensor.
        to_torch: converts a source to one of torch's.

    Returns:
        The symbolic context, and whether it has any symbol.
    """
    from torch.fx.experimental.symbolic_shapes import (
        DimDynamic,
        SubclassSymbolicContext,
    )

    ragged = getattr(tensor, "_ragged_idx", None)
    chosen = {*_chosen(tensor, dynamic), *([] if ragged is None else [ragged])}
    symbolic = bool(chosen)
    inner: dict[str, Any] = {}
    for name in tensor.__tensor_flatten__()[0]:
        part, where = getattr(tensor, name), AttrSource(source, name)
        dims = frozenset(_chosen(part, sizes(where, part)))
        if part.shape == tensor.shape:
            dims |= chosen
        # set by torch
        own = frozenset(getattr(part, "_dynamo_dynamic_indices", ()))
        own |= {dim for dim, mark in marks_of(part).items() if mark.kind == "dynamic"}
        inner[name], below = _part_context(part, where, dims, sizes, to_torch, own)
        symbolic |= below
    kinds = [
        DimDynamic.DUCK if i in chosen else DimDynamic.STATIC
        for i in range(tensor.dim())
    ]
    base_context = None
    if tensor._is_view():
        base: Any = tensor._base
        dims = frozenset(range(base.dim())) if symbolic else frozenset()
        where = AttrSource(source, "_base")
        base_context, _ = _part_context(base, where, dims, sizes, to_torch)
    context = SubclassSymbolicContext(
        dynamic_sizes=kinds,
        constraint_sizes=[None] * tensor.dim(),
        view_base_context=base_context,
        inner_contexts=inner,
        tensor_source=to_torch(source),
    )
    return context, symbolic


def _part_context(
    part: torch.Tensor,
    source: Source,
    dims: frozenset[int],
    sizes: Sizes,
    to_torch: Callable[[Source], Any],
    own: frozenset[int] = frozenset(),
) -> tuple[Any, bool]:
    """Return the context of what a wrapper wraps or views, and whether it has any symbol.

    Args:
        own: dynamic dimensions of a plain tensor by its own marks.
    """
    if is_traceable_wrapper_subclass(part):
        return wrapper_context(part, source, dims, sizes, to_torch)
    dims |= own
    return plain_context(part, dims, duck=not own, demands={}), bool(dims)


def _chosen(tensor: torch.Tensor, dynamic: Dynamic) -> Collection[int]:
    if isinstance(dynamic, str):
        return range(tensor.dim()) if dynamic == "all" else ()
    return dynamic


def _constraint(mark: Mark | None) -> Any:
    """Return the user's mark as a constraint of torch's shape environment."""
    from torch.fx.experimental import symbolic_shapes
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    if mark is None or mark.kind == "maybe":
        return None
    if mark.low is None and mark.high is None:
        return symbolic_shapes.RelaxedUnspecConstraint(warn_only=False)
    bounds = ValueRanges(
        lower=0 if mark.low is None else mark.low,
        upper=int_oo if mark.high is None else mark.high,
    )
    return symbolic_shapes.StrictMinMaxConstraint(vr=bounds, warn_only=False)
