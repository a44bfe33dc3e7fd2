"""Guards the results of torch calls that return plain values.

In: a call that returned a number, a bool or a name rather than a tensor, and its arguments. Out:
the guard under which later calls return the same value. A function is in one of the tables here, or
is evaluated again at each call of the compiled code (`ask_process_again`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.guards.facts import PROCESS
from tc.compiler.capture.guards.rows import Answer, Predicate
from tc.compiler.capture.values.base import Args, Kwargs
from tc.compiler.capture.values.tensor import NodeValue, TensorValue

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


def names(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


#: Functions of a tensor's type, dtype, device, sizes, strides and dispatch keys alone: its TENSOR
#: guard covers them.
OF_TENSOR_GUARD = names("""
    dtype device layout ndim is_cuda is_cpu is_sparse is_quantized is_mps is_xpu is_meta
    is_nested itemsize nbytes is_mkldnn is_vulkan is_mtia is_ipu is_xla is_ort is_maia
    is_sparse_csr shape size stride numel nelement dim ndimension dense_dim sparse_dim
    is_floating_point is_complex is_signed is_contiguous is_non_overlapping_and_dense
    element_size get_device is_conj is_neg is_inference is_tensor is_storage is_same_size
    is_nonzero result_type can_cast has_names type data_type type_as len __len__ is_distributed
    _is_zerotensor is_tracing broadcast_shapes is_functorch_wrapped_tensor is_batchedtensor
    is_gradtrackingtensor maybe_get_level _has_compatible_shallow_copy_type
""")
#: Functions of their arguments alone.
PURE = names("""
    promote_types can_cast result_type finfo iinfo broadcast_shapes device dtype
    get_device_module typename is_floating_point is_complex is_tensor is_storage Size
    is_scripting is_tracing is_compiling is_available canonicalize_dim canonicalize_dims
    isinstance get_overridable_functions
""")
#: Functions that the GLOBAL_STATE guard covers.
OF_GLOBAL_STATE = names("""
    is_grad_enabled get_default_dtype are_deterministic_algorithms_enabled
    is_deterministic_algorithms_warn_only_enabled is_autocast_enabled
    is_autocast_cache_enabled is_autocast_cpu_enabled
""")
DENSE = (torch.strided, torch.jagged)
#: What sparse tensors report of their elements, which fakes do not know.
OF_SPARSE_ELEMENTS = names("""
    coalesce is_coalesced _nnz values indices _values _indices crow_indices col_indices
    ccol_indices row_indices
""")
#: Operations that take positions in a tensor's storage, which depend on the tensor's offset.
OF_MEMORY = names("""
    as_strided as_strided_ as_strided_copy as_strided_scatter
""")


def refuse_sparse_elements(text: str, fakes: Iterable[Any]) -> None:
    """Break the graph where it asks a sparse tensor how its elements are stored."""
    if text in OF_SPARSE_ELEMENTS and any(
        isinstance(fake, torch.Tensor) and fake.layout not in DENSE for fake in fakes
    ):
        raise breaks.GraphBreak(
            breaks.UNSUPPORTED_CALL, f"Tensor.{text} of a sparse tensor"
        )


def guard_answer(
    t: Interpreter, target: Any, text: str, args: Args, kwargs: Kwargs, answer: Any
) -> None:
    """Guard the plain result of a call.

    Args:
        target: the function, or the name of a method of the first argument.
        text: its name.
        answer: its result.

    Raises:
        GraphBreak: the result depends on something that no guard can check.
    """
    operands = [*args, *kwargs.values()]
    if text in OF_TENSOR_GUARD or (answer in ((), []) and _gives_tensors(text)):
        return
    tensors = [value for value in operands if isinstance(value, NodeValue)]
    if not tensors:
        if text not in PURE and text not in OF_GLOBAL_STATE:
            plain = t.python.concrete_list(args)
            named = t.python.concrete_dict(kwargs)
            ask_process_again(t, target, text, plain, named, answer)
        return
    if (
        len(tensors) == 1
        and operands[0] is tensors[0]
        and isinstance(tensors[0], TensorValue)
    ):
        rest = t.python.concrete_list(args[1:])
        named = t.python.concrete_dict(kwargs)
        guard_property(t, tensors[0], text, target, rest, named)
        return
    raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, f"{text}() of several tensors")


@functools.cache
def _gives_tensors(name: str) -> bool:
    """Return whether an operation makes a list of tensors; how many depends on sizes alone."""
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    return any(
        str(one.type) == "List[Tensor]" for schema in schemas for one in schema.returns
    )


def guard_property(
    t: Interpreter,
    tensor: TensorValue,
    name: str,
    function: Any = None,
    args: list[Any] | None = None,
    kwargs: dict[str, Any] | None = None,
) -> None:
    """Guard a property of a tensor that the TENSOR guard does not cover.

    If traced code made the tensor, its property depends on those of the inputs: all of them are
    guarded then, as only torch knows the rules by which operations propagate the property.

    Args:
        function: reads the property, called with the tensor, ``args`` and ``kwargs``; the name of
            a method; or None for an attribute.
    """
    owners = (
        [tensor]
        if tensor.source is not None and tensor.obj is not None
        else t.values.tensors
    )
    for owner in owners:
        if owner.source is None or owner.obj is None:
            continue
        read = _reader(name, function, args or [], kwargs or {})
        with torch._C.DisableTorchFunction():
            expected = read(owner.obj)
        called = "" if function is None else "(…)" if args or kwargs else "()"
        text = f"{{}}.{name}{called} == {expected!r}"
        t.guards.add("CUSTOM", owner.source, Predicate(text, _still(read, expected)))


def _reader(
    name: str, function: Any, args: list[Any], kwargs: dict[str, Any]
) -> Callable[[Any], Any]:
    if function is None:
        return lambda tensor: getattr(tensor, name)
    if isinstance(function, str):
        return lambda tensor: getattr(tensor, function)(*args, **kwargs)
    return lambda tensor: function(tensor, *args, **kwargs)


def _still(read: Callable[[Any], Any], expected: Any) -> Callable[[Any], bool]:
    def check(tensor: Any) -> bool:
        with torch._C.DisableTorchFunction():
            return bool(read(tensor) == expected)

    return check


def ask_process_again(
    t: Interpreter,
    function: Callable[..., Any],
    text: str,
    args: list[Any],
    kwargs: dict[str, Any],
    answer: Any,
) -> None:
    """Guard the result of a function of the process's state: each call evaluates it again."""
    texts = [repr(one) for one in args]
    texts += [f"{name}={one!r}" for name, one in kwargs.items()]
    call = f"{text}({', '.join(texts)})"
    t.guards.add(
        "ANSWER", PROCESS, Answer(call, lambda: function(*args, **kwargs), answer)
    )


def guard_memory(t: Interpreter, text: str) -> None:
    """Guard the storage offsets of the inputs if an operation takes positions in memory."""
    if text in OF_MEMORY:
        for tensor in t.values.tensors:
            guard_property(t, tensor, "storage_offset", "storage_offset")
