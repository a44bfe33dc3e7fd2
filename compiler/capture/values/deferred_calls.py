"""Deferred side effects: warnings, and printing if the user allows it, after the graph has run."""

from __future__ import annotations

import types
import warnings
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks, hook
from tc.compiler.capture.bytecode import warned
from tc.compiler.capture.values.base import (
    Args,
    KnownObject,
    Kwargs,
    LambdaValue,
    OpaqueValue,
    Value,
)
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import ListValue
from tc.compiler.capture.values.exceptions import ExceptionValue
from tc.compiler.capture.values.handlers import handles
from tc.compiler.core.sources import AttrSource, Source
from tc.compiler.options import config

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import (
        FrameInterface,
        Interpreter,
        ResidualInterface,
    )


class DeferredCall(Value):
    """A call that residual code makes for its side effects; its result is None."""

    noun = "a call made after the graph"

    def __init__(self, function: Any, args: Args, kwargs: Kwargs) -> None:
        self.function = function
        self.args = list(args)
        self.kwargs = kwargs

    def children(self, t: Interpreter) -> list[Value]:
        return [*self.args, *self.kwargs.values()]

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(hook.disabled(self.function))
        r.push_slots([*self.args, *self.kwargs.values()])
        r.e.call(len(self.args), tuple(self.kwargs))


class ReorderableValue(KnownObject):
    """A function of `config.reorderable_logging_functions`."""

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        t.effects.demand(DeferredCall(self.obj, args, kwargs))
        return ConstValue(None)


def is_reorderable(obj: Any) -> bool:
    """Return whether the user allows a function to be called after the graph."""
    return callable(obj) and any(
        obj is one for one in config.reorderable_logging_functions
    )


def wrap_reorderable(t: Interpreter, obj: Any, source: Source) -> Value:
    """Return the value of a function that may be called after the graph."""
    t.guards.add("ID", source, obj)
    return ReorderableValue(obj, source)


# -- warnings --------------------------------------------------------------------------------
_NOTE_CHANGE: Any = getattr(warnings, "_filters_mutated", None)


@handles(warnings.warn)
def _warn(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    given = {**dict(zip(warned.PARAMETERS, args, strict=False)), **kwargs}
    message = given.get("message")
    if message is None or set(given) - set(warned.PARAMETERS[:3]):
        raise breaks.FrameCountBreak(breaks.BUILTIN_CALL, "warnings.warn()")
    category = given.get("category", ConstValue(None)).constant() or UserWarning
    if isinstance(message, ExceptionValue):
        category = message.cls
    level = t.python.concrete(given.get("stacklevel", ConstValue(1)))
    refused = not (isinstance(category, type) and issubclass(category, Warning))
    if refused or type(level) is not int:
        raise breaks.FrameCountBreak(breaks.BUILTIN_CALL, "warnings.warn()")
    state = t.effects.global_value(vars(warnings), "filters")
    if state is not None and _ignores(t, state, category):
        return ConstValue(None)
    raising = any(action == "error" for action, *_ in warnings.filters)
    if state is not None or raising:
        raise breaks.FrameCountBreak(
            breaks.BUILTIN_CALL, "warnings.warn() (its filters are changed)"
        )
    if _are_recorded_here(t):
        raise breaks.FrameCountBreak(
            breaks.BUILTIN_CALL, "warnings.warn() (the function records them)"
        )
    t.effects.demand(_warning(t, message, category, max(level, 1)))
    return ConstValue(None)


def leave_recording(t: Interpreter) -> None:
    """Leave the frame to Python that has begun to add warnings to a list of its own.

    Compiled code does not warn as eager does, and compiling itself may warn, too.

    Raises:
        SkipFrame, GraphBreak: there is one.
    """
    shown = t.effects.global_value(vars(warnings), "_showwarnmsg_impl")
    log = shown.calls_method_of if isinstance(shown, LambdaValue) else None
    if log is None:
        return
    frame = t.top
    while frame is not None and frame.parent is not None:
        names = [n for n in frame.code.co_varnames if frame.is_bound(n)]
        if any(frame.local(name) is log for name in names):
            break
        frame = frame.parent
    if frame is None or frame.parent is None:
        raise breaks.SkipFrame("it records warnings, and compiled code does not warn")
    cause = breaks.GraphBreak(
        breaks.BUILTIN_CALL, "warnings.catch_warnings(record=True)"
    )
    cause.frame = frame.parent
    raise cause


def filters_are_changed(t: Interpreter) -> bool:
    """Return whether traced code has other filters of warnings by now than its caller."""
    state = t.effects.global_value(vars(warnings), "filters")
    if state is not None and state.source is None:
        return True
    return any(
        isinstance(one.source, AttrSource) and one.source.attr == "filters"
        for one in t.effects.changed_outside()
        if isinstance(one, ListValue)
    )


def _are_recorded_here(t: Interpreter) -> bool:
    """Return whether the frame has the list that warnings are added to: it may read it."""
    shown = vars(warnings).get("_showwarnmsg_impl")
    # the list's method, where they are recorded
    if not isinstance(shown, types.BuiltinMethodType):
        return False
    return any(one is shown.__self__ for one in t.frame.locals.values())


def _ignores(t: Interpreter, filters: Value, category: type) -> bool:
    """Return whether the first matching warning filter of traced code ignores a category."""
    if not isinstance(filters, ListValue) or not filters.slots:
        return False
    first = filters.slots[0]
    if not isinstance(first, Value) or not first.is_constant():
        return False
    action, text, ignored, module, line = first.constant()
    everywhere = text is None and module is None and line == 0
    return action == "ignore" and everywhere and issubclass(category, ignored)


def _warning(
    t: Interpreter, message: Value, category: type, level: int
) -> DeferredCall:
    frame: FrameInterface | None = t.top
    while level > 1 and frame is not None:
        frame, level = frame.parent, level - 1
    kind: Value = t.values.known(category)
    if frame is None:  # the warning refers to a caller of the frame under capture
        level += 1  # the first one is that of the residual code
        return DeferredCall(warned.warn, [message, kind, ConstValue(level)], {})
    place = frame.place()
    where = [ConstValue(place.file), ConstValue(place.line)]
    space = OpaqueValue(
        frame.module_globals, t.values.object_source(frame.module_globals)
    )
    return DeferredCall(warned.warn_at, [message, kind, *where, space], {})


@handles(_NOTE_CHANGE)
def _filters_mutated(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    t.effects.demand(DeferredCall(_NOTE_CHANGE, [], {}))
    return ConstValue(None)
