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

#: opcode -> what it belongs to
REFUSED = {
    "GET_AWAITABLE": COROUTINE,
    "GET_AITER": COROUTINE,
    "GET_ANEXT": COROUTINE,
    "BEFORE_ASYNC_WITH": COROUTINE,
    "END_ASYNC_FOR": COROUTINE,
    "ASYNC_GEN_WRAP": COROUTINE,
    "IMPORT_STAR": BODY,
    "PRINT_EXPR": BODY,
    "CHECK_EG_MATCH": GROUPS,
    "PREP_RERAISE_STAR": GROUPS,
    "CALL_INTRINSIC_2": "except* or a type parameter",
    "INTERPRETER_EXIT": NEVER,
    "RESERVED": NEVER,
    "ENTER_EXECUTOR": NEVER,
    "EXIT_INIT_CHECK": NEVER,
}
#: the first versions of those that 3.11 does not have
SINCE: dict[str, Version] = {
    "CALL_INTRINSIC_2": (3, 12),
    "INTERPRETER_EXIT": (3, 12),
    "RESERVED": (3, 12),
    "ENTER_EXECUTOR": (3, 13),
    "EXIT_INIT_CHECK": (3, 13),
}
#: those that only 3.11 has
GONE = ("ASYNC_GEN_WRAP", "IMPORT_STAR", "PRINT_EXPR", "PREP_RERAISE_STAR")


def _refuse(f: Frame, i: Instruction) -> None:
    what = REFUSED[i.opname]
    if i.opname == "CHECK_EG_MATCH":
        # which exceptions are raised again, and how, depends on their tracebacks
        if f.depth == 0:
            raise breaks.SkipFrame(f"it handles an exception by {GROUPS}")
        raise breaks.FrameCountBreak(breaks.UNSUPPORTED_OPCODE, what)
    raise breaks.GraphBreak(breaks.UNSUPPORTED_OPCODE, f"{i.opname} ({what})")


for _name in REFUSED:
    _since = SINCE.get(_name, (3, 11))
    _until = (3, 11) if _name in GONE else None
    opcode(_name, since=_since, until=_until)(_refuse)
