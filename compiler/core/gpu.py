"""The program of a GPU graph, with Triton kernels where a CPU's has C, and its first calls."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from tc.compiler.core.artifacts import Program
from tc.compiler.errors import VerifyError

#: of the call in this thread: whether `mark_warmup_incomplete` was called in it
WARMUP = threading.local()


def mark_warmup_incomplete() -> None:
    """Ask for another normal run of the graph that runs, where its next call would record it.

    An autotuner that has not measured all its choices calls it. Of a recorded graph, and outside
    of graphs, it does nothing.
    """
    WARMUP.incomplete = True


@dataclass(frozen=True)
class GpuProgram(Program):
    """A finished graph on one device.

    Attributes:
        triton_source: a Python module that defines the kernels under their names.
        device: what the kernels run on, e.g. ``cuda:0``.
        arguments: kernel -> Triton's names of its arguments' types: ``*fp32``, ``i64``, ``fp64``.
        replay: its launches are to be replayed as one (see `runtime/cudagraphs.py`).
        written: positions of the inputs that it writes to.
        unreplayable: the kind of reason why its launches cannot be replayed, and the reason.
    """

    triton_source: str = ""
    device: str = "cuda:0"
    arguments: tuple[tuple[str, tuple[str, ...]], ...] = ()
    replay: bool = False
    written: tuple[int, ...] = ()
    unreplayable: tuple[str, str] | None = None

    def verify(self) -> None:
        """Check the wrapper, and that the kernels are valid Python."""
        super().verify()
        if self.c_source:
            raise VerifyError("GpuProgram: it holds C kernels")
        compile(self.triton_source, "<kernels>", "exec")

    def __str__(self) -> str:
        return f"{self.wrapper_source}\n\n# ---- kernels ----\n{self.triton_source}"
