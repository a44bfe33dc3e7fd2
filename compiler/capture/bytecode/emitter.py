"""Wishes of the code generator in, a list of instructions for the running Python version out.

Each method appends what its name says; `TRAITS` holds what the versions do differently.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from tc.compiler.capture.bytecode.dialects import VERSION
from tc.compiler.capture.bytecode.instructions import Handler, Instruction, assemble
from tc.compiler.core.table import Table


@dataclass(frozen=True)
class Traits:
    """How one Python version spells what the emitter says."""

    null_first: bool
    """A call's NULL lies below the callable, not above it."""

    precall: bool = False
    """CALL is announced by PRECALL."""

    call_kw: bool = False
    """Keyword names are an operand of CALL_KW, not of a KW_NAMES before CALL."""

    load_method: bool = False
    """Methods are loaded by LOAD_METHOD, not by a flag of LOAD_ATTR."""

    checked_load: str = "LOAD_FAST_CHECK"
    """The load that raises UnboundLocalError where the local has no value."""

    tests_bool_only: bool = False
    """UNARY_NOT and the jumps on truth take only True and False."""

    function_attributes: bool = False
    """Defaults and closure are set after MAKE_FUNCTION, not by its flags."""

    list_to_tuple: tuple[str, int | None] = ("CALL_INTRINSIC_1", 6)
    unary_positive: tuple[str, int | None] = ("CALL_INTRINSIC_1", 5)


TRAITS: Table[tuple[int, int], Traits] = Table("emitter traits")
TRAITS.add(
    (3, 11),
    Traits(
        null_first=True,
        precall=True,
        load_method=True,
        checked_load="LOAD_FAST",
        list_to_tuple=("LIST_TO_TUPLE", None),
        unary_positive=("UNARY_POSITIVE", None),
    ),
)
TRAITS.add((3, 12), Traits(null_first=True))
TRAITS.add(
    (3, 13),
    Traits(null_first=False, call_kw=True, tests_bool_only=True, function_attributes=True),
)

_BINARY_OPS = {symbol: number for number, (_, symbol) in enumerate(dis._nb_ops)}  # type: ignore[attr-defined]
_DEFAULTS, _KWDEFAULTS, _CLOSURE = 1, 2, 8  # flags of a function under construction


class Emitter:
    """Collects instructions.

    `positions` is the place in the user's source that new instructions stand for, `handler` what
    guards them; both may be changed at any time.
    """

    def __init__(self, positions: dis.Positions | None = None) -> None:
        self.instructions: list[Instruction] = []
        self.positions = positions
        self.handler: Handler | None = None
        self._traits = TRAITS[VERSION]

    def append(self, instruction: Instruction) -> Instruction:
        """Append an instruction as it is."""
        self.instructions.append(instruction)
        return instruction

    def extend(self, instructions: Iterable[Instruction]) -> None:
        """Append instructions as they are."""
        self.instructions.extend(instructions)

    def emit(
        self,
        opname: str,
        arg: int | None = None,
        argval: Any = None,
        target: Instruction | None = None,
    ) -> Instruction:
        """Append a new instruction at the current position."""
        return self.append(
            Instruction(opname, arg, argval, target, positions=self.positions, handler=self.handler)
        )

    def assemble(self, like: CodeType, **overrides: Any) -> CodeType:
        """Build the code object; the overrides are those of `bytecode.assemble`."""
        return assemble(self.instructions, like, **overrides)

    # ------------------------------------------------------------ frame

    def prologue(self, cellvars: Sequence[str] = (), freevars: Sequence[str] = ()) -> None:
        """Set up the frame: what must stand first in every code object."""
        if freevars:
            self.emit("COPY_FREE_VARS", len(freevars))
        for name in cellvars:
            self.emit("MAKE_CELL", argval=name)
        self.emit("RESUME", 0)

    def return_value(self) -> None:
        """Return the top of the stack."""
        self.emit("RETURN_VALUE")

    def raise_varargs(self, count: int) -> None:
        """Raise: 0 again, 1 the exception on top, 2 that with a cause above it."""
        self.emit("RAISE_VARARGS", count)

    def handle(self) -> None:
        """Make the exception on top the one being handled; leave the one before it in its place."""
        self.emit("PUSH_EXC_INFO")
        self.pop_top()

    def end_handling(self) -> None:
        """Pop what `handle` left: the exception that is being handled again."""
        self.emit("POP_EXCEPT")

    def nop(self) -> Instruction:
        """Do nothing: a place to jump to."""
        return self.emit("NOP")

    # ------------------------------------------------------------ loads, stores, deletes

    def load_const(self, value: object) -> None:
        """Push a constant, which may be any object."""
        self.emit("LOAD_CONST", argval=value)

    def load_fast(self, name: str, *, checked: bool = False) -> None:
        """Push a local. One that may be unbound must be `checked`, or the process may die."""
        self.emit(self._traits.checked_load if checked else "LOAD_FAST", argval=name)

    def store_fast(self, name: str) -> None:
        """Pop into a local."""
        self.emit("STORE_FAST", argval=name)

    def delete_fast(self, name: str) -> None:
        """Unbind a local that is bound."""
        self.emit("DELETE_FAST", argval=name)

    def clear_fast(self, name: str) -> None:
        """Unbind a local, whether it is bound or not."""
        self.load_const(None)
        self.store_fast(name)
        self.delete_fast(name)

    def load_global(self, name: str, *, call: bool = False) -> None:
        """Push a global; with `call`, ready to be called."""
        self.emit("LOAD_GLOBAL", int(call), name)

    def store_global(self, name: str) -> None:
        """Pop into a global."""
        self.emit("STORE_GLOBAL", argval=name)

    def delete_global(self, name: str) -> None:
        """Delete a global."""
        self.emit("DELETE_GLOBAL", argval=name)

    def load_deref(self, name: str) -> None:
        """Push the value of a cell."""
        self.emit("LOAD_DEREF", argval=name)

    def store_deref(self, name: str) -> None:
        """Pop into a cell."""
        self.emit("STORE_DEREF", argval=name)

    def delete_deref(self, name: str) -> None:
        """Empty a cell that is full."""
        self.emit("DELETE_DEREF", argval=name)

    def load_closure(self, name: str) -> None:
        """Push a cell itself."""
        self.emit("LOAD_CLOSURE", argval=name)

    def load_attr(self, name: str) -> None:
        """Replace the top by its attribute."""
        self.emit("LOAD_ATTR", 0, name)

    def store_attr(self, name: str) -> None:
        """Pop an object and, below it, the value of its attribute."""
        self.emit("STORE_ATTR", argval=name)

    def delete_attr(self, name: str) -> None:
        """Pop an object and delete its attribute."""
        self.emit("DELETE_ATTR", argval=name)

    def load_subscr(self) -> None:
        """Replace container and key by the item."""
        self.emit("BINARY_SUBSCR")

    def store_subscr(self) -> None:
        """Pop a key, a container and, below them, the item's new value."""
        self.emit("STORE_SUBSCR")

    def delete_subscr(self) -> None:
        """Pop a key and a container and delete the item."""
        self.emit("DELETE_SUBSCR")

    # ------------------------------------------------------------ stack

    def pop_top(self) -> None:
        """Drop the top."""
        self.emit("POP_TOP")

    def copy(self, depth: int) -> None:
        """Push the value at `depth` again; 1 is the top."""
        self.emit("COPY", depth)

    def swap(self, depth: int) -> None:
        """Exchange the top with the value at `depth`; 2 is the one below it."""
        if depth > 1:
            self.emit("SWAP", depth)

    def sink(self, depth: int) -> None:
        """Move the top down so that it lies at `depth`."""
        for step in range(depth, 1, -1):
            self.swap(step)

    def lift(self, depth: int) -> None:
        """Move the value at `depth` up to the top."""
        for step in range(2, depth + 1):
            self.swap(step)

    # ------------------------------------------------------------ building and taking apart

    def build_tuple(self, count: int) -> None:
        """Replace `count` values by their tuple."""
        self.emit("BUILD_TUPLE", count)

    def build_list(self, count: int) -> None:
        """Replace `count` values by their list."""
        self.emit("BUILD_LIST", count)

    def build_set(self, count: int) -> None:
        """Replace `count` values by their set."""
        self.emit("BUILD_SET", count)

    def build_map(self, count: int) -> None:
        """Replace `count` pairs of key and value by their dict."""
        self.emit("BUILD_MAP", count)

    def build_const_key_map(self, keys: tuple[object, ...]) -> None:
        """Replace as many values as there are `keys` by their dict."""
        self.load_const(keys)
        self.emit("BUILD_CONST_KEY_MAP", len(keys))

    def build_slice(self, count: int) -> None:
        """Replace two or three values by a slice."""
        self.emit("BUILD_SLICE", count)

    def build_string(self, count: int) -> None:
        """Replace `count` strings by their concatenation."""
        self.emit("BUILD_STRING", count)

    def list_to_tuple(self) -> None:
        """Replace a list by its tuple."""
        self.emit(*self._traits.list_to_tuple)

    def list_append(self, depth: int) -> None:
        """Pop a value and append it to the list then at `depth`."""
        self.emit("LIST_APPEND", depth)

    def list_extend(self, depth: int) -> None:
        """Pop an iterable and extend the list then at `depth`."""
        self.emit("LIST_EXTEND", depth)

    def set_add(self, depth: int) -> None:
        """Pop a value and add it to the set then at `depth`."""
        self.emit("SET_ADD", depth)

    def set_update(self, depth: int) -> None:
        """Pop an iterable and update the set then at `depth`."""
        self.emit("SET_UPDATE", depth)

    def map_add(self, depth: int) -> None:
        """Pop a value and a key and add them to the dict then at `depth`."""
        self.emit("MAP_ADD", depth)

    def dict_update(self, depth: int) -> None:
        """Pop a mapping and update the dict then at `depth`."""
        self.emit("DICT_UPDATE", depth)

    def dict_merge(self, depth: int) -> None:
        """Pop a mapping and merge it into the dict then at `depth`; a key twice is an error."""
        self.emit("DICT_MERGE", depth)

    def unpack_sequence(self, count: int) -> None:
        """Replace an iterable by its `count` items, the first on top."""
        self.emit("UNPACK_SEQUENCE", count)

    def unpack_ex(self, before: int, after: int) -> None:
        """Replace an iterable by its first items, a list of the middle and its last items."""
        self.emit("UNPACK_EX", before | after << 8)

    def get_iter(self) -> None:
        """Replace the top by its iterator."""
        self.emit("GET_ITER")

    # ------------------------------------------------------------ operators

    def binary_op(self, symbol: str) -> None:
        """Apply `+`, `@`, `+=` and so on to the two values on top."""
        self.emit("BINARY_OP", _BINARY_OPS[symbol])

    def unary_op(self, symbol: str) -> None:
        """Apply `-`, `+`, `~` or `not` to the top."""
        if symbol == "not":
            self._to_bool()
        plain = {"-": "UNARY_NEGATIVE", "~": "UNARY_INVERT", "not": "UNARY_NOT"}
        if symbol in plain:
            self.emit(plain[symbol])
        else:
            self.emit(*self._traits.unary_positive)

    def compare(self, symbol: str) -> None:
        """Apply `<`, `==` and so on to the two values on top."""
        self.emit("COMPARE_OP", argval=symbol)

    def is_op(self, *, invert: bool = False) -> None:
        """Apply `is`, or `is not`, to the two values on top."""
        self.emit("IS_OP", int(invert))

    def contains_op(self, *, invert: bool = False) -> None:
        """Apply `in`, or `not in`, to the two values on top."""
        self.emit("CONTAINS_OP", int(invert))

    # ------------------------------------------------------------ calls

    def push_null(self) -> None:
        """Push the NULL of the call protocol; see `ready_to_call` for one that is always right."""
        self.emit("PUSH_NULL")

    def before_callable(self) -> None:
        """Say that the next value pushed will be called; `after_callable` must follow it."""
        if self._traits.null_first:
            self.push_null()

    def after_callable(self) -> None:
        """Say that the value on top, announced by `before_callable`, will be called."""
        if not self._traits.null_first:
            self.push_null()

    def ready_to_call(self) -> None:
        """Make the value on top, however it came there, ready to be called."""
        self.push_null()
        if self._traits.null_first:
            self.swap(2)

    def load_method(self, name: str) -> None:
        """Replace the top by its method, ready to be called."""
        if self._traits.load_method:
            self.emit("LOAD_METHOD", argval=name)
        else:
            self.emit("LOAD_ATTR", 1, name)

    def call(self, positional: int, kwnames: Sequence[str] = ()) -> None:
        """Call what is ready with the arguments above it, the last of which are keywords."""
        count = positional + len(kwnames)
        if kwnames and self._traits.call_kw:
            self.load_const(tuple(kwnames))
            self.emit("CALL_KW", count)
            return
        if kwnames:
            self.emit("KW_NAMES", argval=tuple(kwnames))
        if self._traits.precall:
            self.emit("PRECALL", count)
        self.emit("CALL", count)

    def call_ex(self, *, has_kwargs: bool = False) -> None:
        """Call what is ready with a tuple of arguments and, above it, a dict of keywords."""
        self.emit("CALL_FUNCTION_EX", int(has_kwargs))

    def make_function(
        self,
        code: CodeType,
        closure: Sequence[str] = (),
        *,
        defaults: tuple[object, ...] | None = None,
        kwdefaults: dict[str, object] | None = None,
    ) -> None:
        """Push a new function of `code`, whose free variables are this frame's cells."""
        flags = 0
        if defaults is not None:
            self.load_const(defaults)
            flags |= _DEFAULTS
        if kwdefaults is not None:
            for value in kwdefaults.values():
                self.load_const(value)
            self.build_const_key_map(tuple(kwdefaults))
            flags |= _KWDEFAULTS
        if closure:
            for name in closure:
                self.load_closure(name)
            self.build_tuple(len(closure))
            flags |= _CLOSURE
        self.load_const(code)
        if not self._traits.function_attributes:
            self.emit("MAKE_FUNCTION", flags)
            return
        self.emit("MAKE_FUNCTION")
        for flag in (_CLOSURE, _KWDEFAULTS, _DEFAULTS):
            if flags & flag:
                self.emit("SET_FUNCTION_ATTRIBUTE", flag)

    # ------------------------------------------------------------ jumps

    def label(self) -> Instruction:
        """Return a place that jumps may name before `place` puts it down."""
        return Instruction("NOP", positions=self.positions)

    def place(self, label: Instruction) -> None:
        """Put a label down here."""
        label.positions = self.positions
        label.handler = self.handler
        self.append(label)

    def jump(self, target: Instruction) -> None:
        """Go on at `target`."""
        self.emit("JUMP_FORWARD", target=target)

    def pop_jump_if_true(self, target: Instruction) -> None:
        """Pop a value and jump if it is true."""
        self._to_bool()
        self.emit("POP_JUMP_IF_TRUE", target=target)

    def pop_jump_if_false(self, target: Instruction) -> None:
        """Pop a value and jump if it is false."""
        self._to_bool()
        self.emit("POP_JUMP_IF_FALSE", target=target)

    def pop_jump_if_none(self, target: Instruction) -> None:
        """Pop a value and jump if it is None."""
        self.emit("POP_JUMP_IF_NONE", target=target)

    def pop_jump_if_not_none(self, target: Instruction) -> None:
        """Pop a value and jump if it is not None."""
        self.emit("POP_JUMP_IF_NOT_NONE", target=target)

    def _to_bool(self) -> None:
        if self._traits.tests_bool_only:
            self.emit("TO_BOOL")
