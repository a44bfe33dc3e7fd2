"""Backends made out of compilers of ATen graphs.

In: functions of users that compile functional graphs. Out: a backend for `tc.compile`, gradients
included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from tc.compiler.aot_dispatch import Boxed, Compiled, Compilers, compile_graph, run_eagerly
from tc.compiler.backends.dynamo_graph import (
    as_captured,
    is_from_torch,
    refused_input,
    with_effects,
)
from tc.compiler.backends.registry import name_of
from tc.compiler.capture import hook
from tc.compiler.core.gate import Gate
from tc.compiler.core.settings import nearest, require_callable
from tc.compiler.errors import BackendError, OptionError, TcError

#: what users give: graph and example inputs -> a function of the inputs
GraphCompiler = Callable[[fx.GraphModule, list[Any]], Callable[..., Any]]
#: what backward may use of forward's values, by the name `aot_backend` takes
PARTITIONS = ("default", "min_cut")


def aot_backend(
    fw_compiler: GraphCompiler,
    bw_compiler: GraphCompiler | None = None,
    inference_compiler: GraphCompiler | None = None,
    *,
    decompositions: Mapping[Any, Callable[..., Any]] | bool | None = None,
    partition: str = "default",
) -> Callable[..., Compiled]:
    """Make a backend for `tc.compile`, or `torch.compile`, out of compilers of ATen graphs.

    Each compiler gets ``(gm, example_inputs)``: a functional graph of ATen operations, whose
    placeholders carry fake values in ``meta["val"]``, and a list of these. It returns a callable
    over such inputs that returns a tuple or list of the graph's outputs. A callable whose attribute
    ``_boxed_call`` is true is given one list of the inputs, which it may empty to free them early;
    any other is given the inputs one by one.

    Args:
        fw_compiler: compiles what computes outputs, and keeps values for backward.
        bw_compiler: compiles what computes gradients; `fw_compiler` if omitted.
        inference_compiler: compiles graphs without gradients; `fw_compiler` if omitted.
        decompositions: operation -> a function over simpler operations; True: all that tc has.
            By default no operation is taken apart that has a kernel of its own.
        partition: ``"default"``: keep what backward uses; ``"min_cut"``: keep the least memory, and
            let backward compute again what is cheap.

    Returns:
        A backend. Graphs that are not proven right in this form run eagerly; the trace records
        this as ``tc_graph_runs_eagerly``. Settings from ``mode`` and ``options`` are not used.

    Raises:
        OptionError: there is no such partition.

    Example:
        >>> import tc, torch
        >>> def show(gm, example_inputs):
        ...     print([node.name for node in gm.graph.nodes if node.op == "call_function"])
        ...     return gm.forward
        >>> tc.compile(lambda x: x.sin(), backend=tc.aot_backend(show))(torch.zeros(2))
        ['sin']
        tensor([0., 0.])
    """
    if partition not in PARTITIONS:
        raise OptionError(f"there is no partition {partition!r}{nearest(partition, PARTITIONS)}")
    chosen = None if decompositions is True else decompositions or {}
    compilers = Compilers(
        _foreign(fw_compiler, "fw_compiler"),
        _foreign(bw_compiler or fw_compiler, "bw_compiler"),
        _foreign(inference_compiler or fw_compiler, "inference_compiler"),
    )

    def compile_captured(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Compiled:
        return compile_graph(gm, example_inputs, compilers, _gate(partition), chosen)

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any], **ignored: Any) -> Compiled:
        if is_from_torch(gm):
            return _of_torch(gm, example_inputs, compile_captured)
        return compile_captured(gm, example_inputs)

    backend.__name__ = name_of(fw_compiler)
    return backend


def _of_torch(
    gm: fx.GraphModule, example_inputs: Sequence[Any], compile_captured: Callable[..., Compiled]
) -> Compiled:
    """Compile a graph that PyTorch captured as if tc had."""
    if (why := refused_input(example_inputs)) is not None:
        return run_eagerly(gm, why)
    captured, held = as_captured(gm, example_inputs)
    compiled = compile_captured(captured, [*example_inputs, *held])
    return with_effects(captured, compiled, held)


def _gate(partition: str) -> Gate:
    """Return the gate of a compile, which lets backward compute values again if that is wanted."""
    gate = Gate.from_environment()
    if partition == "min_cut":
        return gate
    return replace(gate, refuse_from={**gate.refuse_from, "aot.recompute": 0})


def _foreign(compiler: GraphCompiler, role: str) -> Callable[[fx.GraphModule], Boxed]:
    """Return a compiler of the user's in the form that `Compilers` has."""
    require_callable(f"the argument {role!r} of tc.aot_backend", compiler, "a function")

    def compiled(module: fx.GraphModule) -> Boxed:
        examples = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
        count = len(module.graph.output_node().args[0])  # type: ignore[arg-type]
        # else its `forward` is one that calls the module, and with it the hooks of all modules
        _LazyGraphModule.force_recompile(module)
        try:
            with hook.off():
                function = compiler(module, examples)
        except TcError:
            raise
        except Exception as error:
            text = f"{role} raised {type(error).__name__}: {error}"
            raise BackendError("backend", text) from error
        if not callable(function):
            raise BackendError(
                "backend", f"{role} returned {type(function).__name__}, not a callable"
            )
        return hook.disabled(_boxed(function, count, role))

    return compiled


def _boxed(function: Callable[..., Any], count: int, role: str) -> Boxed:
    """Return a function of one list that checks the arguments it forwards."""
    takes_list = getattr(function, "_boxed_call", False)

    def call(args: list[Any]) -> tuple[Any, ...]:
        results = function(args) if takes_list else function(*args)
        if not isinstance(results, (tuple, list)) or len(results) != count:
            shown = f"{len(results)} results" if isinstance(results, (tuple, list)) else results
            raise BackendError(
                "backend",
                f"what {role} compiled returned {shown}, not a tuple or list of {count}",
            )
        return tuple(results)

    return call
