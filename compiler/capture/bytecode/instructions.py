"""Disassembles code objects into instructions without caches or offsets, and assembles them again.

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

from tc.compiler.capture.bytecode.dialects import DIALECT, PLAIN_JUMPS, VERSION
from tc.compiler.capture.bytecode.linetable import (
    ExceptionRange,
    decode_exceptions,
    encode_exceptions,
    encode_locations,
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
    rows = entries.items() if isinstance(entries, dict) else zip(dis.opname, entries, strict=False)
    return {name: count for name, count in rows if count}


_CACHES = _cache_entries()
_HAS_ARG = frozenset(getattr(dis, "hasarg", range(dis.HAVE_ARGUMENT, 256)))


def _names_of(opcodes: Iterable[int]) -> frozenset[str]:
    # dis lists unused numbers too ("<148>"), and pseudo opcodes beyond opname's end.
    known = {number: name for name, number in dis.opmap.items()}
    return frozenset(known[number] for number in opcodes if number in known)


jump_opnames = _names_of([*dis.hasjrel, *dis.hasjabs]) | frozenset(DIALECT.directions)
"""Every opcode that may continue elsewhere than at the next instruction."""

_FUSED = frozenset(DIALECT.fused)
_CONST = _names_of(dis.hasconst)
_NAME = _names_of(dis.hasname)
_COMPARE = _names_of(dis.hascompare)
_DEREF = (_names_of(dis.hasfree) | {"LOAD_CLOSURE"}) - _FUSED
_FAST = _names_of(dis.haslocal) - _FUSED - {"LOAD_CLOSURE"}


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
        return dis.opmap[_spelled(self.opname)]

    def __str__(self) -> str:
        parts = [self.opname]
        if self.target is not None:
            parts.append(f"to {self.target.opname}@{self.target.offset}")
        elif self.argval is not None or self.opname in _CONST:
            parts.append(repr(self.argval))
        elif self.arg is not None:
            parts.append(str(self.arg))
        return " ".join(parts)


def _spelled(opname: str) -> str:
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
        after += 2 * _CACHES.get(opname, 0)
        instruction = Instruction(opname, positions=positions[offset // 2], offset=offset)
        if opcode in _HAS_ARG:
            instruction.arg = arg
            if opname in jump_opnames:
                jumps.append((instruction, after + (-2 if "BACKWARD" in opname else 2) * arg))
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
        if opname in _CONST:
            instruction.argval = code.co_consts[arg]
        elif opname in _NAME:
            instruction.argval = code.co_names[arg >> DIALECT.name_flags.get(opname, 0)]
        elif opname in _FUSED:
            instruction.argval = (slots[arg >> 4], slots[arg & 15])
        elif opname in _FAST or opname in _DEREF:
            instruction.argval = slots[arg]
            if opname == "LOAD_FAST" and DIALECT.closure_is_fast and slots[arg] in cells:
                instruction.opname = "LOAD_CLOSURE"
        elif opname in _COMPARE:
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


def reachable(instructions: Sequence[Instruction], start: Instruction) -> set[Instruction]:
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
    arg = (instruction.arg or 0) if opcode in _HAS_ARG else None
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
                raise ValueError(f"{instruction}: depth {depths[instruction]} or {depth} on entry")
            continue
        depths[instruction] = depth
        if instruction.handler is not None:
            handler = instruction.handler
            todo.append((handler.target, handler.depth + handler.lasti + 1))
        if instruction.target is not None:
            todo.append((instruction.target, depth + stack_effect(instruction, jump=True)))
        if instruction.opname not in WITHOUT_NEXT and instruction in following:
            todo.append((following[instruction], depth + stack_effect(instruction, jump=False)))
        if depth < 0:
            raise ValueError(f"{instruction}: the stack is {depth} deep on entry")
    return depths


def _stack_size(instructions: Sequence[Instruction]) -> int:
    most = 1
    for instruction, depth in stack_depths(instructions).items():
        effect = stack_effect(instruction, jump=False)
        if instruction.target is not None:
            effect = max(effect, stack_effect(instruction, jump=True))
        most = max(most, depth, depth + effect)
    return most


# ---------------------------------------------------------------- instructions -> code object


class _Pool:
    """Numbers values by key; those of `order` that are used come first, in that order."""

    def __init__(self, values: Iterable[Any], key: Callable[[Any], object]) -> None:
        self.key = key
        self.values: list[Any] = []
        self._index: dict[object, int] = {}
        for value in values:
            self.add(value)

    def add(self, value: Any) -> int:
        key = self.key(value)
        if key not in self._index:
            self._index[key] = len(self.values)
            self.values.append(value)
        return self._index[key]

    def __contains__(self, value: Any) -> bool:
        return self.key(value) in self._index


def const_key(value: Any) -> object:
    """Return a key equal only for constants that no program can tell apart."""
    kind = type(value)
    if kind is float:
        return kind, repr(value)
    if kind is complex:
        return kind, repr(value.real), repr(value.imag)
    if kind is tuple:
        return kind, tuple(const_key(item) for item in value)
    if kind is frozenset:
        return kind, frozenset(const_key(item) for item in value)
    if kind in (int, bool, str, bytes, type(None), type(...)):
        return kind, value
    return kind, id(value)


def _same(value: Any) -> object:
    return value


def _kept(order: Iterable[Any], used: Iterable[Any], key: Callable[[Any], object]) -> list[Any]:
    """Return the distinct values of `used`: those of `order` in its order, then the others."""
    wanted = _Pool(used, key)
    first = [value for value in order if value in wanted]
    return _Pool([*first, *wanted.values], key).values


def parameters_of(code: CodeType) -> tuple[str, ...]:
    """Return the names of the parameters of a code object: also of those with stars, at the end."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    return code.co_varnames[:count]


@dataclass
class _Signature:
    """The parameters of a code object under construction."""

    names: tuple[str, ...]
    argcount: int
    posonly: int
    kwonly: int
    flags: int

    @classmethod
    def of(cls, like: CodeType, args: Sequence[str] | None) -> _Signature:
        stars = CO_VARARGS | CO_VARKEYWORDS
        if args is not None:
            return cls(tuple(args), len(args), 0, 0, like.co_flags & ~stars)
        return cls(
            parameters_of(like),
            like.co_argcount,
            like.co_posonlyargcount,
            like.co_kwonlyargcount,
            like.co_flags,
        )


class _Operands:
    """The names, constants and slots that the arguments of instructions index."""

    def __init__(
        self,
        instructions: Sequence[Instruction],
        like: CodeType,
        args: Sequence[str],
        cellvars: Sequence[str],
        freevars: Sequence[str],
    ) -> None:
        cells = {*cellvars, *freevars}
        fast: list[str] = []
        consts: list[Any] = list(like.co_consts[:1])  # where a function keeps its docstring
        names: list[str] = []
        for one in instructions:
            if one.opname in _CONST:
                consts.append(one.argval)
            elif one.opname in _NAME:
                names.append(one.argval)
            elif one.opname in _FAST:
                fast.append(one.argval)
            elif one.opname in _FUSED:
                fast.extend(one.argval)
        plain = [name for name in fast if name not in cells]
        self.varnames = [*args, *_kept(like.co_varnames, [*args, *plain], _same)]
        self.varnames = list(dict.fromkeys(self.varnames))
        self.consts = _Pool(_kept(like.co_consts, consts, const_key), const_key)
        self.names = _Pool(_kept(like.co_names, names, _same), _same)
        own_cells = [name for name in cellvars if name not in self.varnames]
        slots = [*self.varnames, *own_cells, *freevars]
        self._cell_slot = {name: i for i, name in enumerate(slots) if name in cells}
        self._fast_slot = {**self._cell_slot, **{n: i for i, n in enumerate(self.varnames)}}
        self._free_count = len(freevars)

    def parts(self, one: Instruction) -> list[tuple[str, int]]:
        """Return the opcodes and arguments of an instruction: several if it is split."""
        opname = one.opname
        arg = one.arg or 0
        if opname in _CONST:
            arg = self.consts.add(one.argval)
        elif opname in _NAME:
            bits = DIALECT.name_flags.get(opname, 0)
            arg = self.names.add(one.argval) << bits | arg & ((1 << bits) - 1)
        elif opname in _DEREF:
            arg = self._slot(self._cell_slot, one, one.argval)
        elif opname in _FAST:
            arg = self._slot(self._fast_slot, one, one.argval)
        elif opname in _FUSED:
            return self._fused_parts(one)
        elif opname in _COMPARE and one.arg is None:
            number = dis.cmp_op.index(one.argval)
            arg = number << DIALECT.compare_shift | DIALECT.compare_masks.get(one.argval, 0)
        elif opname == "COPY_FREE_VARS":
            arg = self._free_count
        return [(_spelled(opname), arg)]

    def _fused_parts(self, one: Instruction) -> list[tuple[str, int]]:
        first, second = (self._slot(self._fast_slot, one, name) for name in one.argval)
        if first < 16 and second < 16:
            return [(one.opname, first << 4 | second)]
        opnames = DIALECT.fused[one.opname]
        return [(opnames[0], first), (opnames[1], second)]

    @staticmethod
    def _slot(slots: Mapping[str, int], one: Instruction, name: str) -> int:
        try:
            return slots[name]
        except KeyError:
            raise ValueError(f"{one}: {name!r} is no cell or free variable of this code") from None


@dataclass(slots=True)
class _Unit:
    """One opcode with its prefix and caches, placed at code unit `start`."""

    source: Instruction
    opname: str
    arg: int
    target: Instruction | None
    caches: int
    start: int = 0
    prefixes: int = 0

    @property
    def end(self) -> int:
        return self.start + self.prefixes + 1 + self.caches


def _units(instructions: Sequence[Instruction], operands: _Operands) -> list[_Unit]:
    index = {instruction: i for i, instruction in enumerate(instructions)}
    units: list[_Unit] = []
    for i, one in enumerate(instructions):
        if one.target is None:
            parts = operands.parts(one)
        elif one.target not in index:
            raise ValueError(f"{one}: the target is not among the instructions")
        else:
            parts = [(_directed(one, backward=index[one.target] <= i), 0)]
        for opname, arg in parts:
            units.append(_Unit(one, opname, arg, one.target, _CACHES.get(opname, 0)))
    return units


def _directed(one: Instruction, *, backward: bool) -> str:
    forward_name, backward_name = DIALECT.directions.get(one.opname, (one.opname, None))
    name = backward_name if backward else forward_name
    if name is None or name not in dis.opmap:
        raise ValueError(f"{one}: Python {VERSION[0]}.{VERSION[1]} cannot jump back this way")
    return name


def _layout(units: Sequence[_Unit]) -> dict[Instruction, int]:
    """Place the units, growing prefixes until every argument fits; return the starts."""
    starts: dict[Instruction, int] = {}
    settled = False
    while not settled:
        settled = True
        starts.clear()
        at = 0
        for unit in units:
            unit.start = at
            at = unit.end
            starts.setdefault(unit.source, unit.start)
        for unit in units:
            if unit.target is not None:
                unit.arg = abs(starts[unit.target] - unit.end)
            needed = max(unit.arg.bit_length() - 1, 0) // 8
            if needed > unit.prefixes:
                unit.prefixes = needed
                settled = False
    return starts


def _code_bytes(units: Sequence[_Unit]) -> bytes:
    out = bytearray()
    for unit in units:
        for shift in range(unit.prefixes, 0, -1):
            out += bytes((dis.EXTENDED_ARG, unit.arg >> 8 * shift & 0xFF))
        out += bytes((dis.opmap[unit.opname], unit.arg & 0xFF))
        out += bytes(2 * unit.caches)
    return bytes(out)


def _exception_ranges(
    units: Sequence[_Unit], starts: Mapping[Instruction, int]
) -> list[ExceptionRange]:
    ranges: list[ExceptionRange] = []
    for unit in units:
        handler = unit.source.handler
        if handler is None:
            continue
        entry = ExceptionRange(
            unit.start, unit.end, starts[handler.target], handler.depth, handler.lasti
        )
        if ranges and ranges[-1].end == entry.start and ranges[-1][2:] == entry[2:]:
            ranges[-1] = ranges[-1]._replace(end=entry.end)
        else:
            ranges.append(entry)
    return ranges


def assemble(
    instructions: Sequence[Instruction],
    like: CodeType,
    *,
    name: str | None = None,
    qualname: str | None = None,
    args: Sequence[str] | None = None,
    freevars: Sequence[str] | None = None,
    cellvars: Sequence[str] | None = None,
    flags: int | None = None,
) -> CodeType:
    """Assemble a code object; attributes that are not given are copied from `like`.

    `args` names positional parameters; without it the parameters are those of `like`.

    Raises:
        ValueError: a jump target is not in the list, a cell has no slot, or stack depths disagree.
    """
    signature = _Signature.of(like, args)
    free = tuple(like.co_freevars if freevars is None else freevars)
    cells = tuple(like.co_cellvars if cellvars is None else cellvars)
    operands = _Operands(instructions, like, signature.names, cells, free)
    units = _units(instructions, operands)
    starts = _layout(units)
    spans = ((unit.source.positions, unit.end - unit.start) for unit in units)
    return like.replace(
        co_code=_code_bytes(units),
        co_name=like.co_name if name is None else name,
        co_qualname=like.co_qualname if qualname is None else qualname,
        co_argcount=signature.argcount,
        co_posonlyargcount=signature.posonly,
        co_kwonlyargcount=signature.kwonly,
        co_nlocals=len(operands.varnames),
        co_varnames=tuple(operands.varnames),
        co_cellvars=cells,
        co_freevars=free,
        co_names=tuple(operands.names.values),
        co_consts=tuple(operands.consts.values),
        co_stacksize=_stack_size(instructions),
        co_flags=signature.flags if flags is None else flags,
        co_linetable=encode_locations(spans, like.co_firstlineno, merge=DIALECT.merges_locations),
        co_exceptiontable=encode_exceptions(_exception_ranges(units, starts)),
    )
