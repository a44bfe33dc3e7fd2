"""The end of a trace at a graph break: the instruction run for real, then the resume calls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import TYPE_CHECKING

from tc.compiler.capture import breaks
from tc.compiler.capture.bytecode import Handler, Instruction, stack_effect
from tc.compiler.capture.dialects import DIALECT
from tc.compiler.capture.frame import program_of
from tc.compiler.capture.liveness import live_at
from tc.compiler.capture.resume import resume_code, resume_name
from tc.compiler.capture.values.base import NULL, OpaqueValue, Value
from tc.compiler.core.sources import LocalSource

if TYPE_CHECKING:
    from tc.compiler.capture.residual import Residual
    from tc.compiler.capture.translate import RootFrame

#: opcodes that may leave a NULL or a method's owner on the stack: run as a plain load instead
NULL_PUSHERS = ("LOAD_METHOD", "LOAD_GLOBAL", "LOAD_ATTR", "LOAD_SUPER_ATTR")

cached_resume_code = functools.lru_cache(maxsize=4096)(
    lambda code, offset, stack, local_names, name: resume_code(
        code, offset, stack=stack, locals=local_names, name=name
    )
)


@dataclass(frozen=True)
class Ending:
    """Residual code that ends at a break, and the name of the function that goes on."""

    residual: Residual
    name: str


def in_loop(code: CodeType, offset: int) -> bool:
    """Say whether an instruction lies between a backward jump and its target."""
    for one in program_of(code).instructions:
        target = one.target
        if target is None or target.offset is None or one.offset is None:
            continue
        if target.offset <= offset <= one.offset:
            return True
    return False


def finish_at_break(root: RootFrame, begin: Callable[[list[Value], bool], Residual]) -> Ending:
    """Emit everything from the graph's call to the calls of the resume functions."""
    one = root.current
    if one.opname in ("YIELD_VALUE", "SEND"):
        raise breaks.SkipFrame("it yields")
    following = _following(root, one)
    targets = [t for t in (following, one.target, _handler_target(one)) if t is not None]
    names = _live_names(root, targets)
    locals_ = {name: _local(root, name) for name in names}
    stack = list(root.stack)
    mask = tuple(value is not NULL for value in stack)
    r = begin([*stack, *locals_.values()], True)
    for value in stack:
        r.push(value)
    label = r.e.label()
    caught = r.e.label()
    handler = one.handler
    copied = _copies(root, one, label)
    if handler is not None:
        for part in copied:
            part.handler = Handler(caught, handler.depth, handler.lasti)
    r.e.extend(copied)
    made: list[str] = []
    call = functools.partial(_call_resume, r, root, locals_, made)
    if following is not None:
        call(following, _after(mask, one, jump=False))
    if one.target is not None:
        r.e.place(label)
        call(one.target, _after(mask, one, jump=True))
    if handler is not None:
        r.e.place(caught)
        kept = (*mask[: handler.depth], *([True] if handler.lasti else []), True)
        call(handler.target, kept)
    return Ending(r, made[0] if made else "")


def _following(root: RootFrame, one: Instruction) -> Instruction | None:
    if one.opname in ("RAISE_VARARGS", "RERAISE", "RETURN_VALUE", "RETURN_CONST") or (
        one.opname.startswith("JUMP_") and "IF" not in one.opname
    ):
        return None
    index = root.program.index[id(one)] + 1
    return root.program.instructions[index]


def _handler_target(one: Instruction) -> Instruction | None:
    return one.handler.target if one.handler is not None else None


def _live_names(root: RootFrame, targets: Sequence[Instruction]) -> tuple[str, ...]:
    instructions = root.program.instructions
    wanted: set[str] = set()
    for target in targets:
        wanted |= live_at(instructions, target, frame_locals=root.code.co_varnames)
    bound = {**root.locals, **root.unread}
    return tuple(sorted(name for name in wanted if name in bound and name not in root.cells))


def _local(root: RootFrame, name: str) -> Value:
    if name in root.locals:
        return root.locals[name]
    return OpaqueValue(root.unread[name], LocalSource(name))


def _copies(root: RootFrame, one: Instruction, label: Instruction) -> list[Instruction]:
    """Return the breaking instruction to be run for real, with what belongs to it."""
    if one.opname in NULL_PUSHERS and _pushes_null(one):
        return _plain_load(one)
    copied: list[Instruction] = []
    index = root.program.index[id(one)] - 1
    while one.opname == "CALL" and index >= 0:
        before = root.program.instructions[index]
        if before.opname not in ("PRECALL", "KW_NAMES"):
            break
        copied.insert(0, _copy(before))
        index -= 1
    last = _copy(one)
    if one.target is not None:
        last.target = label
    return [*copied, last]


def _pushes_null(one: Instruction) -> bool:
    flagged = one.opname in DIALECT.name_flags and bool((one.arg or 0) & 1)
    return one.opname == "LOAD_METHOD" or flagged


def _plain_load(one: Instruction) -> list[Instruction]:
    if one.opname == "LOAD_SUPER_ATTR":
        raise breaks.SkipFrame("a graph break at super()")
    opname = "LOAD_ATTR" if one.opname == "LOAD_METHOD" else one.opname
    load = Instruction(opname, 0, one.argval, positions=one.positions)
    null = Instruction("PUSH_NULL", positions=one.positions)
    return [load, null, Instruction("SWAP", 2, positions=one.positions)]


def _copy(one: Instruction) -> Instruction:
    return Instruction(one.opname, one.arg, one.argval, one.target, one.positions)


def _after(mask: tuple[bool, ...], one: Instruction, jump: bool) -> tuple[bool, ...]:
    """Return which stack entries are values (and not NULL) after an instruction."""
    if one.opname in NULL_PUSHERS and _pushes_null(one):
        kept = mask if one.opname == "LOAD_GLOBAL" else mask[:-1]
        return (*kept, False, True)
    if one.opname in ("CALL", "CALL_KW"):  # on 3.11 PRECALL has a part of CALL's effect
        popped = (one.arg or 0) + (2 if one.opname == "CALL" else 3)
        return (*mask[: len(mask) - popped], True)
    effect = stack_effect(one, jump=jump)
    if effect > 0:
        return (*mask, *[True] * effect)
    left = mask[: len(mask) + effect]
    return (*left[:-1], True) if one.opname == "CALL_FUNCTION_EX" else left


def _call_resume(
    r: Residual,
    root: RootFrame,
    locals_: dict[str, Value],
    made: list[str],
    target: Instruction,
    mask: tuple[bool, ...],
) -> None:
    """Emit ``return resume(stack values, live locals)``."""
    assert target.offset is not None
    live = live_at(root.program.instructions, target, frame_locals=root.code.co_varnames)
    names = tuple(name for name in locals_ if name in live)
    name = resume_name(root.code, target.offset)
    code = cached_resume_code(root.code, target.offset, mask, names, name)
    made.append(name)
    r.e.before_callable()
    r.e.make_function(code, code.co_freevars)
    r.e.after_callable()
    pushed = 2
    for index, is_value in enumerate(mask):
        if is_value:
            r.e.copy(len(mask) - index + pushed)
            pushed += 1
    for local in names:
        r.push(locals_[local])
        pushed += 1
    r.e.call(pushed - 2)
    r.e.return_value()
