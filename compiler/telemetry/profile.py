"""Where the time of generated programs goes, measured while a trace is open.

Calls of a program are counted; some (`WINDOW`) are timed as a whole, with the time since the
program before them in the same thread. In fewer (`is_sampled`) every line of the wrapper is timed
as well: the wrapper's own source, read again, with the clock read after each statement. Its
formulas of bytes and operations (`StepCost`) are worked out there, with the sizes of that call.
"""

from __future__ import annotations

import ast
import atexit
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from tc import trace
from tc.compiler.core.artifacts import Program, StepCost
from tc.compiler.core.gpu import GpuProgram
from tc.compiler.runtime.tuned import machine_limits
from tc.compiler.telemetry.calls import CallCount
from tc.compiler.telemetry.marks import Mark, Marks
from tc.trace import CompileId, StackFrame

Boxed = Callable[[list[Any]], tuple[Any, ...]]

#: after the first calls, one in so many is measured line by line
SAMPLED = 1024
#: the number of programs in a record, those that took most time
MOST = 200
#: the same where lines take `LONG` seconds or more on average: reading all clocks, some 6 µs a
#: line, then stays below a half percent
OFTEN = 8
LONG = 200e-6
#: of each `WINDOW` calls of a program the first `TIMED` are timed as a whole, and of the first
#: `WINDOW` all: programs that follow each other come to these together
WINDOW, TIMED = 128, 16
#: checks of guards that are timed when they are made, at least two: no more than `CHECKS`, and none
#: once they have taken `CHECKING` seconds
CHECKS, CHECKING = 8, 100e-6
#: the number of measurements of a line that are kept, the newest
KEPT = 64
#: names in the measured wrapper that no generated name is like
_MARK, _RESULT = "_tc_mark", "_tc_result"

_clock = time.perf_counter


def is_sampled(call: int, period: int = SAMPLED) -> bool:
    """Return whether the steps of a program's call of that number, from 1, are measured one by one.

    The first is not: memory and caches are cold. Then come those of numbers that are powers of
    two, so that short runs have some, and one in ``period``.
    """
    return call > 1 and (call & (call - 1) == 0 or call % period == 0)


@dataclass
class _Line:
    """What was measured of one line; bytes and operations of the last call."""

    marks: deque[Mark] = field(default_factory=lambda: deque(maxlen=KEPT))
    moved: int = -1
    operations: int = -1

    def copy(self) -> _Line:
        """Return it as it is now."""
        return _Line(self.marks.copy(), self.moved, self.operations)

    @property
    def seconds(self) -> float:
        """What it usually takes."""
        return _usual(mark.seconds for mark in self.marks)

    def step(self, cost: StepCost) -> trace.StepTime:
        """Return what was measured of the line that does a step."""
        return trace.StepTime(
            cost.line, cost.name, cost.places, self.seconds, self.moved, self.operations,
            copies=cost.copies,
            fresh=max(int(_usual(mark.fresh for mark in self.marks)), cost.fresh),
            busy=_usual(mark.busy for mark in self.marks),
        )  # fmt: skip


@dataclass
class _Gap:
    """What passed between another program and this one: how often, and seconds of the newest."""

    last: Profiled
    count: int = 0
    seconds: float = 0.0
    times: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))


@dataclass
class _Measured:
    """What is known of a program so far, under its lock.

    Attributes:
        timed: calls of which the time was taken, ``seconds`` of these together, and ``times``
            those of the newest.
        alone: those among the first `WINDOW` calls that came after no other in their thread.
        gaps: id of the program before -> what passed since then.
    """

    timed: int = 0
    alone: int = 0
    seconds: float = 0.0
    times: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    sampled: int = 0
    lines: dict[int, _Line] = field(default_factory=dict)
    gaps: dict[int, _Gap] = field(default_factory=dict)


class _Thread(threading.local):
    """When the last program of a thread ended, which that was, and how long was compiled till then.

    Attributes:
        staged: see `trace.staged_seconds`.
    """

    last: Profiled | None = None
    ended = 0.0
    staged = 0.0


_thread = _Thread()


class Profiled:
    """Calls a program and measures it.

    Attributes:
        known: its compile still has its id.
    """

    def __init__(self, call: Boxed, program: Program, compile_id: CompileId) -> None:
        self.call, self.program, self.compile_id = call, program, compile_id
        self.calls = CallCount()
        self._lock = threading.Lock()
        self._now = _Measured()
        self.known = True
        self._by_line: Callable[..., Any] | None = None
        self._period = SAMPLED
        self._tensors_passed = 0
        self._whole = isinstance(program, GpuProgram) and program.replay

    def caller(self) -> Boxed:
        """Return what calls the program, counts that, and sometimes measures it."""
        calls, call, thread = self.calls, self.call, _thread

        def counting(args: list[Any]) -> tuple[Any, ...]:
            number = next(calls.numbers)
            if number % WINDOW >= TIMED and number > WINDOW and self._period != OFTEN:
                thread.last = None
                return call(args)
            return self._timed(args, number)

        return counting

    def _timed(self, args: list[Any], number: int) -> tuple[Any, ...]:
        """Call the program and take the time, with what passed since the program before."""
        now, began = self._now, _clock()
        self._since_last(now, began, number)
        try:
            watched = torch.autograd.profiler._is_profiler_enabled  # then its steps are events
            sampled = is_sampled(number, self._period)
            if self.program.costs and not self._whole and not watched and sampled:
                return self._measure(args)
            return self.call(args)
        finally:
            ended = _clock()
            with self._lock:
                now.timed += 1
                now.seconds += ended - began
                now.times.append(ended - began)
            _thread.last, _thread.ended, _thread.staged = self, ended, trace.staged_seconds()

    def _since_last(self, now: _Measured, began: float, number: int) -> None:
        """Note what has passed since the program before, if that was timed, too."""
        last = _thread.last
        if last is None or not last.known:
            if number <= WINDOW:
                now.alone += 1
            return
        passed = began - _thread.ended - (trace.staged_seconds() - _thread.staged)
        with self._lock:
            gap = now.gaps.get(id(last))
            if gap is None:
                gap = now.gaps[id(last)] = _Gap(last)
            gap.count += 1
            gap.seconds += passed
            gap.times.append(passed)

    def _measure(self, args: list[Any]) -> tuple[Any, ...]:
        """Run the wrapper line by line, and add what its lines took."""
        if self._by_line is None:
            self._by_line = timed(self.call, self.program)
        self._tensors_passed = sum(isinstance(one, torch.Tensor) for one in args)
        marks = Marks(torch.cuda.synchronize if isinstance(self.program, GpuProgram) else None)
        result, work = self._by_line(args, marks)
        self._period = OFTEN if marks.seconds >= LONG * len(marks.rows) else SAMPLED
        with self._lock:
            lines = self._now.lines
            self._now.sampled += 1
            for mark in marks.rows:
                lines.setdefault(mark.line, _Line()).marks.append(mark)
            for cost, (moved, operations) in zip(self.program.costs, work, strict=True):
                found = lines.setdefault(cost.line, _Line())
                found.moved, found.operations = moved, operations
        return result  # type: ignore[no-any-return]

    def row(self, facts: Facts) -> trace.ProgramTime:
        """Return what is known so far."""
        with self._lock:
            now, calls = self._now, int(self.calls)
            scale = calls / max(now.timed, 1)  # from the timed calls to all of them
            lines = {line: one.copy() for line, one in now.lines.items()}
            counted = sum(gap.count for gap in now.gaps.values())
            all_gaps = (calls - now.alone) / counted if counted else 1.0
            gaps = tuple(
                trace.Gap(
                    str(gap.last.compile_id), gap.last.program.kind, round(gap.count * all_gaps),
                    gap.seconds * all_gaps, _usual(gap.times),
                )
                for gap in now.gaps.values()
            )  # fmt: skip
            sampled, usual = now.sampled, _usual(now.times)
            seconds = now.seconds * scale
        steps = []
        if sampled:
            costs = self.program.costs
            steps = [lines.pop(cost.line, _Line()).step(cost) for cost in costs]
            rest = sum(one.seconds for one in lines.values())  # allocations, sizes and views
            steps.append(trace.StepTime(0, "wrapper", (), rest, -1, -1))
        more: dict[str, Any] = {}
        if self.program.kind != "backward":
            more = {
                "guards": facts.guards,
                "checked": facts.checked,
                "whole": _usual(facts.whole),
                "eager": _usual(facts.eager),
                "instead": _usual(facts.instead),
                "handed": self._tensors_passed,
            }
        place = facts.place
        return trace.ProgramTime(
            str(self.compile_id), place.name, place.file, place.line, self.program.kind,
            calls, seconds, sampled, tuple(steps), gaps, usual, **more,
        )  # fmt: skip

    def start_over(self) -> None:
        """Forget what was measured, and who had the lock."""
        self._lock, self._now = threading.Lock(), _Measured()
        self.calls.start_over()


def _check_seconds(holds: Callable[[], object]) -> float:
    began = time.thread_time()
    holds()
    return time.thread_time() - began


def _usual(measured: Iterable[float]) -> float:
    """Return the lower quartile: what a thing takes where other processes are not in its way."""
    ordered = sorted(measured)
    return ordered[len(ordered) // 4] if ordered else 0.0


def timed(call: Boxed, program: Program) -> Callable[..., Any]:
    """Return a program's wrapper that reads the clock after each of its statements.

    Returns:
        a function of ``args`` and of a function that is called with the number of each line done.
        It returns the results, and bytes and operations for each of the program's costs.
    """
    tree = ast.parse(program.wrapper_source)
    (body,) = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "call"]
    body.args.args.append(ast.arg(_MARK))
    known = {n.id for n in ast.walk(body) if isinstance(n, ast.Name)}
    lines: list[ast.stmt] = []
    for statement in body.body:
        if isinstance(statement, ast.Return):
            assert statement.value is not None
            lines.append(ast.Assign([ast.Name(_RESULT, ast.Store())], statement.value))
            lines.append(_marked(statement.lineno))
            work = ast.Tuple([_formulas(cost, known) for cost in program.costs], ast.Load())
            pair = ast.Tuple([ast.Name(_RESULT, ast.Load()), work], ast.Load())
            lines.append(ast.Return(pair))
        else:
            lines += [statement, _marked(statement.lineno)]
    body.body = lines
    code = compile(
        ast.fix_missing_locations(ast.Module([body], [])), "<tc measured wrapper>", "exec"
    )
    names = dict(inspect.unwrap(call).__globals__)
    exec(code, names)
    return names["call"]  # type: ignore[no-any-return]


def _marked(line: int) -> ast.stmt:
    return ast.Expr(ast.Call(ast.Name(_MARK, ast.Load()), [ast.Constant(line)], []))


def _formulas(cost: Any, known: set[str]) -> ast.expr:
    """Return bytes and operations as Python; -1 where a size has no name in the wrapper."""
    made: list[ast.expr] = []
    for text in (cost.moved or "-1", cost.operations or "-1"):
        formula = ast.parse(text, mode="eval").body
        wanted = {n.id for n in ast.walk(formula) if isinstance(n, ast.Name)}
        made.append(formula if wanted <= known | {"min", "max"} else ast.Constant(-1))
    return ast.Tuple(made, ast.Load())


@dataclass
class Facts:
    """What is known of a compile, for all its programs.

    Attributes:
        guards: seconds of one check of its guards; ``checked`` is their number.
        whole: seconds of the newest timed calls of its graph, with all around the program.
        eager, instead: seconds of its graph run by eager, and of the compiled one in its place.
    """

    place: StackFrame
    guards: float = 0.0
    checked: int = 0
    whole: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    eager: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    instead: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))

    def paced(self, eager: float, instead: float) -> None:
        """Note what eager took for a call, and the compiled graph in its place."""
        self.eager.append(eager)
        self.instead.append(instead)


class _Programs:
    """The programs of this process that are measured."""

    def __init__(self) -> None:
        self.all: list[Profiled] = []
        self._facts: dict[CompileId, Facts] = {}
        self._emitted = 0

    def facts(self, compile_id: CompileId, place: StackFrame) -> Facts:
        """Return what is noted of a compile, to be added to.

        Args:
            place: of the function that it is of.
        """
        return self._facts.setdefault(compile_id, Facts(place))

    def guarded(self, compile_id: CompileId, holds: Callable[[], object], count: int) -> None:
        """Measure one check of a compile's guards: the shortest of some, as the first is cold.

        Args:
            holds: checks them; ``count`` is their number.
        """
        facts = self._facts.get(compile_id)
        if facts is not None:
            times = [_check_seconds(holds), _check_seconds(holds)]
            while len(times) < CHECKS and sum(times) < CHECKING:
                times.append(_check_seconds(holds))
            facts.guards, facts.checked = min(times), count

    def add(self, call: Boxed, program: Program) -> Boxed:
        """Return what calls a program and measures it; the program itself if nobody listens."""
        compile_id = trace.current_compile()
        if not trace.enabled() or compile_id is None:
            return call
        made = Profiled(call, program, compile_id)
        if not self.all:
            atexit.unregister(self.report)
            atexit.register(self.report)
        self.all.append(made)
        return made.caller()

    def forget(self) -> None:
        """Forget the programs: other compiles get their ids."""
        for one in self.all:
            one.known = False
        self.all.clear()
        self._facts.clear()
        self._emitted = 0

    def start_over(self) -> None:
        """In a forked child: the calls so far were the parent's."""
        self._emitted = 0
        for one in self.all:
            one.start_over()

    @trace.reports(trace.nothing)
    def report(self) -> None:
        """Emit what was measured, if there is anything new and a sink is still open."""
        if not trace.enabled():
            return  # measuring the machine takes half a second
        unknown = Facts(StackFrame("", 0, ""))
        rows = [one.row(self._facts.get(one.compile_id, unknown)) for one in tuple(self.all)]
        rows = sorted((row for row in rows if row.calls), key=lambda row: -row.seconds)
        calls = sum(row.calls for row in rows)
        if calls != self._emitted:
            self._emitted = calls
            bandwidth, arithmetic = machine_limits()
            kept = tuple(rows[:MOST])
            trace.emit(trace.Profile(kept, len(rows) - len(kept), bandwidth, arithmetic))


programs = _Programs()
