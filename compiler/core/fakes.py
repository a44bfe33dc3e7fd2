"""Fake tensors laid out as eager's results are, where torch's shape functions say otherwise.

Shape functions of some ops (torch 2.13) give results other strides than the kernels do. Programs
see strides, and so the compiled ones would differ. `tests/compiler/test_fakes.py` compares them
over inputs in many layouts; a row here corrects an op.

Views of contiguous tensors with symbolic sizes have a shape function of their own. torch's splits
and merges dimensions one after another, with a division of expressions and a guard at each; of
nested sizes (windows of windows of an image) sympy simplifies such quotients for minutes. Of a
contiguous tensor the strides follow from the shape, and equal counts of elements are all there is
to guard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch._prims_common import infer_size, make_contiguous_strides_for, suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from tc.compiler.core import refusals

aten = torch.ops.aten
Call = Callable[..., Any]


class EagerLayouts(FakeTensorMode):  # type: ignore[no-untyped-call]
    """torch's fake mode, with the layouts of `LAYOUTS`, and writes in place that keep the shape."""

    _asks_eager = False

    @contextmanager
    def asking_eager(self) -> Iterator[None]:
        """Let calls that eager refuses raise RuntimeError, inside a ``with`` block."""
        before, self._asks_eager = self._asks_eager, True
        try:
            yield
        finally:
            self._asks_eager = before

    def dispatch(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] = {},
    ) -> Any:
        """Run an op on fake tensors.

        Raises:
            RuntimeError: eager refuses the call, and shape functions do not. Those of some writes
                in place resize what is written to, where operands are larger; for other calls see
                `asking_eager`.
        """

        def call(op: Any, *given: Any, **named: Any) -> Any:
            return super(EagerLayouts, self).dispatch(op, types, given, named)

        asking, self._asks_eager = self._asks_eager, False  # ops inside of this one are torch's
        try:
            result = self._run(call, func, args, kwargs)
            if asking:
                refusals.check(func, args, kwargs, result)
            return result
        finally:
            self._asks_eager = asking

    def _run(self, call: Call, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if func in VIEWS and _is_symbolic_and_contiguous(*args):
            return _view_of_contiguous(call, *args)
        written = args[0] if _keeps_shape(func) else None
        shape = written.shape if written is not None else None
        result = call(func, *args, **kwargs)
        if written is not None and written.shape != shape:
            raise RuntimeError(f"{func} cannot write {written.shape} to a tensor of {shape}")
        row = LAYOUTS.get(func)
        if row is None:
            return result

        first = result[0] if isinstance(result, tuple) else result
        if not isinstance(first, torch.Tensor) or first.layout is not torch.strided:
            return result
        laid_out = row(call, first, args)
        return (laid_out, *result[1:]) if isinstance(result, tuple) else laid_out


@cache
def _keeps_shape(func: Any) -> bool:
    """Return whether an op writes to its first argument, a tensor, and keeps its shape."""
    # The schema says it: a tag for ops that write in place came with torch 2.13.
    if not isinstance(func, torch._ops.OpOverload) or torch.Tag.inplace_view in func.tags:
        return False
    first = next(iter(func._schema.arguments), None)
    if first is None or first.kwarg_only or str(first.type) != "Tensor":
        return False
    return first.alias_info is not None and first.alias_info.is_write


#: ops that give the elements of a tensor another shape where they are
VIEWS = frozenset([aten.view.default, aten._unsafe_view.default])


def _is_symbolic_and_contiguous(tensor: torch.Tensor, shape: Sequence[Any]) -> bool:
    """Return whether sizes are symbols with known values, and strides are those of a new tensor.

    Strides are compared as expressions: no guard is added, and "no" may mean "not evident".
    """
    symbolic = [size for size in tensor.shape if isinstance(size, torch.SymInt)]
    if not symbolic or free_unbacked_symbols([*symbolic, *shape]):
        return False
    wanted = make_contiguous_strides_for(tensor.shape)
    return [*map(_expression, wanted)] == [*map(_expression, tensor.stride())]


def _expression(size: int | torch.SymInt) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _view_of_contiguous(call: Call, tensor: torch.Tensor, shape: Sequence[Any]) -> torch.Tensor:
    """View a contiguous tensor; raises RuntimeError if the shape has another number of elements."""
    sizes = infer_size(tuple(shape), tensor.numel())
    strides = make_contiguous_strides_for(sizes)
    offset = tensor.storage_offset()
    made: torch.Tensor = call(aten.as_strided.default, tensor, [*sizes], [*strides], offset)
    return made


def _as_first(call: Call, result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """Contiguous, or channels last where the first argument is."""
    form = suggest_memory_format(args[0])
    options = {"dtype": result.dtype, "device": result.device, "memory_format": form}
    made: torch.Tensor = call(aten.empty.memory_format, list(result.shape), **options)
    return made


def _as_input(call: Call, result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """A gradient: as the input of the op, its second argument, in one of the named layouts."""
    return _as_first(call, result, args[1:])


def _contiguous(call: Call, result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    options = {"dtype": result.dtype, "device": result.device}
    made: torch.Tensor = call(aten.empty.memory_format, list(result.shape), **options)
    return made


def _rolled(call: Call, result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """Pieces put together, as in concatenation; the flat form is contiguous."""
    along = args[2] if len(args) > 2 else ()
    return _as_first(call, result, args) if along and result.dim() else result


def _elementwise(call: Call, result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """As the product of the same operands."""
    other = args[1]
    if not isinstance(other, torch.Tensor):
        return result
    like = call(aten.mul.Tensor, args[0], other)
    options = {"dtype": result.dtype, "device": result.device}
    made: torch.Tensor = call(
        aten.empty_strided.default, list(result.shape), list(like.stride()), **options
    )
    return made


#: op -> how eager lays its (first) result out
LAYOUTS: dict[Any, Callable[[Call, torch.Tensor, Sequence[Any]], torch.Tensor]] = {
    aten.roll.default: _rolled,
    aten.native_channel_shuffle.default: _as_first,
    aten.channel_shuffle.default: _as_first,
    aten.max_unpool2d.default: _as_first,
    aten.native_batch_norm.default: _as_first,
    aten._native_batch_norm_legit.default: _as_first,
    aten._native_batch_norm_legit.no_stats: _as_first,
    aten._native_batch_norm_legit_functional.default: _as_first,
    aten.native_batch_norm_backward.default: _as_input,
    aten.native_group_norm_backward.default: _as_input,
    aten.native_layer_norm_backward.default: _contiguous,
    aten._batch_norm_with_update.default: _as_first,
    aten.floor_divide.default: _elementwise,
    aten.div.Tensor_mode: _elementwise,
    aten.copysign.Tensor: _elementwise,
}


def fake_mode_of(examples: Sequence[Any]) -> FakeTensorMode:
    """Return the mode of the example inputs; a new one if no tensor is among them."""
    for value in examples:
        if isinstance(value, FakeTensor):
            return value.fake_mode
    return EagerLayouts()
