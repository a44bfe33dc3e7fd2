"""tc as a backend of `torch.compile`: PyTorch captures and guards, tc compiles the graph.

In: what PyTorch gives a backend: graph, example inputs, and ``mode`` and ``options`` as the user
gave them. Out: a callable over the graph's inputs. PyTorch finds `tc` through the entry point
``torch_dynamo_backends`` of this distribution. Nothing of PyTorch's compiler is imported: all that
is needed of it are the arguments and the tracing context of `torch._guards`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from tc import trace
from tc.compiler.aot_dispatch import NOWHERE, run_eagerly
from tc.compiler.backends.dynamo_graph import (
    as_captured,
    is_levelled,
    refused_input,
    with_effects,
)
from tc.compiler.core import garbage, levels
from tc.compiler.core.graphtext import PLACE, UNREPORTED
from tc.compiler.core.graphview import shown
from tc.compiler.core.lock import alone
from tc.compiler.core.modes import Settings
from tc.compiler.options import InductorOptions, config
from tc.compiler.pipeline import inductor
from tc.compiler.process import PROCESS
from tc.compiler.ranks import follow_setting
from tc.compiler.telemetry.profile import programs
from tc.compiler.telemetry.reporter import report_forward
from tc.compiler.telemetry.torch_trace import (
    current_torch_compile,
    follow_torch_logs,
    follow_torch_trace,
)
from tc.trace import StackFrame

Compiled = Callable[..., Any]

trace.setup_from_environment()
follow_setting(config.rank_check)


def tc(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Compiled:
    """Compile a graph that PyTorch captured; ``torch.compile(..., backend="tc")`` calls this.

    Args:
        gm: calls of torch functions and tensor methods, returning a flat tuple or list.
        example_inputs: one tensor or symbolic number a placeholder.
        mode: one of `list_mode_options()`.
        options: settings named by `list_options()`.

    Returns:
        A function of the graph's inputs that returns its outputs, with gradients where inputs ask
        for them. A graph that is not proven right runs operation by operation, and the trace says
        so (``tc_graph_runs_eagerly``).

    Raises:
        OptionError: an unknown mode or option, or both a mode and options.
        StageError: a stage of the compiler failed.

    Example:
        >>> import torch
        >>> torch.compile(lambda x: x.sin() + 1, backend="tc")(torch.zeros(2))  # doctest: +SKIP
        tensor([1., 1.])
    """
    settings = InductorOptions.of(mode, dict(options or {}))
    if settings.freezing:
        settings = replace(settings, freezing=False)
        _warn_of_freezing()
    follow_torch_trace()
    follow_torch_logs()
    follow_setting(config.rank_check)
    compile_id = current_torch_compile()
    known = nullcontext() if compile_id is None else trace.compiling(compile_id)
    before = Settings()
    try:
        # As tc's own frames are compiled: unseen by the user's modes and hooks of saved tensors.
        with known, garbage.paused(), _disable_current_modes(), levels.autograd_unseen():
            return alone(
                lambda: _compiled(gm, example_inputs, settings),
                lambda: run_eagerly(gm, "the wait for another thread's compilation timed out"),
            )
    finally:
        before.restore()  # a graph that is run on fake inputs may stop between two that it sets


@functools.cache
def _warn_of_freezing() -> None:
    trace.warn(
        "the option 'freezing' changes nothing under torch.compile, whose graphs take parameters "
        "as inputs and do not guard their values; tc.compile freezes them"
    )


@trace.reports(trace.nothing)
def _report_start(place: trace.StackFrame) -> None:
    trace.emit(trace.FrameStart((place,)))


def _compiled(
    gm: fx.GraphModule, example_inputs: Sequence[Any], settings: InductorOptions
) -> Compiled:
    if (why := refused_input(example_inputs)) is not None:
        return run_eagerly(gm, why)
    captured, held = as_captured(gm, example_inputs)
    example_inputs = [*example_inputs, *held]
    place = _place_of(captured)
    captured.meta[PLACE] = place
    if (compile_id := trace.current_compile()) is not None:
        programs.facts(compile_id, place)
    captured.meta[UNREPORTED] = "captured"  # the backend may find its text on disk
    _report_start(place)
    PROCESS.graphs += 1
    for listener in tuple(PROCESS.on_graph):
        listener(shown(captured))
    started, clock = time.time(), time.perf_counter()
    with trace.stage("backend_compile"):
        compiled = inductor(captured, example_inputs, PROCESS.gate, settings)
    report_forward(trace.current_compile(), place, started, time.perf_counter() - clock)
    compiled = with_effects(captured, compiled, held)
    return levels.keeping(compiled) if is_levelled(captured.graph) else compiled


def _place_of(captured: fx.GraphModule) -> StackFrame:
    """Return where the compiled function is: the outermost line of its first operation."""
    stacks = (node.meta["tc_origin"] for node in captured.graph.nodes if "tc_origin" in node.meta)
    return next((stack[0] for stack in stacks if stack), NOWHERE)
