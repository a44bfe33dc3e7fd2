"""Global modes of torch that traced code reads and sets: grad mode, autocast, default dtype, ...

A mode that traced code sets applies to the rest of the trace. The graph sets it, and restores it at
its end; the residual code sets it again if the frame leaves it changed. A mode that is not part of
the GLOBAL_STATE guard is guarded when it is read.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import _C, fx
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode

from tc.compiler.capture import breaks
from tc.compiler.capture.guards.facts import PROCESS
from tc.compiler.capture.torch_api.torch_functions import CHANGES_STATE
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import TupleValue
from tc.compiler.capture.values.exceptions import traceback_of
from tc.compiler.capture.values.handlers import handles
from tc.compiler.capture.values.tensor import METHODS, TensorValue
from tc.compiler.core import levels
from tc.compiler.core.modes import (
    ANOMALY,
    MIXED,
    MODES,
    PRECISION,
    Mode,
    Settings,
    torch_mode,
)
from tc.compiler.errors import in_library

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


#: what sets autocast
AUTOCAST = (
    torch.set_autocast_enabled,
    torch.set_autocast_dtype,
    torch.set_autocast_cache_enabled,
    torch.set_autocast_cpu_enabled,
    torch.set_autocast_cpu_dtype,
    torch.set_autocast_gpu_dtype,
    torch.autocast_increment_nesting,
    torch.autocast_decrement_nesting,
    torch.clear_autocast_cache,
)


class InferenceValue(Value):
    """An inference mode of traced code: the graph enters it, and again after a graph break.

    Tracing only switches gradients off, so that all fake tensors are ordinary ones.
    """

    noun = "an inference mode"

    def __init__(self, on: bool) -> None:
        self.on = on
        self.node: fx.Node | None = None

    def python_type(self) -> type:
        return _C._InferenceMode

    def attr(self, t: Interpreter, name: str) -> Value:
        return t.attributes.builtin_method(self, name)

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__enter__":
            self.node = t.output.set_mode(_enter_inference_mode, self.on)
            t.modes.open_inference(self)
            t.guards.gradients_matter |= not self.on
        elif (
            name == "__exit__"
            and t.modes.inference
            and t.modes.inference[-1][0] is self
        ):
            self.leave(t)
            t.modes.close_inference()
        else:
            self.cannot(breaks.UNSUPPORTED_CALL, f"_InferenceMode.{name}")
        return ConstValue(None)

    def leave(self, t: Interpreter) -> None:
        """Record that the graph leaves the mode."""
        t.output.set_mode(_exit_inference_mode, self.node)

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(_enter_inference_mode)
        r.e.load_const(self.on)
        r.e.call(1)


class Modes(Settings):
    """The modes of torch while a frame is traced.

    Attributes:
        inference: the open inference modes, each with the grad mode before it.
        mixed: whether only some of the tensors were made in an inference mode.
    """

    def __init__(self) -> None:
        super().__init__()
        self.inference: list[tuple[InferenceValue, bool]] = []
        self.mixed = False

    def open_inference(self, guard: InferenceValue) -> None:
        """Record that an inference mode was entered: gradients are off in it, else on."""
        self.mixed = True
        self.inference.append((guard, torch.is_grad_enabled()))
        _C._set_grad_enabled(not guard.on)

    def close_inference(self) -> None:
        """Record that the innermost inference mode was left."""
        _C._set_grad_enabled(self.inference.pop()[1])

    def value_now(self, name: str) -> Any:
        """Return what a mode is, without the open inference modes."""
        if name == "grad" and self.inference:
            return self.inference[0][1]  # the grad mode that leaving it restores
        return super().value_now(name)

    def restore(self) -> None:
        """Restore all modes."""
        while self.inference:
            self.close_inference()
        super().restore()


def _asking(name: str, mode: Mode) -> Callable[..., Value]:
    def handler(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        _guard(t, name)
        return t.values.known(mode.read())

    return handler


def _guard(t: Interpreter, name: str) -> None:
    before = t.modes.value_before(name)
    if name == ANOMALY:  # two readers of torch, as compiling sees them
        asked = levels.anomaly_search
        t.guards.ask_process_again(asked, asked.__name__, before)
        return
    t.guards.recorded.add("MODE", PROCESS, (name, before), t.user_line())


def _autocast_dtype(device: str | None = None) -> Callable[..., Value]:
    """Return a handler that reads the type that autocast casts to on a device, and guards it.

    The guard on global state compares it only where autocast is on. ``torch.autocast`` reads it
    where it is given no type, and sets it again at its end.
    """

    def handler(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        given = [*args, *kwargs.values()]
        at = device or t.python.concrete(given[0])
        found = t.python.fold(torch.get_autocast_dtype, at)
        mode = f"autocast.{at}.dtype"
        before = t.modes.value_before(mode) if mode in MODES else found
        asked = functools.partial(torch.get_autocast_dtype, at)
        t.guards.ask_process_again(asked, f"get_autocast_dtype({at!r})", before)
        return t.values.known(found)

    return handler


def _setting(
    function: Callable[..., Any], guarded: str | None = None, at_run: bool = False
) -> Callable[..., Value]:
    """Return a handler that sets a mode now and in the graph.

    Args:
        guarded: the mode, if it needs a guard of its own.
        at_run: whether kernels read the mode when they run, so that the graph has to set it.
    """

    def handler(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        if len(t.output.scopes) > 1 and not _may_set_in_body(t, function):
            raise breaks.GraphBreak(
                breaks.BODY_EFFECT, f"a higher-order operation ({function.__name__})"
            )
        if guarded is not None:
            _guard(t, guarded)
        plain = tuple(t.python.concrete(arg) for arg in args)
        named = t.python.concrete_dict(kwargs)
        if function is _C._set_grad_enabled and plain[:1] == (True,):
            t.guards.gradients_matter = True
        t.output.set_mode(function, *plain, **named)
        if at_run:
            t.output.calls += 1
            t.output.marks.add(CHANGES_STATE)
        return t.values.known(function(*plain, **named))

    return handler


def _may_set_in_body(t: Interpreter, function: Callable[..., Any]) -> bool:
    """Return whether the body being traced may set a mode.

    Those of an autograd.Function run where the graph has them, once, and `modes_kept` sees to it
    that they leave autocast as it was.
    """
    if function is _C._set_grad_enabled:
        return True
    return function in AUTOCAST and not t.output.scopes[-1].operations


@contextlib.contextmanager
def modes_kept(body: str) -> Iterator[None]:
    """Check that a body leaves all modes as they were.

    Raises:
        GraphBreak: it does not.
    """
    before = Settings()
    yield
    if any(before.changes()):
        raise breaks.GraphBreak(breaks.BODY_EFFECT, body)


def _inference(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    on = bool(t.python.concrete(args[0]))
    if not on and (torch.is_inference_mode_enabled() or t.modes.inference):
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, "torch.inference_mode(False)")
    return InferenceValue(on)


def _in_inference(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    if t.modes.inference:
        return t.values.known(t.modes.inference[-1][0].on)
    return t.values.known(_inference_mode_of_caller(t))


def _inference_mode_of_caller(t: Interpreter) -> bool:
    """Return whether the frame was called in inference mode, and guard that.

    The TENSOR guards cover it as well, but a frame may have none.
    """
    asked = torch.is_inference_mode_enabled
    found = asked()
    t.guards.ask_process_again(asked, asked.__name__, found)
    return found


def _dispatch_modes(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Return how many dispatch modes the frame was called under, and guard that."""
    found = levels.dispatch_modes()
    t.guards.ask_process_again(levels.dispatch_modes, "dispatch_modes", found)
    return ConstValue(found)


def _detects_anomalies(t: Interpreter, index: int) -> Value:
    """Return whether the program searches for anomalies (0), or for NaN (1), and guard that."""
    _guard(t, ANOMALY)
    return ConstValue(levels.anomaly_search()[index])


def _precision(handler: Callable[..., Value]) -> Callable[..., Value]:
    """Make a handler break the graph if torch's newer precision settings determine the mode."""

    def handle(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        if torch_mode(PRECISION) == MIXED:
            raise breaks.GraphBreak(
                breaks.BUILTIN_CALL, "torch's legacy precision setting"
            )
        return handler(t, args, kwargs)

    return handle


def _no_profile(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Ignore a region that only names a part of a profile or graph: nodes have their own names."""
    return t.values.known(contextlib.nullcontext).call(t, [], {})


def _saved_tensors_hooks(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Leave the frame that sets hooks on saved tensors to Python: they get what eager saves."""
    frame = t.top
    assert frame is not None
    while frame.parent is not None and _enters(frame.code):
        frame = frame.parent
    if frame.parent is None:
        raise breaks.SkipFrame(
            "it sets hooks on saved tensors, which have to get what eager saves",
            "set them around the compiled function: they get what compiled graphs save",
        )
    cause = breaks.GraphBreak(
        breaks.UNSUPPORTED_CALL, "torch.autograd.graph.saved_tensors_hooks"
    )
    cause.frame = frame.parent
    raise cause


def _enters(code: types.CodeType) -> bool:
    """Return whether code is a part of entering a context: its caller has the ``with`` block."""
    is_generator = bool(code.co_flags & inspect.CO_GENERATOR)
    file = code.co_filename
    return (
        is_generator
        or code.co_name == "__enter__"
        or file == contextlib.__file__
        or in_library(file)
    )


def _handled(t: Interpreter) -> Value | None:
    """Return the exception that traced code is handling, None where there is none."""
    if t.handled:
        return t.handled[-1].error
    if sys.exc_info()[1] is not None:
        raise breaks.GraphBreak(
            breaks.BUILTIN_CALL, "sys.exc_info() below an except block"
        )
    t.guards.recorded.add("NO_ERROR", PROCESS)
    return None


def _exc_info(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    error = _handled(t)
    if error is None:
        return TupleValue([ConstValue(None)] * 3)
    return TupleValue(
        [t.values.known(error.python_type()), error, traceback_of(t, error)]
    )


def _exception(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    error = _handled(t)
    if error is None:
        return ConstValue(None)
    return error


def _override_modes(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return t.values.known(bool(t.overrides.modes))


def _made_in_inference(
    t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs
) -> Value:
    if t.modes.mixed and tensor.source is None:
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, "Tensor.is_inference")
    if tensor.source is None:
        _inference_mode_of_caller(t)
    return t.values.known(tensor.example.is_inference())


def _require_grad(
    t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs
) -> Value:
    wanted = args[0] if args else kwargs.get("requires_grad", ConstValue(True))
    if tensor.example.requires_grad is not bool(t.python.concrete(wanted)):
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, "Tensor.requires_grad_")
    return tensor


METHODS["is_inference"] = _made_in_inference
METHODS["requires_grad_"] = _require_grad
handles(sys.exc_info)(_exc_info)
handles(sys.exception)(_exception)
handles(_C._autograd._push_saved_tensors_default_hooks)(_saved_tensors_hooks)
handles(_C._is_torch_function_mode_enabled)(_override_modes)
handles(_C._InferenceMode)(_inference)
handles(_C._len_torch_dispatch_stack)(_dispatch_modes)
handles(torch.is_inference_mode_enabled)(_in_inference)
handles(torch.is_anomaly_enabled)(lambda t, args, kwargs: _detects_anomalies(t, 0))
handles(torch.is_anomaly_check_nan_enabled)(
    lambda t, args, kwargs: _detects_anomalies(t, 1)
)
handles(torch.set_anomaly_enabled)(
    _setting(levels.search_anomalies, ANOMALY, at_run=True)
)
handles(torch.autograd.profiler.record_function)(_no_profile)
handles(torch.fx.traceback.annotate)(_no_profile)
handles(_C._get_float32_matmul_precision)(
    _precision(_asking(PRECISION, MODES[PRECISION]))
)
handles(_C._set_float32_matmul_precision)(
    _precision(_setting(_C._set_float32_matmul_precision, PRECISION, at_run=True))
)
handles(_C._set_grad_enabled)(_setting(_C._set_grad_enabled))
handles(_C._set_deterministic_algorithms)(
    _setting(_C._set_deterministic_algorithms, at_run=True)
)
handles(torch.get_autocast_dtype)(_autocast_dtype())
handles(torch.get_autocast_cpu_dtype)(_autocast_dtype("cpu"))
handles(torch.get_autocast_gpu_dtype)(_autocast_dtype("cuda"))
for _function in (*AUTOCAST, _C._set_default_dtype):
    handles(_function)(_setting(_function))
for _name, _mode in MODES.rows():
    if not _mode.guarded:
        handles(_mode.read)(_asking(_name, _mode))
        handles(_mode.write)(_setting(_mode.write, _name, at_run=True))
