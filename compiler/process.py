"""What all compiles of a process share: counts, names of graphs, the gate, who listens."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any
from weakref import WeakValueDictionary

from torch import fx

from tc.compiler.core.gate import Gate
from tc.compiler.names import GraphNames


@dataclass
class Process:
    """What all compiles of a process share.

    Attributes:
        gate: asked before every optional step of compiles that bring none.
        default_backend: of compiles that name none.
        frames: code objects seen so far; the index is the frame id.
        graphs: graphs captured so far.
        breaks: graph breaks so far.
        counters: running counts under the names torch's programs know.
        on_graph: called with each graph before a backend gets it.
        code_objects: those seen so far that are still alive, by their ids.
        warned: texts of warnings given, each of which is given once.
        names: of compiled graphs in the globals of users' modules.
    """

    gate: Gate = field(default_factory=Gate.from_environment)
    default_backend: str | Callable[..., Any] = "inductor"
    frames: int = 0
    graphs: int = 0
    breaks: int = 0
    counters: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    on_graph: list[Callable[[fx.GraphModule], None]] = field(default_factory=list)
    code_objects: WeakValueDictionary[int, CodeType] = field(default_factory=WeakValueDictionary)
    warned: set[str] = field(default_factory=set)
    names: GraphNames = field(default_factory=GraphNames)


PROCESS = Process()
