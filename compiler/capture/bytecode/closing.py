"""Decides whether closing or dropping a suspended generator runs user code.

Python raises GeneratorExit at the instruction where the generator is suspended. A handler for other
exceptions (``except IndexError`` around the loop of ``Sequence.__iter__``) lets it pass; `finally`,
`with` and handlers for all exceptions run user code.
"""

from __future__ import annotations

import builtins
from collections.abc import Container, Mapping, Sequence

from tc.compiler.capture.bytecode.instructions import Handler, Instruction

NAMES = ("LOAD_GLOBAL", "LOAD_NAME")
#: opcodes without effect between the type tests of a handler
QUIET = ("NOP", "CACHE", "PUSH_NULL", "BUILD_TUPLE")


def runs_code(
    instructions: Sequence[Instruction],
    index: Mapping[int, int],
    handler: Handler | None,
    shadowed: Container[str],
) -> bool:
    """Return whether raising GeneratorExit at a suspended generator runs user code.

    Args:
        instructions: the generator's instructions.
        index: position of each instruction, by its id.
        handler: the handler that covers the instruction where the generator is suspended.
        shadowed: names that its module defines, which may shadow builtin exceptions.
    """
    while handler is not None:
        at = index[id(handler.target)]
        first = instructions[at]
        # the handler only cleans up and raises again
        if first.opname != "PUSH_EXC_INFO":
            handler = first.handler
            continue
        end = _passed_on(instructions, index, at + 1, shadowed)
        if end is None:
            return True
        handler = instructions[end].handler
    return False


def _passed_on(
    instructions: Sequence[Instruction],
    index: Mapping[int, int],
    at: int,
    shadowed: Container[str],
) -> int | None:
    """Return the instruction that raises GeneratorExit again, or None if a handler catches it.

    Type tests for other exceptions are skipped.
    """
    tested: list[str] = []
    while True:
        one = instructions[at]
        if one.opname == "RERAISE":
            return at
        if one.opname in NAMES:
            tested.append(str(one.argval))
        elif one.opname == "CHECK_EXC_MATCH":
            if not all(_is_another(name, shadowed) for name in tested):
                return None
            target = instructions[at + 1].target
            if target is None:
                return None
            at, tested = index[id(target)], []
            continue
        elif one.opname not in QUIET:
            return None
        at += 1


def _is_another(name: str, shadowed: Container[str]) -> bool:
    found = None if name in shadowed else vars(builtins).get(name)
    return isinstance(found, type) and not issubclass(GeneratorExit, found)
