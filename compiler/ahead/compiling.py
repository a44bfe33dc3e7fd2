"""Compiles the frame of a call without making the call, and says what came of it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tc import trace
from tc.compiler import deferred
from tc.compiler.ahead.calls import NotAhead, frame_of
from tc.compiler.ahead.specs import Case, Spec
from tc.compiler.capture import breaks, hook
from tc.compiler.core.ahead import Noted, Question, compiled_ahead
from tc.compiler.errors import OptionError, TcError
from tc.compiler.frames import FrameCompiler
from tc.compiler.sentinel.copies import RandomState
from tc.trace.places import StackFrame

#: sizes of one case at which compiling may fail before the rest is given up
MAX_ERRORS = 8
#: breaks at which the program itself raises, as a call would
FAILURES = (breaks.RAISES.code, breaks.OP_FAILED.code)


@dataclass(frozen=True)
class Compile:
    """One compile, of the sizes given.

    Attributes:
        graphs: compiled graphs, the backward's not counted.
        from_cache: how many of them were found on disk.
        breaks: graph breaks; what follows the last is not compiled.
        remains: why something is left to the first call; empty if nothing is.
        error: why nothing was compiled; empty if something was.
        seconds: it took.
    """

    sizes: Mapping[str, int]
    graphs: int = 0
    from_cache: int = 0
    breaks: tuple[trace.GraphBreak, ...] = ()
    remains: str = ""
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Covered:
    """What was compiled for one case of a spec.

    Attributes:
        text: the inputs.
        compiles: in order.
        looks: combinations of sizes that were looked at, by asking the guards.
        left: those of them for which a call would compile.
        gave_up: compiling failed so often that the rest was not tried.
    """

    text: str
    compiles: tuple[Compile, ...] = ()
    looks: int = 0
    left: tuple[Mapping[str, int], ...] = ()
    note: str = ""
    gave_up: bool = False

    @property
    def error(self) -> str:
        """Why a compile failed; empty if none did."""
        return next((one.error for one in self.compiles if one.error), "")

    @property
    def remains(self) -> tuple[str, ...]:
        """What the first call is left to compile, a sentence each."""
        found = dict.fromkeys(one.remains for one in self.compiles if one.remains)
        if self.left and (any(self.left) or not found):
            sizes = [sizes_text(one) for one in self.left[:3]]
            more = f" and {len(self.left) - 3} more" if len(self.left) > 3 else ""
            fate = "are compiled at their first call"
            if self.gave_up:
                fate = f"were not tried: compiling fails at {MAX_ERRORS} others"
            found[f"sizes {'; '.join(sizes)}{more} {fate}"] = None
        return tuple(found)

    @property
    def complete(self) -> bool:
        """Whether no call with these inputs compiles anything."""
        return not (self.error or self.remains)


@contextmanager
def nothing_changes() -> Iterator[None]:
    """Restore the random state after a block, as the frame hook does around a compile."""
    of_python, of_torch = random.getstate(), RandomState.now(())
    try:
        yield
    finally:
        random.setstate(of_python)
        of_torch.restore()


def cover(
    function: Any,
    compiler: FrameCompiler,
    spec: Spec,
    case: Case,
    only: Sequence[dict[str, int]] | None = None,
) -> Covered:
    """Compile a function for a case of a spec: until its guards hold for all sizes looked at.

    A first graph takes ranges for symbols; sizes that its guards refuse (0 and 1, the other side
    of a test of a size) are compiled next, up to the recompile limit. Sizes at which the function
    raises are left out, up to `MAX_ERRORS` of them.

    Args:
        only: the sizes to look at; None: all that are worth it.
    """
    text, looks = spec.text(case), spec.looks(case) if only is None else only
    if not looks:
        error = "no sizes fulfil what is asked of them"
        return Covered(text, (Compile({}, error=error),))
    left = _missing(function, compiler, spec, case, looks)
    compiles: list[Compile] = []
    gave_up = False
    while left and not gave_up:
        failures = sum(bool(one.error) for one in compiles)
        sizes = typical(left, looks, spec, equal=failures % 2 == 1)
        with spec.inputs(sizes, case) as (args, kwargs):
            if full := _is_full(function, compiler, args, kwargs):
                compiles.append(Compile(sizes, remains=full))
                break
            compiles.append(compile_call(function, compiler, args, kwargs, sizes))
        last = compiles[-1]
        if last.error:  # other sizes may be fine
            left.remove(sizes)
            gave_up = failures + 1 == MAX_ERRORS
            continue
        before, left = len(left), _missing(function, compiler, spec, case, left)
        if len(left) == before:  # a guard that the inputs themselves do not fulfil
            break
    return Covered(text, tuple(compiles), len(looks), tuple(left), gave_up=gave_up)


def _is_full(
    function: Any, compiler: FrameCompiler, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str:
    """Return what to say if a function has as much code as it may have; else an empty text."""
    try:
        with frame_of(function, args, kwargs) as frame:
            count = len(hook.cache_entries(frame.code, compiler))
            limit = compiler.recompile_limit
            name = frame.code.co_qualname
    except NotAhead:
        return ""
    return f"{name} runs eagerly then: recompile_limit ({limit}) is reached" * (count >= limit)


def _missing(
    function: Any, compiler: FrameCompiler, spec: Spec, case: Case, looks: Sequence[dict[str, int]]
) -> list[dict[str, int]]:
    """Return the sizes for which a call would have to compile."""
    found = []
    for sizes in looks:
        try:
            with spec.inputs(sizes, case) as (args, kwargs), frame_of(function, args, kwargs) as f:
                if hook.code_for(f, compiler) is None:
                    found.append(sizes)
        except NotAhead:
            found.append(sizes)
    return found


def typical(
    sizes: Sequence[dict[str, int]],
    looks: Sequence[Mapping[str, int]],
    spec: Spec,
    equal: bool = False,
) -> dict[str, int]:
    """Return sizes from the middle, which are not equal by chance: code may compare them.

    Args:
        equal: return equal ones, for functions that raise for others.
    """
    middles = {}
    for name in sizes[0]:
        values = sorted({one[name] for one in looks})
        middles[name] = (values[len(values) // 2], max(1, values[-1] - values[0]))
    fixed = {dim for one in spec.tensors() for dim in one.dims if isinstance(dim, int)}

    def oddness(one: Mapping[str, int]) -> tuple[int, float]:
        moving = [n for name, n in one.items() if middles[name][1] > 1 or len(looks) > 1]
        chances = len(moving) - len(set(moving)) + sum(n in fixed or n < 2 for n in moving)
        far = sum(abs(n - middles[name][0]) / middles[name][1] for name, n in one.items())
        return -chances if equal else chances, far

    return min(sizes, key=oddness)


def questions_of(
    function: Any, compiler: FrameCompiler, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Question], str]:
    """Capture what a call would run first, and return what it asks of sizes, and why it raises.

    Args:
        compiler: its backend should compile nothing; what is captured is not kept.
    """
    found = _Found()
    with nothing_changes(), compiled_ahead(asks=True) as noted:
        try:
            with frame_of(function, args, kwargs) as frame:
                decide = found.accept(noted)
                hook.prepare(frame, compiler, lambda outcome: decide(outcome) and False)
        except NotAhead as why:
            found.error = str(why)
        except OptionError:
            raise
        except Exception as error:
            found.error = sentence(error)
    return noted.questions, found.error


def compile_call(
    function: Any,
    compiler: FrameCompiler,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    sizes: Mapping[str, int],
) -> Compile:
    """Compile what a call would run first, with its backward; nothing runs."""
    clock, graphs = time.perf_counter(), compiler.process.graphs
    found = _Found()
    with nothing_changes(), compiled_ahead() as noted:
        try:
            with deferred.noted() as later, frame_of(function, args, kwargs) as frame:
                outcome = hook.prepare(frame, compiler, found.accept(noted))
                if isinstance(outcome, hook.Compiled):
                    for backward in later:
                        backward.compile()
                elif not found.error:
                    found.remains = _of_outcome(outcome, frame)
        except NotAhead as why:
            found.remains = str(why)
        except OptionError:
            raise
        except Exception as error:
            found.error = sentence(error)
    return Compile(
        dict(sizes),
        0 if found.error else compiler.process.graphs - graphs,
        sum(noted.lookups),
        tuple(noted.breaks),
        found.remains,
        found.error,
        time.perf_counter() - clock,
    )


@dataclass
class _Found:
    """What a compile leaves to say."""

    remains: str = ""
    error: str = ""

    def accept(self, noted: Noted) -> Callable[[hook.Outcome], bool]:
        """Return what decides whether a result is kept: not of a call that is going to raise."""

        def decide(outcome: hook.Outcome) -> bool:
            breaks = noted.breaks
            failed = [one for one in breaks if one.code in FAILURES]
            if failed:
                self.error = _raises(failed[0])
                return False
            if breaks:
                self.remains = f"what follows {_place(breaks[-1])}: {breaks[-1].title}"
            return True

        return decide


def _of_outcome(outcome: hook.Outcome, frame: hook.Frame) -> str:
    name = frame.code.co_qualname
    if isinstance(outcome, hook.Skip | hook.RunCached):
        return f"all of {name}: {outcome.reason}"
    return f"all of {name}: it does no tensor operation that could be captured now"


def _raises(event: trace.GraphBreak) -> str:
    return f"it raises at {_place(event)}: {event.detail or event.why or event.title}"


def _place(event: trace.GraphBreak) -> str:
    return str(StackFrame(event.file, event.line, event.function))


def sentence(error: BaseException) -> str:
    """Return an error in one line."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    if isinstance(error, TcError):
        return text or type(error).__name__
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Return sizes of variables for messages."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "of the inputs"
