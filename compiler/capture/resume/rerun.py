"""What Python does where a graph raises: it runs the frame from its start.

A graph runs as a whole before the side effects of its frame, and outside of the ``try`` and
``with`` blocks that its operations were written in. Where it raises (an index beyond the end, a
matrix that has no inverse), Python runs the frame instead: so what the program does before the
error, its ``except`` and ``finally`` clauses, what leaves its ``with`` blocks, and the error itself
are eager's.

A graph that has begun and failed can have left something behind. Only one of which nothing stays
is followed by a run of Python (`parts/repeatable.py`).
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Sequence
from types import FunctionType
from typing import Any

import torch

from tc.compiler.capture import hook
from tc.compiler.capture.bytecode.tracebacks import without_latest
from tc.compiler.capture.opcodes.raising_branches import BRANCH


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
        What the function returns, where it has handled the error, or has not taken the branch: in
        Python a sum may have been rounded otherwise.

    Raises:
        BaseException: what the function raises; `error` if it raises nothing and handles nothing,
            because compiled code has failed where Python does not, or if it is no `Exception`, or
            if the user's code sees each operation, and so may have raised it.
    """
    branch = isinstance(error, RuntimeError) and str(error).startswith(BRANCH)
    if branch or (isinstance(error, Exception) and not _calls_are_seen()):
        try:
            result = _call(function, values)
        except BaseException as raised:
            without_latest(without_latest(raised))  # neither this function nor `_call`
            raise
        if handled or branch:
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
    positional = [
        *values[:at],
        *(rest.pop(0) if code.co_flags & inspect.CO_VARARGS else ()),
    ]
    named = dict(zip(code.co_varnames[at:count], values[at:count], strict=True))
    named.update(rest.pop(0) if code.co_flags & inspect.CO_VARKEYWORDS else {})
    return function(*positional, **named)
