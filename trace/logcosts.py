"""What TC_LOGS reports at the end: compiles and guards in; costs of breaks and forecasts out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tc.trace import events as ev
from tc.trace import guardtext
from tc.trace.ids import CompileId, resume_names

if TYPE_CHECKING:
    from tc.trace.findings.forecast import Step

MOST_REPLAYED: Final = 32  # compiles of a frame: all pairs are compared, some times over


class BreakCosts:
    """The seconds of the compiles that exist because of each break.

    As in reports, a resume function that several breaks lead to counts for the last before it.
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._functions: dict[int, tuple[str, str]] = {}
        self._awaited: dict[tuple[str, str], str] = {}
        self._caused: dict[tuple[int, int], str] = {}

    def begin(self, event: ev.FrameStart, compile_id: CompileId) -> None:
        """A compile begins: of a function that some break awaits, or of one of its own."""
        place = event.stack[-1].file, event.stack[-1].name
        self._functions[compile_id.frame] = place
        cause = self._awaited.get(place)
        if cause is not None:
            self._caused[compile_id.frame, compile_id.compile] = cause

    def broke(self, cause: str, event: ev.GraphBreak, compile_id: CompileId | None) -> None:
        """A graph ended; its continuation will be compiled because of that."""
        if compile_id is None or compile_id.frame not in self._functions:
            return
        file, function = self._functions[compile_id.frame]
        frames = [(frame.name, frame.line) for frame in event.stack]
        for name in resume_names(
            function, frames or [(event.function, event.line)], event.resume or ""
        ):
            self._awaited[file, name] = cause

    def end(self, seconds: float, compile_id: CompileId | None) -> None:
        """A compile, or the backward of one, took that long."""
        if compile_id is not None:
            cause = self._caused.get((compile_id.frame, compile_id.compile))
            if cause is not None:
                self.seconds[cause] += seconds


@dataclass
class _Frame:
    guards: dict[int, ev.Guards] = field(default_factory=dict)
    symbols: defaultdict[int, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    again: list[int] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)


class Replays:
    """The guards of the first compiles of each frame, to be played through without some inputs."""

    def __init__(self) -> None:
        self._frames: defaultdict[int, _Frame] = defaultdict(_Frame)

    def note(self, event: ev.Event, compile_id: CompileId | None) -> None:
        """Keep what a forecast needs of an event."""
        if compile_id is None or compile_id.compile > MOST_REPLAYED:
            return
        frame, number = self._frames[compile_id.frame], compile_id.compile
        if isinstance(event, ev.Guards):
            frame.guards[number] = event
        elif isinstance(event, ev.CreateSymbol):
            frame.symbols[number][event.source] = event.val
        elif isinstance(event, ev.Recompile):
            import tc.trace.findings.forecast  # noqa: F401  # not at exit: it may load thread pools

            frame.again.append(number)
            frame.changed += [guardtext.readable(one.source) for one in event.causes]

    def forecast(self, frames: Iterable[int]) -> tuple[Step, ...]:
        """Return how many recompiles of a function would be left, as the report predicts it."""
        from tc.trace.findings.forecast import predict, together

        plans = []
        for frame in (self._frames[number] for number in frames):
            if not frame.guards or max(frame.again, default=MOST_REPLAYED) >= MOST_REPLAYED:
                continue
            rows = [
                guardtext.held(frame.guards[n].text, frame.symbols[n]) if n in frame.guards else {}
                for n in (min(frame.guards), *frame.again)
            ]
            plans.append(predict(rows, frame.changed))
        return together([steps for steps in plans if steps])
