"""Exceptions that traced code raises, catches, inspects and passes on."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.bytecode.tracebacks import with_traceback
from tc.compiler.capture.guards.facts import PROCESS, handles_error
from tc.compiler.capture.values.base import (
    Args,
    Kwargs,
    LambdaValue,
    NotConstant,
    Value,
)
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.lookup import (
    MISSING,
    python_method,
    replaced_slot,
    type_lookup,
)
from tc.trace.ids import plain_function

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


#: exceptions that Python, where it raises them, gives the names that were looked for
NAMING = (NameError, AttributeError, ImportError)


class ExceptionValue(Value):
    """An exception raised or made by traced code."""

    noun = "an exception"

    def __init__(self, cls: type[BaseException], args: list[Value]) -> None:
        self.cls = cls
        self.args = args
        self.extra: dict[str, Value] = {}

    def python_type(self) -> type:
        return self.cls

    def own_special(self, name: str) -> Any:
        return replaced_slot(self.cls, name)

    def describe(self) -> str:
        return self.cls.__name__

    def truth(self, t: Interpreter) -> bool:
        return self.truth_by_class(t)

    def attr(self, t: Interpreter, name: str) -> Value:
        if self.has_own("__getattribute__"):
            self.cannot(breaks.UNSUPPORTED_ATTR, f"{self.describe()}.{name}")
        if name == "__traceback__" and self.trail:
            return TracebackValue(self)
        if name in self.extra:
            return self.extra[name]
        if name == "args":  # each read gives the same tuple
            self.extra[name] = t.values.new_tuple(self.args)
            return self.extra[name]
        if name == "__class__":
            return t.values.known(self.cls)
        if name == "__context__":  # none was being handled here: a caller's may be
            if handles_error():
                raise breaks.SkipFrame("the __context__ of an exception is read")
            t.guards.recorded.add("NO_ERROR", PROCESS)
            return ConstValue(None)
        if name == "__suppress_context__":
            return ConstValue("__cause__" in self.extra)
        if name in ("__cause__", "__traceback__"):
            return ConstValue(None)
        if name in ("name", "obj", "path") and issubclass(self.cls, NAMING):
            raise breaks.SkipFrame(f"what an exception names is read, as {name}")
        if name == "value" and issubclass(self.cls, StopIteration):
            return self.args[0] if self.args else ConstValue(None)
        raw = type_lookup(self.cls, name)
        if raw is MISSING:
            if self.has_own("__getattr__"):
                return self.call_special(t, "__getattr__", [ConstValue(name)])
            return t.python.raise_(
                AttributeError,
                f"'{self.cls.__name__}' object has no attribute '{name}'",
            )
        if name == "with_traceback":
            return LambdaValue(self._with_traceback, "with_traceback")
        return t.attributes.bind_descriptor(self, self.cls, raw, name)

    def came_while(self, handled: Value, is_raised: bool) -> None:
        """Record the exception that is being handled while this one is raised or passes.

        Args:
            handled: the exception that is being handled.
            is_raised: whether a ``raise`` statement raises this one, which sets its context again.
        """
        if handled is self or self.source is not None:
            return
        if not is_raised:
            self.extra.setdefault("__context__", handled)
            return
        self.extra["__context__"] = handled
        link: Value | None = handled
        while isinstance(link, ExceptionValue):  # a chain of contexts has no cycle
            if link.extra.get("__context__") is self:
                link.extra["__context__"] = ConstValue(None)
            link = link.extra.get("__context__")

    def _with_traceback(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        self.set_attr(t, "__traceback__", args[0])
        return self

    def set_attr(self, t: Interpreter, name: str, value: Value) -> None:
        if isinstance(value, TracebackValue) and value.error is self:
            return  # as ``contextlib`` does, to take off the frames of its own
        if self.has_own("__setattr__"):
            self.call_special(t, "__setattr__", [ConstValue(name), value])
            return
        if name == "args" and value.python_type() is not tuple:
            value = t.values.new_tuple(value.unpack(t))
        self.extra[name] = value
        if name == "__traceback__":
            self.trail = ()

    @property
    def _is_initialised_in_python(self) -> bool:
        """Return whether its `__init__` was traced: its parameters may differ from `args`."""
        return python_method(self.cls, "__init__") is not None

    def real(self) -> BaseException:
        """Return a Python exception like this one.

        Raises:
            NotConstant: an argument, or an attribute, is unknown while tracing.
        """
        given = self.extra.get("args")
        values = (
            [a.constant() for a in self.args] if given is None else given.constant()
        )
        if self._is_initialised_in_python:
            made = self.cls.__new__(self.cls, *values)
        else:
            made = self.cls(*values)
        for name, value in self.extra.items():
            if name != "args" and not name.startswith("__"):
                vars(made)[name] = value.constant()
        return made

    def text(self) -> str:
        """Return str() of the exception as far as known, for messages of tc."""
        try:
            return str(self.real())
        except (NotConstant, TypeError, AttributeError):
            return ""

    def converted(self, function: Callable[[Any], str]) -> Value:
        """Return the result of str, repr or ascii if it is not code of the user."""
        try:
            return ConstValue(function(self.real()))
        except NotConstant:
            what = f"{function.__name__}() of an exception that holds a tensor"
            raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, what) from None

    def children(self, t: Interpreter) -> list[Value]:
        return [*self.args, *self.extra.values()]

    def rebuild(self, r: ResidualInterface) -> None:
        if self.trail:
            r.load_callable(with_traceback)
        traced = self._is_initialised_in_python
        r.e.before_callable()
        r.load_object(self.cls)
        if traced:
            r.e.load_attr("__new__")
        r.e.after_callable()
        if traced:
            r.load_object(self.cls)
        r.push_slots(list(self.args))
        r.e.call(len(self.args) + traced)
        for name, value in self.extra.items():
            r.e.copy(1)
            r.push(value)
            r.e.swap(2)
            r.e.store_attr(name)
        if self.trail:
            places = (
                (
                    at.file,
                    at.line,
                    plain_function(at.name),
                    tuple(span) if span else None,
                )
                for _, at, span in self.trail
            )
            r.e.load_const(tuple(places))
            r.e.call(2)


class TracebackValue(Value):
    """The traceback of an exception that has been raised; what it holds is not known yet."""

    noun = "a traceback"

    def __init__(self, error: Value) -> None:
        self.error = error

    def python_type(self) -> type:
        return types.TracebackType

    def children(self, t: Interpreter) -> list[Value]:
        return [self.error]

    def rebuild(self, r: ResidualInterface) -> None:
        r.push(self.error)
        r.e.load_attr("__traceback__")


def traceback_of(t: Interpreter, error: Value) -> Value:
    """Return the traceback of an exception that is being handled."""
    return (
        error.attr(t, "__traceback__")
        if error.source is None
        else TracebackValue(error)
    )
