"""Opcodes that break the graph, with the reasons: those of coroutines and modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tc.compiler.capture import breaks
from tc.compiler.capture.bytecode.dialects import Version
from tc.compiler.capture.bytecode.opcode_table import opcode

if TYPE_CHECKING:
    from tc.compiler.capture.bytecode.instructions import Instruction
    from tc.compiler.capture.frame import Frame

COROUTINE = "async and await"
BODY = "the body of a module"
GROUPS = "except* (exception groups)"
NEVER = "an instruction of the interpreter itself"

#: opcode -> (what it belongs to, first version, last version)
REFUSED: dict[str, tuple[str, Version, Version | None]] = {
    "GET_AWAITABLE": (COROUTINE, (3, 11), None),
    "GET_AITER": (COROUTINE, (3, 11), None),
    "GET_ANEXT": (COROUTINE, (3, 11), None),
    "BEFORE_ASYNC_WITH": (COROUTINE, (3, 11), None),
    "END_ASYNC_FOR": (COROUTINE, (3, 11), None),
    "ASYNC_GEN_WRAP": (COROUTINE, (3, 11), (3, 11)),
    "IMPORT_STAR": (BODY, (3, 11), (3, 11)),
    "PRINT_EXPR": (BODY, (3, 11), (3, 11)),
    "CHECK_EG_MATCH": (GROUPS, (3, 11), None),
    "PREP_RERAISE_STAR": (GROUPS, (3, 11), (3, 11)),
    "CALL_INTRINSIC_2": ("except* or a type parameter", (3, 12), None),
    "INTERPRETER_EXIT": (NEVER, (3, 12), None),
    "RESERVED": (NEVER, (3, 12), None),
    "ENTER_EXECUTOR": (NEVER, (3, 13), None),
    "EXIT_INIT_CHECK": (NEVER, (3, 13), None),
}


def _refuse(f: Frame, i: Instruction) -> None:
    what = REFUSED[i.opname][0]
    raise breaks.GraphBreak(breaks.UNSUPPORTED_OPCODE, f"{i.opname} ({what})")


for _name, (_what, _since, _until) in REFUSED.items():
    opcode(_name, since=_since, until=_until)(_refuse)
