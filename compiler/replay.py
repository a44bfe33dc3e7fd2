"""Runs a graph compiled up to a chosen stage; reference interpreters do the rest.

In: a captured graph. Out: a callable that shows what that stage's artifact computes. With the gate,
all that `tc-bisect` needs. Beside the driver the only module that knows more than one stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from tc.compiler import aot, loops
from tc.compiler.core.gate import Gate
from tc.compiler.driver import graph_examples, inductor
from tc.compiler.loops.interpret import interpret

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
        examples = graph_examples(gm, example_inputs)
        try:
            return _interpreted(gm, examples, stage, allowed)
        except aot.Fallback:
            return gm.forward

    return backend


def _interpreted(gm: fx.GraphModule, examples: Sequence[Any], stage: str, gate: Gate) -> Compiled:
    wants_grad = any(isinstance(e, torch.Tensor) and e.requires_grad for e in examples)
    if torch.is_grad_enabled() and wants_grad:
        training = aot.training(gm, examples, gate)
        backward = None
        if training.backward is not None:
            backward = _run(training.backward.module, stage, gate)
        return aot.wrap_training(training, _run(training.forward.module, stage, gate), backward)
    functional = aot.inference(gm, examples, gate)
    return aot.wrap(functional, _run(functional.module, stage, gate))


def _run(module: fx.GraphModule, stage: str, gate: Gate) -> Callable[[list[Any]], tuple[Any, ...]]:
    if stage == "loops":
        lowered = loops.lower(module, gate)
        return lambda args: interpret(lowered, args)
    interpreter = fx.Interpreter(module)
    return lambda args: tuple(interpreter.run(*args))
