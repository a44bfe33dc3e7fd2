"""What a generator does when it is closed, or dropped, before its end.

Python raises GeneratorExit where the generator is suspended. A handler for other exceptions
(``except IndexError`` around the loop of ``Sequence.__iter__``) lets it pass; `finally`, `with` and
handlers for all exceptions run code of the program.
"""

from __future__ import annotations

import builtins
from collections.abc import Container, Mapping, Sequence

from tc.compiler.capture.bytecode.instructions import Handler, Instruction

NAMES = ("LOAD_GLOBAL", "LOAD_NAME")
#: between a handler's tests
QUIET = ("NOP", "CACHE", "PUSH_NULL", "BUILD_TUPLE")


def runs_code(
    instructions: Sequence[Instruction],
    index: Mapping[int, int],
    handler: Handler | None,
    shadowed: Container[str],
) -> bool:
    """Whether GeneratorExit, raised where a generator is suspended, runs code of the program.

    Args:
        instructions: of the generator.
        index: where each of them stands, by id.
        handler: of the instruction where it is suspended.
        shadowed: names that are globals of its module.
    """
    while handler is not None:
        at = index[id(handler.target)]
        first = instructions[at]
        if first.opname != "PUSH_EXC_INFO":  # it only cleans up, and raises on
            handler = first.handler
            continue
        end = _passed_on(instructions, index, at + 1, shadowed)
        if end is None:
            return True
        handler = instructions[end].handler
    return False


def _passed_on(
    instructions: Sequence[Instruction], index: Mapping[int, int], at: int, shadowed: Container[str]
) -> int | None:
    """Return where GeneratorExit is raised on, past tests for other exceptions; None if caught."""
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
