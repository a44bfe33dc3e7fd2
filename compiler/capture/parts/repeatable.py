"""Whether Python may run a frame from its start after the frame's graph has raised.

Nothing of the frame has happened yet then: a graph runs before the side effects of its frame. But a
graph that has begun and failed can have left something behind. Of one that writes to no input,
draws no random numbers, and calls only functions of torch, nothing stays.
"""

from __future__ import annotations

import inspect
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import TYPE_CHECKING

import torch
from torch import fx
from torch._ops import OpOverload, OpOverloadPacket

from tc.compiler.core.memory import storage_id

if TYPE_CHECKING:
    from tc.compiler.capture.parts.output_graph import OutputGraph

#: flags of code whose frames cannot be entered by a call
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_FUNCTION = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS

#: methods and functions that call hooks, or leave gradients
_WITH_EFFECTS = frozenset({"backward", "grad"})
_FUNCTIONS = (OpOverload, OpOverloadPacket, FunctionType, BuiltinFunctionType)
#: packages whose functions graphs call, but for the user's and tc's
_MODULES = frozenset({"torch", "_operator", "operator", "builtins", "math"})


def may_run_again(output: OutputGraph, code: CodeType) -> bool:
    """Return whether Python may run a frame from its start after the frame's graph has raised."""
    if code.co_flags & _SUSPENDED or code.co_flags & _FUNCTION != _FUNCTION:
        return False
    mode = output.t.shapes.mode
    if (
        output.derived.below
        or output.drawn
        or mode.runs_once
        or not all(map(_is_of_torch, output.graph.nodes))
    ):
        return False
    examples = [entry.node.meta["example_value"] for entry in output.inputs]
    try:
        inputs = {storage_id(one) for one in examples if isinstance(one, torch.Tensor)}
    except NotImplementedError:  # a sparse one, whose memory is that of others
        return not mode.written
    return inputs.isdisjoint(mode.written)


def _is_of_torch(node: fx.Node) -> bool:
    """Return whether a node calls only code of torch, whose effects fakes show."""
    if node.op == "call_method":
        return node.target not in _WITH_EFFECTS
    if node.op != "call_function":
        return node.op != "call_module"
    target = node.target
    if not isinstance(target, _FUNCTIONS):
        return False
    module = target.__module__ or ""  # methods of C++ objects have none
    return target.__name__ not in _WITH_EFFECTS and module.partition(".")[0] in _MODULES
