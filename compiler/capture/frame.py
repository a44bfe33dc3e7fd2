"""Interprets the bytecode of one frame over values, and so records graph nodes."""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import replace
from types import CodeType
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.bytecode.by_code import cached_by_code
from tc.compiler.capture.bytecode.closing import runs_code
from tc.compiler.capture.bytecode.dialects import RUNNING
from tc.compiler.capture.bytecode.instructions import Instruction, disassemble
from tc.compiler.capture.bytecode.liveness import live_at
from tc.compiler.capture.bytecode.opcode_table import OPCODES
from tc.compiler.capture.bytecode.resume_functions import open_blocks, traced_name
from tc.compiler.capture.bytecode.tracebacks import pass_by
from tc.compiler.capture.parts.dropped_generators import (
    close_dropped,
    note_lost,
    release,
)
from tc.compiler.capture.values.base import (
    NULL,
    Exhausted,
    HandlingValue,
    Raised,
    Value,
)
from tc.compiler.capture.values.deferred_calls import DeferredCall
from tc.compiler.capture.values.exceptions import ExceptionValue
from tc.compiler.capture.values.functions import CellValue
from tc.compiler.errors import ErrorContext, attach_context, is_own
from tc.trace.ids import plain_function
from tc.trace.places import StackFrame

if TYPE_CHECKING:
    from tc.compiler.capture.tracer import Tracer


class Program:
    """The instructions of a code object, and the index of each."""

    def __init__(self, code: CodeType) -> None:
        self.instructions = disassemble(code)
        self.index = {id(one): n for n, one in enumerate(self.instructions)}
        self._varnames = code.co_varnames
        self._live: dict[int, frozenset[str]] = {}

    def live_at(self, target: Instruction) -> frozenset[str]:
        """Return the locals that are live at an instruction; the result is cached."""
        found = self._live.get(id(target))
        if found is None:
            names = live_at(self.instructions, target, frame_locals=self._varnames)
            found = self._live[id(target)] = frozenset(names)
        return found


@cached_by_code(2048)
def program_of(code: CodeType) -> Program:
    """Return the instructions of a code object."""
    return Program(code)


class Reached(BaseException):
    """Control flow: a repeated trace has reached the instruction at which it has to end."""

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self.frame = frame


class Frame:
    """Interprets one code object.

    Attributes:
        locals: bound names, cells excluded.
        cells: own and free variables kept in cells.
        current: the instruction being interpreted.
        parent: the calling frame, or None for the frame under capture.
        is_tail_call: the call instruction of `parent` pushes its result as it is.
        leaves_out: whether Python has frames between `parent` and this one.
        runs: ranges of instructions that were interpreted, up to the last jump.
        handling: the exceptions that a suspended generator's frame handles.
        step_number: the number of `current` among the instructions of the trace.
    """

    def __init__(
        self,
        t: Tracer,
        code: CodeType,
        locals: dict[str, Value],
        cells: dict[str, CellValue],
        module_globals: dict[str, Any],
        parent: Frame | None,
    ) -> None:
        self.t = t
        self.code = code
        t.guards.definitions.spell(code)
        self.program = program_of(code)
        self.locals = locals
        self.cells = cells
        self.module_globals = module_globals
        self.parent = parent
        self.stack: list[Value] = []
        self.pc = 0
        self.current: Instruction = self.program.instructions[0]
        self.kwnames: tuple[str, ...] = ()
        self.returned: Value | None = None
        self.yielded: Value | None = None
        self.started = False
        self.handling: list[HandlingValue] = []
        self.is_tail_call = False
        self.leaves_out = False
        self.step_number = 0
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.runs: set[tuple[int, int]] = set()
        self.run_from = 0
        if t.walked is not None:
            t.walked.append(self)

    # -- stack -----------------------------------------------------------------------------
    def push(self, value: Value) -> None:
        """Push a value."""
        self.stack.append(value)

    def pop(self) -> Value:
        """Pop a value."""
        return self.stack.pop()

    def popn(self, count: int) -> list[Value]:
        """Pop ``count`` values; the deepest comes first."""
        if not count:
            return []
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    def push_callable(self, function: Value) -> None:
        """Push a callable and its NULL in the order of the running Python."""
        if RUNNING < (3, 13):
            self.stack += [NULL, function]
        else:
            self.stack += [function, NULL]

    # -- names -----------------------------------------------------------------------------
    def local(self, name: str) -> Value:
        """Return a local; an unbound one raises into the traced code."""
        value = self.locals.get(name)
        if value is None:
            if name in self.cells:
                return self.cells[name].load(self.t)
            text = f"cannot access local variable {name!r} where it is not associated with a value"
            return self.t.python.raise_(UnboundLocalError, text)
        return value

    def is_bound(self, name: str) -> bool:
        """Return whether a local that is not kept in a cell has a value."""
        return name in self.locals

    def bound(self, names: Set[str]) -> dict[str, Value]:
        """Return those of the given locals that have a value and are not kept in cells."""
        return {
            n: self.locals[n] for n in names if n in self.locals and n not in self.cells
        }

    def global_value(self, name: str) -> Value:
        """Return a global or builtin of this frame's module."""
        return self.t.values.load_global(self.module_globals, name)

    @property
    def runs_code_if_closed(self) -> bool:
        """Whether closing or dropping a generator where it is suspended runs code of its own."""
        if not self.started or self.returned is not None:
            return False
        return self._runs_code_at(self.current)

    @property
    def may_run_code_if_closed(self) -> bool:
        """Whether a generator of this code runs code of its own if it is closed at some yield."""
        yields = (
            one for one in self.program.instructions if one.opname == "YIELD_VALUE"
        )
        return any(map(self._runs_code_at, yields))

    def _runs_code_at(self, suspended: Instruction) -> bool:
        instructions, index = self.program.instructions, self.program.index
        return runs_code(instructions, index, suspended.handler, self.module_globals)

    # -- control ---------------------------------------------------------------------------
    def jump(self, instruction: Instruction) -> None:
        """Continue at a jump's target."""
        self._go_to(instruction.target)

    def _go_to(self, target: Instruction | None) -> None:
        self.runs.add((self.run_from, self.pc))
        self.run_from = self.pc = self.program.index[id(target)]

    def visited(self) -> set[tuple[int, int]]:
        """Return the ranges of interpreted instructions, as first and one past last."""
        return {*self.runs, (self.run_from, self.pc)}

    def step(self) -> None:
        """Interpret one instruction; an exception of traced code continues at its handler."""
        one = self.current = self.program.instructions[self.pc]
        self.pc += 1
        self.t.top = self
        self.step_number = self.t.count_step(self)
        try:
            handler = OPCODES.get(one.opname)
            if handler is None:
                raise breaks.GraphBreak(breaks.UNSUPPORTED_OPCODE, one.opname)
            handler(self, one)
        except Raised as raised:
            self.unwind(one, raised)
        except RecursionError:
            raise breaks.GraphBreak(
                breaks.UNSUPPORTED_CALL, "calls that are nested too deeply"
            ) from None
        except breaks.GraphBreak as cause:
            cause.frame = cause.frame or self
            if not cause.places:
                cause.places = self.spots()
                cause.positions = self.users_chain()[-1].current.positions
            raise
        except Exception as error:
            calling = self.t.calling if one.opname.startswith("CALL") else None
            callee = "" if calling is None else calling.describe()
            attach_context(error, ErrorContext(one.opname, callee, self.spots()))
            raise
        if self.t.effects.generators:
            close_dropped(self)

    def unwind(self, one: Instruction, raised: Raised) -> None:
        """Continue at the handler that covers an instruction, or raise to the caller."""
        self._note(one, raised.value)
        if self.t.handled and isinstance(raised.value, ExceptionValue):
            is_raised = one.opname == "RAISE_VARARGS" and bool(one.arg)
            raised.value.came_while(self.t.handled[-1].error, is_raised)
        handler = one.handler
        if handler is None:
            if self.t.effects.generators:
                note_lost(self)
            try:
                raise raised
            finally:
                # else its traceback holds it, and the program's frames, until they are collected
                del raised
        del self.stack[handler.depth :]
        if handler.lasti:
            self.push(self.t.values.known(one.offset))
        self.push(raised.value)
        self._go_to(handler.target)

    def _note(self, one: Instruction, error: Value) -> None:
        """Record in an exception the line that raises it, and the calls that it leaves.

        A frame that raises it again keeps its first line, unless a call has raised it again. To an
        exception from outside, which has a traceback, residual code adds the line.
        """
        again = one.opname == "RERAISE" or (
            one.opname == "RAISE_VARARGS" and not one.arg
        )
        if error.source is not None and not again and not is_own(self.code.co_filename):
            spot, span = self.spot(), self.current.positions
            name, at = plain_function(spot.name), tuple(span) if span else None
            place = self.t.values.known((spot.file, spot.line, name, at))
            self.t.effects.demand(DeferredCall(pass_by, [error, place], {}))
        trail = error.trail
        if trail and self.depth > trail[-1][0]:
            trail = ()
        if not trail or self.depth < trail[-1][0]:
            error.trail = (*trail, (self.depth, self.spot(), self.current.positions))

    def note_open_blocks(self) -> None:
        """Note what leaves the ``with`` blocks that this frame, of a resume function, begins in."""
        self.t.output.exits += [self.local(name) for name in open_blocks(self.code)]

    def run(self) -> Value:
        """Interpret up to the return."""
        self.note_open_blocks()
        while self.returned is None:
            self.step()
        if self.t.effects.generators:
            release(self)
        return self.returned

    def run_to_yield(self, sent: Value | None, error: Value | None = None) -> Value:
        """Interpret a generator's frame up to its next yield.

        Args:
            sent: the value of the ``yield`` that it is suspended at.
            error: the exception that is raised there instead.

        Raises:
            Exhausted: it returned; the argument is what it returned.
        """
        if self.returned is not None:
            raise Exhausted
        if self.started and sent is not None:
            self.push(sent)
        self.started = True
        with self.calling():
            if error is not None:
                self.unwind(self.current, Raised(error))
            while self.returned is None:
                self.step()
                if self.yielded is not None:
                    value, self.yielded = self.yielded, None
                    return value
            if self.t.effects.generators:
                release(self)
        raise Exhausted(self.returned)

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Let what is running call this generator's frame.

        Exceptions that the frame handles where it is suspended are not handled by its callers.
        """
        caller, handled = self.t.top, self.t.handled
        below = len(handled)
        self.parent = caller
        self.t.top = self
        handled += self.handling
        try:
            yield
        except Raised:
            del handled[below:]
            raise
        finally:
            self.t.top = caller
        self.handling = handled[below:]
        del handled[below:]

    def _delegation(self) -> Instruction | None:
        """Return the SEND of the ``yield from`` that a generator is suspended in."""
        at = self.program.index[id(self.current)]
        before = self.program.instructions[at - 1]
        return before if before.opname == "SEND" else None

    def delegate(self) -> Value | None:
        """Return what a suspended generator yields from."""
        return None if self._delegation() is None else self.stack[-1]

    def end_delegate(self, result: Value) -> Value:
        """Interpret from the end of a ``yield from`` that has a result up to the next yield."""
        self.finish_delegate(result)
        delegation = self._delegation()
        assert delegation is not None
        self.jump(delegation)
        return self.run_to_yield(None)

    def finish_delegate(self, result: Value) -> None:
        """Leave a ``yield from``: the result takes the place of the delegate on 3.11."""
        if RUNNING < (3, 12):
            self.pop()
        self.push(result)

    # -- where -----------------------------------------------------------------------------
    def chain(self) -> list[Frame]:
        """Return the frames from the one under capture down to this one."""
        return [*(self.parent.chain() if self.parent is not None else ()), self]

    def in_loop(self) -> bool:
        """Return whether the current instruction is in the body of a loop."""
        index = self.program.index
        at = index[id(self.current)]
        later = self.program.instructions[at:]
        return any(
            one.target is not None and index[id(one.target)] <= at for one in later
        )

    def place(self) -> StackFrame:
        """Return this frame's current place in the user's source."""
        positions = self.current.positions
        line = positions.lineno if positions is not None else None
        return _place(self.code, line or self.code.co_firstlineno)

    def spot(self) -> StackFrame:
        """Return this frame's place with the column range of the current instruction."""
        place, at = self.place(), self.current.positions
        if at is None or at.lineno is None or at.col_offset is None:
            return place
        line = linecache.getline(place.file, place.line)
        indent = len(line) - len(line.lstrip())
        end = at.end_col_offset if at.end_lineno == at.lineno else None
        return replace(
            place,
            col=max(0, at.col_offset - indent),
            end_col=None if end is None else max(0, end - indent),
        )

    def next_instruction(self) -> Instruction:
        """Return the instruction after the current one."""
        return self.program.instructions[self.program.index[id(self.current)] + 1]

    def users_chain(self) -> list[Frame]:
        """Return `chain` without functions of tc; where there is nothing else, its first frame."""
        chain = self.chain()
        return [one for one in chain if not is_own(one.code.co_filename)] or chain[:1]

    def places(self) -> list[StackFrame]:
        """Return the stack of the user's frames, the one under capture first."""
        return [one.place() for one in self.users_chain()]

    def spots(self) -> tuple[StackFrame, ...]:
        """Return `places`, each with the column range of its current instruction."""
        return tuple(one.spot() for one in self.users_chain())


@cached_by_code(2048)
def _place(code: CodeType, line: int) -> StackFrame:
    file = code.co_filename
    return StackFrame(file, line, traced_name(code), source_line(file, line))


def source_line(filename: str, line: int) -> str:
    """Return a line of source without its indentation, or an empty string."""
    return linecache.getline(filename, line).strip()
