"""Liveness analysis: finds the locals that are live at an instruction."""

from __future__ import annotations

import dis
from collections.abc import Collection, Sequence

from tc.compiler.capture.bytecode.instructions import Instruction, reachable, successors

_READS = frozenset(
    {"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "DELETE_FAST"}
)
_TAKES = frozenset({"DELETE_FAST", "LOAD_FAST_AND_CLEAR"})
_CELLS = frozenset(
    {"LOAD_CLOSURE", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
)
_CELL_CHANGES = frozenset({"STORE_DEREF", "DELETE_DEREF", "MAKE_CELL"})

_FRAME_READERS = frozenset({"locals", "vars", "dir", "eval", "exec", "super"})
_FRAME_GETTERS = frozenset({"_getframe", "currentframe"})
"""Globals, and attributes, whose use may read any local of the frame without naming it."""


def reads(instruction: Instruction) -> tuple[str, ...]:
    """Return the locals that an instruction reads, and the cells that it reads or writes."""
    opname, name = instruction.opname, instruction.argval
    if opname in _READS or opname in _CELLS or opname in _CELL_CHANGES:
        return (name,)
    if opname == "LOAD_FAST_LOAD_FAST":
        return tuple(name)
    if opname == "STORE_FAST_LOAD_FAST":
        return () if name[0] == name[1] else (name[1],)
    return ()


def writes(instruction: Instruction | dis.Instruction) -> tuple[str, ...]:
    """Return the locals that an instruction stores to or deletes."""
    opname, name = instruction.opname, instruction.argval
    if opname == "STORE_FAST" or opname in _TAKES:
        return (name,)
    if opname == "STORE_FAST_LOAD_FAST":
        return (name[0],)
    if opname == "STORE_FAST_STORE_FAST":
        return tuple(name)
    return ()


def reads_frame(instruction: Instruction) -> bool:
    """Return whether an instruction names a function that may inspect the frame's locals."""
    if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
        return instruction.argval in _FRAME_READERS | _FRAME_GETTERS
    if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
        return instruction.argval in _FRAME_GETTERS
    return False


def live_at(
    instructions: Sequence[Instruction],
    target: Instruction,
    *,
    frame_locals: Collection[str] = (),
) -> set[str]:
    """Return the locals that may be read from `target` on before they are written.

    Every access to a cell counts as a read, because closures may share the cell. `frame_locals`
    (usually `co_varnames`) are live too if any instruction may inspect the frame as a whole: the
    function that does so may have been pushed before `target`.
    """
    kept = reachable(instructions, target)
    region = [one for one in instructions if one in kept]
    after = successors(instructions)
    live: dict[Instruction, set[str]] = {one: set() for one in region}
    changed = True
    while changed:
        changed = False
        for one in reversed(region):
            out = set().union(*(live[following] for following in after(one)))
            before = _before(one, out, live)
            if before != live[one]:
                live[one] = before
                changed = True
    found = live[target]
    if any(map(reads_frame, instructions)):
        found = found | set(frame_locals)
    return found


def _before(
    one: Instruction, out: set[str], live: dict[Instruction, set[str]]
) -> set[str]:
    before = (out - set(writes(one))) | set(reads(one))
    if one.handler is not None:
        # The handler may be entered before the write took place.
        before |= live[one.handler.target]
    return before
