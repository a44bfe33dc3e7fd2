"""Ends a trace at a graph break: runs the breaking instruction, then calls the resume functions.

The instruction may belong to an inlined frame. Then the resume function of the frame under capture
first calls the resume function of the inlined frame, and so on down to the innermost one.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tc.compiler.capture import breaks, hook
from tc.compiler.capture.bytecode import warned
from tc.compiler.capture.bytecode.by_code import CodeKey
from tc.compiler.capture.bytecode.continuation import Continuation, trampoline
from tc.compiler.capture.bytecode.dialects import DIALECT, RUNNING, VERSION
from tc.compiler.capture.bytecode.emitter import TRAITS
from tc.compiler.capture.bytecode.instructions import Handler, Instruction, stack_effect
from tc.compiler.capture.bytecode.resume_functions import (
    HANDLING,
    INNER,
    STACK_PREFIX,
    Kind,
    cached_resume_code,
    can_resume,
    is_resumed,
    origin_of,
    traced_name,
)
from tc.compiler.capture.bytecode.tracebacks import raised_here, without_latest
from tc.compiler.capture.frame import Frame
from tc.compiler.capture.skips import stays_whole
from tc.compiler.capture.values.base import NULL, HandlingValue, Value
from tc.compiler.capture.values.generators import GeneratorValue

if TYPE_CHECKING:
    from tc.compiler.capture.resume.residual import Residual

#: opcodes that may leave a NULL or a method's owner on the stack, replaced by a plain load
NULL_PUSHERS = ("LOAD_METHOD", "LOAD_GLOBAL", "LOAD_ATTR", "LOAD_SUPER_ATTR")
#: prefixes of opcodes that act on their own frame: never run in another frame
OWN_FRAME = (
    "LOAD_FAST",
    "STORE_FAST",
    "DELETE_FAST",
    "LOAD_DEREF",
    "STORE_DEREF",
    "DELETE_DEREF",
    "LOAD_CLOSURE",
    "LOAD_CLASSDEREF",
    "LOAD_FROM_DICT",
    "MAKE_CELL",
    "COPY_FREE_VARS",
    "LOAD_NAME",
    "STORE_NAME",
    "DELETE_NAME",
    "LOAD_LOCALS",
    "RETURN_",
    "YIELD_",
    "SEND",
    "MAKE_FUNCTION",
    "LOAD_SUPER_ATTR",
)
#: prefixes of opcodes that act on the globals of their frame
OWN_GLOBALS = (
    "LOAD_GLOBAL",
    "STORE_GLOBAL",
    "DELETE_GLOBAL",
    "IMPORT_",
    "LOAD_BUILD_CLASS",
)
#: names of functions that inspect the frame of their caller
LOOKS_BACK = frozenset(
    [
        "locals",
        "vars",
        "dir",
        "eval",
        "exec",
        "globals",
        "_getframe",
        "currentframe",
        "stack",
    ]
)


@dataclass(frozen=True)
class Ending:
    """Residual code that ends at a break, and the name of the resume function."""

    residual: Residual
    name: str


@dataclass(frozen=True)
class Here:
    """A value on the stack of the residual code, counted from the bottom."""

    index: int


@dataclass(frozen=True)
class Link:
    """A frame that is resumed after the break.

    Attributes:
        offset: the instruction at which it resumes, or its call instruction if `calls`.
        kinds, slots: its stack, bottom first.
        calls: whether it first calls the resume function of the next link.
        raises: whether it raises the exception on top of its stack at that instruction.
        broke: whether it breaks the graph at that instruction, as reported of another frame.
    """

    frame: Frame
    offset: int
    kinds: tuple[Kind, ...]
    slots: tuple[Value | Here, ...]
    locals: dict[str, Value]
    calls: bool = False
    raises: bool = False
    broke: bool = False

    def inner(self, rest: Sequence[Link]) -> int | None:
        """Return how many arguments the function of the next link takes."""
        return rest[0].count(rest[1:]) if self.calls else None

    def count(self, rest: Sequence[Link]) -> int:
        """Return how many arguments this link's function takes."""
        own = sum(map(bool, self.kinds)) + len(self.locals)
        inner = self.inner(rest)
        return own if inner is None else own + 1 + inner


def breakable(frames: Sequence[Frame], real: bool = False) -> list[Frame]:
    """Return the frames, outermost first, down to the innermost one that can break.

    If ``real``, the instruction is to run in a frame of its own code.
    """
    root, *inlined = frames
    chain = [root]
    for frame in inlined:
        module = str(frame.module_globals.get("__name__", ""))
        if not frame.is_tail_call or not can_resume(frame.code) or stays_whole(module):
            break
        if real and frame.leaves_out:
            break
        chain.append(frame)
    while not real and len(chain) > 1 and not _runs_elsewhere(chain[-1], root):
        chain.pop()
    return chain


def _runs_elsewhere(frame: Frame, root: Frame) -> bool:
    """Return whether a frame's current instruction has the same effect in the root frame."""
    opname = frame.current.opname
    if opname.startswith(OWN_FRAME):
        return False
    if opname.startswith(OWN_GLOBALS):
        return frame.module_globals is root.module_globals
    return True


def looks_back(frames: Sequence[Frame]) -> bool:
    """Return whether code in one of the frames may read the locals of its callers."""
    return any(LOOKS_BACK & set(frame.code.co_names) for frame in frames)


def finish_at_break(
    leaf: Frame,
    begin: Callable[[list[Value]], Residual],
    *,
    shown: bool = False,
    real: bool = False,
) -> Ending:
    """Emit everything from the graph's call to the calls of the resume functions.

    If ``shown``, the instruction that breaks may read the frames' locals, so all are kept. If
    ``real``, it may look at the frames themselves: one of an inlined frame is left to the function
    that resumes this frame, which begins with it.
    """
    one = leaf.current
    if one.opname in ("YIELD_VALUE", "SEND"):
        raise breaks.SkipFrame("it yields")
    chain = leaf.chain()
    ending = _Ending(chain, begin, shown)
    return ending.emit_before() if real and len(chain) > 1 else ending.emit()


class _Ending:
    """The residual code of one break, under construction."""

    def __init__(
        self, chain: list[Frame], begin: Callable[[list[Value]], Residual], shown: bool
    ) -> None:
        self.chain = chain
        self.shown = self._user_locals(chain[0]) if shown else {}
        self.leaf = chain[-1]
        self.handled = {id(value) for value in self.leaf.t.handled}
        kept = self._user_locals if shown else self._live
        self.locals = [self._live(frame) | kept(frame) for frame in chain]
        stacks = [value for frame in chain for value in frame.stack]
        cells = [cell for frame in chain[1:] for cell in frame.cells.values()]
        locals_ = [value for found in self.locals for value in found.values()]
        self.r = begin(
            [*map(self._passed, stacks), *locals_, *cells, *self.shown.values()]
        )
        self.passed = [*map(self._passed, stacks), *locals_, *cells]
        self.outlive = [
            *locals_,
            *cells,
            *self.shown.values(),
            *map(self._passed, self._waits()),
        ]
        self._leave_generators()
        self.below = [
            v for frame in chain[:-1] for v in frame.stack if self._handles(v)
        ]
        self.name = ""

    def _waits(self) -> list[Value]:
        """Return what is on the stacks of all frames once the instruction has run."""
        own = self.leaf.stack
        if self.leaf.current.opname != "FOR_ITER":
            own = [value for value in own if self._handles(value)]
        return [value for frame in self.chain[:-1] for value in frame.stack] + own

    def _leave_generators(self) -> None:
        """Leave the frame to Python if resume functions hold a generator that needs closing.

        Its `finally` runs where it dies, and arguments of a function that runs compiled code live
        until that returns.
        """
        held = [v for frame in self.chain for v in self._user_locals(frame).values()]
        for value in self.r.reached([*self.outlive, *held]).values():
            if isinstance(value, GeneratorValue) and value.may_need_closing:
                raise breaks.SkipFrame(
                    f"{value.describe()} has to be closed where it dies"
                )

    def _handles(self, value: Value) -> bool:
        return id(value) in self.handled

    def _passed(self, value: Value) -> Value:
        """Return the value that passes a stack entry to a resume function."""
        return (
            value.error
            if isinstance(value, HandlingValue) and self._handles(value)
            else value
        )

    def _kinds(self, stack: Sequence[Value]) -> tuple[Kind, ...]:
        return tuple(HANDLING if self._handles(v) else v is not NULL for v in stack)

    @staticmethod
    def _live(frame: Frame) -> dict[str, Value]:
        one = frame.current
        targets = [one, *_following(frame), one.target, *_handler_target(frame)]
        wanted = [
            frame.program.live_at(target) for target in targets if target is not None
        ]
        found = frame.bound(frozenset().union(*wanted))
        return {name: found[name] for name in sorted(found)}

    @staticmethod
    def _user_locals(root: Frame) -> dict[str, Value]:
        names = {n for n in root.locals if not n.startswith((STACK_PREFIX, INNER))}
        return {
            name: value
            for name, value in root.bound(names).items()
            if value is not NULL
        }

    def emit(self) -> Ending:
        r, one = self.r, self.leaf.current
        for name, value in self.shown.items():
            r.bind(name, value)
        for value in self.passed:
            r.keep(value)
        for value in (*self.below, *self.leaf.stack):
            if one.opname.startswith("CALL") and value.obj is warnings.warn:
                r.load_object(hook.disabled(warned.warn))
                continue
            if not self._handles(value):
                r.push(value)
                continue
            r.load_callable(raised_here)
            r.push(self._passed(value))
            r.e.call(1)
            r.e.handle()
        for name in self._deleted(one):
            r.unbind(name)
        r.release(self.outlive)
        label, caught = r.e.label(), r.e.label()
        handler = self._handler(caught)
        kinds = self._kinds(self.leaf.stack)
        for part in _copies(self.leaf, one, label):
            part.handler = handler
            if self.leaf.code.co_filename != self.chain[0].code.co_filename:
                part.positions = self.chain[0].current.positions
            r.e.append(part)
        for following in _following(self.leaf):
            self._continue_at(following, _after(kinds, one, jump=False))
        if one.target is not None:
            self._continue_after_jump(label, one.target, _after(kinds, one, jump=True))
        if handler is not None:
            r.e.place(caught)
            self._continue_in_handler(handler)
        return Ending(r, self.name)

    def emit_before(self) -> Ending:
        """Emit an end at which the innermost frame resumes before its instruction."""
        for value in self.passed:
            self.r.keep(value)
        kinds = self._kinds(self.leaf.stack)
        first = _with_parts(self.leaf, self.leaf.current)[0]
        assert first.offset is not None
        slots = tuple(map(self._passed, self.leaf.stack))
        last = Link(self.leaf, first.offset, kinds, slots, self.locals[-1], broke=True)
        self.below = []
        waiting = [replace(link, broke=True) for link in self._waiting()]
        self._call([*waiting, last], 0, ())
        return Ending(self.r, self.name)

    def _deleted(self, one: Instruction) -> list[str]:
        """Return the frame's arguments that the instruction names and that traced code deleted."""
        root = self.chain[0]
        if self.leaf is not root or not one.opname.startswith(
            ("LOAD_FAST", "DELETE_FAST")
        ):
            return []
        names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
        given = {n for n in self.r.t.frame.locals if n not in root.cells}
        return [n for n in names if n in given and not root.bound({n})]

    def _handler(self, label: Instruction) -> Handler | None:
        """Return the handler of the instruction's errors: inlined frames have to raise them."""
        handler = self.leaf.current.handler
        depth = handler.depth if handler is not None else 0
        if self.leaf is not self.chain[0]:
            return Handler(label, len(self.below) + depth, False)
        return None if handler is None else Handler(label, depth, handler.lasti)

    # -- links -----------------------------------------------------------------------------
    def _continue_at(self, target: Instruction, kinds: tuple[Kind, ...]) -> None:
        """Emit the resume calls that continue the innermost frame at ``target``."""
        assert target.offset is not None
        wanted = self._wanted(target)
        last = Link(self.leaf, target.offset, kinds, self._slots(kinds), wanted)
        self._call([*self._waiting(), last], len(self.below) + len(kinds))

    def _continue_after_jump(
        self, label: Instruction, target: Instruction, kinds: tuple[Kind, ...]
    ) -> None:
        """Emit the resume calls at the jump target.

        The end of a loop skips CPython's cleanup there.
        """
        skipped = _loop_end(self.leaf)
        if skipped:
            label.opname = skipped[0].opname
            kinds = kinds[:-2]
        self.r.e.place(label)
        self.r.e.extend(map(_copy, skipped[1:]))
        instructions, index = (
            self.leaf.program.instructions,
            self.leaf.program.index[id(target)],
        )
        self._continue_at(instructions[index + len(skipped)], kinds)

    def _slots(self, kinds: tuple[Kind, ...]) -> tuple[Value | Here, ...]:
        """Return where each entry of the innermost frame's stack is found."""
        return tuple(
            self._passed(self.leaf.stack[i])
            if kind == HANDLING
            else Here(len(self.below) + i)
            for i, kind in enumerate(kinds)
        )

    def _continue_in_handler(self, handler: Handler) -> None:
        """Emit the resume calls for an error of the instruction.

        The frame under capture resumes in its handler. An inlined frame raises the error again at
        its origin, where its own handlers, those of its callers, and tracebacks see it: there they
        are without the frame under capture, in which the instruction has run.
        """
        own = self.leaf.current.handler
        kept = handler.depth - len(self.below)
        kinds: tuple[Kind, ...] = (*self._kinds(self.leaf.stack[:kept]), True)
        if self.leaf is self.chain[0]:
            assert own is not None
            self._continue_at(own.target, (*kinds, True) if own.lasti else kinds)
            return
        self.r.load_callable(without_latest)
        self.r.e.copy(3)
        self.r.e.call(1)
        self.r.e.pop_top()
        offset, wanted = self.leaf.current.offset, {}
        assert offset is not None
        if own is not None:
            wanted = self._wanted(own.target)
        last = Link(self.leaf, offset, kinds, self._slots(kinds), wanted, raises=True)
        self._call([*self._waiting(), last], len(self.below) + len(kinds))

    def _waiting(self) -> list[Link]:
        """Return the links of the frames above the innermost: each first calls the next one."""
        found: list[Link] = []
        outer = zip(self.chain[:-1], self.locals[:-1], strict=True)
        for frame, locals_ in outer:
            assert frame.current.offset is not None
            slots = tuple(map(self._passed, frame.stack))
            kinds = self._kinds(frame.stack)
            found.append(
                Link(frame, frame.current.offset, kinds, slots, locals_, calls=True)
            )
        return found

    def _wanted(self, target: Instruction) -> dict[str, Value]:
        """Return the innermost frame's locals that are live at ``target``."""
        names = self.leaf.program.live_at(target)
        return {name: value for name, value in self.locals[-1].items() if name in names}

    # -- calls -----------------------------------------------------------------------------
    def _call(
        self, links: list[Link], depth: int, stack: Sequence[Value] | None = None
    ) -> None:
        """Emit the return of a call of the first link's function.

        The stack has ``depth`` entries: by default those with which the instruction began.
        """
        e = self.r.e
        stack = (*self.below, *self.leaf.stack) if stack is None else stack
        marks = [i for i, value in enumerate(stack) if self._handles(value)]
        if marks:
            e.copy(depth - marks[0])
            e.end_handling()
        self.r.load_callable(
            Continuation if is_resumed(self.chain[0].code) else trampoline
        )
        pushed = 2
        while links:
            link, *links = links
            self._make(link, links)
            pushed += 1
            values = [s for s, kind in zip(link.slots, link.kinds, strict=True) if kind]
            for value in (*values, *link.locals.values()):
                if isinstance(value, Here):
                    e.copy(depth + pushed - value.index)
                else:
                    self.r.push(value)
                pushed += 1
        e.return_call(pushed - 2)

    def _code(self, link: Link, rest: Sequence[Link]) -> types.CodeType:
        """Return the code of the resume function of a frame that calls those of the rest."""
        code, offset = origin_of(link.frame.code, link.offset)
        if any(name.startswith(STACK_PREFIX) for name in link.locals):
            raise breaks.SkipFrame("it breaks the graph before its arguments are read")
        called = CodeKey(self._code(rest[0], rest[1:])) if link.calls else None
        return cached_resume_code(
            code,
            offset,
            link.kinds,
            tuple(link.locals),
            link.inner(rest),
            link.raises,
            link.broke,
            called,
        )

    def _make(self, link: Link, rest: Sequence[Link]) -> None:
        """Push the resume function of a frame."""
        resumed = self._code(link, rest)
        if link.frame is self.chain[0]:
            self.r.e.make_function(resumed, resumed.co_freevars)
            self.name = self.name or traced_name(resumed)
            return
        r = self.r
        r.load_callable(types.FunctionType)
        r.e.load_const(resumed)
        r.load_object(link.frame.module_globals)
        r.e.load_const(resumed.co_name)
        r.e.load_const(None)
        for name in resumed.co_freevars:
            r.push(link.frame.cells[name])
        r.e.build_tuple(len(resumed.co_freevars))
        r.e.call(5)


def _following(frame: Frame) -> list[Instruction]:
    """Return the instruction after the current one, if that can be reached."""
    one = frame.current
    if one.opname in ("RAISE_VARARGS", "RERAISE", "RETURN_VALUE", "RETURN_CONST") or (
        one.opname.startswith("JUMP_") and "IF" not in one.opname
    ):
        return []
    index = frame.program.index[id(one)] + 1
    return [frame.program.instructions[index]]


def _loop_end(frame: Frame) -> list[Instruction]:
    """Return the instructions that CPython 3.12 and later skip when FOR_ITER ends a loop."""
    one = frame.current
    if one.opname != "FOR_ITER" or one.target is None or one.target.opname != "END_FOR":
        return []
    index = frame.program.index[id(one.target)]
    return frame.program.instructions[index : index + (1 if RUNNING < (3, 13) else 2)]


def _handler_target(frame: Frame) -> list[Instruction]:
    return [] if frame.current.handler is None else [frame.current.handler.target]


def _copies(frame: Frame, one: Instruction, label: Instruction) -> list[Instruction]:
    """Return copies of the breaking instruction and of those that belong to it."""
    if one.opname in NULL_PUSHERS and _pushes_null(one):
        return _plain_load(one)
    copied = [_copy(part) for part in _with_parts(frame, one)]
    if one.target is not None:
        copied[-1].target = label
    return copied


def _with_parts(frame: Frame, one: Instruction) -> list[Instruction]:
    """Return an instruction after those that belong to it."""
    found = [one]
    index = frame.program.index[id(one)] - 1
    while one.opname == "CALL" and index >= 0:
        before = frame.program.instructions[index]
        if before.opname not in ("PRECALL", "KW_NAMES"):
            break
        found.insert(0, before)
        index -= 1
    return found


def _pushes_null(one: Instruction) -> bool:
    flagged = one.opname in DIALECT.name_flags and bool((one.arg or 0) & 1)
    return one.opname == "LOAD_METHOD" or flagged


def _plain_load(one: Instruction) -> list[Instruction]:
    if one.opname == "LOAD_SUPER_ATTR":
        raise breaks.SkipFrame("a graph break at super()")
    opname = "LOAD_ATTR" if one.opname == "LOAD_METHOD" else one.opname
    load = Instruction(opname, 0, one.argval, positions=one.positions)
    null = Instruction("PUSH_NULL", positions=one.positions)
    if not TRAITS[VERSION].null_first:
        return [load, null]
    return [load, null, Instruction("SWAP", 2, positions=one.positions)]


def _copy(one: Instruction) -> Instruction:
    return Instruction(one.opname, one.arg, one.argval, one.target, one.positions)


def _after(mask: tuple[Kind, ...], one: Instruction, jump: bool) -> tuple[Kind, ...]:
    """Return which stack entries are values, not NULL, after an instruction."""
    if one.opname in NULL_PUSHERS and _pushes_null(one):
        kept = mask if one.opname == "LOAD_GLOBAL" else mask[:-1]
        return (
            (*kept, False, True) if TRAITS[VERSION].null_first else (*kept, True, False)
        )
    if one.opname in ("CALL", "CALL_KW"):  # on 3.11 PRECALL has a part of CALL's effect
        popped = (one.arg or 0) + (2 if one.opname == "CALL" else 3)
        return (*mask[: len(mask) - popped], True)
    effect = stack_effect(one, jump=jump)
    if effect > 0:
        return (*mask, *[True] * effect)
    left = mask[: len(mask) + effect]
    return (*left[:-1], True) if one.opname == "CALL_FUNCTION_EX" else left
