"""The table of bytecode handlers, by opcode name and Python versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tc.compiler.capture.bytecode.dialects import RUNNING, Version
from tc.compiler.capture.bytecode.instructions import Instruction
from tc.compiler.core.table import Table

#: called with the `Frame` (this module does not import it) and the instruction
Handler = Callable[[Any, Instruction], None]

#: handlers of the running Python
OPCODES: Table[str, Handler] = Table("opcodes")
#: (name, first version, last version) of every handler, for all versions of Python
ALL_ROWS: list[tuple[str, Version, Version | None]] = []


def opcode(
    *names: str, since: Version = (3, 11), until: Version | None = None
) -> Callable[[Handler], Handler]:
    """Register a handler for opcodes of Python versions ``since`` to ``until`` (both included)."""

    def register(handler: Handler) -> Handler:
        for name in names:
            ALL_ROWS.append((name, since, until))
            if since <= RUNNING and (until is None or until >= RUNNING):
                OPCODES.add(name, handler)
        return handler

    return register
