"""Opcodes that jump, loop, return and yield."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tc.compiler.capture import breaks
from tc.compiler.capture.bytecode.opcode_table import opcode
from tc.compiler.capture.bytecode.resume_functions import is_passed_on
from tc.compiler.capture.opcodes.raising_branches import truth
from tc.compiler.capture.values.base import Exhausted, OpaqueValue, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.generators import GeneratorValue

if TYPE_CHECKING:
    from tc.compiler.capture.bytecode.instructions import Instruction
    from tc.compiler.capture.frame import Frame


def _conditional(condition: str) -> tuple[str, ...]:
    return (
        f"POP_JUMP_FORWARD_IF_{condition}",
        f"POP_JUMP_BACKWARD_IF_{condition}",
        f"POP_JUMP_IF_{condition}",
    )


@opcode("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP")
def jump(f: Frame, i: Instruction) -> None:
    """Jump."""
    f.jump(i)


@opcode(*_conditional("TRUE"))
def pop_jump_if_true(f: Frame, i: Instruction) -> None:
    """Jump if the top is true."""
    if truth(f, f.pop(), i):
        f.jump(i)


@opcode(*_conditional("FALSE"))
def pop_jump_if_false(f: Frame, i: Instruction) -> None:
    """Jump if the top is false."""
    if not truth(f, f.pop(), i):
        f.jump(i)


@opcode(*_conditional("NONE"))
def pop_jump_if_none(f: Frame, i: Instruction) -> None:
    """Jump if the top is None."""
    if f.t.python.is_none(f.pop()):
        f.jump(i)


@opcode(*_conditional("NOT_NONE"))
def pop_jump_if_not_none(f: Frame, i: Instruction) -> None:
    """Jump if the top is not None."""
    if not f.t.python.is_none(f.pop()):
        f.jump(i)


@opcode("JUMP_IF_TRUE_OR_POP", until=(3, 11))
def jump_if_true_or_pop(f: Frame, i: Instruction) -> None:
    """Jump and keep the top if it is true, else drop it."""
    if f.stack[-1].truth(f.t):
        f.jump(i)
    else:
        f.pop()


@opcode("JUMP_IF_FALSE_OR_POP", until=(3, 11))
def jump_if_false_or_pop(f: Frame, i: Instruction) -> None:
    """Jump and keep the top if it is false, else drop it."""
    if f.stack[-1].truth(f.t):
        f.pop()
    else:
        f.jump(i)


@opcode("GET_ITER")
def get_iter(f: Frame, i: Instruction) -> None:
    """Replace the top by an iterator over it."""
    f.push(f.pop().iterate(f.t))


def _next(f: Frame) -> Value:
    """Return the next item of the iterator on top.

    A loop that contains a graph break advances its real iterator.
    """
    iterator = f.stack[-1]
    if isinstance(iterator, OpaqueValue) and is_passed_on(iterator.source):
        raise breaks.Aftermath(
            breaks.UNSUPPORTED_OP, f"next() of {iterator.describe()}"
        )
    return iterator.advance(f.t)


@opcode("FOR_ITER", until=(3, 11))
def for_iter(f: Frame, i: Instruction) -> None:
    """Push the next item, or drop the iterator and leave the loop."""
    try:
        f.push(_next(f))
    except Exhausted:
        f.pop()
        f.jump(i)


@opcode("FOR_ITER", since=(3, 12))
def for_iter_kept(f: Frame, i: Instruction) -> None:
    """Push the next item, or leave the loop for an END_FOR that drops iterator and item."""
    try:
        f.push(_next(f))
    except Exhausted:
        f.push(ConstValue(None))
        f.jump(i)


@opcode("RETURN_VALUE")
def return_value(f: Frame, i: Instruction) -> None:
    """Return the top."""
    f.returned = f.pop()


@opcode("RETURN_GENERATOR")
def return_generator(f: Frame, i: Instruction) -> None:
    """Push a value for the POP_TOP that follows; the call has made the generator already."""
    f.push(ConstValue(None))


@opcode("YIELD_VALUE")
def yield_value(f: Frame, i: Instruction) -> None:
    """Yield a value to the caller that advances the generator."""
    f.yielded = f.pop()


@opcode("GET_YIELD_FROM_ITER")
def get_yield_from_iter(f: Frame, i: Instruction) -> None:
    """Replace the top by an iterator to delegate to."""
    f.push(f.pop().iterate(f.t))


@opcode("SEND")
def send(f: Frame, i: Instruction) -> None:
    """Push the next value of the delegate; at its end leave the loop with its return value."""
    sent, delegate = f.pop(), f.stack[-1]
    try:
        if f.t.python.is_none(sent):
            f.push(_next(f))
        elif isinstance(delegate, GeneratorValue):
            f.push(delegate.send(f.t, sent))
        else:
            f.push(delegate.method(f.t, "send", [sent], {}))
    except Exhausted as end:
        f.finish_delegate(end.value or ConstValue(None))
        f.jump(i)


@opcode("END_SEND", since=(3, 12))
def end_send(f: Frame, i: Instruction) -> None:
    """Drop the finished delegate below the result."""
    _, result = f.popn(2)
    f.push(result)
