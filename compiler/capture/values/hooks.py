"""Hooks on tensors: registered for real once the graph has run, or by a node inside the graph."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from torch.utils.hooks import RemovableHandle

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.functions import FunctionValue
from tc.compiler.capture.values.stored_data import facts_of
from tc.compiler.capture.values.tensor import METHODS, TensorValue

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface

#: methods that take a function which autograd calls later
REGISTERING = ("register_hook", "register_post_accumulate_grad_hook")
#: mark on graphs with hooks on inner tensors, which need eager autograd
HOOKED = "tc_hooked"


class HandleValue(Value):
    """The handle of a hook that the residual code registers.

    A hook belongs to the value that its tensor has when it is registered: after a write in place,
    it would be one on the gradient of another value.
    """

    noun = "the handle of a hook"

    def __init__(self, tensor: TensorValue, method: str, function: Value) -> None:
        self.tensor = tensor
        self.fake = tensor.example
        self.facts = self.fake._version, facts_of(self.fake)
        self.name = method
        self.function = function
        self.removed = False

    def python_type(self) -> type:
        return RemovableHandle

    def is_late(self) -> bool:
        """Return whether the tensor has another value by now."""
        return self.facts != (self.fake._version, facts_of(self.fake))

    def attr(self, t: Interpreter, name: str) -> Value:
        return t.attributes.builtin_method(self, name)

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name != "remove":
            self.cannot(breaks.UNSUPPORTED_CALL, f"RemovableHandle.{name}")
        t.effects.withdraw(self)
        self.removed = True
        return ConstValue(None)

    def children(self, t: Interpreter) -> list[Value]:
        if _removes_others(t):
            raise breaks.SkipFrame(
                "it sets a hook on a tensor and removes an older one"
            )
        return [self.tensor, self.function]

    def rebuild(self, r: ResidualInterface) -> None:
        r.push(self.tensor)
        r.e.load_method(self.name)
        r.push(self.function)
        r.e.call(1)
        if self.removed:
            r.e.copy(1)
            r.e.load_method("remove")
            r.e.call(0)
            r.e.pop_top()


def _removes_others(t: Interpreter) -> bool:
    """Return whether traced code changed an existing table of hooks.

    The code after the graph puts the items of such a table back as a whole: a hook that it
    registers would be lost from it.
    """
    changed = [one for one in t.effects.changed_outside() if isinstance(one, DictValue)]
    return any(
        one.kind is OrderedDict and set(map(type, one.obj)) == {int} for one in changed
    )


def break_before_write(t: Interpreter, text: str) -> None:
    """Break the graph before a call that wrote to a tensor whose hook is registered after it."""
    for one in t.effects.demanded:
        if isinstance(one, HandleValue) and one.is_late():
            raise breaks.GraphBreak(
                breaks.UNSUPPORTED_CALL,
                f"{text} (it writes to a tensor that has a hook)",
            )


class GraphHandleValue(Value):
    """The handle of a hook that a node of the graph registers."""

    noun = "the handle of a hook on an inner tensor"


def _register(
    name: str, t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs
) -> Value:
    function = args[0] if args else kwargs["hook"]
    if not tensor.example.requires_grad:
        t.python.raise_(
            RuntimeError,
            "cannot register a hook on a tensor that doesn't require gradient",
        )
    if tensor.source is None:
        t.output.marks.add(HOOKED)
        if isinstance(function, FunctionValue) and function.obj is not None:
            read = t.output.scopes[-1].add_body("hook", function.obj)
            t.output.graph.call_method(name, (tensor.node(t), read))
            return GraphHandleValue()
    if len(t.output.scopes) > 1:
        raise breaks.GraphBreak(
            breaks.BODY_EFFECT, "a higher-order operation (it sets a hook)"
        )
    if _removes_others(t):
        what = f"Tensor.{name} after another hook was removed"
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, what)
    handle = HandleValue(tensor, name, function)
    t.effects.demand(handle)
    return handle


for _name in REGISTERING:
    METHODS[_name] = lambda t, tensor, args, kwargs, name=_name: _register(  # type: ignore[misc]
        name, t, tensor, args, kwargs
    )
