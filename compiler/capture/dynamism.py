"""Decides which sizes and integers are dynamic, by the user's marks and by the earlier calls."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from tc.compiler.core.sources import Source
from tc.compiler.errors import OptionError

if TYPE_CHECKING:
    from tc.compiler.capture.specified import Specified

#: inputs that a setting lists: a name or a pattern, and one dimension or all (None)
Listed = tuple[tuple[str, int | None], ...]
#: attribute on tensors: dimension -> `Mark`
MARKS = "_tc_dimension_marks"
#: attribute on tensors that stay at their address: "guarded" or "unguarded"; torch reads it too
ADDRESS = "_dynamo_static_input_type"
#: attributes that torch's own functions set on tensors -> the kind of mark that each means
TORCH_MARKS = {
    "_dynamo_static_indices": "static",
    "_dynamo_weak_dynamic_indices": "maybe",
    "_dynamo_dynamic_indices": "dynamic",
    "_dynamo_unbacked_indices": "unbacked",
}


@dataclass(frozen=True)
class Mark:
    """The user's mark on one dimension of a tensor.

    Attributes:
        kind: "static"; "dynamic": it must not become a constant; "maybe": it may; "unbacked":
            nothing may depend on its value.
        low, high: bounds; None means unbounded.
    """

    kind: str
    low: int | None = None
    high: int | None = None


def marks_of(tensor: torch.Tensor) -> dict[int, Mark]:
    """Return the user's marks on the dimensions of a tensor, made by tc's functions or torch's."""
    attributes = getattr(tensor, "__dict__", None)
    if not attributes:
        return {}
    found = {
        dim % tensor.dim(): Mark(kind)
        for name, kind in TORCH_MARKS.items()
        for dim in attributes.get(name, ())
    }
    for bounds in attributes.get("_dynamo_dynamic_range", ()):
        found[bounds.dim % tensor.dim()] = Mark("dynamic", bounds.min, bounds.max)
    found.update(attributes.get(MARKS, {}))
    return found


@dataclass
class Memory:
    """The sizes, strides and numbers that a code object was called with, by the text of the source.

    Attributes:
        sizes: source -> one entry a dimension; None once two different sizes were seen.
        numbers: source -> the number; None once two different numbers were seen.
        strides: source -> sizes, and one entry a stride; None once two were seen for those sizes.
    """

    sizes: dict[str, tuple[int | None, ...]] = field(default_factory=dict)
    numbers: dict[str, float | None] = field(default_factory=dict)
    strides: dict[str, tuple[tuple[int, ...], tuple[int | None, ...]]] = field(
        default_factory=dict
    )

    def copy(self) -> Memory:
        """Return a copy that one translation extends; it replaces the original if that succeeds."""
        return Memory(dict(self.sizes), dict(self.numbers), dict(self.strides))

    def see_tensor(
        self, source: Source, tensor: torch.Tensor
    ) -> tuple[int | None, ...]:
        """Record a tensor's sizes; return them, with None where they differ from call to call."""
        now: tuple[int | None, ...] = tuple(tensor.shape)
        before = self.sizes.get(source.name)
        if before is not None and len(before) == len(now):
            now = tuple(b if b == n else None for b, n in zip(before, now, strict=True))
        self.sizes[source.name] = now
        return now

    def see_strides(
        self, source: Source, tensor: torch.Tensor
    ) -> tuple[int | None, ...]:
        """Record a tensor's strides; return them, with None where they differ for equal sizes."""
        sizes = tuple(tensor.shape)
        now: tuple[int | None, ...] = tuple(tensor.stride())
        before = self.strides.get(source.name)
        if before is not None and before[0] == sizes:
            now = tuple(
                b if b == n else None for b, n in zip(before[1], now, strict=True)
            )
        self.strides[source.name] = sizes, now
        return now

    def see_number(self, source: Source, number: float) -> float | None:
        """Record a number; return None if it differs from call to call."""
        before = self.numbers.get(source.name, number)
        now = number if before == number else None
        self.numbers[source.name] = now
        return now


def listed() -> Listed:
    """Return the inputs that torch's setting ``dynamic_sources`` lists: a pattern, a dimension.

    ``L['x'], L['y']:1`` is all dimensions of ``x`` and one of ``y``; the variable
    ``TORCH_COMPILE_DYNAMIC_SOURCES`` sets it, too.

    Raises:
        OptionError: a pattern is no regular expression.
    """
    text = str(torch.compiler.config.dynamic_sources or "").replace(" ", "")
    found = []
    for entry in filter(None, text.split(",")):
        name, _, dim = entry.rpartition(":")
        pattern, place = (name, int(dim)) if name and dim.isdigit() else (entry, None)
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(
                f"torch.compiler.config.dynamic_sources lists {pattern!r}, which is neither the "
                f"name of an input, such as \"L['x']\", nor a regular expression: {error}"
            ) from None
        found.append((pattern, place))
    return tuple(found)


def _matches(pattern: str, name: str) -> bool:
    """Return whether an entry is the name of an input, or a regular expression that it begins with.

    A name has brackets, by which it is no expression for itself.
    """
    return pattern == name or re.match(pattern, name) is not None


@dataclass(frozen=True)
class DynamicSizes:
    """Decides for one translation which dimensions and integers get symbols.

    Attributes:
        scalars: ``item()`` gives a symbol in place of a graph break.
        shapes: ``nonzero`` and the like give symbolic sizes in place of a graph break.
        fixed_numbers: whether integers are never dynamic.
        fixed_floats: whether floats are never dynamic.
        lenient: whether a dimension marked dynamic may become a constant without an error.
        specified: what the user specified of all inputs, in place of marks and earlier calls.
        named: the inputs that torch's setting ``dynamic_sources`` lists, before any mark.
    """

    dynamic: bool | None
    automatic: bool
    memory: Memory
    scalars: bool = False
    shapes: bool = False
    fixed_numbers: bool = False
    fixed_floats: bool = False
    lenient: bool = False
    specified: Specified | None = None
    named: Listed = field(default_factory=listed)

    def is_named(self, source: Source, dim: int | None = None) -> bool:
        """Return whether the setting lists an input, or a dimension of it."""
        return any(
            _matches(pattern, source.name) and (dim is None or only in (None, dim))
            for pattern, only in self.named
        )

    def marks(self, source: Source, tensor: torch.Tensor) -> dict[int, Mark]:
        """Return the user's marks on the dimensions of an input."""
        return (
            marks_of(tensor)
            if self.specified is None
            else self.specified.marks(source, tensor)
        )

    def demands(self, source: Source, tensor: torch.Tensor) -> dict[int, Mark]:
        """Return the marks on dimensions that get a symbol of their own.

        All but those of the kind "maybe" have to keep it.
        """
        marks = self.marks(source, tensor).items()
        found = {dim: mark for dim, mark in marks if mark.kind != "static"}
        if self.lenient:
            weak = {dim for dim, mark in found.items() if mark.kind == "dynamic"}
            found.update(dict.fromkeys(weak, Mark("maybe")))
        return found

    def dimensions(self, source: Source, tensor: torch.Tensor) -> frozenset[int]:
        """Return the dimensions of an input that get a symbol."""
        seen = self.memory.see_tensor(source, tensor)
        marks = self.marks(source, tensor)
        chosen = {dim for dim, mark in marks.items() if mark.kind != "static"}
        if self.specified is not None:
            return frozenset(chosen)
        if self.dynamic is True:
            chosen |= set(range(tensor.dim()))
        elif self.dynamic is None and self.automatic:
            chosen |= {dim for dim, size in enumerate(seen) if size is None}
        static = {dim for dim, mark in marks.items() if mark.kind == "static"}
        chosen -= static
        if self.named:
            every = range(tensor.dim())
            chosen |= {dim for dim in every if self.is_named(source, dim)}
        return frozenset(chosen)

    def strides(self, source: Source, tensor: torch.Tensor) -> frozenset[int]:
        """Return the dimensions of an input whose stride gets a symbol, though no size does.

        The strides of a part of a tensor follow the sizes of the whole: ``hidden[:, -1:]``.
        """
        seen = self.memory.see_strides(source, tensor)
        if self.specified is not None or self.dynamic is not None or not self.automatic:
            return frozenset()
        marks = self.marks(source, tensor)
        varied = {dim for dim, stride in enumerate(seen) if stride is None}
        return frozenset(
            varied - {dim for dim, mark in marks.items() if mark.kind == "static"}
        )

    def number(self, source: Source, number: float, held: bool = False) -> bool:
        """Return whether a number input gets a symbol.

        Args:
            held: by an object or a global: it gets one only if it differed between two calls.
        """
        seen = self.memory.see_number(source, number)
        if self.specified is not None:
            return self.specified.number(source, number)
        if self.is_named(source):
            return True
        if self.fixed_floats if isinstance(number, float) else self.fixed_numbers:
            return False
        if self.dynamic and held:
            return seen is None
        if self.dynamic is not None:
            return self.dynamic and number not in (0, 1)
        return self.automatic and seen is None
