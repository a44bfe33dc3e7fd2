"""What a stage of the compiler did to a graph, step by step."""

from __future__ import annotations

from dataclasses import dataclass

from tc.trace.events import Fact
from tc.trace.kinds import Kind


@dataclass(frozen=True)
class Edit:
    """Lines of a graph's text that a pass replaced: ``removed`` from number ``line`` on (0-based).

    Numbers are those before the pass. The text has a line a node, in the graph's order: that of
    the ATen graph's record without its first line.
    """

    line: int
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


@dataclass(frozen=True)
class PassRan:
    """A pass over a whole graph.

    Attributes:
        name: as TC_BISECT has it, e.g. ``aot.drop_no_ops``.
        first, last: numbers of the steps that it asked the gate for, itself included; 0, 0 if it
            asks for none (it is needed for rightness) or had nothing to ask for.
        refused: the gate did not let it run.
        before, after: lines of the graph (nodes, loop nests, kernels), before and after it.
        edits: the lines that changed, from top to bottom; empty where it changed nothing.
        left_out: edits that are not reported because there were too many.
    """

    name: str
    first: int = 0
    last: int = 0
    refused: bool = False
    changed: bool = False
    before: int = 0
    after: int = 0
    edits: tuple[Edit, ...] = ()
    left_out: int = 0


@dataclass(frozen=True)
class Steps:
    """All steps of one name: decompositions, lowerings, firings of a rule, fusions, …

    Attributes:
        name: as TC_BISECT has it, e.g. ``aot.decompose.aten.gelu``.
        count: how often the gate was asked; ``refused`` of these it did not allow.
        first, last: numbers of the first and the last.
        at: what they were about, each once: nodes, buffers or user lines; the first few.
    """

    name: str
    count: int
    refused: int
    first: int
    last: int
    at: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fired:
    """A rewrite rule replaced a value by an equal one, in the value that is stored in ``buffer``.

    Attributes:
        number: of the step, as for TC_BISECT.
        line: ``file:line`` of the user, empty if unknown.
    """

    number: int
    rule: str
    before: str
    after: str
    buffer: str = ""
    line: str = ""


@dataclass(frozen=True)
class StageRan(Fact, wire=Kind("tc_pass", "passes of a stage", "graph passes")):
    """All that one stage did to one graph: a record a graph and stage, not one a decision.

    Attributes:
        graph: ``inference``, ``joint``, ``forward`` or ``backward``.
        stage: ``aot``, ``library``, ``loops`` or ``schedule``, in this order.
        first, last: numbers of the steps asked for, those of ``TC_BISECT=N``; 0, 0 without any.
        passes: in the order they ran.
        steps: by name, in the order they came first.
        firings: of rewrite rules, with the values before and after; the first ones.
        left_out: firings that are only counted, in ``steps``.
    """

    graph: str
    stage: str
    first: int = 0
    last: int = 0
    passes: tuple[PassRan, ...] = ()
    steps: tuple[Steps, ...] = ()
    firings: tuple[Fired, ...] = ()
    left_out: int = 0


@dataclass(frozen=True)
class MemoryInput:
    """An input of a program.

    Attributes:
        freed: number of steps after which it is no longer read; -1 if it is read to the end.
    """

    name: str
    bytes: int
    freed: int = -1


@dataclass(frozen=True)
class MemoryHolder:
    """Memory that is alive at the peak, and what fills it.

    Attributes:
        step: kernel or call; ``line``: the user's, ``file:line``.
    """

    name: str
    step: str
    line: str
    bytes: int


@dataclass(frozen=True)
class MemoryPlan(Fact, wire=Kind("tc_memory", "memory, step by step", "code", kept=True)):
    """What a program holds while each of its steps runs, as its plan says: predicted.

    Attributes:
        graph: ``inference``, ``forward`` or ``backward``.
        steps: kernels and calls in order; ``lines``: the user's line of each, empty if unknown.
        alive: bytes alive during each, results included and inputs not.
        inputs: those that are tensors. A backward holds the only reference to what forward saved
            for it, so that this memory is free after its last use.
        holders: of the peak, the largest first.
        kept: bytes alive at the end: results, and what is saved for backward.
    """

    graph: str
    steps: tuple[str, ...]
    lines: tuple[str, ...]
    alive: tuple[int, ...]
    inputs: tuple[MemoryInput, ...]
    holders: tuple[MemoryHolder, ...] = ()
    kept: int = 0
