"""Code whose frames no stack and no traceback shows: the compiler's own, between the program's.

Python takes a frame for one under construction until its first RESUME in the order of the code:
``sys._getframe``, ``f_back`` and tracebacks pass over it. Where RESUME comes last, that is the
whole run. RESUME still runs before each exit, so that tracers see a call for each return.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

from tc.compiler.capture.bytecode.assembler import assemble
from tc.compiler.capture.bytecode.by_code import cached_by_code
from tc.compiler.capture.bytecode.instructions import Handler, Instruction, disassemble

F = TypeVar("F", bound=Callable[..., Any])


def hidden(function: F) -> F:
    """Hide the frames of a Python function that is no generator; return it."""
    function.__code__ = hidden_code(function.__code__)
    return function


@cached_by_code(256)
def hidden_code(code: CodeType) -> CodeType:
    """Return code that does the same as a function's, in frames that nobody sees."""
    body = [one for one in disassemble(code) if one.opname != "RESUME"]
    leave, fail = Instruction("RESUME", 0), Instruction("RESUME", 0)
    for i, one in enumerate(body):
        if one.handler is None:
            one.handler = Handler(fail, 0, False)
        if one.opname == "RETURN_VALUE":
            one.opname, one.arg, one.target = "JUMP_FORWARD", None, leave
        elif one.opname == "RETURN_CONST":
            one.opname = "LOAD_CONST"
            body.insert(i + 1, Instruction("RETURN_VALUE", positions=one.positions))
    exits = [leave, Instruction("RETURN_VALUE"), fail, Instruction("RERAISE", 0)]
    for one in exits:
        one.positions = body[0].positions
    return assemble([*body, *exits], code)


def with_hidden_part(
    instructions: list[Instruction], part: list[Instruction]
) -> list[Instruction]:
    """Return code with instructions during which its frame is hidden: they come before RESUME."""
    at = next(i for i, one in enumerate(instructions) if one.opname == "RESUME")
    start = instructions[at]
    enter = Instruction("JUMP_FORWARD", target=start, positions=start.positions)
    return [*instructions[:at], enter, *part, *instructions[at:]]
