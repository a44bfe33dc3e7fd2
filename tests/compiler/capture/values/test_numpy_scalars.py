"""NumPy scalars beside tensors: to torch they are Python numbers, to NumPy they have a type."""

from __future__ import annotations

import collections
import itertools
import math
import operator
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import tc
from tc.compiler import api

SCALARS = (
    np.float64(2.0), np.float32(2.0), np.float16(2.0), np.int64(2), np.int32(2), np.int8(3),
    np.uint8(3), np.bool_(True), np.complex64(2), np.complex128(2 + 1j),
)  # fmt: skip
DTYPES = (torch.int64, torch.int8, torch.bool, torch.float32, torch.bfloat16, torch.complex64)
OPERATORS = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "eq", "lt", "and_", "lshift", "iadd",
)  # fmt: skip


def _applied(name: str, reflected: bool) -> Any:
    function = getattr(operator, name)

    def program(x, s):
        x = x.clone()
        return function(s, x) if reflected else function(x, s)

    return program


def _assigned(x, s):
    x = x.clone()
    x[0] = s
    return x


PROGRAMS = {
    **{name: _applied(name, False) for name in OPERATORS},
    **{f"r{name}": _applied(name, True) for name in OPERATORS if name != "iadd"},
    "divmod": lambda x, s: divmod(s, x),
    "setitem": _assigned,
    "getitem": lambda x, s: x[s - 2 if isinstance(s, np.integer) else s],
    "where": lambda x, s: torch.where(x > 0, x, s),
    "full": lambda x, s: torch.full((2,), s),
    "full_like": lambda x, s: torch.full_like(x, s),
    "tensor": lambda x, s: torch.tensor(s),
    "tensor of a list": lambda x, s: torch.tensor([s, s]),
    "as_tensor": lambda x, s: torch.as_tensor(s),
    "asarray": lambda x, s: torch.asarray(s),
    "scalar_tensor": lambda x, s: torch.scalar_tensor(s),
    "linspace": lambda x, s: torch.linspace(0, s, 3),
    "arange": lambda x, s: torch.arange(s),
    "clamp": lambda x, s: x.clamp(min=s),
    "alpha": lambda x, s: x.add(1, alpha=s),
    "maximum": lambda x, s: torch.maximum(x, s),
    "keepdim": lambda x, s: x.sum(0, keepdim=s),
    "item": lambda x, s: (x + s.item(), s.item()),
    "int": lambda x, s: x + int(s.real),
    "branch": lambda x, s: x + 1 if s else x - 1,
    "result": lambda x, s: (x + 1, s),
    "twice": lambda x, s: x * (s * 2),
    "numpy": lambda x, s: (x + 1, np.multiply(s, 3), s + np.ones(2, dtype=np.int8)),
}


def _outcome(function: Any, *args: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # imaginary parts are discarded
        try:
            found = function(*args)
        except Exception as error:
            return type(error)
    parts = found if isinstance(found, tuple) else (found,)
    return [
        (part.dtype, str(part.tolist())) if hasattr(part, "dtype") else (type(part), str(part))
        for part in parts
    ]


@pytest.mark.sample(15)
@pytest.mark.parametrize("scalar", SCALARS, ids=lambda scalar: type(scalar).__name__)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_scalar_is_what_it_is_in_eager(name, scalar):
    for dtype in DTYPES:
        x = torch.tensor([1, 0]).to(dtype)
        compiled = tc.compile(PROGRAMS[name], backend="eager")
        assert _outcome(compiled, x, scalar) == _outcome(PROGRAMS[name], x, scalar), dtype


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ["mul", "rmul", "full", "where", "item", "numpy", "twice"])
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.int16])
def test_values_change_from_call_to_call(name, kind):
    compiled = tc.compile(PROGRAMS[name])
    numbers = [2, 3, 5, 1, 0, 7] if issubclass(kind, np.integer) else [2.5, 3.25, math.inf, 0, 0.5]
    for number, dtype in itertools.product(numbers, (torch.int64, torch.float32)):
        x = torch.tensor([1, 4], dtype=dtype)
        assert _outcome(compiled, x, kind(number)) == _outcome(PROGRAMS[name], x, kind(number))


@pytest.mark.parametrize(("dtype", "graphs"), [(torch.float32, 1), (torch.int64, 2)])
def test_changing_numbers_are_tensors_or_become_symbols(dtype, graphs):
    tc.reset()  # what is remembered of the numbers seen so far belongs to other calls
    compiled = tc.compile(lambda x, s: x * s, backend="eager")
    before = api.graph_stats()["graphs"]
    for step in range(12):
        x, number = torch.ones(2, dtype=dtype), np.float64(step + 0.5)
        assert torch.equal(compiled(x, number), x * number)
    assert api.graph_stats()["graphs"] - before == graphs


SCALE = np.float32(0.5)


class Scaled(torch.nn.Module):
    """A module with a NumPy scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = np.sqrt(4)

    def forward(self, x):
        return x * self.scale + SCALE


def test_scalars_of_modules_and_globals_are_guarded(monkeypatch):
    module = Scaled()
    compiled = tc.compile(module, backend="eager", fullgraph=True)
    x = torch.arange(3)
    assert _outcome(compiled, x) == _outcome(module, x)
    module.scale = np.float64(3)
    assert _outcome(compiled, x) == _outcome(module, x)
    monkeypatch.setitem(globals(), "SCALE", np.int64(2))
    assert _outcome(compiled, x) == _outcome(module, x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_computed_scalar_is_a_number_to_torch(dtype):
    for read in (np.mean, np.sum, np.any, np.max):
        for x in (torch.tensor([1, 3]).to(dtype), torch.tensor(3).to(dtype)):

            def program(x, array, read=read):
                return x * read(array)

            compiled = tc.compile(program, backend="eager")
            for array in (
                np.array([1.0, 2.5]),
                np.array([1, 2]),
                np.array([1, 2], dtype=np.float32),
            ):
                assert _outcome(compiled, x, array) == _outcome(program, x, array)


def test_computed_scalars_beside_floats_stay_in_the_graph():
    def program(x, array):
        return x * np.mean(array) + np.sum(array)

    compiled = tc.compile(program, backend="eager", fullgraph=True)
    x, array = torch.ones(3), np.arange(4.0)
    assert _outcome(compiled, x, array) == _outcome(program, x, array)


def _tensors_of_an_array(x, array):
    inside = np.arange(4.0)
    return (
        torch.tensor(array), torch.tensor(data=array), torch.tensor(array, dtype=torch.float16),
        torch.tensor(array, requires_grad=array.dtype.kind == "f"), torch.Tensor(array),
        torch.tensor(inside.copy()), torch.tensor(inside.reshape(2, 2).T), torch.tensor(array[0]),
    )  # fmt: skip


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int8, np.bool_])
def test_tensors_of_arrays_are_made_without_a_warning(kind):
    array, x = np.array([1, 0, 2], dtype=kind), torch.ones(2)
    compiled = tc.compile(_tensors_of_an_array)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, wanted = compiled(x, array), _tensors_of_an_array(x, array)
    for one, other in zip(found, wanted, strict=True):
        assert (one.dtype, one.requires_grad) == (other.dtype, other.requires_grad)
        assert one.stride() == other.stride()
        assert torch.equal(one, other)
    found[0][0] = 5
    assert array[0] == kind(1)  # it is a copy


class Owner:
    def method(self):
        return 1


def _counted(x, v):
    counts = {}
    for item in np.array([1, 1, 2]):
        counts[int(item)] = counts.get(item, 0) + 1
    return x + 1, counts


def _counted_by_default(x, v):
    counts = collections.defaultdict(int)
    counts[v] += 1
    counts[1] += 1
    return x + 1, dict(counts)


AS_KEYS = {
    "dict": lambda x, v: (x + 1, {v: 1}.get(1), len({1, v}), {1: 2}.get(v), v in {1: 3}),
    "set": lambda x, v: (x + 1, {v} & {1}, {1} | {v}, {v} - {1}, 1 in {v}),
    "tuple": lambda x, v: (x + 1, {(1, 2): 5}.get((v, 2)), {frozenset([v]): 1}),
    "made": lambda x, v: (x + 1, dict.fromkeys([v, 1]), set(iter([v, 1, 2])), {v: 1}.get(v)),
    "Counter": lambda x, v: (x + 1, collections.Counter([v, 1, 2])),
    "constants": lambda x, v: (x + 1, {np.int64(3): 1}.get(3), {np.float32(0.5), 0.5}),
    "defaultdict": _counted_by_default,
    "items of an array": _counted,
}
GIVEN = (
    np.int64(1), np.int64(2), np.float32(0.5), np.bool_(True), np.complex64(1), np.float64("nan"),
)  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", AS_KEYS)
def test_scalars_are_keys_as_the_numbers_that_they_equal(name):
    compiled, x = tc.compile(AS_KEYS[name], backend="eager"), torch.ones(2)
    for value in GIVEN:
        assert repr(compiled(x, value)) == repr(AS_KEYS[name](x, value))


def test_bound_methods_are_keys_that_are_equal_each_time():
    def program(x, owner):
        first, second = owner.method, owner.method
        return x + 1, {first: 1}.get(second), first in {second}, {(first, 1): 2}.get((second, 1))

    compiled, x = tc.compile(program, backend="eager"), torch.ones(2)
    for owner in (Owner(), Owner()):
        assert repr(compiled(x, owner)) == repr(program(x, owner))
