"""A compiled graph as the sentinel knows it."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import fx

from tc import trace
from tc.trace import CompileId, StackFrame

Program = Callable[..., Any]


#: parts of names of operations that draw random numbers; one too many costs nothing
DRAWS = re.compile(
    "rand|drop|bernoulli|normal|multinomial|rrelu|poisson|binomial|exponential|uniform|cauchy"
    "|geometric|gumbel|attention|rnn|lstm|gru|seed|shuffle|fractional|sobol|_$"
)


@dataclass(eq=False)
class Graph:
    """What one compiled graph is compared with, and how it is named and reproduced.

    Attributes:
        module: the captured graph, a copy that no backend has changed.
        eager: runs it.
        place: of the function it is of.
        compile_call: how a program compiles it, ``tc.compile(graph)``; empty if no text does.
        draws_as_eager: whether compiled code draws the random numbers that eager draws.
        stages: the graph compiled up to each stage that is compared, by name.
        guards: explains which guards do not hold for a frame's locals and globals.
    """

    module: fx.GraphModule
    eager: Program
    place: StackFrame
    compile_id: CompileId | None = None
    compile_call: str = ""
    draws_as_eager: bool = True
    stages: Mapping[str, Program] = field(default_factory=dict)
    code: Any = None
    _guards: weakref.ref[Any] | None = None

    def guarded_by(self, guards: Any, code: Any) -> None:
        """Note what the code that calls this graph rests on; both die with the compiled code.

        Args:
            guards: has ``explain(locals, globals)``.
            code: the code object that runs in place of the user's.
        """
        self._guards = weakref.ref(guards)
        self.code = code

    def refused_guard(self, frame: Any) -> str:
        """Return a guard that does not hold for the frame that calls the graph, or nothing."""
        guards = self._guards() if self._guards is not None else None
        if guards is None or frame is None or frame.f_code is not self.code:
            return ""
        if torch._C._len_torch_dispatch_stack():  # a mode changes how tensors look, not guards
            return ""
        failures = guards.explain(dict(frame.f_locals), frame.f_globals)
        return f"{failures[0]} ({failures[0].text})" if failures else ""

    @cached_property
    def may_draw(self) -> bool:
        """Whether an operation of the graph may draw random numbers, judged by its name."""
        return any(
            node.op == "call_module"
            or isinstance(node.target, torch._ops.HigherOrderOperator)
            or str(getattr(node.target, "namespace", "aten")) != "aten"
            or DRAWS.search(str(getattr(node.target, "__name__", node.target))) is not None
            for node in self.module.graph.nodes
            if node.op.startswith("call_")
        )

    def lines(self) -> list[str]:
        """Return the user's lines that the graph is made of, ``file:line``, in order."""
        found: dict[str, None] = {}
        for node in self.module.graph.nodes:
            origin = node.meta.get("tc_origin")
            if origin:
                found[f"{origin[-1].file}:{origin[-1].line}"] = None
        return list(found)

    def emit(self, event: trace.Event) -> None:
        """Report something that concerns this graph."""
        trace.emit(event, self.compile_id)
