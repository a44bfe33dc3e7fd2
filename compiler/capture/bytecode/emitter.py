"""Emits instructions for the running Python version, one method for each kind of instruction.

`TRAITS` holds what differs between versions.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

from tc.compiler.capture.bytecode.assembler import assemble
from tc.compiler.capture.bytecode.dialects import VERSION
from tc.compiler.capture.bytecode.hidden import with_hidden_part
from tc.compiler.capture.bytecode.instructions import Handler, Instruction
from tc.compiler.core.table import Table


@dataclass(frozen=True)
class Traits:
    """How one Python version encodes the instructions that the emitter emits."""

    null_first: bool
    """A call's NULL is below the callable, not above it."""

    precall: bool = False
    """CALL is announced by PRECALL."""

    call_kw: bool = False
    """Keyword names are an operand of CALL_KW, not of a KW_NAMES before CALL."""

    load_method: bool = False
    """Methods are loaded by LOAD_METHOD, not by a flag of LOAD_ATTR."""

    checked_load: str = "LOAD_FAST_CHECK"
    """The load that raises UnboundLocalError where the local has no value."""

    function_attributes: bool = False
    """Defaults and closure are set after MAKE_FUNCTION, not by its flags."""


TRAITS: Table[tuple[int, int], Traits] = Table("emitter traits")
TRAITS.add(
    (3, 11),
    Traits(
        null_first=True,
        precall=True,
        load_method=True,
        checked_load="LOAD_FAST",
    ),
)
TRAITS.add((3, 12), Traits(null_first=True))
TRAITS.add(
    (3, 13),
    Traits(null_first=False, call_kw=True, function_attributes=True),
)

_DEFAULTS, _KWDEFAULTS, _CLOSURE = 1, 2, 8  # flags of a function under construction


class Emitter:
    """Collects instructions.

    `positions` is the place in the user's source that new instructions are attributed to, `handler`
    the exception handler that covers them; both may be changed at any time.
    """

    def __init__(self, positions: dis.Positions | None = None) -> None:
        self.instructions: list[Instruction] = []
        self.positions = positions
        self.handler: Handler | None = None
        self.hidden: list[Instruction] = []
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
            Instruction(
                opname,
                arg,
                argval,
                target,
                positions=self.positions,
                handler=self.handler,
            )
        )

    def assemble(self, like: CodeType, **overrides: Any) -> CodeType:
        """Build the code object; the overrides are those of `assemble`."""
        body = self.instructions
        return assemble(
            with_hidden_part(body, self.hidden) if self.hidden else body,
            like,
            **overrides,
        )

    # ------------------------------------------------------------ frame

    def prologue(
        self, cellvars: Sequence[str] = (), freevars: Sequence[str] = ()
    ) -> None:
        """Emit the instructions with which every code object has to begin."""
        if freevars:
            self.emit("COPY_FREE_VARS", len(freevars))
        for name in cellvars:
            self.emit("MAKE_CELL", argval=name)
        self.emit("RESUME", 0)

    def return_value(self) -> None:
        """Return the top of the stack."""
        self.emit("RETURN_VALUE")

    def raise_varargs(self, count: int) -> None:
        """Raise: 0 re-raises, 1 raises the exception on top, 2 has its cause above it."""
        self.emit("RAISE_VARARGS", count)

    def handle(self) -> None:
        """Make the exception on top the handled one.

        The exception that was handled before takes its place on the stack.
        """
        self.emit("PUSH_EXC_INFO")
        self.pop_top()

    def end_handling(self) -> None:
        """Pop the exception that `handle` left, and make it the handled one again."""
        self.emit("POP_EXCEPT")

    # ------------------------------------------------------------ loads, stores, deletes

    def load_const(self, value: object) -> None:
        """Push a constant, which may be any object."""
        self.emit("LOAD_CONST", argval=value)

    def load_fast(self, name: str, *, checked: bool = False) -> None:
        """Push a local. With ``checked`` an unbound one raises; without, it crashes the process."""
        self.emit(self._traits.checked_load if checked else "LOAD_FAST", argval=name)

    def store_fast(self, name: str) -> None:
        """Pop into a local."""
        self.emit("STORE_FAST", argval=name)

    def delete_fast(self, name: str) -> None:
        """Unbind a local that is bound."""
        self.emit("DELETE_FAST", argval=name)

    def load_global(self, name: str, *, call: bool = False) -> None:
        """Push a global; with `call`, ready to be called."""
        self.emit("LOAD_GLOBAL", int(call), name)

    def store_global(self, name: str) -> None:
        """Pop into a global."""
        self.emit("STORE_GLOBAL", argval=name)

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

    def unpack_sequence(self, count: int) -> None:
        """Replace an iterable by its `count` items, the first on top."""
        self.emit("UNPACK_SEQUENCE", count)

    def get_iter(self) -> None:
        """Replace the top by its iterator."""
        self.emit("GET_ITER")

    # ------------------------------------------------------------ calls

    def push_null(self) -> None:
        """Push the NULL of the call protocol."""
        self.emit("PUSH_NULL")

    def before_callable(self) -> None:
        """Announce that the next value pushed will be called; `after_callable` must follow it."""
        if self._traits.null_first:
            self.push_null()

    def after_callable(self) -> None:
        """Complete `before_callable`: the value on top is the one that will be called."""
        if not self._traits.null_first:
            self.push_null()

    def load_method(self, name: str) -> None:
        """Replace the top by its method, ready to be called."""
        if self._traits.load_method:
            self.emit("LOAD_METHOD", argval=name)
        else:
            self.emit("LOAD_ATTR", 1, name)

    def call(self, positional: int, kwnames: Sequence[str] = ()) -> None:
        """Call the callable below the arguments, the last of which are keyword arguments."""
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

    def return_call(self, positional: int) -> None:
        """Return the result of a call, during which no stack shows the frame."""
        call, after = self.label(), self.label()
        self.jump(call)
        self.place(after)
        self.return_value()
        shown, self.instructions = self.instructions, self.hidden
        handler, self.handler = self.handler, None
        self.place(call)
        self.call(positional)
        self.jump(after)
        self.instructions, self.handler = shown, handler

    # ------------------------------------------------------------ jumps

    def label(self) -> Instruction:
        """Return a jump target whose position `place` sets later."""
        return Instruction("NOP", positions=self.positions)

    def place(self, label: Instruction) -> None:
        """Place a label at the current position."""
        label.positions = self.positions
        label.handler = self.handler
        self.append(label)

    def jump(self, target: Instruction) -> None:
        """Continue at `target`."""
        self.emit("JUMP_FORWARD", target=target)
