"""A built-in routine is one row: what it computes, when it is used, what it falls back to, its C.

A file of this folder holds the row and the function that wrappers call; a C file beside it does
the work. Whoever needs to know of a routine reads `ROUTINES`: the stages that put it in the place
of an op of ATen ask `refusal`, the interpreters of loop graphs and plans call `reference`, the
loader gives generated wrappers the module under the routine's name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

from tc.compiler.core.table import Table
from tc.compiler.runtime.launch import Kernel
from tc.compiler.runtime.routines import open_routine


@dataclass(frozen=True, eq=False)
class Routine:
    """A routine that computes what some op of ATen does.

    Attributes:
        name: of the module in this folder, and of what wrappers find it under.
        refusal: returns why ATen's op stays, from what is known when a graph is compiled; empty
            where the routine is to be used. Sizes that vary are not known: then the routine itself
            decides at each call.
        reference: name of a function that wrappers call -> the same by ATen. None where the C is
            part of generated kernels.
        c_file: with the helpers of generated kernels in the place of a comment, see `source_of`.
        functions: type of the elements -> function in the C file.
        signature: of all these functions, as `make_kernel` takes it.
        limits: constants of the C file that this row decides.
        processors: capability that the C needs, as torch names it; empty: any.
    """

    name: str
    refusal: Callable[..., str]
    reference: Mapping[str, Callable[..., Any]]
    c_file: Path
    functions: Mapping[torch.dtype, str]
    signature: tuple[str, ...]
    limits: Mapping[str, int] = field(default_factory=dict)
    processors: str = ""

    @property
    def calls(self) -> tuple[str, ...]:
        """The functions as wrappers spell them: ``sorting.sort``."""
        return tuple(f"{self.name}.{function}" for function in self.reference)

    @property
    def runs_here(self) -> bool:
        """Whether this processor has what the C needs."""
        return self.processors in ("", torch.backends.cpu.get_cpu_capability())

    def kernel(self, dtype: torch.dtype) -> Kernel | None:
        """Return the C function for a type, built once; None where there is none."""
        return opened(self, dtype)


@functools.cache
def opened(row: Routine, dtype: torch.dtype) -> Kernel | None:
    """Return the C function of a routine for a type; see `Routine.kernel`."""
    name = row.functions.get(dtype)
    if name is None or not row.runs_here:
        return None
    return open_routine(row.c_file, name, row.signature, tuple(row.limits.items()))


ROUTINES: Final[Table[str, Routine]] = Table("routines")
"""Name -> row; importing `tc.compiler.routines` fills it."""


def routine(row: Routine) -> Routine:
    """Add a row to `ROUTINES`.

    Raises:
        ValueError: there is a routine of that name.
    """
    return ROUTINES.add(row.name, row)
