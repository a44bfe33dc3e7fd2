"""Generators made by traced code."""

from __future__ import annotations

import inspect
import types
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, Exhausted, Kwargs, Raised, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.exceptions import ExceptionValue
from tc.compiler.capture.values.lookup import MISSING, type_lookup
from tc.compiler.capture.values.objects import ClassValue

if TYPE_CHECKING:
    from tc.compiler.capture.values.functions import FunctionValue
    from tc.compiler.capture.values.interfaces import (
        FrameInterface,
        Interpreter,
        ResidualInterface,
    )


class GeneratorValue(Value):
    """A generator made by traced code: a frame that is interpreted from yield to yield.

    Attributes:
        owner: the frame that made it, or that a frame returned it to.
        borrower: another frame that holds it.
        is_late: whether it may be seen to be dropped later than it is; see `dropped_generators`.
    """

    noun = "a generator"

    def __init__(
        self, frame: FrameInterface, function: FunctionValue, args: Args, kwargs: Kwargs
    ) -> None:
        self.frame = frame
        self.has_ended = False
        self.owner: Any = frame.parent
        self.borrower: Any = None
        self.is_late = False
        self._is_running = False
        self._function = function
        self._args = list(args)
        self._kwargs = kwargs

    def python_type(self) -> type:
        return types.GeneratorType

    def truth(self, t: Interpreter) -> bool:
        return True

    def describe(self) -> str:
        return f"generator {self.frame.code.co_name}"

    def iterate(self, t: Interpreter) -> Value:
        return self

    def advance(self, t: Interpreter) -> Value:
        return self.send(t, ConstValue(None))

    @property
    def needs_closing(self) -> bool:
        """Return whether closing or dropping it would run a handler or a `finally`."""
        return not self.has_ended and self.frame.runs_code_if_closed

    @property
    def may_need_closing(self) -> bool:
        """Return whether it has not started, and dropping it later may run code of its own."""
        return not self.frame.started and self.frame.may_run_code_if_closed

    def send(self, t: Interpreter, value: Value) -> Value:
        """Run to the next yield. Raises Exhausted at the end, with the return value as argument."""
        self._check_not_running(t)
        if self.has_ended:
            raise Exhausted
        if not self.frame.started:
            if not t.python.is_none(value):
                text = "can't send non-None value to a just-started generator"
                t.python.raise_(TypeError, text)
            t.effects.generators.append(self)
        return self._continue(t, value, None)

    def throw(self, t: Interpreter, error: Value) -> Value:
        """Raise an exception where it is suspended, and run to the next yield.

        A generator that it delegates to gets the exception first. One that has not started ends.
        """
        self._check_not_running(t)
        if self.has_ended or not self.frame.started:
            self.has_ended = True
            raise Raised(error)
        return self._continue(t, None, error)

    def _continue(
        self, t: Interpreter, sent: Value | None, error: Value | None
    ) -> Value:
        self._is_running = True
        try:
            if error is not None:
                return self._throw_inside(t, error)
            return self.frame.run_to_yield(sent)
        except Exhausted:
            self.has_ended = True
            raise
        except Raised as raised:
            self.has_ended = True
            if issubclass(raised.value.python_type(), StopIteration):
                raise stopped_inside(t, raised.value) from None
            raise
        finally:
            self._is_running = False

    def _throw_inside(self, t: Interpreter, error: Value) -> Value:
        delegate = self.frame.delegate()
        if delegate is None:
            return self.frame.run_to_yield(None, error)
        is_exit = issubclass(error.python_type(), GeneratorExit)
        name = "close" if is_exit else "throw"
        known = type_lookup(delegate.python_type(), name) is not MISSING
        try:
            with self.frame.calling():
                if known and isinstance(delegate, GeneratorValue):
                    if not is_exit:
                        return delegate.throw(t, error)
                    delegate.close(t)
                elif known:
                    self.cannot(
                        breaks.UNSUPPORTED_CALL,
                        f"{name}() of what a generator yields from",
                    )
        except Exhausted as end:
            return self.frame.end_delegate(end.value or ConstValue(None))
        except Raised as raised:
            error = raised.value
        return self.frame.run_to_yield(None, error)

    def close(self, t: Interpreter) -> None:
        """Raise GeneratorExit where it is suspended, which has to end it."""
        self._check_not_running(t)
        if self.has_ended or not self.frame.started:
            self.has_ended = True
            return
        try:
            self.throw(t, ExceptionValue(GeneratorExit, []))
        except Exhausted:
            return
        except Raised as raised:
            if issubclass(raised.value.python_type(), GeneratorExit):
                return
            raise
        t.python.raise_(RuntimeError, "generator ignored GeneratorExit")

    def _check_not_running(self, t: Interpreter) -> None:
        if self._is_running:
            t.python.raise_(ValueError, "generator already executing")

    def attr(self, t: Interpreter, name: str) -> Value:
        if name in ("__name__", "__qualname__"):
            return self._function.attr(t, name)
        if name == "gi_code":
            return t.values.known(self.frame.code)
        if name == "gi_running":
            return ConstValue(self._is_running)
        if name == "gi_frame" and (self.has_ended or self.frame.returned is not None):
            return ConstValue(None)
        return t.attributes.builtin_method(self, name)

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__iter__":
            return self
        if name == "close":
            self.close(t)
            return ConstValue(None)
        try:
            if name in ("__next__", "send"):
                return self.send(t, args[0] if args else ConstValue(None))
            if name == "throw":
                return self.throw(t, thrown(t, *args))
        except Exhausted as end:
            end.as_raised(t)
        self.cannot(breaks.UNSUPPORTED_CALL, f"generator.{name}()")

    def children(self, t: Interpreter) -> list[Value]:
        if self.has_ended or self.frame.returned is not None:
            return []
        if self.frame.started:
            raise breaks.SkipFrame(
                f"{self.describe()} is partly consumed at a graph break"
            )
        return [self._function, *self._args, *self._kwargs.values()]

    def rebuild(self, r: ResidualInterface) -> None:
        """Call the function again, which runs none of its code, or make an ended generator."""
        if not self.children(r.t):
            r.load_callable(_ended_generator)
            r.e.call(0)
            return
        r.e.before_callable()
        r.push(self._function)
        r.e.after_callable()
        r.push_slots([*self._args, *self._kwargs.values()])
        r.e.call(len(self._args), tuple(self._kwargs))


def thrown(
    t: Interpreter,
    kind: Value,
    value: Value | None = None,
    traceback: Value | None = None,
) -> Value:
    """Return the exception that ``throw`` is given, or that it makes of a class and a value."""
    error = kind
    if isinstance(kind, ClassValue):
        error = value if value is not None else ConstValue(None)
        if not issubclass(error.python_type(), kind.obj):
            args = [] if t.python.is_none(error) else [error]
            if issubclass(error.python_type(), tuple):
                args = list(error.unpack(t))
            error = kind.call(t, args, {})
    if not issubclass(error.python_type(), BaseException):
        error.cannot(breaks.UNSUPPORTED_CALL, "generator.throw() of no exception")
    if traceback is not None and not t.python.is_none(traceback):
        error.set_attr(t, "__traceback__", traceback)
    return error


def stopped_inside(t: Interpreter, error: Value) -> Raised:
    """Return what Python raises where a StopIteration leaves a generator's code."""
    instead = ExceptionValue(
        RuntimeError, [ConstValue("generator raised StopIteration")]
    )
    for name in ("__cause__", "__context__"):
        instead.set_attr(t, name, error)
    return Raised(instead)


def _ended_generator() -> Generator[Any, None, None]:
    """Return a generator without items; for residual code."""
    yield from ()


def refuse_coroutine(code: types.CodeType) -> None:
    """Break the graph at coroutines and asynchronous generators."""
    if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise breaks.GraphBreak(breaks.GENERATOR, code.co_name)
