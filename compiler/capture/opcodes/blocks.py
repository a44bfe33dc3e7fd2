"""Opcodes of with, try, except and finally."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tc.compiler.capture import breaks
from tc.compiler.capture.bytecode.opcode_table import opcode
from tc.compiler.capture.values.base import HandlingValue, Raised, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.exceptions import ExceptionValue, traceback_of
from tc.compiler.capture.values.lookup import MISSING, full_name, type_lookup
from tc.compiler.capture.values.objects import ClassValue

if TYPE_CHECKING:
    from tc.compiler.capture.bytecode.instructions import Instruction
    from tc.compiler.capture.frame import Frame


@opcode("BEFORE_WITH")
def before_with(f: Frame, i: Instruction) -> None:
    """Enter a context: push its exit method and what entering gave."""
    context = f.pop()
    refusal = "'{}' object does not support the context manager protocol"
    enter = _method_of_class(f, context, "__enter__", refusal)
    f.push(
        _method_of_class(f, context, "__exit__", f"{refusal} (missed __exit__ method)")
    )
    f.push(enter.call(f.t, [], {}))


def _method_of_class(f: Frame, context: Value, name: str, refusal: str) -> Value:
    kind, raw = context.python_type(), context.own_special(name)
    if raw is not MISSING:
        binding = f.t.attributes
        return binding.bind_descriptor(context, kind, raw, name, inherited=True)
    if type_lookup(kind, name) is MISSING and not issubclass(kind, type):
        return f.t.python.raise_(TypeError, refusal.format(full_name(kind)))
    return context.attr(f.t, name)


@opcode("WITH_EXCEPT_START")
def with_except_start(f: Frame, i: Instruction) -> None:
    """Call the exit method with the exception that left the block."""
    error, leave = f.stack[-1], f.stack[-4]
    kind = f.t.values.known(error.python_type())
    given = [kind, error, traceback_of(f.t, error)]
    f.push(leave.call(f.t, given, {}))


@opcode("PUSH_EXC_INFO")
def push_exc_info(f: Frame, i: Instruction) -> None:
    """Make the exception on top the one being handled; keep the one before it below."""
    error = f.pop()
    handling = HandlingValue(error)
    f.push(handling)
    f.push(error)
    f.t.handled.append(handling)


@opcode("POP_EXCEPT")
def pop_except(f: Frame, i: Instruction) -> None:
    """End the handling of an exception."""
    f.pop()
    if f.t.handled:
        f.t.handled.pop()


@opcode("CHECK_EXC_MATCH")
def check_exc_match(f: Frame, i: Instruction) -> None:
    """Push whether the exception below is of the class on top."""
    wanted = f.pop()
    classes = f.t.python.classes(wanted)
    f.push(ConstValue(issubclass(f.stack[-1].python_type(), classes)))


@opcode("RERAISE")
def reraise(f: Frame, i: Instruction) -> None:
    """Raise the exception on top again."""
    raise Raised(f.pop())


@opcode("RAISE_VARARGS")
def raise_varargs(f: Frame, i: Instruction) -> None:
    """Raise, with 0 to 2 arguments."""
    if not i.arg:
        if not f.t.handled:
            f.t.python.raise_(RuntimeError, "No active exception to reraise")
        raise Raised(f.t.handled[-1].error)
    cause = f.pop() if i.arg == 2 else None
    error = f.pop()
    if isinstance(error, ClassValue):
        error = error.call(f.t, [], {})
    if cause is not None:
        cause = _cause(f, cause)
        if isinstance(error, ExceptionValue):
            error.extra["__cause__"] = cause
    raise Raised(_exception(error))


def _cause(f: Frame, cause: Value) -> Value:
    if isinstance(cause, ClassValue):
        cause = cause.call(f.t, [], {})
    kind = cause.python_type()
    if kind is not type(None) and not issubclass(kind, BaseException):
        f.t.python.raise_(TypeError, "exception causes must derive from BaseException")
    return cause


def _exception(error: Value) -> Value:
    if not issubclass(error.python_type(), BaseException):
        raise breaks.GraphBreak(breaks.RAISES, error.describe())
    return error


@opcode("CLEANUP_THROW", since=(3, 12))
def cleanup_throw(f: Frame, i: Instruction) -> None:
    """Raise what a delegate raised."""
    raise Raised(f.pop())
