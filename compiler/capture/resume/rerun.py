"""What Python does where a graph raises: it runs the frame from its start.

A graph runs as a whole before the side effects of its frame, and outside of the ``try`` and
``with`` blocks that its operations were written in. Where it raises (an index beyond the end, a
matrix that has no inverse), Python runs the frame instead: so what the program does before the
error, its ``except`` and ``finally`` clauses, what leaves its ``with`` blocks, and the error itself
are eager's.

A graph that has begun and failed can have left something behind. Only one of which nothing stays
is followed by a run of Python: it has no writes to its inputs, draws no random numbers, and calls
only functions of torch.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Sequence
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch._ops import OpOverload, OpOverloadPacket

from tc.compiler.capture import hook
from tc.compiler.capture.bytecode.tracebacks import without_latest
from tc.compiler.core.memory import storage_id

if TYPE_CHECKING:
    from tc.compiler.capture.tracer import Tracer

#: flags of code whose frames cannot be entered by a call
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_FUNCTION = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS

#: methods and functions that call hooks, or leave gradients
_WITH_EFFECTS = frozenset({"backward", "grad"})
_FUNCTIONS = (OpOverload, OpOverloadPacket, FunctionType, BuiltinFunctionType)
#: packages whose functions graphs call, but for the user's and tc's
_MODULES = frozenset({"torch", "_operator", "operator", "builtins", "math"})


def may_run_again(t: Tracer, code: CodeType) -> bool:
    """Return whether Python may run a frame from its start after the frame's graph has raised."""
    if code.co_flags & _SUSPENDED or code.co_flags & _FUNCTION != _FUNCTION:
        return False
    output, mode = t.output, t.shapes.mode
    if output.derived.below or mode.runs_once or not all(map(_is_of_torch, output.graph.nodes)):
        return False
    examples = [entry.value.example for entry in output.inputs]
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


@hook.cached_only
def run_again(
    error: BaseException,
    handled: bool,
    exits: Sequence[Any],
    function: FunctionType,
    values: Sequence[Any],
) -> Any:
    """Run a frame whose graph raised; called from residual code.

    Args:
        error: what the graph raised.
        handled: whether the program may handle it.
        exits: what leaves the ``with`` blocks that the frame begins in, the outermost first.
        function: of the frame's code, which the hook passes over.
        values: of the arguments, in the order of `parameters_of`.

    Returns:
        What the function returns, where it has handled the error.

    Raises:
        BaseException: what the function raises; `error` if it raises nothing and handles nothing,
            because compiled code has failed where Python does not, or if it is no `Exception`, or
            if the user's code sees each operation, and so may have raised it.
    """
    if isinstance(error, Exception) and not _calls_are_seen():
        try:
            result = _call(function, values)
        except BaseException as raised:
            without_latest(without_latest(raised))  # neither this function nor `_call`
            raise
        if handled:
            return result
        error.add_note(
            "Python ran the function again without an error: compiled code is at fault, and "
            "tc-bisect finds where"
        )
    else:
        leave_blocks(error, *exits)
    raise error


def _calls_are_seen() -> bool:
    """Return whether code of the user's runs at operations: a dispatch mode, or hooks of autograd.

    Those of checkpoints raise errors to end a run early.
    """
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks is not None or torch._C._len_torch_dispatch_stack() > 0


@hook.disabled
def leave_blocks(error: BaseException, *exits: Any) -> None:
    """Leave ``with`` blocks for an error, the last one first; called from residual code."""
    blocks = contextlib.ExitStack()
    for leave in exits:
        blocks.push(leave)
    blocks.__exit__(type(error), error, error.__traceback__)


def _call(function: FunctionType, values: Sequence[Any]) -> Any:
    """Call a function with the values of its frame's arguments."""
    code = function.__code__
    at, count = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    rest = list(values[count:])
    positional = [*values[:at], *(rest.pop(0) if code.co_flags & inspect.CO_VARARGS else ())]
    named = dict(zip(code.co_varnames[at:count], values[at:count], strict=True))
    named.update(rest.pop(0) if code.co_flags & inspect.CO_VARKEYWORDS else {})
    return function(*positional, **named)
