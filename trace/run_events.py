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


@dataclass(frozen=True)
class Region:
    """A compiled graph, or a function that is not compiled, at run time in this process so far.

    Attributes:
        compile: id of the compile that made it.
        how: ``compiled``; ``operations``: eagerly, one by one; ``python``: the function itself,
            which was skipped or compiled too often. That is counted from Python 3.12 on.
        calls: of the graph, which are the hits of its entry in the cache of its function; where it
            runs in Python, of the function.
        sampled: calls of which the time was taken; ``seconds`` of these together. Of GPU graphs
            that is the time to launch.
    """

    compile: str
    function: str
    file: str
    line: int
    how: str
    calls: int
    sampled: int
    seconds: float


@dataclass(frozen=True)
class RegionsRan(Fact, wire="tc_run"):
    """Calls of compiled graphs since the process began; a later record replaces an earlier one.

    Attributes:
        regions: those called most first.
        left_out: graphs called that are not told of, because there are too many.
    """

    regions: tuple[Region, ...]
    left_out: int = 0
