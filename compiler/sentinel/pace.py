"""Times calls of a compiled graph against eager, on copies of their inputs: ``profile_eager``.

In: a compiled graph, and the captured one. Out: a callable in its place, which runs some calls a
second time, by eager, behind the compiled one. Results are those of the compiled graph; the random
numbers that eager draws are drawn back, and what it writes to is a copy.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

from tc import trace
from tc.compiler.capture import hook
from tc.compiler.sentinel.copies import RandomState, copied, require_comparable, unseen
from tc.compiler.sentinel.graph import Graph

#: one call in so many is timed, and before that those behind a power of two
SAMPLED = 512
_clock = time.perf_counter


def is_timed(call: int) -> bool:
    """Return whether a call of that number, from 1, is timed: not the first, which is cold.

    None of them is one whose kernels are timed one by one (`telemetry.profile.is_sampled`).
    """
    last = call - 1
    return last > 1 and (last & (last - 1) == 0 if last < SAMPLED else last % SAMPLED == 0)


def paced(
    compiled: Callable[..., Any], graph: Graph, note: Callable[[float, float], None], memory: int
) -> Callable[..., Any]:
    """Return what runs a compiled graph, and notes how long eager takes for some of its calls.

    Args:
        note: is called with the seconds of eager, and of the compiled graph in the same call.
        memory: bytes that copies of the inputs of a call may take.
    """
    if _holds_tensors(graph):
        return compiled
    count = itertools.count(1).__next__

    def call(*args: Any) -> Any:
        if not is_timed(count()):
            return compiled(*args)
        began = _clock()
        try:
            with unseen():
                require_comparable(args, memory)
                state, own = RandomState.now(args), copied(args)
        except Exception:  # such a call cannot be repeated
            return compiled(*args)
        finally:
            trace.leave_out(_clock() - began)
        began = _clock()
        result = compiled(*args)
        ended = _clock()
        seconds = _eager(graph, own, state)
        if seconds is not None:
            note(seconds, ended - began)
        trace.leave_out(_clock() - ended)
        return result

    return hook.never_trace(call)


def _eager(graph: Graph, inputs: list[Any], before: RandomState) -> float | None:
    """Return the seconds of a captured graph run by eager; None if it fails there."""
    after = RandomState.now(inputs)
    try:
        if graph.may_draw:
            before.restore()
        with unseen():
            began = _clock()
            graph.eager(*inputs)
            return _clock() - began
    except Exception:  # what fails in eager is no measure of it
        return None
    finally:
        if graph.may_draw:
            after.restore()


def _holds_tensors(graph: Graph) -> bool:
    """Return whether a graph reads tensors that are no inputs: a second run may write to them."""
    return any(node.op in ("get_attr", "call_module") for node in graph.module.graph.nodes)
