"""Opcodes that call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.bytecode.dialects import RUNNING
from tc.compiler.capture.bytecode.opcode_table import opcode
from tc.compiler.capture.values.base import NULL, Args, Kwargs, Raised, Value
from tc.compiler.capture.values.containers import TupleValue
from tc.compiler.capture.values.generators import stopped_inside
from tc.compiler.capture.values.lookup import ITERABLE, full_name, has_any

if TYPE_CHECKING:
    from tc.compiler.capture.bytecode.instructions import Instruction
    from tc.compiler.capture.frame import Frame

NULL_FIRST = RUNNING < (3, 13)


@opcode("KW_NAMES", until=(3, 12))
def kw_names(f: Frame, i: Instruction) -> None:
    """Remember the keyword names of the call that follows."""
    f.kwnames = tuple(i.argval)


@opcode("CALL")
def call(f: Frame, i: Instruction) -> None:
    """Call what is below the arguments."""
    names, f.kwnames = f.kwnames, ()
    _call(f, i.arg or 0, names)


@opcode("CALL_KW", since=(3, 13))
def call_kw(f: Frame, i: Instruction) -> None:
    """Call with the keyword names on top."""
    names = f.t.python.concrete(f.pop())
    _call(f, i.arg or 0, tuple(names))


def _call(f: Frame, count: int, names: tuple[str, ...]) -> None:
    named = dict(zip(names, f.popn(len(names)), strict=True))
    positional = f.popn(count - len(names))
    f.push(_invoke(f, positional, named))


def _invoke(f: Frame, args: Args, kwargs: Kwargs) -> Value:
    first, second = f.popn(2)
    if NULL_FIRST and first is NULL:
        return f.t.call(f, second, args, kwargs)
    if not NULL_FIRST and second is NULL:
        return f.t.call(f, first, args, kwargs)
    return f.t.call(f, first, [second, *args], kwargs)


def called(f: Frame, below: int) -> str:
    """Return what is called, so many places below the top, as Python's errors of calls name it."""
    callee = f.stack[-below]
    if callee is NULL:
        callee = f.stack[-below - 1]
    name, module = (_text(f, callee, key) for key in ("__qualname__", "__module__"))
    if name is None:
        what = f"{callee.describe()} with arguments that cannot be unpacked"
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, what)
    return f"{name}()" if module in (None, "builtins") else f"{module}.{name}()"


def _text(f: Frame, value: Value, name: str) -> Any:
    try:
        return f.t.python.concrete(value.attr(f.t, name))
    except Raised:
        return None


@opcode("CALL_FUNCTION_EX")
def call_function_ex(f: Frame, i: Instruction) -> None:
    """Call with a tuple of arguments and perhaps a dict of keywords."""
    kwargs: Kwargs = {}
    if (i.arg or 0) & 1:
        named = f.pop()
        for key in named.method(f.t, "keys", [], {}).unpack(f.t):
            if not issubclass(key.python_type(), str):
                f.t.python.raise_(TypeError, "keywords must be strings")
            kwargs[f.t.python.concrete(key)] = named.item(f.t, key)
    args = f.pop()
    if not has_any(args.python_type(), ITERABLE):
        refusal = "argument after * must be an iterable, not"
        text = f"{called(f, 1)} {refusal} {full_name(args.python_type())}"
        f.t.python.raise_(TypeError, text)
    f.push(_invoke(f, args.unpack(f.t), kwargs))


@opcode("CALL_INTRINSIC_1", since=(3, 12))
def call_intrinsic_1(f: Frame, i: Instruction) -> None:
    """Call one of the interpreter's own unary functions."""
    # an exception that leaves a generator; any other is raised again as it is
    if i.arg == 3:
        if issubclass(f.stack[-1].python_type(), StopIteration):
            raise stopped_inside(f.t, f.stack[-1])
    elif i.arg == 5:
        f.push(f.t.python.unary("pos", f.pop()))
    elif i.arg == 6:
        f.push(TupleValue(list(f.pop().unpack(f.t))))
    else:
        raise breaks.GraphBreak(breaks.UNSUPPORTED_OPCODE, f"CALL_INTRINSIC_1 {i.arg}")
