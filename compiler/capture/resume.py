"""A code object and a place in it in, the code of a function that goes on from there out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_ITERABLE_COROUTINE
from types import CodeType

from tc.compiler.capture.bytecode import Instruction, assemble, disassemble, reachable
from tc.compiler.capture.emitter import Emitter

STACK_PREFIX = "___stack"
"""Parameters that carry the stack are this and a number, from the bottom up."""

# LOAD_SUPER_ATTR has both arguments on the stack, but without this flag it ignores them.
_SUPER_TAKES_TWO = 2

_NAME = re.compile(r"torch_dynamo_resume_in_(?P<function>.*)_at_\d+")
_NEVER = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE


def resume_name(code: CodeType, offset: int) -> str:
    """Return the name of the function that resumes `code`, or what it resumes, at `offset`."""
    match = _NAME.fullmatch(code.co_name)
    function = match["function"] if match else code.co_name.strip("<>")
    line = _at(disassemble(code), offset).positions
    number = line.lineno if line is not None and line.lineno is not None else code.co_firstlineno
    return f"torch_dynamo_resume_in_{function}_at_{number}"


def resume_code(
    code: CodeType,
    offset: int,
    *,
    stack: Sequence[bool] = (),
    locals: Sequence[str] = (),
    name: str,
) -> CodeType:
    """Return code that rebuilds the frame's state from its arguments and goes on at `offset`.

    Its parameters are `___stack0` and so on, one for each True in `stack` (bottom first; False
    stands for a NULL), then `locals`. The variables that `code` keeps in cells, its own and
    others', are its free variables: the caller makes the closure of `co_freevars`.

    Raises:
        ValueError: `code` is a generator's or a coroutine's, no instruction starts at `offset`,
            or a name in `locals` is a cell or looks like one of the stack's.
    """
    if code.co_flags & _NEVER:
        raise ValueError(f"{code.co_qualname}: a generator or coroutine cannot be resumed")
    free = tuple(dict.fromkeys((*code.co_cellvars, *code.co_freevars)))
    for local in locals:
        if local in free:
            raise ValueError(f"{code.co_qualname}: {local!r} is a cell, not a local to pass")
        if local.startswith(STACK_PREFIX):
            raise ValueError(f"{code.co_qualname}: {local!r} is a name of the stack's")
    body = disassemble(code)
    target = _spell_super_out(body, _at(body, offset), code, {*locals, *free})
    kept = reachable(body, target)
    body = [one for one in body if one in kept]
    arguments = [f"{STACK_PREFIX}{i}" for i in range(sum(stack))]
    emitter = Emitter(target.positions)
    emitter.prologue(freevars=free)
    _push_stack(emitter, stack)
    if body[0] is not target:
        emitter.jump(target)
    emitter.extend(body)
    outer, dot, _ = code.co_qualname.rpartition(".")
    return assemble(
        emitter.instructions,
        code,
        name=name,
        qualname=outer + dot + name,
        args=[*arguments, *locals],
        freevars=free,
        cellvars=(),
    )


def _at(instructions: Sequence[Instruction], offset: int) -> Instruction:
    """Return the instruction at `offset`, or the first of the user's if that sets the frame up."""
    opnames = [one.opname for one in instructions]
    first = opnames.index("RESUME") + 1 if "RESUME" in opnames else 0
    for i, one in enumerate(instructions):
        if one.offset == offset:
            return instructions[max(i, first)]
    raise ValueError(f"no instruction starts at offset {offset}")


def _push_stack(emitter: Emitter, stack: Sequence[bool]) -> None:
    """Move the stack's values from the parameters, which must not keep them alive."""
    position = 0
    for present in stack:
        if not present:
            emitter.push_null()
            continue
        argument = f"{STACK_PREFIX}{position}"
        emitter.load_fast(argument)
        emitter.delete_fast(argument)
        position += 1


def _spell_super_out(
    body: list[Instruction], target: Instruction, code: CodeType, known: set[str]
) -> Instruction:
    """Give `super()` its two arguments: the first parameter no longer is the first argument.

    Only where the compiler made a `__class__` cell and the first argument is at hand. Return
    the target, or what now stands before it if that is such a call.
    """
    for one in body:
        if one.opname == "LOAD_SUPER_ATTR":
            one.arg = (one.arg or 0) | _SUPER_TAKES_TWO
    first = code.co_varnames[0] if code.co_argcount else None
    if first is None or first not in known or "__class__" not in code.co_freevars:
        return target
    load = "LOAD_DEREF" if first in code.co_cellvars + code.co_freevars else "LOAD_FAST"
    for i in range(len(body) - 2, -1, -1):
        one, call = body[i], body[i + 1]
        bare = call.opname in ("PRECALL", "CALL") and call.arg == 0
        if one.opname != "LOAD_GLOBAL" or one.argval != "super" or not bare:
            continue
        call.arg = 2
        if call.opname == "PRECALL":
            body[i + 2].arg = 2
        arguments = [
            Instruction(opname, argval=name, positions=one.positions, handler=one.handler)
            for opname, name in (("LOAD_DEREF", "__class__"), (load, first))
        ]
        body[i + 1 : i + 1] = arguments
        if target is call:
            target = arguments[0]
    return target
