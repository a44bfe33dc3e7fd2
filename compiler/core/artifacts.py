"""Artifacts: the printable, checkable values that stages pass to each other; the final one here.

Each stage defines the artifact it makes. Only `Program`, which the runtime loads without the
compiler, and the base live here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tc.compiler.errors import VerifyError

PARAMETER_KINDS = ("p", "i64", "f64")


@dataclass(frozen=True)
class Artifact:
    """Base of all artifacts: `str()` prints it for a person, `verify()` checks it."""

    def verify(self) -> None:
        """Check the invariants of this artifact.

        Raises:
            VerifyError: one is broken; the message names it.
        """


@dataclass(frozen=True)
class Decision:
    """A choice the compiler made or refused.

    Attributes:
        kind: ``lower``, ``fuse``, ``reuse`` …
        nodes: the graph nodes or buffers it is about.
        taken: whether it was done.
        reason: why, or why not.
    """

    kind: str
    nodes: tuple[str, ...]
    taken: bool
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.kind} {' + '.join(self.nodes)}: {'yes' if self.taken else 'no'}, {self.reason}"
        )


@dataclass(frozen=True)
class KernelSpec:
    """The entry of one compiled kernel.

    Attributes:
        name: its symbol in the C file and its name in the wrapper.
        signature: a letter an argument: ``p`` a tensor, passed as its data pointer; ``i64`` a
            Python int; ``f64`` a Python float.
        checked: it returns bits that say what went wrong: 1 an index out of range, 2 an integer
            divided by zero; otherwise it returns nothing.
    """

    name: str
    signature: tuple[str, ...]
    checked: bool = False


@dataclass(frozen=True)
class StepCost:
    """What one line of a wrapper does, for profiles of the program at run time.

    Attributes:
        line: of the wrapper's source, from 1.
        name: of the kernel, or the call as the plan spells it.
        places: the user's lines (``file:line``) that it computes.
        moved, operations: bytes and floating-point operations, as Python over the sizes that the
            wrapper names; see `schedule.costs`. Empty where nobody listened to the compile.
        copies: it computes nothing, and only writes values elsewhere or in another order.
        fresh: bytes of its results that the C library has the system map in each call.
    """

    line: int
    name: str
    places: tuple[str, ...]
    moved: str = ""
    operations: str = ""
    copies: bool = False
    fresh: int = 0


@dataclass(frozen=True)
class Program(Artifact):
    """A finished graph: C source of its kernels and the Python source that calls them.

    Attributes:
        c_source: all kernels in one C file that includes no header; empty if there is none.
        kernels: entries of the C file.
        wrapper_source: Python source defining ``call(args: list) -> tuple``.
        constants: tensors and other values the wrapper names.
        provenance: kernel -> the user lines and ATen ops it computes.
        kind: ``inference``, ``forward`` or ``backward``.
        costs: of the lines that compute something, in order.
    """

    c_source: str
    kernels: tuple[KernelSpec, ...]
    wrapper_source: str
    constants: tuple[tuple[str, Any], ...] = ()
    provenance: tuple[tuple[str, tuple[str, ...]], ...] = ()
    kind: str = ""
    costs: tuple[StepCost, ...] = ()

    def verify(self) -> None:
        """Check that names are unique, signatures known and the wrapper compiles."""
        names = [kernel.name for kernel in self.kernels]
        if len(set(names)) != len(names):
            raise VerifyError("Program: two kernels have the same name")
        for kernel in self.kernels:
            unknown = set(kernel.signature) - set(PARAMETER_KINDS)
            if unknown:
                raise VerifyError(f"Program: {kernel.name} takes unknown kinds {sorted(unknown)}")
        compile(self.wrapper_source, "<wrapper>", "exec")

    def __str__(self) -> str:
        return f"{self.wrapper_source}\n/* ---- kernels ---- */\n{self.c_source}"
