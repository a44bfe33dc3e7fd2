"""Disassembles code objects into instructions without caches or offsets, and says what they do.

What differs between Python versions is in `dialects.py`: one row a version.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import CO_VARARGS, CO_VARKEYWORDS
from itertools import pairwise
from types import CodeType
from typing import Any

from tc.compiler.capture.bytecode.dialects import DIALECT, PLAIN_JUMPS
from tc.compiler.capture.bytecode.linetable import (
    decode_exceptions,
)

TERMINAL = frozenset(
    {"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT"}
)
"""Opcodes after which the frame does not continue, except at a handler."""

WITHOUT_NEXT = TERMINAL.union(PLAIN_JUMPS)
"""Opcodes after which the next instruction in line is not reached."""


def _cache_entries() -> dict[str, int]:
    """Opcode name -> code units of inline cache (a list in 3.11 and 3.12, a dict in 3.13)."""
    entries: Any = dis._inline_cache_entries  # type: ignore[attr-defined]
    rows = (
        entries.items()
        if isinstance(entries, dict)
        else zip(dis.opname, entries, strict=False)
    )
    return {name: count for name, count in rows if count}


CACHES = _cache_entries()
HAS_ARG = frozenset(getattr(dis, "hasarg", range(dis.HAVE_ARGUMENT, 256)))


def _names_of(opcodes: Iterable[int]) -> frozenset[str]:
    # dis lists unused numbers too ("<148>"), and pseudo opcodes beyond opname's end.
    known = {number: name for name, number in dis.opmap.items()}
    return frozenset(known[number] for number in opcodes if number in known)


jump_opnames = _names_of([*dis.hasjrel, *dis.hasjabs]) | frozenset(DIALECT.directions)
"""Every opcode that may continue elsewhere than at the next instruction."""

FUSED = frozenset(DIALECT.fused)
HAS_CONST = _names_of(dis.hasconst)
HAS_NAME = _names_of(dis.hasname)
HAS_COMPARE = _names_of(dis.hascompare)
HAS_FREE = (_names_of(dis.hasfree) | {"LOAD_CLOSURE"}) - FUSED
HAS_LOCAL = _names_of(dis.haslocal) - FUSED - {"LOAD_CLOSURE"}


@dataclass(eq=False, slots=True)
class Handler:
    """One entry of the exception table: the handler's target, and the stack depth to unwind to."""

    target: Instruction
    depth: int
    lasti: bool


@dataclass(eq=False, slots=True)
class Instruction:
    """One instruction, with jumps as references to instructions and names resolved."""

    opname: str
    arg: int | None = None
    """The raw argument; where there is an `argval` or a target, only its flag bits count."""

    argval: Any = None
    """The resolved argument: the name of a variable or attribute, a constant or a comparison."""

    target: Instruction | None = None
    positions: dis.Positions | None = None
    offset: int | None = None
    """The offset of the opcode in its original code, in bytes, as in `frame.f_lasti`."""

    handler: Handler | None = None

    @property
    def opcode(self) -> int:
        """The number of the opcode (of the forward one, for a jump without direction)."""
        return dis.opmap[spelled(self.opname)]

    def __str__(self) -> str:
        parts = [self.opname]
        if self.target is not None:
            parts.append(f"to {self.target.opname}@{self.target.offset}")
        elif self.argval is not None or self.opname in HAS_CONST:
            parts.append(repr(self.argval))
        elif self.arg is not None:
            parts.append(str(self.arg))
        return " ".join(parts)


def spelled(opname: str) -> str:
    """Return the name that the running Python has for an opcode; a jump's is the forward one."""
    if opname not in dis.opmap or opname == "JUMP":
        return DIALECT.directions[opname][0]
    if opname == "LOAD_CLOSURE" and DIALECT.closure_is_fast:
        return "LOAD_FAST"
    return opname


# ---------------------------------------------------------------- code object -> instructions


def slot_names(code: CodeType) -> list[str]:
    """Return the names of the fast-local slots: locals, then other cells, then free variables."""
    locals_ = code.co_varnames
    cells = [name for name in code.co_cellvars if name not in locals_]
    return [*locals_, *cells, *code.co_freevars]


def disassemble(code: CodeType) -> list[Instruction]:
    """Return the instructions of `code`, without CACHE and EXTENDED_ARG."""
    raw = code.co_code
    positions = [dis.Positions(*entry) for entry in code.co_positions()]
    resolve = _resolver(code)
    instructions: list[Instruction] = []
    starts: dict[int, Instruction] = {}
    jumps: list[tuple[Instruction, int]] = []
    offset = start = prefix = 0
    while offset < len(raw):
        opcode, arg = raw[offset], raw[offset + 1] | prefix << 8
        after = offset + 2
        if opcode == dis.EXTENDED_ARG:
            offset, prefix = after, arg
            continue
        opname = dis.opname[opcode]
        after += 2 * CACHES.get(opname, 0)
        instruction = Instruction(
            opname, positions=positions[offset // 2], offset=offset
        )
        if opcode in HAS_ARG:
            instruction.arg = arg
            if opname in jump_opnames:
                jumps.append(
                    (instruction, after + (-2 if "BACKWARD" in opname else 2) * arg)
                )
            else:
                resolve(instruction, arg)
        instructions.append(instruction)
        starts[start] = instruction
        offset = start = after
        prefix = 0
    for instruction, destination in jumps:
        instruction.target = starts[destination]
    _attach_handlers(code, instructions, starts)
    return instructions


def _resolver(code: CodeType) -> Callable[[Instruction, int], None]:
    """Return the function that fills `argval` in from the raw argument."""
    slots = slot_names(code)
    cells = {*code.co_cellvars, *code.co_freevars}

    def resolve(instruction: Instruction, arg: int) -> None:
        opname = instruction.opname
        if opname in HAS_CONST:
            instruction.argval = code.co_consts[arg]
        elif opname in HAS_NAME:
            instruction.argval = code.co_names[arg >> DIALECT.name_flags.get(opname, 0)]
        elif opname in FUSED:
            instruction.argval = (slots[arg >> 4], slots[arg & 15])
        elif opname in HAS_LOCAL or opname in HAS_FREE:
            instruction.argval = slots[arg]
            if (
                opname == "LOAD_FAST"
                and DIALECT.closure_is_fast
                and slots[arg] in cells
            ):
                instruction.opname = "LOAD_CLOSURE"
        elif opname in HAS_COMPARE:
            instruction.argval = dis.cmp_op[arg >> DIALECT.compare_shift]

    return resolve


def _attach_handlers(
    code: CodeType, instructions: list[Instruction], starts: Mapping[int, Instruction]
) -> None:
    shared: dict[tuple[int, int, bool], Handler] = {}
    ranges = iter(decode_exceptions(code.co_exceptiontable))
    entry = next(ranges, None)
    for instruction in instructions:
        unit = (instruction.offset or 0) // 2
        while entry is not None and unit >= entry.end:
            entry = next(ranges, None)
        if entry is None or unit < entry.start:
            continue
        key = (entry.target, entry.depth, entry.lasti)
        if key not in shared:
            shared[key] = Handler(starts[2 * entry.target], entry.depth, entry.lasti)
        instruction.handler = shared[key]


# ---------------------------------------------------------------- flow


def successors(
    instructions: Sequence[Instruction],
) -> Callable[[Instruction], list[Instruction]]:
    """Return a function from an instruction to its possible successors, handlers included."""
    following = dict(pairwise(instructions))

    def after(instruction: Instruction) -> list[Instruction]:
        out: list[Instruction] = []
        if instruction.opname not in WITHOUT_NEXT and instruction in following:
            out.append(following[instruction])
        if instruction.target is not None:
            out.append(instruction.target)
        if instruction.handler is not None:
            out.append(instruction.handler.target)
        return out

    return after


def reachable(
    instructions: Sequence[Instruction], start: Instruction
) -> set[Instruction]:
    """Return the instructions that are reachable from `start`."""
    after = successors(instructions)
    seen: set[Instruction] = set()
    todo = [start]
    while todo:
        instruction = todo.pop()
        if instruction not in seen:
            seen.add(instruction)
            todo.extend(after(instruction))
    return seen


def stack_effect(instruction: Instruction, *, jump: bool) -> int:
    """Return by how much an instruction changes the stack depth, if it jumps or if it does not."""
    opcode = instruction.opcode
    arg = (instruction.arg or 0) if opcode in HAS_ARG else None
    return dis.stack_effect(opcode, arg, jump=jump)


def stack_depths(instructions: Sequence[Instruction]) -> dict[Instruction, int]:
    """Return the stack depth on entry to each reachable instruction.

    As in `dis.stack_effect`, a FOR_ITER that ends leaves what END_FOR pops (Python 3.12 and later).

    Raises:
        ValueError: two paths to an instruction have different depths, or the stack underflows.
    """
    if not instructions:
        return {}
    following = dict(pairwise(instructions))
    is_generator = any(one.opname == "RETURN_GENERATOR" for one in instructions)
    depths: dict[Instruction, int] = {}
    todo = [(instructions[0], DIALECT.generator_entry_depth if is_generator else 0)]
    while todo:
        instruction, depth = todo.pop()
        if instruction in depths:
            if depths[instruction] != depth:
                raise ValueError(
                    f"{instruction}: depth {depths[instruction]} or {depth} on entry"
                )
            continue
        depths[instruction] = depth
        if instruction.handler is not None:
            handler = instruction.handler
            todo.append((handler.target, handler.depth + handler.lasti + 1))
        if instruction.target is not None:
            todo.append(
                (instruction.target, depth + stack_effect(instruction, jump=True))
            )
        if instruction.opname not in WITHOUT_NEXT and instruction in following:
            todo.append(
                (following[instruction], depth + stack_effect(instruction, jump=False))
            )
        if depth < 0:
            raise ValueError(f"{instruction}: the stack is {depth} deep on entry")
    return depths


# ---------------------------------------------------------------- instructions -> code object


def parameters_of(code: CodeType) -> tuple[str, ...]:
    """Return the names of the parameters of a code object: also of those with stars, at the end."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    return code.co_varnames[:count]
