"""Builds the code of resume functions, which continue a frame after a graph break."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import (
    CO_ASYNC_GENERATOR,
    CO_COROUTINE,
    CO_GENERATOR,
    CO_ITERABLE_COROUTINE,
)
from types import CodeType, FunctionType
from typing import Any, Literal
from weakref import ref

from tc.compiler.capture.bytecode.assembler import assemble
from tc.compiler.capture.bytecode.by_code import ByCode, CodeKey, cached_by_code
from tc.compiler.capture.bytecode.continuation import trampoline
from tc.compiler.capture.bytecode.dialects import DIALECT
from tc.compiler.capture.bytecode.emitter import Emitter
from tc.compiler.capture.bytecode.instructions import (
    Instruction,
    disassemble,
    reachable,
)
from tc.compiler.core.sources import LocalSource, Source

STACK_PREFIX = "___stack"
"""Parameters that carry the stack are this and a number, from the bottom up."""
INNER = "___inner"
"""The parameter that carries the function to call first; its arguments are this and a number."""

HANDLING: Literal["handling"] = "handling"
Kind = bool | Literal["handling"]
"""A stack entry: a value, a NULL (False), or what PUSH_EXC_INFO put below the error it handles."""

# LOAD_SUPER_ATTR has both arguments on the stack, but ignores them unless this flag is set.
_SUPER_TAKES_TWO = 2

_NEVER = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE


@dataclass(frozen=True)
class Origin:
    """The user's code that a resume function is made of, and resumed offsets -> user's offsets.

    Attributes:
        code: weak, as what is compiled for the user's code holds the resume function.
        broke: whether it begins with an instruction that broke the graph of another frame, or
            with the call of a function that does.
        exits: the parameters that leave the ``with`` blocks in which it begins, that of the
            outermost first.
    """

    code: ref[CodeType]
    offsets: dict[int, int]
    broke: bool = False
    exits: tuple[str, ...] = ()


_ORIGINS: ByCode[Origin] = ByCode()


def can_resume(code: CodeType) -> bool:
    """Return whether a function can resume a frame of this code: not that of a generator."""
    return not code.co_flags & _NEVER


def is_passed_on(source: Source | None) -> bool:
    """Return whether a local of resumed code holds a stack entry that it was called with."""
    return isinstance(source, LocalSource) and source.local.startswith(
        (STACK_PREFIX, INNER)
    )


def inner_names(locals: Mapping[str, Any]) -> dict[str, str]:
    """Return by parameter of a resume function which local of an inner frame it passes.

    A resume function takes the inner one, which it calls first, and that one's arguments; among
    those may be the next inner one and its arguments.

    Args:
        locals: of a frame of the resume function.
    """
    found: dict[str, str] = {}
    parameters = {INNER: INNER}
    while isinstance(inner := locals.get(parameters.get(INNER, "")), FunctionType):
        code = inner.__code__
        names = code.co_varnames[: code.co_argcount]
        parameters = {
            name: parameters.get(f"{INNER}{i}", f"{INNER}{i}")
            for i, name in enumerate(names)
        }
        function = user_code(code).co_name
        for name, parameter in parameters.items():
            if not name.startswith(INNER):
                found[parameter] = (
                    name if name.startswith(STACK_PREFIX) else f"{function}.{name}"
                )
    return found


def is_resumed(code: CodeType) -> bool:
    """Return whether a code object is that of a resume function."""
    return _ORIGINS.get(code) is not None


def begins_with_break(code: CodeType) -> bool:
    """Return whether code begins with an instruction that broke the graph of another frame.

    It runs in a frame of its own then: nothing inlines it.
    """
    origin = _ORIGINS.get(code)
    return origin is not None and origin.broke


def open_blocks(code: CodeType) -> tuple[str, ...]:
    """Return the parameters of a resume function that leave the ``with`` blocks it begins in.

    That of the outermost block comes first. There are none if it is not a resume function.
    """
    origin = _ORIGINS.get(code)
    return () if origin is None else origin.exits


def traced_name(code: CodeType) -> str:
    """Return a function's name as the trace has it: that of a resume function says where from.

    The code itself has the name of the user's function, which tracebacks and callers see.
    """
    return code.co_qualname.rpartition(".")[2] if is_resumed(code) else code.co_name


def user_code(code: CodeType) -> CodeType:
    """Return the user's code that a resume function is made of; other code is returned as is."""
    origin = _ORIGINS.get(code)
    return (None if origin is None else origin.code()) or code


def origin_of(code: CodeType, offset: int) -> tuple[CodeType, int]:
    """Return the user's code and the offset there that an offset in resumed code corresponds to.

    A break in a resume function is resumed by code made of the user's code: a loop that breaks in
    each iteration gets the same code each time, not the resumption of a resumption.
    """
    origin = _ORIGINS.get(code)
    user = None if origin is None else origin.code()
    if origin is None or user is None or offset not in origin.offsets:
        return code, offset
    return user, origin.offsets[offset]


@cached_by_code(4096)
def cached_resume_code(
    code: CodeType,
    offset: int,
    stack: tuple[Kind, ...],
    locals: tuple[str, ...],
    inner: int | None = None,
    raises: bool = False,
    broke: bool = False,
    called: CodeKey | None = None,
) -> CodeType:
    """Return code that rebuilds the frame's state from its arguments and continues at `offset`.

    Its parameters are `___stack0` and so on, one for each entry of `stack` that is not False
    (bottom first; False is a NULL; `HANDLING` is the error that the entries above it handle), then
    `locals`. With `inner`, a function and that many arguments for it follow: the instruction at
    `offset` is a call, and the resume function calls that function in its place. With `raises`,
    the last entry of `stack` is an exception, which the instruction at `offset` raises. With
    `broke`, the result is marked for `begins_with_break`. `called` is the key of the code of the
    function that follows: a callee that breaks at several places has a resume function of its
    caller for each, which are not compiled as one function of changing arguments. All cell and
    free variables of `code` are
    free variables of the result: the caller makes a closure for `co_freevars`. Equal arguments give
    the same code object, whose origin is recorded.

    Raises:
        ValueError: `code` is a generator's or a coroutine's, no instruction starts at `offset`,
            or a name in `locals` is a cell or looks like one of the stack's.
    """
    name = resume_name(code, offset)
    emitted = _resumption(code, offset, stack, locals, inner, raises)
    made = _assembled(code, emitted, name)
    _ORIGINS.set(
        made,
        Origin(ref(code), _offsets(made, emitted.instructions), broke, emitted.exits),
    )
    return made


def _offsets(made: CodeType, instructions: Sequence[Instruction]) -> dict[int, int]:
    """Return user's offset by offset in the assembled code."""
    found: dict[int, int] = {}
    placed = iter(disassemble(made))
    for one in instructions:
        there = next(placed)
        if one.opname != there.opname and one.opname in DIALECT.fused:
            next(placed)  # one instruction on two locals became two
        if one.offset is not None and there.offset is not None:
            found[there.offset] = one.offset
    return found


def resume_name(code: CodeType, offset: int) -> str:
    """Return the name of the function that resumes `code`, or what it resumes, at `offset`."""
    function = user_code(code).co_name.strip("<>")
    line = _at(disassemble(code), offset).positions
    number = (
        line.lineno
        if line is not None and line.lineno is not None
        else code.co_firstlineno
    )
    return f"torch_dynamo_resume_in_{function}_at_{number}"


@dataclass(frozen=True)
class _Resumption:
    instructions: list[Instruction]
    args: tuple[str, ...]
    free: tuple[str, ...]
    exits: tuple[str, ...]


def _assembled(code: CodeType, resumption: _Resumption, name: str) -> CodeType:
    outer, dot, _ = code.co_qualname.rpartition(".")
    return assemble(
        resumption.instructions,
        code,
        qualname=outer + dot + name,
        args=resumption.args,
        freevars=resumption.free,
        cellvars=(),
    )


def _resumption(
    code: CodeType,
    offset: int,
    stack: Sequence[Kind],
    locals: Sequence[str],
    inner: int | None,
    raises: bool,
) -> _Resumption:
    free = tuple(dict.fromkeys((*code.co_cellvars, *code.co_freevars)))
    _check(code, locals, free)
    body = disassemble(code)
    site = _at(body, offset)
    arguments = [f"{STACK_PREFIX}{i}" for i in range(sum(map(bool, stack)))]
    names = iter(arguments)
    entries = [next(names) if kind else None for kind in stack]
    exits = _exits(site, body, entries, at_once=not raises and inner is None)
    emitter = Emitter(site.positions)
    emitter.prologue(freevars=free)
    _push_stack(emitter, stack)
    passed: list[str] = []
    starts = [] if site.handler is None else [site.handler.target]
    if raises:
        emitter.handler = site.handler
        emitter.raise_varargs(1)
    elif inner is not None:
        starts.append(body[body.index(site) + 1])
        passed = [INNER, *(f"{INNER}{i}" for i in range(inner))]
        _call_inner(emitter, passed, site)
    else:
        starts = [site]
    if starts:
        starts[-1] = _spell_super_out(body, starts[-1], code, {*locals, *free})
    kept = set().union(*(reachable(body, start) for start in starts))
    body = [one for one in body if one in kept]
    if not raises and body[0] is not starts[-1]:
        emitter.jump(starts[-1])
    emitter.extend(body)
    return _Resumption(
        emitter.instructions, (*arguments, *locals, *passed), free, exits
    )


def _check(code: CodeType, locals: Sequence[str], free: Sequence[str]) -> None:
    if not can_resume(code):
        raise ValueError(
            f"{code.co_qualname}: a generator or coroutine cannot be resumed"
        )
    for local in locals:
        if local in free:
            raise ValueError(
                f"{code.co_qualname}: {local!r} is a cell, not a local to pass"
            )
        if local.startswith(STACK_PREFIX):
            raise ValueError(
                f"{code.co_qualname}: {local!r} is a name reserved for stack values"
            )


def _call_inner(emitter: Emitter, passed: Sequence[str], site: Instruction) -> None:
    """Emit the call of an inlined frame's resume function, under the handler of the call site."""
    emitter.handler = site.handler
    emitter.before_callable()
    emitter.load_const(trampoline)
    emitter.after_callable()
    for name in passed:
        emitter.load_fast(name)
        emitter.delete_fast(name)
    emitter.call(len(passed))
    emitter.instructions[-1].offset = site.offset
    emitter.handler = None


def _exits(
    site: Instruction,
    body: Sequence[Instruction],
    stack: Sequence[str | None],
    at_once: bool,
) -> tuple[str, ...]:
    """Return the stack's entries that leave the ``with`` blocks around an instruction.

    Args:
        body: the instructions of its code.
        stack: names of parameters, None where there is a NULL.
        at_once: whether the instruction is the first that runs.
    """
    found = _left_next(body[body.index(site) :], list(stack)) if at_once else []
    handler = site.handler
    while handler is not None:
        if body[body.index(handler.target) + 1].opname == "WITH_EXCEPT_START":
            name = stack[handler.depth - 1]
            assert name is not None
            found.append(name)
        handler = handler.target.handler
    return tuple(reversed(dict.fromkeys(found)))


def _left_next(instructions: Iterable[Instruction], stack: list[Any]) -> list[str]:
    """Return the stack's entries that code calls with three Nones first of all.

    So it leaves ``with`` blocks that end without an error; their handlers do not cover that.

    Args:
        stack: names of parameters, None in other places; it is changed.
    """
    found, entries = [], [[name] for name in stack if name is not None]
    for one in instructions:
        if one.opname == "POP_TOP":
            stack.pop()
        elif one.opname == "SWAP":
            assert one.arg is not None
            stack[-1], stack[-one.arg] = stack[-one.arg], stack[-1]
        elif one.opname == "LOAD_CONST":
            stack.append(one.argval)
        elif (
            one.opname == "CALL"
            and stack[-3:] == [None] * 3
            and stack[-4:-3] in entries
        ):
            found.append(stack[-4])
            stack[-4:] = [None]
        elif one.opname not in ("NOP", "PRECALL", "CACHE"):
            break
    return found


def _at(instructions: Sequence[Instruction], offset: int) -> Instruction:
    """Return the instruction at `offset`, moved past the instructions that set the frame up."""
    opnames = [one.opname for one in instructions]
    first = opnames.index("RESUME") + 1 if "RESUME" in opnames else 0
    for i, one in enumerate(instructions):
        if one.offset == offset:
            return instructions[max(i, first)]
    raise ValueError(f"no instruction starts at offset {offset}")


def _push_stack(emitter: Emitter, stack: Sequence[Kind]) -> None:
    """Push the stack entries from the parameters, which must not keep them alive afterwards."""
    position = 0
    for kind in stack:
        if not kind:
            emitter.push_null()
            continue
        argument = f"{STACK_PREFIX}{position}"
        emitter.load_fast(argument)
        emitter.delete_fast(argument)
        if kind == HANDLING:
            emitter.handle()
        position += 1


def _spell_super_out(
    body: list[Instruction], target: Instruction, code: CodeType, known: set[str]
) -> Instruction:
    """Rewrite `super()` as the call with two arguments: the first parameter is no longer ``self``.

    Calls without a `__class__` cell or without the first argument stay as they are. Return the
    target, or the first instruction inserted before it if the target is such a call.
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
            Instruction(
                opname, argval=name, positions=one.positions, handler=one.handler
            )
            for opname, name in (("LOAD_DEREF", "__class__"), (load, first))
        ]
        body[i + 1 : i + 1] = arguments
        if target is call:
            target = arguments[0]
    return target
