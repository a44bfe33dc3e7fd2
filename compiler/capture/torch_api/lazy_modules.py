"""Initialises lazy modules, which take their shapes from their first input, before tracing them.

Initialisation replaces the parameters and the module's class once. It runs on fake inputs while the
frame is captured, which is when eager mode would do it too; the frame is then traced again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.lazy import LazyModuleMixin

from tc.compiler.capture import breaks, hook
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import ListValue, TupleValue
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.tensor import TensorValue
from tc.compiler.core.ahead import is_ahead

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


# where eager mode runs the call itself
hook.never_trace(LazyModuleMixin._infer_parameters)


def is_waiting(module: Any) -> bool:
    """Return whether the next call of a module initialises it."""
    return isinstance(module, LazyModuleMixin) and "_initialize_hook" in vars(module)


def initialise(t: Interpreter, module: Any, args: Args, kwargs: Kwargs) -> None:
    """Initialise a module for the inputs of a call. Raises TraceAgain, or breaks the graph."""
    if is_ahead():
        raise breaks.GraphBreak(
            breaks.UNSUPPORTED_CALL,
            f"lazy module {type(module).__qualname__}, which its first call initialises,",
        )
    if t.effects.writes:
        raise breaks.GraphBreak(
            breaks.UNSUPPORTED_CALL,
            f"lazy module {type(module).__qualname__}, after stores,",
        )
    plain = [_likeness(t, arg) for arg in args]
    named = {name: _likeness(t, arg) for name, arg in kwargs.items()}
    module._infer_parameters(module, plain, named)
    raise breaks.TraceAgain


def _likeness(t: Interpreter, value: Value) -> Any:
    """Return the Python object of a value, with fake tensors."""
    if isinstance(value, TensorValue):
        if not all(isinstance(size, int) for size in value.example.shape):
            raise breaks.GraphBreak(
                breaks.UNSUPPORTED_CALL, "a lazy module with dynamic sizes"
            )
        return value.example
    if isinstance(value, TupleValue):
        return value.make([_likeness(t, item) for item in value.values(t)])
    if isinstance(value, ListValue):
        return [_likeness(t, item) for item in value.values(t)]
    if isinstance(value, DictValue):
        keys = t.python.concrete_list(value.keys(t))
        items = [_likeness(t, item) for item in value.values(t)]
        return dict(zip(keys, items, strict=True))
    return t.python.concrete(value)


def make_parameter(t: Interpreter, kind: type, args: Args, kwargs: Kwargs) -> Value:
    """Return the value of ``torch.nn.Parameter(data, requires_grad)`` in traced code."""
    given = (
        [*args]
        if args or "data" in kwargs
        else [t.output.call_torch(torch.empty, [t.values.known(0)], {})]
    )
    data = given[0] if given else kwargs["data"]
    plain = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    if isinstance(data, TensorValue) and data.kind not in plain:
        what = f"{kind.__name__}() of a tensor subclass, whose class it keeps"
        data.cannot(breaks.UNSUPPORTED_CALL, what)
    made = t.output.call_torch(kind, given, kwargs)
    assert isinstance(made, TensorValue)
    made.kind = kind
    t.output.marks.add(LEAF)
    if kind is torch.nn.Buffer:
        persistent = kwargs.get(
            "persistent", args[1] if len(args) > 1 else ConstValue(True)
        )
        t.effects.store_attribute(made, "persistent", persistent)
        t.effects.store_attribute(made, "_is_buffer", ConstValue(True))
    return made


#: mark on graphs that make parameters, which are leaves of eager torch's autograd graph
LEAF = "tc_leaf"
