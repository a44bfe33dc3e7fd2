"""Calls that eager refuses although torch's shape functions accept them.

A fake tensor has a shape and a type. What only a kernel checks it does not see: types that the
kernel has no code for, numbers that do not fit into the type, a target of another type. Capture
breaks the graph at such a call, and eager raises its own error.

Eager itself is asked: the call is made with small tensors, two elements a dimension. It counts as
refused if it fails there, and succeeds with ordinary types and numbers in place of the given ones.
If it fails with these too, the sizes may be what it refuses, and the real ones are tried in the
same way, if they are small. A call with integers that may have to agree with sizes is tried with
the real ones only; so is an internal op, which may trust its caller, and has no integers.

A call whose tensors all have no elements is tried as it is: no values are left that could differ,
and what it raises eager raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._pytree import tree_leaves, tree_structure, tree_unflatten

from tc.compiler.core import levels, overlaps
from tc.compiler.core.symbolic import SYMBOLIC, hint

aten = torch.ops.aten
#: larger tensors are not made, and calls with larger integers not tried: these may be sizes
TRIED_ELEMENTS = 2**16
#: prefixes of ops that call libraries, and trust their callers
LIBRARIES = ("mkldnn_", "cudnn_", "miopen_", "fbgemm_", "quantized_", "sparse_", "nested_")
#: names of integer arguments that are no sizes; ``size`` itself is replaced
NO_SIZES = ("dim", "dim0", "dim1", "dtype", "layout", "reduction", "ignore_index", "diagonal")
#: types that kernels have code for, if for any
ORDINARY = frozenset((torch.float32, torch.float64))
#: functions that torch decomposes in Python where a size is a symbol, although their kernels have
#: not code for all types that the decompositions compute with
DECOMPOSED = frozenset((
    *("interpolate", "hardshrink", "softshrink", "multi_margin_loss", "multilabel_margin_loss"),
    *(name.lstrip("_") for name in dir(torch._C._nn) if "upsample_" in name),
))  # fmt: skip
#: types of tensors that select elements where they stand in an index
MASKS = (torch.bool, torch.uint8)
#: types that have not all the numbers that symbols have, and which they have
NARROW: dict[torch.dtype, Any] = {
    **{kind: torch.iinfo(kind) for kind in (torch.uint8, torch.int8, torch.int16, torch.int32)},
    **{kind: torch.finfo(kind) for kind in (torch.float16, torch.bfloat16)},
}

TypeMap = Callable[[torch.dtype], torch.dtype]
Sizes = Callable[[torch.Tensor], tuple[int, ...]]


class StandIn(NamedTuple):
    """A tensor argument of a call that is tried."""

    sizes: tuple[int, ...]
    dtype: torch.dtype
    repeated: bool = False  # whether one element in memory is several of the tensor


class Number(NamedTuple):
    """A ``Scalar`` argument of a call that is tried; its type is a part of its identity."""

    kind: type
    value: Any


class NotTried(Exception):
    """An argument has no stand-in that is small."""


Given = tuple[tuple[str, Any], ...]
Dtypes = tuple[torch.dtype, ...]
Settings = tuple[torch.dtype, bool]


def _hints(numbers: Iterable[Any]) -> tuple[Any, ...]:
    """Return the current values of sizes; None for a size that depends on data."""
    return tuple(map(hint, numbers))


def _check_dim(tensor: torch.Tensor, dim: int, *_: Any) -> None:
    rank = max(tensor.dim(), 1)
    if not -rank <= dim < rank:
        raise IndexError(f"dimension {dim} of a tensor of {tensor.dim()}")


def _check_values(tensor: torch.Tensor, indices: Sequence[Any], values: Any, *_: Any) -> None:
    """Check that values can be expanded to the elements that are written."""
    if any(map(_is_mask, indices)):
        return
    written = aten.index.Tensor(tensor, indices).shape
    if free_unbacked_symbols([*written, *values.shape]):
        return
    pairs = zip(reversed(values.shape), reversed(written), strict=False)
    if values.dim() > len(written) or any(a != 1 and a != b for a, b in pairs):
        raise RuntimeError(f"values of shape {values.shape} for elements of shape {written}")


def _check_slice(tensor: torch.Tensor, source: torch.Tensor, *at: Any) -> None:
    """Check that what is written has the shape of the part that it is written to."""
    written = aten.slice.Tensor(tensor, *at).shape
    pairs = [_hints(pair) for pair in zip(source.shape, written, strict=False)]
    if source.dim() != len(written) or any(a != b for a, b in pairs if None not in (a, b)):
        raise RuntimeError(f"a source of shape {source.shape} for a slice of shape {written}")


def _check_select(tensor: torch.Tensor, _: torch.Tensor, *at: Any) -> None:
    """Check that the position that is written to is one of the tensor's."""
    aten.select.int(tensor, *at)


def _check_view(tensor: torch.Tensor, shape: Sequence[Any], *_: Any) -> None:
    """Check by torch's own rule that memory can be seen in another shape, for the current sizes."""
    sizes, strides, wanted = map(_hints, (tensor.shape, tensor.stride(), shape))
    if None not in (*sizes, *strides, *wanted):
        view_without_memory(sizes, strides, wanted)


def view_without_memory(
    sizes: Sequence[int], strides: Sequence[int], wanted: Sequence[int]
) -> torch.Tensor:
    """View a meta tensor, by torch's own rule; raises RuntimeError as eager does."""
    with levels.eager_itself():
        return torch.empty_strided(sizes, strides, device="meta").view(wanted)


def _check_as_strided(
    tensor: torch.Tensor, shape: Sequence[Any], strides: Sequence[Any], offset: Any = None
) -> None:
    """Check that a storage has all elements of the view, for the current sizes."""
    start = tensor.storage_offset() if offset is None else offset
    sizes, steps = _hints(shape), _hints(strides)
    first, held = _hints((start, tensor.untyped_storage().nbytes()))
    if None in (*sizes, *steps, first, held) or 0 in sizes:
        return
    last = first + sum((size - 1) * step for size, step in zip(sizes, steps, strict=False))
    if (last + 1) * tensor.element_size() > held:
        raise RuntimeError(f"a view of {last + 1} elements of a storage of {held} bytes")


#: shape functions that lack a check of shapes
SHAPES: dict[Any, Callable[..., None]] = {
    aten._softmax.default: _check_dim,
    aten.cummax.default: _check_dim,
    aten.cummin.default: _check_dim,
    aten.slice_scatter.default: _check_slice,
    aten.select_scatter.default: _check_select,
    aten.view.default: _check_view,
    aten.as_strided.default: _check_as_strided,
    aten.index_put.default: _check_values,
    aten.index_put_.default: _check_values,
}


def check_before(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check a call before fake tensors run it, which may resize a storage.

    Raises:
        RuntimeError, IndexError: eager refuses it.
    """
    if func in SHAPES:
        SHAPES[func](*args)
    overlaps.check(func, args, kwargs)


def check(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
    """Check a call that fake tensors have accepted.

    Raises:
        RuntimeError, IndexError: eager refuses it.
    """
    _keep_in_range(func, args, kwargs, result)
    if _has_no_effect(func):
        with suppress(NotTried):
            _ask_eager(func, args, kwargs, result)


def _ask_eager(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
    """Ask eager about a call.

    Raises:
        RuntimeError, IndexError: eager refuses it.
        NotTried: it cannot be asked.
    """
    pairs = _named(func, args, kwargs)
    tensors = [one for _, value in pairs for one in _leaves(value) if isinstance(one, torch.Tensor)]
    if not _is_small(pairs, tensors):
        return
    if tensors and all(map(_is_empty, tensors)):
        raised = _tried(func, _described(func, args, kwargs, _real), _settings())
        if isinstance(raised, str):
            raise RuntimeError(raised)
        return
    if not _can_be_tried(func) or not _needs_trying(func, pairs, tensors, result):
        return
    for sizes in (_few, _real) if _takes_any_sizes(func) else (_real,):
        tried = _refused_or_tried(func, _described(func, args, kwargs, sizes), _settings())
        if isinstance(tried, str):
            raise RuntimeError(tried)
        if tried is not None:
            first, fake = tried[:1], _dtypes(result)[:1]  # the others are for backward
            if first != fake:
                raise RuntimeError(f"eager gives {first}, and the shape function {fake}")
            return


def _keep_in_range(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
    """Guard that symbols among the numbers of a call fit into the types of its tensors.

    Eager refuses most calls with numbers that do not. One that does not now becomes a constant.
    """
    if not isinstance(func, torch._ops.OpOverload):
        return
    given = [value for argument, value in _named(func, args, kwargs) if _is_number(argument)]
    numbers = [value for value in given if isinstance(value, torch.SymInt | torch.SymFloat)]
    if not numbers:
        return
    leaves = (*_leaves(args), *_leaves(kwargs), *_leaves(result))
    kinds = {one.dtype for one in leaves if isinstance(one, torch.Tensor)}
    limits = [NARROW[kind] for kind in kinds & NARROW.keys()]
    for number in numbers if limits else ():
        least, most = max(one.min for one in limits), min(one.max for one in limits)
        if hint(number) is not None and not (number >= least and number <= most):
            number.node.pytype(number)


def _few(tensor: torch.Tensor) -> tuple[int, ...]:
    return (2,) * tensor.dim()


def _real(tensor: torch.Tensor) -> tuple[int, ...]:
    sizes = _hints(tensor.shape)
    if None in sizes or math.prod(sizes) > TRIED_ELEMENTS:
        raise NotTried
    return sizes


@cache
def _can_be_tried(func: Any) -> bool:
    """Return whether eager may be asked about a call on elements that have other values."""
    if not _has_no_effect(func):
        return False
    schema = func._schema
    takes = {str(argument.type) for argument in schema.arguments}
    return (
        not (_is_internal(func) and any("int" in one for one in takes))
        and not schema.name.removeprefix("aten::").startswith(LIBRARIES)
        and any("Tensor" in one or "number" in one for one in takes)
    )


@cache
def _has_no_effect(func: Any) -> bool:
    """Return whether one call more has no effect: it draws no random numbers and makes no view."""
    if not isinstance(func, torch._ops.OpOverload):
        return False
    schema = func._schema
    is_view = any(out.alias_info and not out.alias_info.is_write for out in schema.returns)
    return (
        func.namespace == "aten"
        and not is_view
        and bool(schema.returns)
        and torch.Tag.nondeterministic_seeded not in func.tags
    )


@cache
def _takes_any_sizes(func: torch._ops.OpOverload) -> bool:
    """Return whether no integer among the arguments may have to agree with a tensor's sizes."""
    integers = {one.name for one in func._schema.arguments if "int" in str(one.type)}
    takes_any = torch.Tag.pointwise in func.tags or integers <= {*NO_SIZES, "size"}
    return takes_any and not _is_internal(func)


def _is_internal(func: torch._ops.OpOverload) -> bool:
    name = func._schema.name.removeprefix("aten::")
    public = torch.Tag.core in func.tags or name.lstrip("_") in DECOMPOSED
    return name.startswith("_") and not public


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        yield from _leaves(list(value.values()))
    else:
        yield value


def _needs_trying(
    func: torch._ops.OpOverload,
    pairs: Sequence[tuple[Any, Any]],
    tensors: Sequence[torch.Tensor],
    result: Any,
) -> bool:
    """Return whether a call may be refused.

    Every kernel has code for tensors of one ordinary type, with positive numbers that fit. A tensor
    to store results in may have another type than these.
    """
    stores = any(argument.is_out for argument, _ in pairs)
    if stores or _writes_to_repeated(func, pairs):
        return True
    kinds = {one.dtype for one in tensors}
    kinds.update(_dtypes(result))
    if len(kinds) != 1 or not kinds <= ORDINARY:
        return True
    return any(
        _is_unusual(argument, hint(leaf)) for argument, value in pairs for leaf in _leaves(value)
    )


def _is_empty(tensor: torch.Tensor) -> bool:
    """Return whether a tensor evidently has no elements."""
    return 0 in _hints(tensor.shape)


def with_sizes(name: str, operands: tuple[list[Any], dict[str, Any]]) -> Any:
    """Return a call's operands with sizes in place of symbols, where the kernel may refuse it.

    Torch decomposes some calls where a size is a symbol, and what the kernel refuses is lost with
    it. Called under a mode of fake tensors on what is returned, they arrive at `check` whole.

    Args:
        name: that of the function.
        operands: its arguments, with fake tensors.

    Returns:
        None for a call that has no symbols, or that has tensors with elements of a type for which
        there is a kernel, unless one is given as ``out``: decompositions convert to its type.
    """
    leaves = tree_leaves(operands)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not any(leaf._has_symbolic_sizes_strides for leaf in tensors):
        return None
    decomposed = name.lstrip("_") in DECOMPOSED and any(
        one.dtype not in ORDINARY for one in tensors
    )
    stores = operands[1].get("out") is not None
    if not (decomposed or stores) and not all(map(_is_empty, tensors)):
        return None
    current = [_current(leaf) for leaf in leaves]
    if any(new is None and old is not None for old, new in zip(leaves, current, strict=True)):
        return None
    return tree_unflatten(current, tree_structure(operands))


def _current(value: Any) -> Any:
    """Return a number for a symbol, and a tensor of sizes for one of symbols; None if unknown."""
    if not isinstance(value, torch.Tensor):
        return hint(value) if isinstance(value, SYMBOLIC) else value
    sizes, strides = _hints(value.shape), _hints(value.stride())
    if None in (*sizes, *strides):
        return None
    return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)


def _is_small(pairs: Sequence[tuple[Any, Any]], tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether a call is one on ordinary tensors of this machine, with no large size."""
    if any(one.device.type != "cpu" or one.layout is not torch.strided for one in tensors):
        return False
    rest = [
        leaf for argument, value in pairs if not _is_number(argument) for leaf in _leaves(value)
    ]
    return not any(
        (type(leaf) is int and abs(leaf) > TRIED_ELEMENTS)
        or (isinstance(leaf, torch.device) and leaf.type != "cpu")
        for leaf in rest
    )


def _writes_to_repeated(func: torch._ops.OpOverload, pairs: Sequence[tuple[Any, Any]]) -> bool:
    """Return whether a call writes to a tensor of which one element in memory is several."""
    return func._schema.is_mutable and any(
        isinstance(value, torch.Tensor) and argument.alias_info and _is_repeated(value)
        for argument, value in pairs
    )


def _is_repeated(tensor: torch.Tensor) -> bool:
    """Return whether a dimension evidently repeats the same elements."""
    return any(
        type(step) is int and step == 0 and (type(size) is not int or size > 1)
        for size, step in zip(tensor.shape, tensor.stride(), strict=True)
    )


def _is_number(argument: Any) -> bool:
    """Return whether an argument is one to compute with, where it is no tensor."""
    kind = str(argument.type)
    return "number" in kind or "Tensor" in kind or "float" in kind


def _is_unusual(argument: Any, value: Any) -> bool:
    """Return whether a value is one that kernels may refuse where they take most others."""
    if not _is_number(argument):
        least = 0 if "pad" in argument.name else 1
        return type(value) is int and value < least and argument.name not in NO_SIZES
    if type(value) is float:
        return not 0 < value <= torch.finfo(torch.float32).max
    return type(value) in (bool, complex) or (type(value) is int and value <= 0)


def _described(
    func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], sizes: Sizes
) -> Given:
    """Return the arguments of a call by their names, in a form that can be compared."""
    return tuple((a.name, _form(a, value, sizes)) for a, value in _named(func, args, kwargs))


def _named(
    func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[tuple[Any, Any]]:
    """Return the arguments of a call, each with its declaration."""
    arguments = func._schema.arguments
    named = [(a, value) for a, value in zip(arguments, args, strict=False)]
    return named + [(a, kwargs[a.name]) for a in arguments[len(args) :] if a.name in kwargs]


def _form(argument: Any, value: Any, sizes: Sizes) -> Any:
    if isinstance(value, torch.Tensor):
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        return StandIn(sizes(value), value.dtype, is_written and _is_repeated(value))
    if isinstance(value, list | tuple):
        if argument.name == "size":
            return (2,) * len(value)
        if "Optional[Tensor]" in str(argument.type) and any(map(_is_mask, value)):
            raise NotTried  # how many elements an index selects depends on what the mask holds
        return tuple(_form(argument, item, sizes) for item in value)
    if isinstance(value, SYMBOLIC):
        current = hint(value)
        value = value.node.pytype(1) if current is None else current
    if isinstance(value, torch.Generator):
        raise NotTried
    is_number = _is_number(argument) and value is not None
    return Number(type(value), value) if is_number else value


def _is_mask(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in MASKS


def _settings() -> Settings:
    """Return the settings of the process that what eager returns and refuses depends on."""
    return torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()


@lru_cache(4096)
def _refused_or_tried(
    func: torch._ops.OpOverload, given: Given, settings: Settings
) -> str | Dtypes | None:
    """Return why eager refuses a call and accepts one like it; or the types of what it returns.

    If it refuses both, None: the sizes may be why.
    """
    tried = _tried(func, given, settings)
    refused = isinstance(tried, str)
    if refused and all(isinstance(_try(func, other), str) for other in _ordinary(given)):
        return None
    return tried


def _ordinary(given: Given) -> Iterator[Given]:
    """Yield the same call with types and numbers that more kernels have code for."""
    for types in ORDINARY_TYPES:
        yield tuple((name, _mapped(form, types)) for name, form in given)
    tensors = [(name, form) for name, form in given if isinstance(form, StandIn)]
    retyped = [(name, StandIn(form.sizes, tensors[0][1].dtype)) for name, form in tensors[1:]]
    retyped += [(name, StandIn(form.sizes, torch.float32)) for name, form in tensors[:1]]
    retyped += [(name, StandIn(form.sizes, torch.int64)) for name, form in tensors if name == "out"]
    for changed, form in retyped:
        yield tuple((name, form if name == changed else other) for name, other in given)
    yield tuple((name, form if name in NO_SIZES else _positive(form)) for name, form in given)


def _positive(form: Any) -> Any:
    """Return a form with 1 in place of integers that are negative or zero, and of all numbers."""
    if type(form) is tuple:
        return tuple(map(_positive, form))
    if isinstance(form, Number):
        return Number(int, 1)
    return 1 if type(form) is int and form <= 0 else form


def _floats(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype.is_floating_point or dtype.is_complex else dtype


def _longs(dtype: torch.dtype) -> torch.dtype:
    wide = _floats(dtype)
    return wide if wide in (torch.float32, torch.bool) else torch.int64


#: maps of types to types that more kernels have code for; indices and masks keep theirs
ORDINARY_TYPES: tuple[TypeMap, ...] = (
    lambda dtype: dtype,
    _floats,
    _longs,
    lambda dtype: torch.int64 if dtype is torch.bool else _longs(dtype),
    lambda dtype: dtype if dtype is torch.bool else torch.float32,
    lambda dtype: dtype if dtype is torch.int64 else torch.float32,
    lambda dtype: torch.complex64 if dtype.is_complex else _floats(dtype),
    lambda dtype: torch.float32,
)


def _mapped(form: Any, types: TypeMap) -> Any:
    if isinstance(form, StandIn):
        return StandIn(form.sizes, types(form.dtype))
    if isinstance(form, Number):
        return Number(int, 1)
    if type(form) is torch.dtype:
        return types(form)
    return tuple(_mapped(item, types) for item in form) if type(form) is tuple else form


@lru_cache(4096)
def _tried(func: torch._ops.OpOverload, given: Given, settings: Settings) -> str | Dtypes:
    """Return what `_try` does, once for each call and the settings that it is made under."""
    return _try(func, given)


def _try(func: torch._ops.OpOverload, given: Given) -> str | Dtypes:
    """Call with all elements one, else with all zero; return the first error, or result types."""
    text = ""
    for fill in (1, 0):
        try:
            with levels.eager_itself():
                return _dtypes(func(**{name: _made(form, fill) for name, form in given}))
        except Exception as error:
            text = text or str(error).partition("\n")[0] or type(error).__name__
    return text


def _dtypes(result: Any) -> Dtypes:
    return tuple(one.dtype for one in _leaves(result) if isinstance(one, torch.Tensor))


def _made(form: Any, fill: int) -> Any:
    if isinstance(form, StandIn):
        kept = (1,) * len(form.sizes) if form.repeated else form.sizes
        return torch.full(kept, fill, dtype=form.dtype, device="cpu").expand(form.sizes)
    if isinstance(form, Number):
        return form.value
    return [_made(item, fill) for item in form] if isinstance(form, tuple) else form
