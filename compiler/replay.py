"""Runs a graph compiled up to a chosen stage; reference interpreters do the rest.

In: a captured graph. Out: a callable that shows what that stage's artifact computes. With the gate,
all that `tc-bisect` needs. Beside the driver the only module that knows more than one stage.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from tc.compiler.aot_backend import Compilers, compile_graph
from tc.compiler.core.gate import Gate
from tc.compiler.driver import inductor

Compiled = Callable[..., Any]

#: stage -> what runs after it in place of the compiler's own rest
REPLAYED = {
    "capture": "the captured graph, run eagerly",
    "aot": "the ATen graph, interpreted op by op",
    "loops": "the loop IR, by the reference interpreter",
    "kernels": "the compiled kernels",
}


def replaying(stage: str, gate: Gate | None = None) -> Callable[..., Compiled]:
    """Return a backend that compiles up to a stage (a key of `REPLAYED`).

    Args:
        stage: the last stage that is used.
        gate: asked before every optional step; all are allowed if omitted.
    """
    allowed = gate or Gate()

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Compiled:
        if stage == "capture":
            return gm.forward
        if stage == "kernels":
            return inductor(gm, example_inputs, allowed)
        run = functools.partial(_run, stage=stage, gate=allowed)
        compilers = Compilers(run, run, run, "replay", standalone=stage == "aot")
        return compile_graph(gm, example_inputs, compilers, allowed)

    return backend


def _run(module: fx.GraphModule, stage: str, gate: Gate) -> Callable[[list[Any]], tuple[Any, ...]]:
    if stage == "loops":
        from tc.compiler import loops
        from tc.compiler.loops.interpret import interpret

        lowered = loops.lower(module, gate)
        return lambda args: interpret(lowered, args)
    interpreter = fx.Interpreter(module)
    return lambda args: tuple(interpreter.run(*args))
