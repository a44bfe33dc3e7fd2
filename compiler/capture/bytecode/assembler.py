"""Assembles instructions into a code object: slots, constants, jumps, tables, the stack's size."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType
from typing import Any

from tc.compiler.capture.bytecode.dialects import DIALECT, VERSION
from tc.compiler.capture.bytecode.instructions import (
    CACHES,
    FUSED,
    HAS_COMPARE,
    HAS_CONST,
    HAS_FREE,
    HAS_LOCAL,
    HAS_NAME,
    Instruction,
    parameters_of,
    spelled,
    stack_depths,
    stack_effect,
)
from tc.compiler.capture.bytecode.linetable import (
    ExceptionRange,
    encode_exceptions,
    encode_locations,
)


def _stack_size(instructions: Sequence[Instruction]) -> int:
    most = 1
    for instruction, depth in stack_depths(instructions).items():
        effect = stack_effect(instruction, jump=False)
        if instruction.target is not None:
            effect = max(effect, stack_effect(instruction, jump=True))
        most = max(most, depth, depth + effect)
    return most


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
    """Return a key equal only for constants that no program can distinguish.

    What is no number is another key of a dictionary than all others.
    """
    kind = type(value)
    if kind in (float, complex) and value != value:
        return kind, id(value)
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


def _kept(
    order: Iterable[Any], used: Iterable[Any], key: Callable[[Any], object]
) -> list[Any]:
    """Return the distinct values of `used`: those of `order` in its order, then the others."""
    wanted = _Pool(used, key)
    first = [value for value in order if value in wanted]
    return _Pool([*first, *wanted.values], key).values


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
        # where a function keeps its docstring
        consts: list[Any] = list(like.co_consts[:1])
        names: list[str] = []
        for one in instructions:
            if one.opname in HAS_CONST:
                consts.append(one.argval)
            elif one.opname in HAS_NAME:
                names.append(one.argval)
            elif one.opname in HAS_LOCAL:
                fast.append(one.argval)
            elif one.opname in FUSED:
                fast.extend(one.argval)
        plain = [name for name in fast if name not in cells]
        self.varnames = [*args, *_kept(like.co_varnames, [*args, *plain], _same)]
        self.varnames = list(dict.fromkeys(self.varnames))
        self.consts = _Pool(_kept(like.co_consts, consts, const_key), const_key)
        self.names = _Pool(_kept(like.co_names, names, _same), _same)
        own_cells = [name for name in cellvars if name not in self.varnames]
        slots = [*self.varnames, *own_cells, *freevars]
        self._cell_slot = {name: i for i, name in enumerate(slots) if name in cells}
        self._fast_slot = {
            **self._cell_slot,
            **{n: i for i, n in enumerate(self.varnames)},
        }
        self._free_count = len(freevars)

    def parts(self, one: Instruction) -> list[tuple[str, int]]:
        """Return the opcodes and arguments of an instruction: several if it is split."""
        opname = one.opname
        arg = one.arg or 0
        if opname in HAS_CONST:
            arg = self.consts.add(one.argval)
        elif opname in HAS_NAME:
            bits = DIALECT.name_flags.get(opname, 0)
            arg = self.names.add(one.argval) << bits | arg & ((1 << bits) - 1)
        elif opname in HAS_FREE:
            arg = self._slot(self._cell_slot, one, one.argval)
        elif opname in HAS_LOCAL:
            arg = self._slot(self._fast_slot, one, one.argval)
        elif opname in FUSED:
            return self._fused_parts(one)
        elif opname in HAS_COMPARE and one.arg is None:
            number = dis.cmp_op.index(one.argval)
            arg = number << DIALECT.compare_shift | DIALECT.compare_masks.get(
                one.argval, 0
            )
        elif opname == "COPY_FREE_VARS":
            arg = self._free_count
        return [(spelled(opname), arg)]

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
            raise ValueError(
                f"{one}: {name!r} is no cell or free variable of this code"
            ) from None


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
            units.append(_Unit(one, opname, arg, one.target, CACHES.get(opname, 0)))
    return units


def _directed(one: Instruction, *, backward: bool) -> str:
    forward_name, backward_name = DIALECT.directions.get(one.opname, (one.opname, None))
    name = backward_name if backward else forward_name
    if name is None or name not in dis.opmap:
        raise ValueError(
            f"{one}: Python {VERSION[0]}.{VERSION[1]} cannot jump back this way"
        )
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
        co_linetable=encode_locations(
            spans, like.co_firstlineno, merge=DIALECT.merges_locations
        ),
        co_exceptiontable=encode_exceptions(_exception_ranges(units, starts)),
    )
