"""Handles the functions of torch that query or switch ``__torch_function__`` overrides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import get_default_nowrap_functions
from torch.utils._device import DeviceContext

from tc.compiler.capture import breaks
from tc.compiler.capture.torch_api.overrides import dispatch, owners_among
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import METHODS_OF_CONSTANTS, ConstValue
from tc.compiler.capture.values.containers import ListValue, TupleValue
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.handlers import Handler, handles
from tc.compiler.capture.values.subclasses import CLASSES_OFF, OFF, ON, with_class
from tc.compiler.capture.values.tensor import TensorValue
from tc.compiler.capture.values.tuple_objects import tuple_of

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface

#: context managers of torch that switch overrides off, and how far
SWITCHES: dict[Any, int] = {
    torch._C.DisableTorchFunctionSubclass: CLASSES_OFF,
    torch._C.DisableTorchFunction: OFF,
}


class SwitchValue(Value):
    """A context manager of torch that switches overrides off."""

    noun = "a context manager that switches __torch_function__ off"

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.before: int | None = None

    def python_type(self) -> type:
        return self.kind

    def attr(self, t: Interpreter, name: str) -> Value:
        if name not in ("__enter__", "__exit__"):
            return super().attr(t, name)
        return t.attributes.builtin_method(self, name)

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__enter__":
            self.before = t.overrides.level
            t.overrides.level = max(self.before, SWITCHES[self.kind])
        elif name == "__exit__" and self.before is not None:
            t.overrides.level = self.before
            self.before = None
        else:
            self.cannot(breaks.UNSUPPORTED_CALL, f"{self.kind.__name__}.{name}")
        return ConstValue(None)

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(_entered if self.before is not None else self.kind)
        if self.before is not None:
            r.load_object(self.kind)
        r.e.call(0 if self.before is None else 1)


def _entered(kind: Any) -> Any:
    """Return an entered context manager.

    Called from residual code that resumes inside its block.
    """
    switch = kind()
    switch.__enter__()
    return switch


def _maker(kind: Any) -> Handler:
    return lambda t, args, kwargs: SwitchValue(kind)


for _kind in SWITCHES:
    handles(_kind)(_maker(_kind))


# -- questions -------------------------------------------------------------------------------
@handles(torch._C._is_torch_function_enabled)
def _enabled(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return ConstValue(t.overrides.level == ON)


@handles(torch._C._is_torch_function_all_disabled)
def _all_disabled(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return ConstValue(t.overrides.level == OFF)


def _overridden(t: Interpreter, values: Any) -> bool:
    state = t.overrides
    if state.modes and state.level != OFF:
        return True
    return state.level == ON and bool(owners_among(t, values))


@handles(torch.overrides.has_torch_function)
def _has(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return ConstValue(_overridden(t, args[0].unpack(t)))


@handles(
    torch.overrides.has_torch_function_unary,
    torch.overrides.has_torch_function_variadic,
)
def _has_any(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return ConstValue(_overridden(t, args))


@handles(torch.overrides.handle_torch_function)
def _handle(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    owners = owners_among(t, args[1].unpack(t)) if t.overrides.level == ON else []
    return dispatch(t, t.python.concrete(args[0]), owners, args[2:], kwargs)


# -- the base cases --------------------------------------------------------------------------
def _operation(
    args: Args, kwargs: Kwargs, t: Interpreter
) -> tuple[Value, list[Value], Kwargs]:
    """Return the operation, arguments and keywords that a ``__torch_function__`` was given."""
    names = ("func", "types", "args", "kwargs")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    plain = given["args"].unpack(t) if "args" in given else []
    named = given.get("kwargs")
    if not isinstance(named, DictValue):
        return given["func"], plain, {}
    keys = t.python.concrete_list(named.keys(t))
    return given["func"], plain, dict(zip(keys, named.values(t), strict=True))


@handles(torch._C._disabled_torch_function_impl)
def _disabled(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    function, plain, named = _operation(args[1:], kwargs, t)
    with t.overrides.at_least(CLASSES_OFF):
        return function.call(t, plain, named)


@handles(torch.Tensor.__dict__["__torch_function__"].__func__)
def _default(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Call the plain operation, and convert tensors among its results to the class."""
    cls = t.python.concrete(args[0])
    kinds = kwargs["types"] if "types" in kwargs else args[2]
    if not all(issubclass(cls, t.python.concrete(kind)) for kind in kinds.unpack(t)):
        return ConstValue(NotImplemented)
    result = _disabled(t, args, kwargs)
    function = _operation(args[1:], kwargs, t)[0]
    if function.is_constant() and function.constant() in get_default_nowrap_functions():
        return result
    return _converted(t, result, cls)


def _converted(t: Interpreter, result: Value, cls: type) -> Value:
    if isinstance(result, TensorValue):
        return result if issubclass(result.kind, cls) else with_class(t, result, cls)
    if isinstance(result, TupleValue):
        return tuple_of(
            [_converted(t, one, cls) for one in result.values(t)], result.kind
        )
    if isinstance(result, ListValue):
        return ListValue([_converted(t, one, cls) for one in result.values(t)])
    return result


# -- modes -----------------------------------------------------------------------------------
@handles(torch._C._push_on_torch_function_stack)
def _push(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    t.overrides.modes.append(args[0])
    return ConstValue(None)


@handles(torch._C._pop_torch_function_stack)
def _pop(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    if not t.overrides.modes:
        raise breaks.GraphBreak(
            breaks.BUILTIN_CALL, "torch._C._pop_torch_function_stack()"
        )
    return t.overrides.modes.pop()


@handles(torch._C._len_torch_function_stack)
def _count(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return ConstValue(len(t.overrides.modes) + t.overrides.device_modes)


@handles(torch._C._get_function_stack_at)
def _at(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    index = t.python.concrete(args[0]) - t.overrides.device_modes
    if not 0 <= index < len(t.overrides.modes):
        raise breaks.GraphBreak(
            breaks.BUILTIN_CALL, "torch._C._get_function_stack_at()"
        )
    mode: Value = t.overrides.modes[index]
    return mode


def _enter_device(
    t: Interpreter, device: torch.device, args: Args, kwargs: Kwargs
) -> Value:
    """Make a device the default, as ``with device`` does: by a mode above all others."""
    named = ConstValue(device)
    kind = t.values.known(DeviceContext)
    mode = kind.call(t, [named], {})
    t.overrides.modes.append(mode)
    return named


def _leave_device(
    t: Interpreter, device: torch.device, args: Args, kwargs: Kwargs
) -> Value:
    """End what `_enter_device` began."""
    _pop(t, [], {})
    return ConstValue(None)


METHODS_OF_CONSTANTS[torch.device, "__enter__"] = _enter_device
METHODS_OF_CONSTANTS[torch.device, "__exit__"] = _leave_device


@handles(torch.get_default_device)
def _default_device(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Return the device of the innermost block that traced code is in, or of the caller's."""
    read = torch.get_default_device
    for mode in reversed(t.overrides.modes):
        if mode.python_type() is DeviceContext:
            device = mode.attr(t, "device")
            with t.python.concrete(device):
                return t.python.folded(read)
    return t.python.folded(read)
