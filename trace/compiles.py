"""What a trace says of one compile: its records go in; one object with artifacts, notes and times
comes out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any, Final, Protocol, TypeVar

from tc.trace.cells import typed_line
from tc.trace.reader import Span
from tc.trace.timing import PHASES, phase_of

_RESUMED: Final = re.compile(r"^torch_dynamo_resume_in_(.+)_at_(\d+)$")
# torch's own files, and Python's, through which torch is called: not what a user looks for.
FRAMEWORK: Final = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]torch[/\\]|^torch[/\\]"
    r"|[/\\]lib(?:64)?[/\\]python3\.\d+t?[/\\](?!(?:site|dist)-packages[/\\])|^<frozen "
    r"|^<eval_with_key>|^<call of "
)


LIBRARY: Final = re.compile(FRAMEWORK.pattern + r"|[/\\](?:site|dist)-packages[/\\]")


_MODULE: Final = "<module>"
# A break that PyTorch cannot resume from: the frame runs in Python, nothing else failed.
GIVEN_UP: Final = re.compile(r"[Ss]kipping the (?:frame|function) and falling back to eager")


class Placed(Protocol):
    """Something with a place in a file."""

    @property
    def file(self) -> str:
        """The file's path."""


_P = TypeVar("_P", bound=Placed)


def own(frames: Sequence[_P]) -> _P | None:
    """Return the innermost frame of the user's own files, else of any but torch's and Python's.

    The innermost frame comes last.
    """
    for rule in (LIBRARY, FRAMEWORK):
        mine = [one for one in frames if one.file and not rule.search(one.file)]
        if mine:
            return mine[-1]
    return None


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a Python stack."""

    file: str
    line: int
    name: str
    code: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.name}"


@dataclass(frozen=True, slots=True)
class Artifact:
    """One thing a compile left behind; the text is in the log at `span`, or in `inline`."""

    number: int
    name: str
    kind: str
    attempt: int
    place: str
    span: Span | None = None
    note: str = ""
    inline: str = ""

    @property
    def size(self) -> int:
        """How many bytes its text takes in the log, about."""
        return self.span.stop - self.span.start if self.span else len(self.inline)


@dataclass(frozen=True, slots=True)
class Note:
    """An artifact that says something happened: its text, or what its JSON holds."""

    name: str
    data: Any
    attempt: int
    artifact: int
    place: str
    time: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a compile failed, in the compiler's words."""

    type: str
    reason: str
    stage: str = ""
    file: str = ""
    line: int = 0
    command: str = ""


@dataclass(frozen=True, slots=True)
class Calls:
    """How often a compiled graph, or a function that is not compiled, was called, by the log.

    Attributes:
        count: hits of its entry in the cache of its function.
        eager: those of them that ran operation by operation.
        sampled: those of which the time was taken; `seconds` of these together.
        python: calls of the function itself, because it was skipped or compiled too often.
    """

    count: int = 0
    eager: int = 0
    sampled: int = 0
    seconds: float = 0.0
    python: int = 0

    def __add__(self, other: Calls) -> Calls:
        sums = (getattr(self, one.name) + getattr(other, one.name) for one in fields(Calls))
        return Calls(*sums)

    @property
    def each(self) -> float | None:
        """Seconds of one call, None where none was timed."""
        return self.seconds / self.sampled if self.sampled else None

    def to_json(self) -> dict[str, Any]:
        """Return the figures as the summary and the report have them."""
        each = None if self.each is None else round(self.each, 9)
        return {"count": self.count, "eager": self.eager, "timed": self.sampled, "each": each,
                "python": self.python}  # fmt: skip


def graphs_of(compiles: Iterable[Compile]) -> int:
    """Return how many of these compiles captured a graph."""
    return sum(any(one.name == "dynamo_output_graph" for one in c.artifacts) for c in compiles)


def calls_in_python(compiled: Compile) -> int | None:
    """Return how often the function of a skip or refusal ran in Python, None if nobody counted."""
    return compiled.calls.python if compiled.calls is not None else None


def calls_of(compiles: Iterable[Compile]) -> Calls | None:
    """Return the calls of all these compiles together, None where nothing was counted."""
    counted = [one.calls for one in compiles if one.calls is not None]
    return sum(counted, Calls()) if counted else None


def calls_to_json(compiles: Iterable[Compile]) -> dict[str, Any] | None:
    """Return `calls_of` as plain values."""
    calls = calls_of(compiles)
    return calls.to_json() if calls else None


@dataclass(frozen=True, order=True, slots=True)
class Lane:
    """One process of the run: a rank of a distributed job, or a process by itself."""

    index: int
    label: str


@dataclass(slots=True)
class Compile:
    """One compilation of one frame: `[frame/compile]`, with all it left behind."""

    id: str
    pid: int
    rank: int | None
    order: int
    lane: Lane = Lane(0, "")
    function: str = ""
    file: str = ""
    line: int = 0
    attempts: int = 1
    started: bool = False
    limited: bool = False  # asked for, but the function had been compiled too often
    stack: list[Any] = field(default_factory=list)
    frames: tuple[Frame, ...] = ()
    artifacts: list[Artifact] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    described: list[str] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    steps: dict[str, float] = field(default_factory=dict)
    failure: Failure | None = None
    left_in: str = ""  # the step under way where the log of a process that has ended ends
    skipped: str = ""
    given_up: Failure | None = None  # of a frame that runs in Python because of a graph break
    cache: str = ""
    symbols: dict[str, str] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)  # symbols of one value: the code needs a number
    held: dict[str, tuple[str, int]] = field(default_factory=dict)  # such a one -> the user's line
    alias: str = ""
    twin: int = 0  # which of the resume functions that share its name, in one process
    asked: tuple[str, int] = ("", 0)  # where such a one came upon a value out of tensor data
    call: str = ""  # the user's line that asked for it, where no frame did
    calls: Calls | None = None  # None: not counted, or never called

    def copy(self) -> Compile:
        """Return the same in lists and dicts of its own."""
        return Compile(**{one.name: copy(getattr(self, one.name)) for one in fields(self)})

    @property
    def slug(self) -> str:
        """The name used in links: `0/2`, or `1:0/2` on rank 1."""
        return self.id if self.lane.index == 0 else f"{self.lane.index}:{self.id}"

    @property
    def under_way(self) -> bool:
        """Whether it began and no record is of its end."""
        ended = self.metrics or self.failure is not None or self.skipped
        return self.started and bool(self.stack) and not ended

    @property
    def frame_id(self) -> str:
        """The id without its last part: all compiles of a frame share it."""
        return self.id.rpartition("/")[0]

    @property
    def seconds(self) -> float:
        """Wall seconds spent on this compile."""
        return sum(self.steps.values())

    @property
    def phases(self) -> dict[str, float]:
        """Wall seconds by phase, in the order of the pipeline."""
        shares = dict.fromkeys(PHASES, 0.0)
        for name, seconds in self.steps.items():
            shares[phase_of(name)] += seconds
        return {phase: seconds for phase, seconds in shares.items() if seconds > 0}

    @property
    def original(self) -> str:
        """The user's function: a resume function counts as the one it resumes."""
        match = _RESUMED.match(self.function)
        return match[1] if match else self.function

    @property
    def title(self) -> str:
        """The function as a person would name it."""
        match = _RESUMED.match(self.function)
        if match:
            return f"{match[1]} (resumed at {typed_line(self.file, int(match[2]))})"
        return self.alias or self.function or "(unknown)"

    @property
    def line_of_resume(self) -> int:
        """The line at which a resume function continues; 0 for any other function."""
        match = _RESUMED.match(self.function)
        return int(match[2]) if match else 0

    @property
    def home(self) -> tuple[str, int]:
        """File and line to show: of the function, or of its call where torch wraps it."""
        if FRAMEWORK.search(self.file):
            mine = [frame for frame in self.frames if not FRAMEWORK.search(frame.file)]
            if mine:
                return mine[-1].file, mine[-1].line
        return self.file, self.line

    @property
    def own_place(self) -> tuple[str, int]:
        """File and line of the user's own: of the function, or of the call that led to it."""
        if LIBRARY.search(self.file):
            mine = own(self.frames)
            if mine is not None:
                return mine.file, mine.line
        return self.home

    @property
    def own_function(self) -> str:
        """The function that `own_place` stands in; outside of functions, the one compiled."""
        mine = own(self.frames) if LIBRARY.search(self.file) else None
        name = mine.name if mine is not None else _MODULE
        return (self.alias or self.function) if name == _MODULE else name

    def noted(self, *names: str) -> list[Note]:
        """The notes of these names, in order."""
        return [note for note in self.notes if note.name in names]


def by_function(compiles: Iterable[Compile]) -> dict[tuple[str, str, int], list[Compile]]:
    """Group compiles by the function they are of, in order of first compile.

    Modules behind one wrapper of torch's are distinguished by class and by where they were called,
    resume functions of one name by their number.
    """
    groups: dict[tuple[str, str, int], list[Compile]] = {}
    wrapped: dict[tuple[int, str], tuple[str, str, int]] = {}
    for compiled in compiles:
        number = f" ({compiled.twin + 1})" if compiled.twin else ""
        key = compiled.function + number, compiled.file, compiled.line
        if compiled.alias and FRAMEWORK.search(compiled.file):
            frame = compiled.lane.index, compiled.frame_id
            key = wrapped.setdefault(frame, (compiled.alias, *compiled.home))
        groups.setdefault(key, []).append(compiled)
    return groups
