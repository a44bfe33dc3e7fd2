"""Which sizes and integers are dynamic: remembers what a code object was called with before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from tc.compiler.core.sources import Source

#: attribute on tensors: dimension -> True (always dynamic), False (always static)
MARKS = "_tc_dimension_marks"


@dataclass
class Memory:
    """What a code object has seen, by the text of the source: sizes of tensors, integers.

    Attributes:
        sizes: source -> one entry a dimension, None once two sizes were seen there.
        numbers: source -> the integer, None once two were seen.
    """

    sizes: dict[str, tuple[int | None, ...]] = field(default_factory=dict)
    numbers: dict[str, int | None] = field(default_factory=dict)

    def see_tensor(self, source: Source, tensor: torch.Tensor) -> tuple[int | None, ...]:
        """Note a tensor's sizes; return them with None where they differ from call to call."""
        now: tuple[int | None, ...] = tuple(tensor.shape)
        before = self.sizes.get(source.name)
        if before is not None and len(before) == len(now):
            now = tuple(b if b == n else None for b, n in zip(before, now, strict=True))
        self.sizes[source.name] = now
        return now

    def see_number(self, source: Source, number: int) -> int | None:
        """Note an integer; return None if it differs from call to call."""
        before = self.numbers.get(source.name, number)
        now = number if before == number else None
        self.numbers[source.name] = now
        return now


@dataclass(frozen=True)
class DynamicSizes:
    """Decides for one translation which dimensions and integers get symbols.

    Attributes:
        scalars: ``item()`` gives a symbol in place of a graph break.
        shapes: ``nonzero`` and the like give symbolic sizes in place of a graph break.
        fixed_numbers: integers are never dynamic.
    """

    dynamic: bool | None
    automatic: bool
    memory: Memory
    scalars: bool = False
    shapes: bool = False
    fixed_numbers: bool = False

    def dimensions(self, source: Source, tensor: torch.Tensor) -> frozenset[int]:
        """Return the dimensions of an input that get a symbol."""
        seen = self.memory.see_tensor(source, tensor)
        marks: dict[int, Any] = getattr(tensor, MARKS, {})
        chosen = {dim for dim, mark in marks.items() if mark}
        if self.dynamic is True:
            chosen |= set(range(tensor.dim()))
        elif self.dynamic is None and self.automatic:
            chosen |= {dim for dim, size in enumerate(seen) if size is None}
        return frozenset(chosen - {dim for dim, mark in marks.items() if not mark})

    def number(self, source: Source, number: int) -> bool:
        """Say whether an integer input gets a symbol."""
        seen = self.memory.see_number(source, number)
        if self.fixed_numbers:
            return False
        if self.dynamic is not None:
            return self.dynamic and number not in (0, 1)
        return self.automatic and seen is None
