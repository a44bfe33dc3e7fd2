"""Opcodes of the match statement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tc.compiler.capture.bytecode.opcode_table import opcode
from tc.compiler.capture.values.base import Raised, Value
from tc.compiler.capture.values.builtins import BUILTINS
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import TupleValue
from tc.compiler.capture.values.objects import ObjectValue

if TYPE_CHECKING:
    from tc.compiler.capture.bytecode.instructions import Instruction
    from tc.compiler.capture.frame import Frame

SEQUENCE_FLAG, MAPPING_FLAG = 1 << 5, 1 << 6
#: classes whose single positional pattern matches the subject itself
WHOLE = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


@opcode("MATCH_SEQUENCE")
def match_sequence(f: Frame, i: Instruction) -> None:
    """Push whether the subject on top is a sequence in the sense of patterns."""
    f.push(ConstValue(bool(f.stack[-1].python_type().__flags__ & SEQUENCE_FLAG)))


@opcode("MATCH_MAPPING")
def match_mapping(f: Frame, i: Instruction) -> None:
    """Push whether the subject on top is a mapping in the sense of patterns."""
    f.push(ConstValue(bool(f.stack[-1].python_type().__flags__ & MAPPING_FLAG)))


@opcode("MATCH_KEYS")
def match_keys(f: Frame, i: Instruction) -> None:
    """Push the subject's values under the keys on top, or None if one is missing."""
    subject, keys = f.stack[-2:]
    found: list[Value] = []
    missing = ObjectValue(object)
    for key in keys.unpack(f.t):
        value = subject.method(f.t, "get", [key, missing], {})
        if value is missing:
            f.push(ConstValue(None))
            return
        found.append(value)
    f.push(TupleValue(list(found)))


@opcode("MATCH_CLASS")
def match_class(f: Frame, i: Instruction) -> None:
    """Push the attributes that a class pattern asks for, or None if the subject does not match."""
    subject, cls, names = f.popn(3)
    check = BUILTINS[id(isinstance)]
    if not check(f.t, [subject, cls], {}).truth(f.t):
        f.push(ConstValue(None))
        return
    found = _positional(f, subject, cls, i.arg or 0)
    try:
        found += [subject.attr(f.t, name) for name in f.t.python.concrete(names)]
    except Raised as raised:
        if not issubclass(raised.value.python_type(), AttributeError):
            raise
        f.push(ConstValue(None))
        return
    f.push(TupleValue(list(found)))


def _positional(f: Frame, subject: Value, cls: Value, count: int) -> list[Value]:
    kind = f.t.python.concrete(cls)
    if count == 0:
        return []
    if issubclass(kind, WHOLE) and not hasattr(kind, "__match_args__"):
        if count > 1:
            f.t.python.raise_(
                TypeError, f"{kind.__name__}() accepts 1 positional sub-pattern"
            )
        return [subject]
    spelled = (
        cls.attr(f.t, "__match_args__").unpack(f.t)
        if hasattr(kind, "__match_args__")
        else ()
    )
    names = f.t.python.concrete_list(spelled)
    if count > len(names):
        text = f"{kind.__name__}() accepts {len(names)} positional sub-patterns ({count} given)"
        f.t.python.raise_(TypeError, text)
    return [subject.attr(f.t, name) for name in names[:count]]
