"""Triton kernels of the user: ``kernel[grid](…)`` becomes one call in the graph.

In: functions made by ``triton.jit``. Out: a call of `torch.ops.tc.user_kernel`, which returns new
values of the tensors that the kernel writes to, and a ``copy_`` into each. Kernels that choose
their settings themselves (autotuners, heuristics) break the graph and run in Python.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, KnownObject, Kwargs, Lazy, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import ListValue, TupleValue
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.tensor import SymValue, TensorValue
from tc.compiler.core.memory import share_storage
from tc.compiler.core.sources import Source
from tc.compiler.core.user_kernels import (
    Bound,
    is_kernel,
    number_of,
    operation,
    parameters_written,
)

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

__all__ = ["KernelValue", "is_kernel", "wrap_kernel"]


def wrap_kernel(t: Interpreter, obj: Any, source: Source) -> Value:
    """Return the value of a kernel."""
    t.guards.add("ID", source, obj)
    return KernelValue(obj, source)


class KernelValue(KnownObject):
    """A function made by ``triton.jit``."""

    noun = "a Triton kernel"

    def describe(self) -> str:
        return f"the Triton kernel {self.obj.fn.__name__}"

    def item(self, t: Interpreter, key: Value) -> Value:
        return LaunchValue(self, key)


class LaunchValue(Value):
    """``kernel[grid]``."""

    noun = "a Triton kernel with its grid"

    def __init__(self, kernel: KernelValue, grid: Value) -> None:
        self.kernel, self.grid = kernel, grid

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        named = self._named(t, args, kwargs)
        tensors = {k: v for k, v in named.items() if isinstance(v, TensorValue)}
        written = self._written(tensors)
        kinds = {k: self._kind(t, k, v) for k, v in named.items() if k not in tensors}
        ints = {k: named[k] for k, kind in kinds.items() if kind == "int"}
        floats = {k: named[k] for k, kind in kinds.items() if kind == "float"}
        constants = {
            k: t.python.concrete(named[k])
            for k, kind in kinds.items()
            if kind == "constant"
        }
        if not _can_be_keys(constants):
            self.cannot(breaks.UNSUPPORTED_CALL, f"{self.kernel.describe()} with lists")
        values = list(tensors.values())
        same = {k: values.index(value) for k, value in enumerate(values)}
        same = {k: earlier for k, earlier in same.items() if earlier < k}
        changed = [
            k for k, name in enumerate(tensors) if name in written and k not in same
        ]
        bound = Bound(
            self.kernel.obj,
            tuple(tensors),
            tuple(ints),
            tuple(floats),
            tuple(constants.items()),
            tuple(changed),
            tuple(same.items()),
        )
        given: list[Value] = [ConstValue(number_of(bound))]
        plain: list[Value | Lazy] = [
            value.method(t, "detach", [], {}) for value in values
        ]
        given.append(ListValue(plain))
        given += [ListValue([*numbers.values()]) for numbers in (ints, floats)]
        given.append(ListValue([*self._grid(t, named)]))
        results = t.output.call_torch(operation(), given, {}).unpack(t)
        for k, result in zip(changed, results, strict=True):
            values[k].method(t, "copy_", [result], {})
        return ConstValue(None)

    def _kind(self, t: Interpreter, name: str, value: Value) -> str:
        """Return how the kernel gets a number: as ``int`` or ``float``, or as a constant."""
        if name in _fixed(self.kernel.obj) or name not in self.kernel.obj.arg_names:
            return "constant"
        if isinstance(value, SymValue):
            return "float" if isinstance(value.example, torch.SymFloat) else "int"
        kinds = {int: "int", float: "float"}
        return kinds.get(type(t.python.concrete(value)), "constant")

    def _named(self, t: Interpreter, args: Args, kwargs: Kwargs) -> dict[str, Value]:
        """Return the arguments by name, with defaults, and settings such as ``num_warps`` last."""
        kernel = self.kernel.obj
        names = kernel.arg_names
        if len(args) > len(names):
            self.cannot(
                breaks.UNSUPPORTED_CALL,
                f"{self.kernel.describe()} with {len(args)} values",
            )
        named = dict(zip(names, args, strict=False))
        for name, parameter in inspect.signature(kernel.fn).parameters.items():
            if name in kwargs:
                named[name] = kwargs[name]
            elif name not in named and parameter.default is not parameter.empty:
                named[name] = t.values.known(parameter.default)
        return {**named, **kwargs}

    def _written(self, tensors: dict[str, TensorValue]) -> frozenset[str]:
        """Return the tensors that are written to; it must be known whether they share memory."""
        written = parameters_written(self.kernel.obj) & frozenset(tensors)
        for name in written:
            mine = tensors[name]
            for other in tensors.values():
                if other is not mine and share_storage(other.example, mine.example):
                    what = f"{self.kernel.describe()} on tensors that share memory"
                    self.cannot(breaks.UNSUPPORTED_CALL, what)
            if mine.example.requires_grad:
                what = (
                    f"{self.kernel.describe()} that writes to a tensor with a gradient"
                )
                self.cannot(breaks.UNSUPPORTED_CALL, what)
        # A tensor that is passed under two names is written to under both.
        return frozenset(
            k for k, v in tensors.items() if any(v is tensors[w] for w in written)
        )

    def _grid(self, t: Interpreter, named: dict[str, Value]) -> list[Value]:
        grid = self.grid
        if not isinstance(grid, TupleValue | ListValue):
            meta = t.inline_object(dict, [], named)
            assert isinstance(meta, DictValue)
            grid = grid.call(t, [meta], {})
        items = [grid] if isinstance(grid, SymValue | ConstValue) else grid.unpack(t)
        return [*items, *[ConstValue(1)] * (3 - len(items))]


def _can_be_keys(constants: dict[str, Any]) -> bool:
    try:
        hash(tuple(constants.values()))
    except TypeError:
        return False
    return True


def _fixed(kernel: Any) -> frozenset[str]:
    """Return names of parameters that are constants of the compiled kernel."""
    notes = inspect.get_annotations(kernel.fn).items()
    return frozenset(
        k for k, kind in notes if "constexpr" in getattr(kind, "__name__", str(kind))
    )
