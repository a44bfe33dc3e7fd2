"""Runs a graph compiled up to a chosen stage; reference interpreters do the rest.

In: a captured graph. Out: a callable that shows what that stage's artifact computes. With the gate,
all that `tc-bisect` needs. Stages after aot are in `replay_loops`, loaded where they are asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from tc.compiler.aot_backend import Compilers, compile_graph
from tc.compiler.core.gate import Gate
from tc.compiler.driver import arrange_joint, inductor

Compiled = Callable[..., Any]

#: stage -> what runs after it in place of the compiler's own rest
REPLAYED = {
    "capture": "the captured graph, run eagerly",
    "aot": "the ATen graph, interpreted op by op",
    "loops": "the loop IR, by the reference interpreter",
    "schedule": "the plan, its kernels by the reference interpreter",
    "kernels": "the plan, each kernel compiled and called by itself",
    "program": "the finished program",
}


def replaying(stage: str, gate: Gate | None = None) -> Callable[..., Compiled]:
    """Return a backend that compiles up to a stage (a key of `REPLAYED`).

    Args:
        stage: the last stage that is used.
        gate: asked before every optional step; all are allowed if omitted. At stage ``kernels``
            it is also asked ``kernel.<name>`` for each: one that is refused is interpreted.
    """
    allowed = gate or Gate()

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Compiled:
        if stage == "capture":
            return gm.forward
        if stage == "program":
            return inductor(gm, example_inputs, allowed)
        run = functools.partial(_run, stage=stage, gate=allowed)
        standalone = stage == "aot"
        joint = None if standalone else arrange_joint
        compilers = Compilers(run, run, run, "replay", standalone, joint=joint)
        return compile_graph(gm, example_inputs, compilers, allowed)

    return backend


def _run(module: fx.GraphModule, stage: str, gate: Gate) -> Callable[[list[Any]], tuple[Any, ...]]:
    if stage != "aot":
        from tc.compiler.replay_loops import replay  # a graph found on disk needs none of it

        return replay(module, stage, gate)
    interpreter = fx.Interpreter(module)
    return lambda args: tuple(interpreter.run(*args))
