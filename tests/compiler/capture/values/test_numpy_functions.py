"""Functions of numpy given tensors: numpy itself makes a tensor of what some of them return."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import tc

#: numpy makes tensors of the results of its universal functions
UNIVERSAL = sorted(name for name in dir(np) if isinstance(getattr(np, name), np.ufunc))
#: some call the method of the tensor's that has their name, others make arrays
OTHERS = (
    "argmax",
    "argsort",
    "clip",
    "concatenate",
    "cumsum",
    "diagonal",
    "dot",
    "linspace",
    "max",
    "mean",
    "median",
    "nonzero",
    "prod",
    "ravel",
    "repeat",
    "reshape",
    "sort",
    "squeeze",
    "stack",
    "std",
    "sum",
    "swapaxes",
    "take",
    "trace",
    "transpose",
    "tril_indices_from",
    "unique",
    "where",
)
TYPES = (torch.float32, torch.int64, torch.bool)


def outcome(function: Any, args: Any) -> Any:
    """Return a call's result, or the type of its error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(*args)
    except Exception as error:
        return type(error)


def is_same(one: Any, other: Any) -> bool:
    """Return whether two results are of one type, and have the same elements but for rounding."""
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if not isinstance(one, np.ndarray | np.generic | torch.Tensor):
        return bool(one == other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return np.allclose(np.asarray(one), np.asarray(other), equal_nan=True)


def operands(count: int, dtype: torch.dtype, arrays: bool) -> list[Any]:
    """Return tensors, or one and then arrays."""
    made = [(torch.arange(6, device="cpu").reshape(2, 3) % 4 + i).to(dtype) for i in range(count)]
    return [made[0], *(one.numpy() for one in made[1:])] if arrays else made


def test_of_tensors_they_return_what_they_do_in_eager(drawn):
    cases = itertools.product([*UNIVERSAL, *OTHERS], TYPES, (1, 2), (False, True))
    for name, dtype, count, arrays in drawn(cases, 25):
        function = getattr(np, name)

        def program(*args, function=function):
            return function(*args)

        tc.reset()
        expected = outcome(program, operands(count, dtype, arrays))
        found = outcome(tc.compile(program, backend="eager"), operands(count, dtype, arrays))
        assert is_same(expected, found), (name, dtype, count, arrays, expected, found)


def test_a_tensor_that_requires_gradients_is_refused_as_by_eager():
    def program(x):
        return np.exp(x)

    x = torch.ones(2, device="cpu", requires_grad=True)
    with pytest.raises(RuntimeError, match="requires grad"):
        tc.compile(program, backend="eager")(x)


def test_results_with_names_keep_them():
    def program(x):
        a = x.numpy()
        return np.linalg.svd(a).S, np.linalg.qr(a), np.linalg.slogdet(a).logabsdet

    x = torch.tensor([[2.0, 0.0], [0.0, 1.0]], device="cpu")
    found, expected = tc.compile(program, backend="eager", fullgraph=True)(x), program(x)
    assert is_same(list(expected), list(found))
    assert np.array_equal(found[1].R, expected[1].R)
