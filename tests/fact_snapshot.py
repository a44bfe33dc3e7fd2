"""What can be seen of a call, written down as plain data, and compared with another call."""

from __future__ import annotations

import enum
import types
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from fact_world import plain_torch

ATOMS = (bool, int, str, bytes, type(None), torch.dtype, torch.device, torch.layout, enum.Enum)
#: how far floats may be apart where kernels compute them
TOLERANCE = 1e-5
#: and where they have few bits: two steps of bfloat16
COARSE_TOLERANCE = 2.0**-7


class Coarse(float):
    """An element of a tensor whose type has few bits."""


def _coarse(elements: Any) -> Any:
    if isinstance(elements, list):
        return [_coarse(element) for element in elements]
    return Coarse(elements)


def snapshot(*values: Any) -> list[Any]:
    """Return what can be seen of some values: types, contents, who is who, who shares memory."""
    look = _Look()
    with plain_torch():
        return [look(value) for value in values]


class _Look:
    """One look; objects are numbered in the order in which they are found."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.keep: list[Any] = []

    def __call__(self, value: Any) -> Any:
        if isinstance(value, float | complex) and not isinstance(value, np.generic):
            return value
        if isinstance(value, ATOMS):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, type | types.ModuleType):
            return f"{type(value).__name__} {value.__name__.split('_')[0]}"
        if isinstance(value, np.generic):
            return [type(value).__name__, str(value.dtype), value.item()]
        number, known = self._number(value)
        if known:
            return f"object {number}"
        return [number, type(value).__name__, *self._inside(value)]

    def _number(self, value: Any) -> tuple[int, bool]:
        known = id(value) in self.numbers
        self.keep.append(value)
        return self.numbers.setdefault(id(value), len(self.numbers)), known

    def _inside(self, value: Any) -> Iterable[Any]:
        if isinstance(value, torch.Tensor):
            try:
                return self._tensor(value)
            except RuntimeError:  # a view that a write has made invalid
                return ["refused"]
        if isinstance(value, np.ndarray):
            return [str(value.dtype), list(value.shape), value.tolist()]
        if isinstance(value, dict):
            return [[self(key), self(item)] for key, item in dict.items(value)]
        if isinstance(value, list | tuple | deque):
            return [self(item) for item in value]
        if isinstance(value, set | frozenset):
            return sorted(map(str, map(self, value)))
        if isinstance(value, torch.nn.Module):
            return [self(dict(value.named_parameters())), self(_own(value))]
        if isinstance(value, types.MethodType):
            return [value.__name__, self(value.__self__)]
        if hasattr(value, "__dict__") and not callable(value):
            return [self(_own(value))]
        return []

    def _tensor(self, value: torch.Tensor) -> list[Any]:
        seen: list[Any] = [str(value.dtype), value.device.type, list(value.shape)]
        seen += [value.requires_grad, value.is_leaf]
        if value.layout is not torch.strided or value.device.type == "meta":
            return seen
        seen.append([s for s, n in zip(value.stride(), value.shape, strict=True) if n > 1])
        elements = value.resolve_conj().resolve_neg().detach().tolist()
        few_bits = value.dtype in (torch.float16, torch.bfloat16)
        seen.append(_coarse(elements) if few_bits else elements)
        if value.numel():
            storage = value.untyped_storage()
            seen.append(f"memory {self._number_of_memory(storage.data_ptr())}")
            self.keep.append(storage)
        grad = value.grad if value.is_leaf and value.requires_grad else None
        seen.append(None if grad is None else self(grad))
        return seen

    def _number_of_memory(self, pointer: int) -> int:
        return self.numbers.setdefault(-pointer, len(self.numbers))


def _own(value: Any) -> dict[str, Any]:
    return {k: v for k, v in vars(value).items() if not k.startswith("_")}


def differs(got: Any, want: Any, path: str = "") -> str:
    """Return the first difference of two snapshots in words; an empty text where there is none."""
    if isinstance(want, list):
        if not isinstance(got, list) or len(got) != len(want):
            return f"{path}: {got} is not {want}"
        for index, (a, b) in enumerate(zip(got, want, strict=True)):
            if found := differs(a, b, f"{path}[{index}]"):
                return found
        return ""
    if isinstance(want, float | complex) and isinstance(got, float | complex):
        tolerance = COARSE_TOLERANCE if isinstance(want, Coarse) else TOLERANCE
        bound = tolerance * max(1.0, abs(want)) if abs(want) < float("inf") else 0.0
        signs = want == 0 == got and str(want) != str(got)
        near = got == want or (got != got and want != want) or abs(got - want) <= bound
        return "" if near and not signs else f"{path}: {got} is not {want}"
    return "" if got == want else f"{path}: {got} is not {want}"
