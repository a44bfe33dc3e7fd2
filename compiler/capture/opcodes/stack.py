"""Opcodes that move values on the stack, and operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tc.compiler.capture.bytecode.dialects import DIALECT
from tc.compiler.capture.bytecode.opcode_table import opcode
from tc.compiler.capture.opcodes.raising_branches import truth
from tc.compiler.capture.values.base import NULL, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.slices import SliceValue

if TYPE_CHECKING:
    from tc.compiler.capture.bytecode.instructions import Instruction
    from tc.compiler.capture.frame import Frame

#: number of BINARY_OP -> name of the function in `operator`
BINARY = [
    "add",
    "and_",
    "floordiv",
    "lshift",
    "matmul",
    "mul",
    "mod",
    "or_",
    "pow",
    "rshift",
    "sub",
    "truediv",
    "xor",
    "iadd",
    "iand",
    "ifloordiv",
    "ilshift",
    "imatmul",
    "imul",
    "imod",
    "ior",
    "ipow",
    "irshift",
    "isub",
    "itruediv",
    "ixor",
]
COMPARE = {"<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge"}
UNARY = {
    "UNARY_POSITIVE": "pos",
    "UNARY_NEGATIVE": "neg",
    "UNARY_INVERT": "invert",
}


@opcode("NOP", "RESUME", "CACHE", "PRECALL", "EXTENDED_ARG", "NOT_TAKEN")
def nothing(f: Frame, i: Instruction) -> None:
    """Do nothing."""


@opcode("POP_TOP")
def pop_top(f: Frame, i: Instruction) -> None:
    """Drop the top."""
    f.pop()


@opcode("END_FOR", since=(3, 12), until=(3, 12))
def end_for_two(f: Frame, i: Instruction) -> None:
    """Drop the exhausted iterator and its result."""
    f.popn(2)


@opcode("END_FOR", since=(3, 13))
def end_for(f: Frame, i: Instruction) -> None:
    """Drop the result of the exhausted iterator."""
    f.pop()


@opcode("PUSH_NULL")
def push_null(f: Frame, i: Instruction) -> None:
    """Push NULL."""
    f.push(NULL)


@opcode("COPY")
def copy(f: Frame, i: Instruction) -> None:
    """Push the n-th value from the top again."""
    f.push(f.stack[-(i.arg or 1)])


@opcode("SWAP")
def swap(f: Frame, i: Instruction) -> None:
    """Exchange the top with the n-th value."""
    n = i.arg or 1
    f.stack[-1], f.stack[-n] = f.stack[-n], f.stack[-1]


@opcode(*UNARY)
def unary(f: Frame, i: Instruction) -> None:
    """Apply a unary operator."""
    f.push(f.t.python.unary(UNARY[i.opname], f.pop()))


@opcode("UNARY_NOT")
def unary_not(f: Frame, i: Instruction) -> None:
    """Negate the truth of the top."""
    f.push(f.t.python.logical_not(f.pop()))


@opcode("TO_BOOL", since=(3, 13))
def to_bool(f: Frame, i: Instruction) -> None:
    """Replace the top by its truth."""
    f.push(_as_bool(f, f.pop()))


def _as_bool(f: Frame, value: Value) -> Value:
    """Return the truth of a value, by which the next instruction may jump."""
    following = f.next_instruction()
    jumps = following.opname.startswith("POP_JUMP_IF_")
    return ConstValue(truth(f, value, following) if jumps else value.truth(f.t))


@opcode("BINARY_OP")
def binary_op(f: Frame, i: Instruction) -> None:
    """Apply a binary or in-place operator."""
    left, right = f.popn(2)
    f.push(f.t.python.binary(BINARY[i.arg or 0], left, right))


@opcode("COMPARE_OP")
def compare_op(f: Frame, i: Instruction) -> None:
    """Compare two values."""
    left, right = f.popn(2)
    result = f.t.python.binary(COMPARE[i.argval], left, right)
    # Since Python 3.13 the instruction in front of a jump converts its result to a bool, which
    # the jump does not do: a graph break has to leave both to the interpreter.
    as_bool = (i.arg or 0) & DIALECT.compare_to_bool
    f.push(_as_bool(f, result) if as_bool else result)


@opcode("IS_OP")
def is_op(f: Frame, i: Instruction) -> None:
    """Compare identities."""
    left, right = f.popn(2)
    f.push(ConstValue(f.t.python.identical(left, right) != bool(i.arg)))


@opcode("CONTAINS_OP")
def contains_op(f: Frame, i: Instruction) -> None:
    """Look a value up in a container."""
    item, container = f.popn(2)
    found = f.t.python.contains(container, item)
    f.push(f.t.python.logical_not(found) if i.arg else found)


@opcode("BINARY_SUBSCR")
def binary_subscr(f: Frame, i: Instruction) -> None:
    """Read ``container[key]``."""
    container, key = f.popn(2)
    f.push(container.item(f.t, key))


@opcode("STORE_SUBSCR")
def store_subscr(f: Frame, i: Instruction) -> None:
    """Do ``container[key] = value``."""
    value, container, key = f.popn(3)
    container.set_item(f.t, key, value)


@opcode("DELETE_SUBSCR")
def delete_subscr(f: Frame, i: Instruction) -> None:
    """Do ``del container[key]``."""
    container, key = f.popn(2)
    container.del_item(f.t, key)


@opcode("BINARY_SLICE", since=(3, 12))
def binary_slice(f: Frame, i: Instruction) -> None:
    """Read ``container[start:stop]``."""
    container, start, stop = f.popn(3)
    f.push(container.item(f.t, SliceValue([start, stop, ConstValue(None)])))


@opcode("STORE_SLICE", since=(3, 12))
def store_slice(f: Frame, i: Instruction) -> None:
    """Do ``container[start:stop] = value``."""
    value, container, start, stop = f.popn(4)
    container.set_item(f.t, SliceValue([start, stop, ConstValue(None)]), value)


@opcode("GET_LEN")
def get_len(f: Frame, i: Instruction) -> None:
    """Push the length of the top."""
    f.push(f.stack[-1].length(f.t))
