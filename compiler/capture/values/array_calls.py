"""Calls of numpy on tensors, as graphs make them: types and signs of zero are numpy's.

PyTorch's own numpy over tensors (``torch._numpy``) does the work. For universal functions numpy
itself says in which types it computes (``ufunc.resolve_dtypes``): operands are cast to these first.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import numpy as np
import torch

#: functions whose results differ from numpy's in shape or type
DIFFERENT = frozenset(
    (
        "percentile",
        "quantile",
        "corrcoef",
        "cov",
        "histogram",
        "cbrt",
        "fix",
        "modf",
    )
)
#: beginnings of the modules that define the types of numpy's functions
FUNCTION_PACKAGES = ("builtins", "numpy", "_cython_")
#: functions that make an array of lists of arrays
STACKING = frozenset(("array", "asarray"))
#: operators of arrays, without underscores -> the universal functions that they are
UFUNCS: dict[str, str] = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "divmod": "divmod",
    "pow": "power",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
    "matmul": "matmul",
    "neg": "negative",
    "pos": "positive",
    "abs": "absolute",
    "invert": "invert",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
#: what ``resolve_dtypes`` takes for Python's numbers
WEAK: dict[type, Any] = {
    bool: np.dtype(bool),
    int: int,
    float: float,
    complex: complex,
    torch.SymInt: int,
    torch.SymFloat: float,
    torch.SymBool: np.dtype(bool),
}
TYPES = {
    getattr(torch, name): np.dtype(name)
    for name in (
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    )
}
TORCH_TYPES: dict[Any, torch.dtype] = {kind: dtype for dtype, kind in TYPES.items()}
#: functions whose results are remainders of their first operands by their second
REMAINDERS = ("remainder", "mod", "divmod")
#: functions that raise for integers over zero in torch, not in numpy
DIVISIONS = (*REMAINDERS, "floor_divide", "fmod")


@functools.cache
def tensor_numpy() -> Any:
    """Return PyTorch's numpy over tensors."""
    import torch._numpy as tensor_numpy

    return tensor_numpy


def numpy_call(name: str, args: Any, kwargs: Any) -> Any:
    """Call a numpy function on tensors; called from graphs."""
    found = tensor_numpy()
    for part in name.split("."):
        found = getattr(found, part)
    if name in STACKING and args and isinstance(args[0], list | tuple):
        args = (_stacked(args[0]), *args[1:])
    if name == "median":
        return _median(*args, **kwargs)
    ufunc = getattr(np, name, None)
    if isinstance(ufunc, np.ufunc):
        return _universal(found, ufunc, args, kwargs)
    return _tensors(found(*_arrays(args), **_arrays(kwargs)))


def _stacked(items: Any) -> Any:
    """Return nested lists of arrays as one array if all items are arrays of one shape."""
    parts = [
        _stacked(item) if isinstance(item, list | tuple) else item for item in items
    ]
    if not parts or not all(isinstance(part, torch.Tensor) for part in parts):
        return items
    if len({part.dtype for part in parts}) != 1:
        return items  # numpy's type promotion differs from torch's
    return torch.stack(parts)


def _median(
    array: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> torch.Tensor:
    """Return the medians along some axes: of two middle elements the mean, as numpy has it."""
    if out is not None or overwrite_input:
        raise TypeError("median into an array")
    given = _number(_as_tensor(array))
    if given.dtype.is_complex:
        raise TypeError("median of complex numbers")
    axes = range(given.dim()) if axis is None else axis
    axes = [
        one % max(given.dim(), 1) for one in ([axes] if isinstance(axes, int) else axes)
    ]
    kept = [one for one in range(given.dim()) if one not in axes]
    rows = (
        given.permute(*kept, *axes).flatten(len(kept)) if axes else given.unsqueeze(-1)
    )
    if not given.dtype.is_floating_point:
        rows = rows.double()
    ordered, count = rows.sort(-1).values, rows.shape[-1]
    low, high = ordered[..., (count - 1) // 2], ordered[..., count // 2]
    wide = torch.float32 if given.dtype is torch.float16 else low.dtype
    mean = ((low.to(wide) + high.to(wide)) / 2).to(low.dtype) if count % 2 == 0 else low
    last = ordered[..., -1]  # NaNs come last
    found = torch.where(last.isnan(), last, mean)
    if keepdims:
        found = found.reshape(
            [1 if i in axes else n for i, n in enumerate(given.shape)]
        )
    return found


def numpy_method(name: str, owner: Any, args: Any, kwargs: Any) -> Any:
    """Call a method of an array, given as a tensor; called from graphs."""
    found = _operator_of(name)
    if found is not None:
        function, kind = found
        operands = (args[0], owner) if kind == "r" else (owner, *args)
        return numpy_call(function, operands, {"out": owner} if kind == "i" else {})
    array = tensor_numpy().ndarray(owner)
    return _tensors(getattr(array, name)(*_arrays(args), **_arrays(kwargs)))


def _operator_of(name: str) -> tuple[str, str] | None:
    """Return the universal function that a special method is, and "r" or "i" where it is of these.

    None for other methods.
    """
    plain = name.removeprefix("__").removesuffix("__")
    if plain == name:
        return None
    if plain in UFUNCS:
        return UFUNCS[plain], ""
    return (
        (UFUNCS[plain[1:]], plain[0])
        if plain[1:] in UFUNCS and plain[0] in "ri"
        else None
    )


def numpy_attribute(name: str, owner: Any) -> Any:
    """Read an attribute of an array, given as a tensor; called from graphs."""
    return _tensors(getattr(tensor_numpy().ndarray(owner), name))


def tensor_copy(
    array: torch.Tensor,
    dtype: torch.dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """Do what ``torch.tensor`` does with an array, given as a tensor; called from graphs.

    With a tensor, ``torch.tensor`` itself would warn.
    """
    place = torch.get_default_device() if device is None else device
    made = array.detach().to(device=place, dtype=dtype or array.dtype, copy=True)
    return made.requires_grad_() if requires_grad else made


def _arrays(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tensor_numpy().ndarray(value)
    if isinstance(value, tuple | list):
        return type(value)(_arrays(item) for item in value)
    if isinstance(value, dict):
        return {key: _arrays(item) for key, item in value.items()}
    return value


def _tensors(value: Any) -> Any:
    if isinstance(value, tensor_numpy().ndarray):
        return value.tensor
    if isinstance(value, tuple | list):
        return type(value)(_tensors(item) for item in value)
    return value


# -- universal functions ---------------------------------------------------------------------
def _universal(function: Any, ufunc: np.ufunc, args: Any, kwargs: Any) -> Any:
    """Call a universal function in the types that numpy computes in."""
    operands = [_as_tensor(one) for one in args[: ufunc.nin]]
    types = _loop_types(ufunc, tuple(map(_kind, operands)))
    if types is None or set(kwargs) - {"out"} or len(args) != ufunc.nin:
        return _tensors(function(*_arrays(args), **_arrays(kwargs)))
    cast = [
        _cast(one, kind) for one, kind in zip(operands, types[: ufunc.nin], strict=True)
    ]
    if not any(isinstance(one, torch.Tensor) for one in cast):
        cast[0] = _number(cast[0], _torch_type(types[0]))
    whole = ufunc.__name__ in DIVISIONS and types[0].kind in "biu"
    if whole:
        divisor = _number(cast[1])
        nonzero = torch.where(divisor == 0, 1, divisor)
        cast[1] = nonzero.to(_torch_type(types[1]))
    found = _tensors(function(*_arrays(cast)))
    results = found if isinstance(found, tuple) else (found,)
    results = tuple(map(_cast, results, types[ufunc.nin :]))
    if whole:  # numpy's result is zero, after a warning
        results = tuple(torch.where(divisor == 0, 0, one) for one in results)
    if ufunc.__name__ in REMAINDERS:
        results = (*results[:-1], _signed(results[-1], cast[1]))
    out = kwargs.get("out")
    if out is not None:
        return _written(out, results[0], types[ufunc.nin])
    return results if isinstance(found, tuple) else results[0]


def _as_tensor(operand: Any) -> Any:
    """Return an operand with lists of numbers as tensors."""
    if isinstance(operand, list | tuple):
        return _tensors(tensor_numpy().asarray(_arrays(operand)))
    return operand


def _number(number: Any, dtype: torch.dtype | None = None) -> Any:
    """Return a number as a tensor; a symbolic one stays one."""
    if isinstance(number, torch.Tensor):
        return number
    if isinstance(number, torch.SymInt | torch.SymFloat):
        whole = isinstance(number, torch.SymInt)
        dtype = dtype or (torch.int64 if whole else torch.float64)
        plain: Any = number  # which the annotations of torch leave out
        return torch.scalar_tensor(plain, dtype=dtype, device="cpu")
    return torch.as_tensor(number, dtype=dtype, device="cpu")


def _kind(operand: Any) -> Any:
    """Return the type of an operand for ``resolve_dtypes``, or None if numpy has no such type."""
    if isinstance(operand, torch.Tensor):
        return TYPES.get(operand.dtype)
    return WEAK.get(type(operand))


@functools.cache
def _loop_types(
    ufunc: np.ufunc, kinds: tuple[Any, ...]
) -> tuple[np.dtype[Any], ...] | None:
    """Return the types in which numpy computes, those of the results last; None if it refuses."""
    unknown = any(kind is None for kind in kinds)  # to numpy, None equals float64
    if unknown or not hasattr(ufunc, "resolve_dtypes"):
        return None
    try:
        found: tuple[np.dtype[Any], ...] = ufunc.resolve_dtypes(
            (*kinds, *[None] * ufunc.nout)
        )
    except TypeError:
        return None
    return found if all(kind in TYPES.values() for kind in found) else None


def _torch_type(kind: np.dtype[Any]) -> torch.dtype:
    return TORCH_TYPES[kind]


def _cast(operand: Any, kind: np.dtype[Any]) -> Any:
    """Return an operand in a type; numbers stay what they are."""
    return (
        operand.to(_torch_type(kind)) if isinstance(operand, torch.Tensor) else operand
    )


def _signed(remainder: torch.Tensor, divisor: Any) -> torch.Tensor:
    """Return a remainder whose zeros have the sign of the divisor."""
    if not remainder.dtype.is_floating_point:
        return remainder
    by = torch.as_tensor(divisor, dtype=remainder.dtype, device=remainder.device)
    zeros = torch.copysign(
        torch.zeros((), dtype=remainder.dtype, device=remainder.device), by
    )
    return torch.where(remainder == 0, zeros, remainder)


def _written(
    out: torch.Tensor, result: torch.Tensor, kind: np.dtype[Any]
) -> torch.Tensor:
    """Write a result to an array, if its type may be cast to that of the array."""
    if not np.can_cast(kind, _kind(out), "same_kind"):
        raise TypeError(f"cannot cast from {kind} to {_kind(out)}")
    return out.copy_(result)


def numpy_name(obj: Any) -> str | None:
    """Return the name of a numpy function in ``torch._numpy``, or None."""
    if isinstance(obj, type | types.ModuleType) or not callable(obj):
        return None
    if not type(obj).__module__.startswith(FUNCTION_PACKAGES):
        return None  # its attributes may be code of the user
    module = getattr(obj, "__module__", None) or (
        "numpy" if isinstance(obj, np.ufunc) else ""
    )
    name = getattr(obj, "__name__", "")
    if not module.startswith("numpy"):
        return None
    for prefix in ("linalg", "fft", "random"):
        if module.startswith(f"numpy.{prefix}"):
            home = getattr(tensor_numpy(), prefix, None)
            return f"{prefix}.{name}" if hasattr(home, name) else None
    same = getattr(np, name, None) is obj and name not in DIFFERENT
    return name if same and hasattr(tensor_numpy(), name) else None
