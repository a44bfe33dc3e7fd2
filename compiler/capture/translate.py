"""Translates one frame: code and live locals become a graph, guards and residual code.

A graph break restarts the translation: the next attempt stops before the instruction that broke, so
that effects of the failed instruction on the tracer's state never have to be undone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

import tc.compiler.capture.registrations  # noqa: F401 -- the tables have to be full
from tc.compiler.capture import breaks, hook
from tc.compiler.capture.bytecode.by_code import cached_by_code
from tc.compiler.capture.bytecode.resume_functions import (
    begins_with_break,
    is_passed_on,
    is_resumed,
)
from tc.compiler.capture.dynamism import DynamicSizes
from tc.compiler.capture.frame import Frame, Reached, program_of
from tc.compiler.capture.guards.facts import PROCESS
from tc.compiler.capture.guards.filter import GuardFilter, filtered
from tc.compiler.capture.guards.guard_list import CheckedGuards, build
from tc.compiler.capture.guards.in_c import InC
from tc.compiler.capture.guards.memo import WORTHWHILE
from tc.compiler.capture.guards.shape_guards import ShapeGuards
from tc.compiler.capture.parts.dropped_generators import release
from tc.compiler.capture.parts.identity import lasting
from tc.compiler.capture.parts.repeatable import may_run_again
from tc.compiler.capture.resume.breaking import breakable, finish_at_break, looks_back
from tc.compiler.capture.resume.looks import called_object, code_may_look, may_look
from tc.compiler.capture.resume.residual import Residual
from tc.compiler.capture.root_frame import RootFrame
from tc.compiler.capture.shapes import UnreadableSize
from tc.compiler.capture.skips import is_packages_without_tensors
from tc.compiler.capture.torch_api.optimizers import make_state
from tc.compiler.capture.tracer import Tracer
from tc.compiler.capture.values.base import Raised, Value
from tc.compiler.capture.values.exceptions import ExceptionValue
from tc.compiler.capture.values.generators import GeneratorValue
from tc.compiler.capture.values.tensor import SymValue
from tc.compiler.core import levels
from tc.compiler.core.sources import ITERATED, Scope
from tc.compiler.errors import is_own
from tc.trace.places import StackFrame

MAX_ATTEMPTS = 64
_OF_DATA = (breaks.DATA_BRANCH, breaks.TENSOR_ITEM)


@dataclass(frozen=True)
class BreakRecord:
    """One graph break: why, and the user's stack at that place (frame under capture first).

    Attributes:
        span: (end line, first column, end column) of the expression, as far as known.
        attempt: the number of the attempt in which it occurred.
        strict: whether the program asked for an error here; None leaves it to ``fullgraph``.
    """

    cause: breaks.GraphBreak
    stack: tuple[StackFrame, ...]
    span: tuple[int | None, int | None, int | None]
    attempt: int
    resume: str | None = None
    strict: bool | None = None


@dataclass
class Captured:
    """The result of a translation: a graph, its guards, and code to run instead of the frame's.

    Attributes:
        module: the graph; None if the frame has no tensor operation before its break.
        examples: fake inputs of the graph, in order.
        graph_name: the global by which the residual code calls the compiled graph.
        aliases: globals that the residual code needs.
        build_guards: builds the guards again, from all conditions recorded so far.
        conditions: the number of conditions on sizes in `guards`.
    """

    code: CodeType
    module: fx.GraphModule | None
    examples: list[Any]
    graph_name: str
    aliases: dict[str, Any]
    guards: CheckedGuards
    build_guards: Callable[[], CheckedGuards]
    conditions: int
    tracer: Tracer
    broke: BreakRecord | None
    attempts: int
    calls: int = 0
    sizes: dict[str, Any] = field(default_factory=dict)

    def rebuild_guards(self) -> None:
        """Build the guards again if a backend has added conditions on sizes.

        Raises:
            SkipFrame: a condition is on a size that no input has.
        """
        if len(self.tracer.shapes.env.guards) == self.conditions:
            return
        try:
            self.guards = self.build_guards()
        except breaks.GraphBreak as cause:
            raise breaks.SkipFrame(cause.title) from cause

    def real_inputs(self, frame: hook.Frame) -> list[Any]:
        """Return the graph's inputs in a live frame.

        Symbolic numbers and ragged sizes stay symbolic.
        """
        scope = Scope(frame.locals, frame.globals)
        found: list[Any] = []
        for entry in self.tracer.output.inputs:
            value, source = entry.value, entry.value.source
            assert source is not None
            symbolic = isinstance(value, SymValue) or value.example.is_nested
            found.append(value.example if symbolic else source.evaluate(scope))
        return found

    def verify(self) -> None:
        """Check the graph's form. Raises RuntimeError if a node is used before it is made."""
        if self.module is not None:
            self.module.graph.lint()

    def __str__(self) -> str:
        return (
            self.module.print_readable(print_output=False)
            if self.module
            else "no graph"
        )


def translate(
    frame: hook.Frame,
    sizes: DynamicSizes,
    compile_id: str,
    graph_name: str,
    on_break: Callable[[BreakRecord], None],
    fullgraph: bool = False,
    guard_filter: GuardFilter | None = None,
    in_c: InC = InC(),  # noqa: B008
) -> Captured:
    """Capture a frame.

    Args:
        on_break: called with each break when it occurs, but not with an earlier break's
            aftermath; raising from it ends the translation.
        fullgraph: whether a break ends the translation (``on_break`` is expected to raise).
        guard_filter: decides which guards are kept.
        in_c: what checks guards in C.

    Raises:
        SkipFrame: the frame is not captured.
    """
    make_state(frame.code, str(frame.globals.get("__name__", "")), frame.locals)
    stop: Stop | None = None
    leave_classes, assume = False, True
    owners: dict[int, Any] = {}
    for attempt in range(MAX_ATTEMPTS):
        translation = Translation(frame, sizes, compile_id, graph_name, stop, attempt)
        translation.t.leave_classes = leave_classes
        translation.t.values.owners.update(owners)
        translation.t.output.whole, translation.t.output.may_assume = fullgraph, assume
        translation.guard_filter = guard_filter
        translation.in_c = in_c
        captured: Captured | None = None
        try:
            captured = translation.run()
            return captured
        except breaks.TraceAgain as again:
            leave_classes |= again.leave_classes
            assume &= again.assume
            owners.update(again.owners)
        except breaks.GraphBreak as cause:
            stop = translation.stop_after(cause, fullgraph, on_break)
        except breaks.SkipFrame as skip:
            if stop is None or not stop.places[1:]:
                raise
            stop = stop.further_out(skip)
        finally:
            if captured is None:
                translation.t.forget()
    raise breaks.SkipFrame(
        f"it broke the graph in {MAX_ATTEMPTS} attempts at different places"
    )


@dataclass(frozen=True)
class Stop:
    """The end of the next attempt: before the instruction that broke.

    Attributes:
        places: step number and offset of the current instruction of each frame that the break can
            be taken in, the frame under capture first.
        shown: whether code that runs there may read the locals of the frames.
        real: whether it may look at the frames themselves.
    """

    record: BreakRecord
    places: tuple[tuple[int, int | None], ...]
    shown: bool = False
    real: bool = False

    @property
    def step(self) -> int:
        """The number of the instruction to stop at."""
        return self.places[-1][0]

    def further_out(self, cause: Exception) -> Stop:
        """Return the place one frame further out. Raises SkipFrame if there is none."""
        if len(self.places) == 1:
            raise breaks.SkipFrame(
                f"a graph break before its first operation ({cause}); its callees are "
                "captured separately"
            ) from None
        return replace(self, places=self.places[:-1])


def outside_of_loops(stop: Stop, cause: breaks.GraphBreak) -> Stop:
    """Move the end of a trace out of a loop that makes sizes out of data.

    Each pass would have sizes of its own, and the parts of its body would be compiled for many of
    them. Python runs the loop; the functions that it calls are captured on their own.

    Raises:
        SkipFrame: the frame under capture holds the loop.
    """
    frame = cause.frame
    if cause.reason is not breaks.DYNAMIC_SHAPE or not isinstance(frame, Frame):
        return stop
    for depth, one in enumerate(frame.chain()[: len(stop.places)]):
        if one.in_loop():
            if depth == 0:
                why = f"{cause.title}, in a loop; its callees are captured separately"
                raise breaks.SkipFrame(why)
            return replace(stop, places=stop.places[:depth])
    return stop


class Translation:
    """One attempt at a frame."""

    def __init__(
        self,
        frame: hook.Frame,
        sizes: DynamicSizes,
        compile_id: str,
        graph_name: str,
        stop: Stop | None,
        attempt: int,
    ) -> None:
        self.frame = frame
        self.compile_id = compile_id
        self.graph_name = graph_name
        self.stop = stop
        self.attempt = attempt
        self.t = Tracer(frame, sizes)
        self.t.stop_at = stop.step if stop is not None else None

    def run(self) -> Captured:
        """Interpret the frame to its end or to the instruction to stop at."""
        t = self.t
        with t.overrides.aside():
            self.root = root = RootFrame(t, self.frame)
        t.top = root
        for kind in ("GLOBAL_STATE", "DEFAULT_DEVICE", "TORCH_FUNCTION_MODES"):
            t.guards.recorded.add(kind, PROCESS)
        if levels.depth():
            t.guards.recorded.add("TRANSFORMS", PROCESS)
        try:
            with t.state.kept():
                ending = self._interpret(root)
            return self._captured(*ending)
        except breaks.GraphBreak as cause:
            self._check_assumed(cause.reason in _OF_DATA and self._checks_data(cause))
            raise

    def _interpret(self, root: RootFrame) -> tuple[Residual, BreakRecord | None]:
        try:
            root.note_open_blocks()
            while root.returned is None:
                try:
                    root.step()
                except Raised as raised:
                    self._leave(raised)
            if self.t.effects.generators:
                release(root)
        except Reached as reached:
            return self._finish_at_break(reached.frame)
        return self._finish_at_return(root.returned)

    @staticmethod
    def _leave(raised: Raised) -> None:
        value = raised.value
        text = value.text() if isinstance(value, ExceptionValue) else ""
        detail = f"{value.describe()}({text!r})" if text else value.describe()
        kind = breaks.Aftermath if is_passed_on(value.source) else breaks.GraphBreak
        cause = kind(breaks.RAISES, detail)
        trail = [one for one in value.trail if not is_own(one[1].file)] or value.trail
        cause.places = tuple(place for _, place, _ in reversed(trail))
        cause.positions = trail[0][2] if trail else None
        raise cause from None

    def record(self, cause: breaks.GraphBreak) -> BreakRecord:
        """Describe the current break."""
        positions = cause.positions or self.root.current.positions
        span: tuple[int | None, int | None, int | None] = (None, None, None)
        if positions is not None:
            span = (
                positions.end_lineno,
                positions.col_offset,
                positions.end_col_offset,
            )
        places = cause.places or self.root.spots()
        return BreakRecord(cause, places, span, self.attempt, strict=self.t.strict)

    def _check_assumed(self, in_vain: bool = False) -> None:
        """Raise TraceAgain if the graph assumes that no branch raises and Python cannot run it.

        Args:
            in_vain: whether a check that may be omitted breaks the graph.
        """
        output = self.t.output
        if in_vain or (output.assumes and not may_run_again(output, self.frame.code)):
            raise breaks.TraceAgain(assume=False) from None

    def _checks_data(self, cause: breaks.GraphBreak) -> bool:
        """Return whether a break is one of a check of the arguments of a distribution."""
        chain = cause.frame.chain() if isinstance(cause.frame, Frame) else []
        checks = self.t.output.distribution_checks
        return any(frame.code is one for frame in chain for one in checks)

    # -- ends ------------------------------------------------------------------------------
    def _finish_at_return(self, value: Value) -> tuple[Residual, None]:
        if self.t.output.calls == 0 and isinstance(value, GeneratorValue):
            value.children(self.t)  # running it ahead may do tensor operations
        if self.t.output.calls == 0 and not self.t.output.asks_if_compiling:
            raise breaks.SkipFrame("it does no tensor operation", idle=True)
        r = self._begin([value], at_break=False)
        r.push(value)
        r.e.return_value()
        return r, None

    def _finish_at_break(self, leaf: Frame) -> tuple[Residual, BreakRecord]:
        assert self.stop is not None
        chain = leaf.chain()
        if tuple((f.step_number, f.current.offset) for f in chain) != self.stop.places:
            raise breaks.SkipFrame("its second trace took another path than the first")
        self.t.top = leaf
        if self.stop.record.cause.mark:
            self.t.output.marks.add(self.stop.record.cause.mark)
        resume = finish_at_break(
            leaf, self._begin, shown=self.stop.shown, real=self.stop.real
        )
        return resume.residual, replace(self.stop.record, resume=resume.name)

    def stop_after(
        self,
        cause: breaks.GraphBreak,
        fullgraph: bool,
        on_break: Callable[[BreakRecord], None],
    ) -> Stop:
        """Return where the next attempt has to end because this one broke; report the break.

        Raises:
            SkipFrame: there is no such place, or nothing of the frame is worth a graph.
        """
        if self.stop is not None and self.t.steps >= self.stop.step:
            return self.stop.further_out(cause)
        if self.is_for_python(cause, fullgraph):
            reason = f"{cause.title}, before any tensor"
            raise breaks.SkipFrame(reason, harmless=True) from None
        breaks.forget_frames(cause)
        record = self.record(cause)
        aftermath = isinstance(cause, breaks.Aftermath)
        if not (aftermath or self.begins_with_break(cause)):
            on_break(record)
        if fullgraph:
            raise breaks.SkipFrame(cause.title) from None
        return outside_of_loops(self.stop_before(cause, record), cause)

    def stop_before(self, cause: breaks.GraphBreak, record: BreakRecord) -> Stop:
        """Return where the next attempt has to end because of a break in this one."""
        frames = cause.frame.chain() if isinstance(cause.frame, Frame) else [self.root]
        own = frames if frames[0] is self.root else [self.root]
        real = self._needs_frames(cause, frames)
        chain = breakable(own, real)
        places = tuple((frame.step_number, frame.current.offset) for frame in chain)
        return Stop(record, places, looks_back(frames), real)

    def _needs_frames(self, cause: breaks.GraphBreak, frames: Sequence[Frame]) -> bool:
        """Return whether what breaks may look at the frames of the stack."""
        if isinstance(cause, breaks.FrameCountBreak):
            return True
        for frame in frames[len(breakable(frames)) :]:  # which Python runs
            if code_may_look(frame.code, frame.module_globals):
                return True
        calls = frames[-1].current.opname.startswith(
            ("CALL", "BEFORE_WITH", "WITH_EXCEPT")
        )
        return (
            calls
            and self.t.calling is not None
            and may_look(called_object(self.t.calling))
        )

    def begins_with_break(self, cause: breaks.GraphBreak) -> bool:
        """Return whether a break is the one of another frame that this one was made to run."""
        first = self.t.output.calls == 0 and cause.frame is self.root
        return first and begins_with_break(self.frame.code)

    def is_for_python(self, cause: breaks.GraphBreak, fullgraph: bool) -> bool:
        """Return whether a break shows that nothing of the frame is worth a graph."""
        if self._breaks_at_items_of_python(cause):
            return True
        return not fullgraph and self._breaks_before_tensors()

    def _breaks_before_tensors(self) -> bool:
        """Return whether what comes before a break is of no use, and no break of the program's.

        A package's frame without tensors is one that code left to Python has called: the stream
        that a notebook prints to, a logger, a progress bar. Its callees are captured separately.
        """
        idle = self.t.output.calls == 0 and not self.t.strict
        resumed = is_resumed(self.frame.code)
        return idle and not resumed and is_packages_without_tensors(self.frame)

    def _breaks_at_items_of_python(self, cause: breaks.GraphBreak) -> bool:
        """Return whether a break is that of a comprehension whose caller Python runs.

        Nothing can look ahead in the iterator that it gets, unless it is over a list or tuple.
        """
        root = self.root
        if (
            cause.frame is not root
            or root.current.opname != "FOR_ITER"
            or self.t.output.calls
        ):
            return False
        return root.is_bound(ITERATED) and root.stack[-1] is root.local(ITERATED)

    def _begin(self, values: list[Value], at_break: bool = True) -> Residual:
        """Emit the start of the residual code: graph call, new values, effects."""
        for one in self.t.effects.generators:
            if isinstance(one, GeneratorValue) and one.needs_closing:
                raise breaks.SkipFrame(
                    f"{one.describe()} is abandoned in a try or with block before its end"
                )
        t = self.t
        self._check_assumed()
        if levels.modes() != t.state.levels_before:
            raise breaks.SkipFrame("it breaks inside a transform of torch.func")
        r = Residual(t, self.frame.code)
        r.need(values)
        r.need_effects(at_break)
        r.e.prologue(self.frame.code.co_cellvars, self.frame.code.co_freevars)
        self._close_graph(r)
        r.draw(t.output.drawn)
        if self.module is not None:
            inputs = [i.value.source for i in t.output.inputs if i.value.source]
            memo = self.in_c.memo() if len(inputs) >= WORTHWHILE else None
            r.call_graph(self.graph_name, inputs, memo, t.output.exits)
        r.restore_modes()
        if at_break or t.effects.any():
            r.make_all()
        r.replay_effects(at_break)
        return r

    def _close_graph(self, r: Residual) -> None:
        """Give the graph its outputs and drop inputs that nothing uses."""
        t = self.t
        outputs = [value.node(t) for value in r.outputs]
        if t.output.calls == 0 and not outputs:
            self.module = None
            return
        for guard, _ in reversed(t.modes.inference):
            guard.leave(t)
        for _, (write, args) in t.modes.changes():
            t.output.graph.call_function(write, args)
        if t.output.derived.below and t.output.derived.native:
            raise breaks.SkipFrame(
                "classes with __torch_function__ are mixed with tensor classes of PyTorch"
            )
        t.output.graph.output(tuple(outputs))
        if t.shapes.env.deferred_runtime_asserts:
            t.shapes.add_assertions(t.output.scopes[0].module())  # in the same graph
        for entry in list(t.output.inputs):
            if not entry.node.users:
                t.output.graph.erase_node(entry.node)
                t.output.inputs.remove(entry)
        # tc's own backend never needs the graph's Python code.
        self.module = t.output.scopes[0].module(_LazyGraphModule)
        self.module.meta.update(dict.fromkeys(t.output.marks, True))

    module: fx.GraphModule | None = None
    guard_filter: GuardFilter | None = None
    in_c = InC()

    def _captured(self, r: Residual, broke: BreakRecord | None) -> Captured:
        t = self.t
        if t.guards.aliasing_matters and len(t.values.tensors) > 1:
            sources = [
                lasting(v.source) for v in t.values.tensors if v.source is not None
            ]
            t.guards.recorded.add("NO_ALIASING", sources[0], tuple(sources[1:]))
        if t.guards.gradients_matter:
            for tensor in t.values.tensors:
                t.guards.tensor_property(tensor, "requires_grad")
        for first, *others in t.guards.identities.apart(t):
            t.guards.recorded.add("NO_ALIASING", first, tuple(others))
        unchanged = t.guards.definitions.watch(t.values.made_inside, self.in_c.watch())
        t.guards.recorded.add("DEFINITIONS", PROCESS, unchanged)
        code = r.assemble()
        aliases = {source.pretty: obj for source, obj in t.values.aliases.items()}
        self.frame.globals.update(aliases)
        captured = Captured(
            code,
            self.module,
            [entry.node.meta["example_value"] for entry in t.output.inputs],
            self.graph_name,
            aliases,
            self._build_guards(),
            self._build_guards,
            len(t.shapes.env.guards),
            t,
            broke,
            self.attempt + 1,
            t.output.calls,
        )
        captured.verify()
        return captured

    def _build_guards(self) -> CheckedGuards:
        kept, shapes = self.t.guards.recorded, self._shape_guards()
        if self.guard_filter is not None:
            scope = Scope(self.frame.locals, self.frame.globals)
            kept, shapes = filtered(kept, shapes, self.guard_filter, scope)
        return build(
            kept,
            shapes,
            self.frame.code,
            self.frame.locals,
            self.frame.globals,
            self.compile_id,
            self.in_c,
        )

    def _shape_guards(self) -> ShapeGuards:
        try:
            with self.t.overrides.aside():
                return self.t.shapes.guards()
        except UnreadableSize as error:  # of a view of a wrapper, or of a ragged size
            raise breaks.GraphBreak(breaks.UNREADABLE_SIZE, note=str(error)) from error


@cached_by_code(4096)
def is_handler_resumption(code: CodeType) -> bool:
    """Return whether code resumes at the start of an exception handler."""
    instructions = program_of(code).instructions
    return is_resumed(code) and any(
        i.opname == "PUSH_EXC_INFO" for i in instructions[:12]
    )
