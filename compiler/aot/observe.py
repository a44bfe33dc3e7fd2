"""Observes what a captured graph does with memory: its outputs, and the inputs that it writes to.

The graph runs once, unchanged, on fake tensors. They share, view and write memory as real ones do,
so this run is the reference that the functional trace is checked against.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from tc.compiler.aot.alias import Outputs, analyse_outputs, check_inputs, layout_of
from tc.compiler.aot.artifact import Fallback, first_line
from tc.compiler.aot.layouts import wants_grad
from tc.compiler.aot.reshaped import reshapes_in_place
from tc.compiler.aot.run import PASSED_ON, RAISED, Made, Observer, Runner, run_watched, storage_key
from tc.compiler.core.fakes import fake_mode_of
from tc.compiler.core.origins import line_in

# Methods whose effect is not an op on memory, so that the trace does not show it.
OPAQUE_METHODS = {
    "requires_grad_",
    "retain_grad",
    "backward",
    "register_hook",
    "set_",
    "resize_",
    "resize_as_",
    "share_memory_",
    "untyped_storage",
    "storage",
}
# The module of the operations of torch's compiled autograd.
OPAQUE_HOME = "torch._dynamo.compiled_autograd.ops"


@dataclass
class Observation:
    """The observed effects of a captured graph on memory.

    Attributes:
        captured: the graph.
        inputs: stand-ins of the example inputs, after the writes of the run.
        outputs: outputs of the run.
        results: the plan of the outputs.
        places: where another run finds the tensors that the compiled graph has to return: at an
            output's position, or at a value inside the captured graph.
        wanting: inputs that require gradients.
        mutated: inputs that are written to in place, unseen by autograd.
        rewritten: inputs whose writes have gradients, each with the position in
            ``results.returned`` of its last value.
        writes: whether the graph writes to any tensor.
        runner: has all values of the run.
    """

    captured: fx.GraphModule
    fake_mode: FakeTensorMode
    inputs: list[Any]
    outputs: list[Any]
    results: Outputs
    places: list[int | Made]
    wanting: tuple[int, ...]
    mutated: tuple[int, ...]
    rewritten: tuple[tuple[int, int], ...]
    writes: bool
    runner: Runner


def observe(
    gm: fx.GraphModule,
    examples: Sequence[Any],
    requires_grad: Callable[[torch.Tensor], bool],
) -> Observation:
    """Run a captured graph once and return its effects on memory.

    Args:
        gm: the captured graph.
        examples: its inputs, fake.
        requires_grad: whether the stand-in of an input requires gradients.

    Raises:
        ProgramRaises: the graph raises.
        Fallback: the effects cannot be described by inputs, outputs and their views.
    """
    _refuse_opaque(gm)
    fake_mode = fake_mode_of(examples)
    inputs = as_inputs(examples, fake_mode, requires_grad)
    before = [layout_of(value) for value in inputs]
    history = [grad_fn_of(value) for value in inputs]
    wanting = tuple(i for i, value in enumerate(inputs) if wants_grad(value))
    observer = Observer(fake_mode)
    runner = Runner(gm, observer)
    outputs = flat_outputs(_run(runner, observer, inputs))
    if any(storage_key(fake) in observer.written for fake in observer.constants.values()):
        raise Fallback("it writes to a tensor that the graph holds as a constant")
    written = check_inputs(inputs, before, observer.written)
    lines = _lines_of_outputs(gm)
    results = analyse_outputs(outputs, inputs, runner.made, lines)
    with_gradients = [i for i in written if grad_fn_of(inputs[i]) is not history[i]]
    rewritten = tuple((i, results.fresh(inputs[i]).index) for i in with_gradients)
    return Observation(
        captured=gm,
        fake_mode=fake_mode,
        inputs=inputs,
        outputs=outputs,
        results=results,
        places=_places(results, outputs, runner.made),
        wanting=wanting,
        mutated=tuple(i for i in written if i not in with_gradients),
        rewritten=rewritten,
        writes=bool(observer.written),
        runner=runner,
    )


class ProgramRaises(Fallback):
    """The captured graph itself raises on fake tensors."""


def _run(runner: Runner, observer: Observer, inputs: Sequence[Any]) -> Any:
    """Run the program itself: what it raises here, it raises in eager.

    Capture has not seen the error where it knows fewer values than this run.
    """
    try:
        return run_watched(observer, runner.run, inputs)
    except PASSED_ON:
        raise
    except RAISED as error:
        raise ProgramRaises(f"it raises {type(error).__name__}: {first_line(error)}") from error


def _lines_of_outputs(gm: fx.GraphModule) -> list[str]:
    """Return the user's lines that the outputs of a captured graph are of."""
    given = next(node for node in gm.graph.nodes if node.op == "output").args[0]
    outputs = given if isinstance(given, (list, tuple)) else [given]
    return [line_in(node.meta) if isinstance(node, fx.Node) else "" for node in outputs]


def grad_fn_of(value: Any) -> Any:
    """Return the ``grad_fn`` of a value, or None."""
    return value.grad_fn if isinstance(value, torch.Tensor) else None


def _places(results: Outputs, outputs: Sequence[Any], made: dict[int, Made]) -> list[int | Made]:
    places: list[int | Made] = []
    for value in results.returned:
        if isinstance(value, torch.Tensor):
            at = next((i for i, out in enumerate(outputs) if out is value), None)
            places.append(made[storage_key(value)] if at is None else at)
    return places


def as_inputs(
    examples: Sequence[Any],
    fake_mode: FakeTensorMode,
    requires_grad: Callable[[torch.Tensor], bool],
) -> list[Any]:
    """Return stand-ins for the inputs that may be written to: same memory, no history.

    Raises:
        Fallback: an input is of a tensor subclass.

    Inputs that eager allows programs to write to, because they are no leaves, are no leaves here.
    """
    inputs: list[Any] = []
    stand_ins: dict[int, torch.Tensor] = {}
    with fake_mode:
        for value in examples:
            if isinstance(value, torch.Tensor):
                if not isinstance(value, FakeTensor):
                    raise Fallback(f"an input is a {type(value).__name__}, not a plain tensor")
                if id(value) not in stand_ins:
                    stand_ins[id(value)] = _stand_in(value, requires_grad(value))
                inputs.append(stand_ins[id(value)])
            else:
                inputs.append(value)
    return inputs


def _stand_in(value: torch.Tensor, wants_grad: bool) -> torch.Tensor:
    """Return a stand-in for one input, writable if autograd allows writes to the input."""
    alike = value.detach().requires_grad_(wants_grad)
    if value.is_leaf or not wants_grad or not torch.is_grad_enabled():
        return alike  # without gradients, leaves can be written to as well
    with torch.enable_grad():
        written = alike.clone()
    return written if written.stride() == alike.stride() else alike


def may_require_grad(value: torch.Tensor) -> bool:
    """Return whether eager would let an input require gradients.

    Where none are computed, compiled code is used for inputs that require them and for inputs that
    do not. So the outputs that are detached from an input are found by taking all to require them.
    """
    return value.is_floating_point() or value.is_complex()


def flat_outputs(result: Any) -> list[Any]:
    """Return a graph's outputs as a flat list.

    Raises:
        Fallback: the outputs are nested.
    """
    outputs = list(result) if isinstance(result, (list, tuple)) else [result]
    if any(isinstance(value, (list, tuple, dict)) for value in outputs):
        raise Fallback("its outputs are nested")
    return outputs


def _refuse_opaque(gm: fx.GraphModule) -> None:
    """Refuse graphs with calls whose effect the trace does not show.

    Raises:
        Fallback: there is such a call.
    """
    for node in gm.graph.nodes:
        if node.op == "call_method" and node.target in OPAQUE_METHODS:
            raise Fallback(f"it calls .{node.target}()", line_in(node.meta))
        if reshapes_in_place(node) and node.args[0].op == "placeholder":
            # capture has changed its example: that says no more what the input is like
            why = "the shape, strides, history or storage of an input are changed in place"
            raise Fallback(why, line_in(node.meta))
        if node.kwargs.get("requires_grad") is True:
            raise Fallback("it makes a tensor that requires gradients", line_in(node.meta))
        if getattr(node.target, "__module__", "") == OPAQUE_HOME:
            raise Fallback(f"{node.target.__name__} reads which tensors require gradients")
