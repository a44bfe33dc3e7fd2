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

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any, cast

import torch
from torch._prims_common import infer_size, make_contiguous_strides_for, suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (
    free_unbacked_symbols,
    statically_known_true,
)
from torch.utils import _pytree as pytree

from tc.compiler.core import iteration_order, refusals
from tc.compiler.core.fake_results import RememberingMode
from tc.compiler.core.frozen_graph import OWN_NAMESPACES
from tc.compiler.core.memory import storage_id
from tc.compiler.core.symbolic import scalars_allowed

aten = torch.ops.aten
Call = Callable[..., Any]


class EagerLayouts(RememberingMode):  # type: ignore[no-untyped-call]
    """A fake mode with the layouts of `LAYOUTS`, and writes in place that keep the shape."""

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
            cached, self.cache_enabled = self.cache_enabled, self.cache_enabled and not _is_made(op)
            try:
                return super(EagerLayouts, self).dispatch(op, types, given, named)
            finally:
                self.cache_enabled = cached

        def run() -> Any:
            if asking:
                refusals.check_before(func, args, kwargs)
            result = self._run(call, func, args, kwargs)
            if asking:
                refusals.check(func, args, kwargs, result)
            return result

        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            # a wrapper has shapes of its own (ragged ones), and runs ops on the tensors it holds
            return super().dispatch(func, types, args, kwargs)
        self._note_effects(func, args, kwargs)
        asking, self._asks_eager = self._asks_eager, False  # ops inside of this one are torch's
        try:
            return self.remembered(run, func, args, kwargs, asking)
        finally:
            self._asks_eager = asking

    def _note_effects(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        once, positions, names = _effects(func)
        self.runs_once |= once
        if not positions or (func in UNDECLARED_WRITES and not args[TRAINING]):
            return
        written = [args[at] for at in positions if at < len(args)]
        written += [kwargs[name] for name in names if name in kwargs]
        for tensor in pytree.tree_leaves(written):
            if isinstance(tensor, torch.Tensor):
                try:
                    self.written.add(storage_id(tensor))
                except NotImplementedError:  # a sparse one
                    self.runs_once = True

    def _run(self, call: Call, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if func in VIEWS:
            return _viewed(call, args[0], args[1], op=func)
        if func in PLACED:
            made = call(func, *args, **kwargs)
            return _placed(call, args[0], made, *PLACED[func](args[0], made))
        if func is aten.select.int and isinstance(args[2], torch.SymInt):
            with scalars_allowed(self.shape_env):  # where the view begins is one if its number is
                return call(func, *args, **kwargs)
        written = args[0] if _keeps_shape(func) else None
        shape = written.shape if written is not None else None
        result = call(func, *args, **kwargs)
        if written is not None and written.shape != shape:
            raise RuntimeError(f"{func} cannot write {written.shape} to a tensor of {shape}")
        row = LAYOUTS.get(func)
        if row is None and not _is_elementwise(func):
            return result

        first = result[0] if isinstance(result, tuple) else result
        if not isinstance(first, torch.Tensor) or first.layout is not torch.strided:
            return result
        if row is not None and kwargs.get("memory_format") in (None, torch.preserve_format):
            first = row(call, first, args)
            if func in ALIKE:
                return tuple(row(call, each, args) for each in result)
        elif row is None:
            operands = iteration_order.operands_of(func, args, kwargs)
            if iteration_order.may_be_narrow(first) or iteration_order.are_unlike(operands):
                kept = int(func is aten.where.self)
                steps = iteration_order.strides(call, first, operands, of_own_type=kept)
                first = _with_strides(call, first, steps)
        return (first, *result[1:]) if isinstance(result, tuple) else first


#: arguments that ops write to in training and whose declaration says nothing of it: the running
#: statistics
UNDECLARED_WRITES = {
    aten.native_batch_norm.default: (3, 4),
    aten.cudnn_batch_norm.default: (3, 4),
    aten.miopen_batch_norm.default: (3, 4),
}
TRAINING = 5  # the position of the argument that says so


def _is_logged(record: logging.LogRecord) -> bool:
    """Return whether a record of PyTorch's fake tensors is about no tensor of `EagerLayouts`.

    PyTorch logs what a shape function raises, with a traceback. Of a capture that is a graph break,
    or what the program expects, and is said where it is handled.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not EagerLayouts.dispatch.__code__:
        frame = frame.f_back
    return frame is None


logging.getLogger(FakeTensorMode.__module__).addFilter(_is_logged)


@cache
def _effects(func: Any) -> tuple[bool, tuple[int, ...], tuple[str, ...]]:
    """Return whether an op may not run twice, and positions and names of what it writes to."""
    own = isinstance(func, torch._ops.OpOverload) and func.namespace in OWN_NAMESPACES
    if not own:
        return True, (), ()
    written = [
        (at, one.name)
        for at, one in enumerate(func._schema.arguments)
        if one.alias_info is not None and one.alias_info.is_write
    ]
    positions = (*(at for at, _ in written), *UNDECLARED_WRITES.get(func, ()))
    names = tuple(name for _, name in written)
    return torch.Tag.nondeterministic_seeded in func.tags, positions, names


@cache
def _is_made(op: Any) -> bool:
    """Return whether an op comes whole that is made of others, as all do in inference mode.

    PyTorch's memory of calls has its result: of a second one the ops inside are not seen.
    """
    if not isinstance(op, torch._ops.OpOverload):
        return False
    try:
        return op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
    except RuntimeError:  # the dispatcher has no such op
        return False


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


@cache
def _is_elementwise(func: Any) -> bool:
    """Return whether an op gives a new tensor, laid out as the iteration over its operands."""
    if not isinstance(func, torch._ops.OpOverload) or torch.Tag.pointwise not in func.tags:
        return func in ELEMENTWISE
    return func not in COMPOSED and not any(
        a.alias_info and a.alias_info.is_write for a in func._schema.arguments
    )


#: ops that give the elements of a tensor another shape where they are
VIEWS = frozenset([aten.view.default, aten._unsafe_view.default])


def _viewed(
    call: Call, tensor: torch.Tensor, shape: Sequence[Any], op: Any = aten.view.default
) -> torch.Tensor:
    """View a tensor in another shape, which symbols may be part of; raises as eager does."""
    if _is_of_no_elements_and_the_same(tensor, shape):
        made = call(aten.alias.default, tensor)  # other shapes get new strides
    elif _is_narrow(tensor, shape):
        made = _view_of_narrow(call, tensor, shape)
    elif _is_symbolic_and_contiguous(tensor, shape):
        made = _view_of_contiguous(call, tensor, shape)
    else:
        made = call(op, tensor, shape)
        narrow = not {0, 1}.isdisjoint(map(_expression, tensor.shape))
        strides = _view_strides(tensor, made.shape) if narrow else None
        if strides is not None:
            made = _placed(call, tensor, made, strides, tensor.storage_offset())
    return cast(torch.Tensor, made)


def _view_strides(tensor: torch.Tensor, shape: Sequence[Any]) -> list[Any] | None:
    """Return the strides of a view in another shape, by the rule of torch's kernels.

    The rule joins dimensions that follow each other in memory, from the last one, and divides each
    such run into dimensions of the view. Where symbols do not decide a step, None is returned.
    """
    if 0 in map(_expression, shape):
        return list(make_contiguous_strides_for(tuple(shape)))
    strides: list[Any] = [1] * len(shape)
    old, steps, at = tensor.shape, tensor.stride(), len(shape) - 1
    base, run, taken = steps[-1], 1, 1
    for dim in reversed(range(len(old))):
        run = run * old[dim]
        follows = dim > 0 and (
            _expression(old[dim - 1]) == 1 or statically_known_true(steps[dim - 1] == run * base)
        )
        if follows:
            continue
        while at >= 0 and (_expression(shape[at]) == 1 or not statically_known_true(taken == run)):
            strides[at] = taken * base
            taken, at = taken * shape[at], at - 1
        if not statically_known_true(taken == run):
            return None
        base, run, taken = steps[dim - 1], 1, 1
    return strides if at < 0 else None


def _placed(
    call: Call, tensor: torch.Tensor, made: torch.Tensor, strides: Sequence[Any], offset: Any
) -> torch.Tensor:
    """Return a view of a tensor with other strides and another offset; itself if it has them."""
    known = [*map(_expression, (*made.stride(), made.storage_offset()))]
    if known == [*map(_expression, (*strides, offset))]:
        return made
    placed: torch.Tensor = call(aten.as_strided.default, tensor, made.shape, strides, offset)
    return placed


def _expanded(tensor: torch.Tensor, made: torch.Tensor) -> tuple[list[Any], Any]:
    """Added dimensions of size 1 have the stride that they would have in a new tensor."""
    if tensor.dim() == 0:
        return [0] * made.dim(), made.storage_offset()
    strides, added = list(made.stride()), made.dim() - tensor.dim()
    for at in reversed(range(added)):
        if _expression(made.shape[at]) == 1:
            strides[at] = made.shape[at + 1] * strides[at + 1] if at + 1 < made.dim() else 1
    return strides, made.storage_offset()


def _on_diagonal(tensor: torch.Tensor, made: torch.Tensor) -> tuple[list[Any], Any]:
    """A diagonal beyond the matrix begins where the matrix does."""
    size = made.shape[-1]
    empty = not free_unbacked_symbols(size) and size == 0
    return list(made.stride()), tensor.storage_offset() if empty else made.storage_offset()


Place = Callable[[torch.Tensor, torch.Tensor], tuple[list[Any], Any]]
#: op that gives a view -> its strides and offset in eager, from the tensor and what torch's shape
#: function gives
PLACED: dict[Any, Place] = {
    aten.expand.default: _expanded,
    aten.diagonal.default: _on_diagonal,
}


def _is_of_no_elements_and_the_same(tensor: torch.Tensor, shape: Sequence[Any]) -> bool:
    """Return whether a view has the shape of a tensor that evidently has no elements."""
    if not any(type(size) is int and size == 0 for size in tensor.shape):
        return False
    if free_unbacked_symbols([*tensor.shape, *shape]):
        return False
    return [*map(_expression, infer_size(tuple(shape), 0))] == [*map(_expression, tensor.shape)]


def _is_narrow(tensor: torch.Tensor, shape: Sequence[Any]) -> bool:
    """Return whether sizes are numbers, and one is 0, or one 1 in strides that are no new tensor's.

    torch's shape function gives views of such tensors other strides than eager.
    """
    if any(type(number) is not int for number in (*tensor.shape, *tensor.stride(), *shape)):
        return False
    least = min(tensor.shape, default=2)
    return least == 0 or (
        least == 1 and tensor.stride() != make_contiguous_strides_for(tensor.shape)
    )


def _view_of_narrow(call: Call, tensor: torch.Tensor, shape: Sequence[Any]) -> torch.Tensor:
    """View a tensor as eager does, which a tensor without memory shows; raises as eager does."""
    like = refusals.view_without_memory(tensor.shape, tensor.stride(), shape)
    offset = tensor.storage_offset()
    made: torch.Tensor = call(aten.as_strided.default, tensor, like.shape, like.stride(), offset)
    return made


def _is_symbolic_and_contiguous(tensor: torch.Tensor, shape: Sequence[Any]) -> bool:
    """Return whether sizes are symbols with known values, and strides are those of a new tensor.

    Strides are compared as expressions: no guard is added, and "no" may mean "not evident".
    """
    symbolic = [size for size in tensor.shape if isinstance(size, torch.SymInt)]
    if not symbolic or free_unbacked_symbols([*symbolic, *shape]):
        return False
    return _is_evidently_contiguous(tensor)


def _is_evidently_contiguous(tensor: torch.Tensor) -> bool:
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
    return _contiguous(call, result, args, suggest_memory_format(args[0]))


#: number of dimensions -> the layout with the channels last
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def _batch_normed(call: Call, result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """On a CPU contiguous is asked for first: a tensor of one channel may be channels last, too.

    Then channels last is, whatever the steps along dimensions of size 1.
    """
    if result.device.type == "cpu" and iteration_order.may_be_narrow(args[0]):
        last = CHANNELS_LAST.get(args[0].dim(), torch.contiguous_format)
        for form in (torch.contiguous_format, last):
            if args[0].is_contiguous(memory_format=form):
                return _contiguous(call, result, args, form)
    return _as_first(call, result, args)


def _as_input(call: Call, result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """A gradient: as the input of the op, its second argument, in one of the named layouts."""
    return _as_first(call, result, args[1:])


def _contiguous(
    call: Call,
    result: torch.Tensor,
    args: Sequence[Any],
    form: torch.memory_format = torch.contiguous_format,
) -> torch.Tensor:
    options = {"dtype": result.dtype, "device": result.device, "memory_format": form}
    made: torch.Tensor = call(aten.empty.memory_format, list(result.shape), **options)
    return made


def _rolled(call: Call, result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """Pieces put together, as in concatenation; the flat form is contiguous.

    So is a concatenation with a piece of no elements, where the shift is a multiple of the size.
    """
    if 0 in result.shape:
        return _like(call, result, args)
    along = args[2] if len(args) > 2 else ()
    if not along or not result.dim():
        return result
    if suggest_memory_format(args[0]) is torch.contiguous_format or any(
        shift % result.shape[dim] == 0 for shift, dim in zip(args[1], along, strict=True)
    ):  # in this order: the second question adds a guard to sizes that are symbols
        return _contiguous(call, result, args)
    return _as_first(call, result, args)


def _like(call: Call, result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """As a dense copy of the first argument; transforms of functions pass numbers for tensors."""
    source = args[0]
    if not isinstance(source, torch.Tensor) or source.layout is not torch.strided:
        return result
    if not iteration_order.may_be_narrow(result):
        return result
    return _with_strides(call, result, iteration_order.copied_strides(source))


def _unreduced(call: Call, result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """A loss: as a dense copy of the first argument, unless it is the sum or mean of one."""
    if result.dim() != args[0].dim():
        return result
    return _with_strides(call, result, iteration_order.copied_strides(args[0]))


def _contiguous_where_empty(call: Call, result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """A reduction: torch's shape functions drop a dimension's stride where another has size 0."""
    return _contiguous(call, result, args) if 0 in result.shape else result


def _contiguous_of_complex(call: Call, result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """An op whose kernel for complex numbers makes its own result."""
    return _contiguous(call, result, args) if args[0].is_complex() else result


def _elementwise(call: Call, result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """As the iteration over the first two arguments."""
    return _with_strides(call, result, iteration_order.strides(call, result, args[:2]))


def _scaled(call: Call, result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """A product of the first argument and powers with the second as exponent: these are dense."""
    powers = call(aten.empty.memory_format, list(args[1].shape), device=result.device)
    return _elementwise(call, result, (args[0], powers))


def _indexed(call: Call, result: torch.Tensor, args: Sequence[Any]) -> torch.Tensor:
    """As the iteration over the tensor, still in its indexed dimensions, and over its indices.

    Masks are left to torch: how many elements they choose is not known here.
    """
    tensor, indices = args
    given = [index for index in indices if index is not None]
    if any(index.dtype in (torch.bool, torch.uint8) for index in given):
        return result
    if free_unbacked_symbols([n for t in (result, *given) for n in (*t.shape, *t.stride())]):
        return result
    if not iteration_order.may_be_narrow(result) and all(map(_is_evidently_contiguous, given)):
        return result
    indexed = [dim for dim, index in enumerate(indices) if index is not None]
    others = [dim for dim in range(tensor.dim()) if dim not in indexed]
    together = indexed[-1] - indexed[0] + 1 == len(indexed)
    before = indexed[0] if together else 0  # apart, dimensions of the indices come first
    shapes = [index.shape for index in given]
    inner = list(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]
    steps = [tensor.stride(dim) for dim in others]
    steps = [*steps[:before], *[0] * len(inner), *steps[before:]]
    operands = [call(aten.as_strided.default, tensor, [*result.shape], steps)]
    sizes = [*[1] * before, *inner, *[1] * (len(others) - before)]
    operands += [_viewed(call, call(aten.expand.default, index, inner), sizes) for index in given]
    return _with_strides(call, result, iteration_order.strides_over(result.shape, operands))


def _with_strides(call: Call, result: torch.Tensor, strides: Sequence[Any]) -> torch.Tensor:
    """Return a new tensor of the shape and dtype of a result, or the result if it lies so."""
    if [*map(_expression, strides)] == [*map(_expression, result.stride())]:
        return result
    options = {"dtype": result.dtype, "device": result.device}
    made: torch.Tensor = call(
        aten.empty_strided.default, list(result.shape), list(strides), **options
    )
    return made


#: op -> how eager lays its (first) result out
LAYOUTS: dict[Any, Callable[[Call, torch.Tensor, Sequence[Any]], torch.Tensor]] = {
    aten.roll.default: _rolled,
    aten.native_channel_shuffle.default: _as_first,
    aten.channel_shuffle.default: _as_first,
    aten.max_unpool2d.default: _as_first,
    aten.native_batch_norm.default: _batch_normed,
    aten._native_batch_norm_legit.default: _batch_normed,
    aten._native_batch_norm_legit.no_stats: _batch_normed,
    aten._native_batch_norm_legit_functional.default: _batch_normed,
    aten.native_group_norm.default: _as_first,
    aten.native_batch_norm_backward.default: _as_input,
    aten.native_group_norm_backward.default: _as_input,
    aten.native_layer_norm.default: _contiguous,
    aten.native_layer_norm_backward.default: _contiguous,
    aten._batch_norm_with_update.default: _batch_normed,
    aten.floor_divide.default: _elementwise,
    aten.div.Tensor_mode: _elementwise,
    aten.copysign.Tensor: _elementwise,
    aten.ldexp.Tensor: _scaled,
    aten.nll_loss2d_forward.default: _contiguous,
    aten.reflection_pad3d.default: _as_first,
    aten.replication_pad3d.default: _as_first,
    aten.masked_fill.Scalar: _contiguous,
    aten.masked_fill.Tensor: _contiguous,
    aten.angle.default: _contiguous_of_complex,
    aten.diag_embed.default: _contiguous,
    aten.index.Tensor: _indexed,
    aten.im2col.default: _contiguous,
    aten.grid_sampler_2d.default: _contiguous,
    aten.pow.Scalar: _contiguous,
    aten.isin.Tensor_Tensor: _contiguous,
    aten.isin.Tensor_Scalar: _contiguous,
    aten.log_sigmoid_forward.default: _contiguous,
    aten.rrelu_with_noise.default: _contiguous,
    aten.rrelu_with_noise_functional.default: _contiguous,
    aten.binary_cross_entropy.default: _unreduced,
    aten.normal.Tensor_Tensor: _contiguous,
    aten.normal.float_Tensor: _contiguous,
    aten.tril.default: _contiguous,
    aten.triu.default: _contiguous,
    aten.aminmax.default: _contiguous_where_empty,
    aten.var_mean.correction: _contiguous_where_empty,
    **dict.fromkeys(
        [
            *(aten.upsample_nearest2d.default, aten._upsample_nearest_exact2d.default),
            *(aten.upsample_bilinear2d.default, aten._upsample_bilinear2d_aa.default),
            *(aten.upsample_bicubic2d.default, aten._upsample_bicubic2d_aa.default),
            *(aten.upsample_nearest3d.default, aten._upsample_nearest_exact3d.default),
            *(aten.upsample_trilinear3d.default, aten._adaptive_avg_pool2d.default),
        ],
        _as_first,
    ),
    **dict.fromkeys(
        [
            *(aten.hardtanh.default, aten.relu6.default, aten.nan_to_num.default),
            *(aten.deg2rad.default, aten.rad2deg.default, aten.flip.default, aten.frexp.Tensor),
            *(aten.clone.default, aten._to_copy.default, aten.sort.default, aten.sort.stable),
            aten._prelu_kernel.default,
            *(aten.empty_like.default, aten.full_like.default, aten.ones_like.default),
            *(aten.zeros_like.default, aten.rand_like.default, aten.randn_like.default),
            *(aten.randint_like.default, aten.randint_like.low_dtype, aten.bernoulli.default),
        ],
        _like,
    ),
}

#: ops of several results that are all laid out by the row
ALIKE = frozenset(
    [
        *(aten.frexp.Tensor, aten.aminmax.default, aten.var_mean.correction),
        *(aten.sort.default, aten.sort.stable),
    ]
)

#: ops that torch tags as elementwise, and that return their input or are made of others
COMPOSED = frozenset(
    [
        *(aten.positive.default, aten.conj_physical.default, aten._conj_physical.default),
        *(aten.mvlgamma.default, aten.float_power.Scalar, aten.float_power.Tensor_Scalar),
        aten.float_power.Tensor_Tensor,
    ]
)

#: ops of the kind of elementwise ones which torch does not tag so
ELEMENTWISE = frozenset(
    [
        *(aten.complex.default, aten.polar.default),
        *(aten.hardswish.default, aten.glu.default),
    ]
)


def fake_mode_of(examples: Sequence[Any]) -> FakeTensorMode:
    """Return the mode of the example inputs; a new one if no tensor is among them."""
    for value in examples:
        if isinstance(value, FakeTensor):
            return value.fake_mode
    return EagerLayouts()
