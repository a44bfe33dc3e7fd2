"""What was done while compiled code ran."""

from __future__ import annotations

from dataclasses import dataclass

from tc.trace.events import Fact


@dataclass(frozen=True)
class CudaGraph(Fact, wire="tc_cudagraph"):
    """The launches of a graph's program were recorded to be replayed as one, or were not.

    Attributes:
        action: ``recorded``, ``recorded anew``, or ``refused``: it launches one by one.
        cause: of a refusal: ``mutation`` (it writes to an input that moves), ``dynamic`` (too
            many sets of sizes, or sizes that depend on values), ``elsewhere`` (tensors on another
            device), ``synchronises``, ``alias``, ``overlap``, ``unrecordable``; ``held``: results
            of an earlier call were in use.
        why: one sentence.
        graph: ``inference``, ``forward`` or ``backward``.
    """

    action: str
    cause: str
    why: str
    graph: str = ""
