"""The records of one run go in; its compiles, with their artifacts, times and notes, come out."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from tc.trace.cells import place
from tc.trace.compiles import FRAMEWORK, GIVEN_UP, Artifact, Compile, Failure, Frame, Lane
from tc.trace.kinds import kind_of
from tc.trace.notebook import Shown, View
from tc.trace.parsed import measured
from tc.trace.part import Key, Part, read_part, shared
from tc.trace.reader import STDIN, Defects, Source, Unreadable, find_logs, payload_of, value_of
from tc.trace.runs import group
from tc.trace.stepcost import StepCost
from tc.trace.timing import duration
from tc.trace.trials import Trial, read_trials
from tc.trace.words import count
from tc.trace.writers import Writers

# Logs of a job, as they are distributed: few enough at a time that all processes have some.
_MOST_IN_BATCH: Final = 16
_LEAST_BATCHES: Final = 64
_MOST_AHEAD: Final = 128  # batches
_MOST_SHOWN: Final = 100  # compiles, in a notebook
T = TypeVar("T")
_TYPE_OF_FN: Final = re.compile(r"source=L\['fn'\],.*type=<class '([\w.]+)'>")


@dataclass(slots=True)
class Session(Shown):
    """One run of a program, as its trace records it."""

    name: str
    sources: list[Source] = field(default_factory=list)
    defects: Defects = field(default_factory=Defects)
    events: Counter[str] = field(default_factory=Counter)
    lanes: list[Lane] = field(default_factory=list)
    compiles: list[Compile] = field(default_factory=list)
    loose: list[Compile] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    producer: str = "torch"
    first_time: str = ""
    other_runs: int = 0
    trials: tuple[Trial, ...] = ()
    unowned: dict[str, float] = field(default_factory=dict)
    step_costs: list[tuple[Lane, StepCost]] = field(default_factory=list)
    written: bool = False  # compiles without an end are under way
    _made: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, make: Callable[[Session], T]) -> T:
        """Return what a function makes of the compiles, which stay as they are: made once."""
        if make not in self._made:
            self._made[make] = make(self)
        made: T = self._made[make]
        return made

    @property
    def records(self) -> int:
        """Envelopes read, interned strings included."""
        return sum(self.events.values())

    @property
    def unknown(self) -> dict[str, int]:
        """Events this reader has no name for, counted."""
        return {k: n for k, n in sorted(self.events.items()) if not kind_of(k).record}

    @property
    def frames(self) -> int:
        """Frames that were compiled at least once, over all lanes."""
        return len({(compiled.lane.index, compiled.frame_id) for compiled in self.compiles})

    @property
    def title(self) -> str:
        """`trace: 3 compiles, 0.29 s`."""
        seconds = duration(sum(one.seconds for one in self.compiles))
        return f"{self.name}: {count(len(self.compiles), 'compile')}, {seconds}"

    def __str__(self) -> str:
        rows = ["  ".join(row) for row in self._rows()[:_MOST_SHOWN]]
        left = len(self.compiles) - len(rows)
        return "\n".join((self.title, *rows, *([f"{left} more are left out."] if left else [])))

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (f"[{one.slug}]", one.title, place(*one.own_place), duration(one.seconds))
            for one in self.compiles
        ]

    def as_view(self) -> View:
        """See `Shown`."""
        rows = self._rows()
        values = {"title": self.title, "summary": "compiles, in order", "rows": rows[:_MOST_SHOWN],
                  "columns": ("compile", "function", "where", "time"),
                  "left_out": max(len(rows) - _MOST_SHOWN, 0)}  # fmt: skip
        return View("session", str(self), values)

    def text(self, artifact: Artifact) -> str:
        """Return what an artifact holds."""
        span = artifact.span
        if span is None:
            return artifact.inline
        if span.event:
            return _plain_json(value_of(self.sources[span.source], span))
        return self.bytes_of(artifact).decode("utf-8", "replace")

    def start_of(self, artifact: Artifact, size: int) -> str:
        """Return what stands in the first bytes of an artifact, about so many."""
        span = artifact.span
        if span is None or span.event:
            return self.text(artifact)[:size]
        span = span._replace(stop=min(span.stop, span.start + size))
        return payload_of(self.sources[span.source], span).decode("utf-8", "replace")

    def bytes_of(self, artifact: Artifact) -> bytes:
        """Return what an artifact holds as it lies in the log; it may be no UTF-8."""
        span = artifact.span
        if span is None or span.event:
            return self.text(artifact).encode("utf-8", "replace")
        return payload_of(self.sources[span.source], span)

    def close(self) -> None:
        """Let go of the logs."""
        for source in self.sources:
            source.close()


def load(path: str | Path, *, all_runs: bool = False, executor: Executor | None = None) -> Session:
    """Read the newest run a path holds (or all of them).

    Args:
        executor: reads the logs of a run side by side; its processes must see the same files.

    Raises:
        Unreadable: there is nothing to read, or no record in it.
    """
    kept, others = chosen_logs(path, all_runs)
    return joined(path, kept, others, _written(_parts(kept, executor), kept))


def joined(
    path: str | Path, sources: list[Source], other_runs: int, parts: Iterable[Part]
) -> Session:
    """Join the contents of the logs of a run, read from a path.

    Raises:
        Unreadable: they hold nothing.
    """
    name = "stdin" if str(path) == STDIN else Path(path).resolve().name
    builder = _Builder(Session(name, sources, other_runs=other_runs))
    for part in parts:
        builder.add(part)
    session = builder.finish()
    session.trials = read_trials(path)
    if not session.records:
        session.close()
        raise Unreadable(f"{path} has no readable trace record; was it truncated or edited?")
    return session


def chosen_logs(path: str | Path, all_runs: bool) -> tuple[list[Source], int]:
    """Return the logs of the newest run a path holds (or of all), and how many runs are left out.

    Raises:
        Unreadable: there is nothing to read, or no record in it.
    """
    sources = [Source(name) for name in find_logs(path)]
    runs = group(sources)
    if not runs:
        size = sum(map(len, sources))
        for source in sources:
            source.close()
        what = "is empty" if not size else "has no trace record"
        raise Unreadable(f"{path} {what}; expected a log written with TC_TRACE or TORCH_TRACE")
    chosen = runs if all_runs else runs[-1:]
    kept = [log.source for run in chosen for log in run.logs]
    for source in sources:
        if source not in kept:
            source.close()
    return kept, len(runs) - len(chosen)


def _parts(sources: Sequence[Source], executor: Executor | None) -> Iterator[Part]:
    """Read the logs, in order; elsewhere if there is somebody to do it."""
    if executor is None or len(sources) < 2 or any(one.path == STDIN for one in sources):
        return map(read_part, sources, range(len(sources)))
    paths = [source.place for source in sources]
    size = min(_MOST_IN_BATCH, -(-len(paths) // _LEAST_BATCHES))
    batches = (range(at, min(at + size, len(paths))) for at in range(0, len(paths), size))
    return _by_batches(executor, paths, batches)


def _written(parts: Iterable[Part], sources: Sequence[Source]) -> Iterator[Part]:
    """Mark the parts whose end is open because their writers are at work.

    Who writes is looked up only where something has no end: it takes a look at all processes.
    """
    held: frozenset[str] | None = None
    for part, source in zip(parts, sources, strict=True):
        if part.unfinished and source.path != STDIN:
            held = Writers().look(one.path for one in sources) if held is None else held
            if source.path in held:
                part.is_written()
        yield part


def _by_batches(
    executor: Executor, paths: Sequence[str], batches: Iterable[range]
) -> Iterator[Part]:
    """Have logs read elsewhere, some batches ahead of who takes them, so that none pile up."""
    ahead: deque[Future[list[Part]]] = deque()
    for batch in batches:
        if len(ahead) == _MOST_AHEAD:
            yield from ahead.popleft().result()
        ahead.append(executor.submit(_read_batch, [(paths[number], number) for number in batch]))
    while ahead:
        yield from ahead.popleft().result()


def _read_batch(logs: Sequence[tuple[str, int]]) -> list[Part]:
    """Read several logs; together, because a cluster needs longer to transfer one than to read."""
    return [read_part(path, number) for path, number in logs]


class _Builder:
    """Joins the contents of the logs of a run into a session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.compiles: dict[Key, Compile] = {}
        self.strings: list[dict[int, str]] = []
        self.source_of: dict[int, list[int]] = {}  # process -> its logs
        self.holders: dict[int, list[int]] = {}  # number of a string -> the logs that define it
        self.stacks: list[tuple[int, int, Compile]] = []
        self.framed: list[tuple[int, int, list[Any]]] = []
        self.shares: list[tuple[tuple[int, int | None], dict[tuple[str, str], float]]] = []
        self.step_costs: dict[tuple[int, int | None], StepCost] = {}
        self.pids: dict[int, int] = {}

    def add(self, part: Part) -> None:
        """Add the contents of the next log."""
        session = self.session
        self.strings.append(part.strings)
        for pid in part.pids:
            self.pids.setdefault(pid, len(self.pids))
            self.source_of.setdefault(pid, []).append(part.index)
        joined: dict[int, Compile] = {}
        for key, compiled in part.compiles.items():
            compiled.metrics = shared(compiled.metrics)  # another process may have read it
            known = self.compiles.setdefault(key, compiled)
            if known is compiled:
                compiled.order = len(self.compiles) - 1
            else:
                _join(known, compiled)
                joined[id(compiled)] = known
        self.framed += [(part.index, pid, frames) for pid, frames in part.framed]
        self.stacks += [(part.index, pid, joined.get(id(one), one)) for pid, one in part.stacks]
        self.shares += part.shares.items()
        self.step_costs.update(part.step_costs)
        session.events.update(part.events)
        session.defects.merge(part.defects)
        session.environment.update(part.environment)
        session.written |= part.written
        if part.producer == "tc":
            session.producer = "tc"
        times = [time for time in (session.first_time, part.first_time) if time]
        session.first_time = min(times, default="")

    def finish(self) -> Session:
        for index, pid, compiled in self.stacks:
            try:
                self.resolve(index, pid, compiled)
            except (TypeError, ValueError, KeyError, AttributeError):
                self.session.defects.add("bad_record", self.session.sources[index].name)
        for index, pid, frames in self.framed:
            for frame in frames:
                if isinstance(frame, dict):
                    frame["filename"] = self.string(index, pid, frame.get("filename"))
        self.name_lanes()
        self.share_time()
        lanes = {(one.pid, one.rank): one.lane for one in self.compiles.values()}
        broken: dict[tuple[int, int | None], dict[str, str]] = {}
        for one in self.compiles.values():
            for note in one.noted("tc_graph_break"):
                place = f"{note.data.get('file')}:{note.data.get('line')}"
                broken.setdefault((one.pid, one.rank), {})[one.id] = place
        costs = [
            (lanes[key], cost.with_breaks(broken.get(key, {})))
            for key, cost in self.step_costs.items()
            if key in lanes
        ]
        self.session.step_costs = sorted(costs, key=lambda pair: pair[0].index)
        ordered = sorted(self.compiles.values(), key=lambda one: (one.lane.index, one.order))
        for compiled in ordered:
            _settle(compiled)
            if compiled.id.startswith("!"):
                compiled.alias = "backward (compiled autograd)"
            elif FRAMEWORK.search(compiled.file) and not compiled.alias:
                compiled.alias = _module_name(self.session, compiled)
        _name_refused(ordered)
        _name_methods(ordered)
        _number_resumes(ordered)
        self.session.compiles = [one for one in ordered if one.started]
        self.session.loose = [one for one in ordered if not one.started and one.artifacts]
        return self.session

    def resolve(self, index: int, pid: int, compiled: Compile) -> None:
        frames = []
        for raw in compiled.stack:
            number = raw.get("filename")
            line = raw.get("line")
            frames.append(
                Frame(
                    file=self.string(index, pid, number),
                    line=line if isinstance(line, int) else 0,
                    name=str(raw.get("name") or ""),
                    code=str(raw.get("loc") or ""),
                )
            )
        compiled.frames = tuple(frames)
        if frames and not compiled.function:
            compiled.function, compiled.file = frames[-1].name, frames[-1].file
            compiled.line = frames[-1].line

    def string(self, index: int, pid: int, number: object) -> str:
        """Look a string up in this log, then in its process's others, then in older ones."""
        if not isinstance(number, int):
            return str(number or "")
        text: str | None = self.strings[index].get(number)
        if text is not None:
            return text
        if not self.holders:
            for at, known in enumerate(self.strings):
                for one in known:
                    self.holders.setdefault(one, []).append(at)
        older = self.holders.get(number, ())
        before = bisect_left(older, index)
        for at in (*self.source_of.get(pid, ()), *older[max(before - 1, 0) : before]):
            text = self.strings[at].get(number)
            if text is not None:
                return text
        if number >= 0:
            self.session.defects.add("unknown_string", self.session.sources[index].name)
        return "(unknown)"

    def name_lanes(self) -> None:
        ranks_of: dict[int, set[int]] = {}
        for pid, rank, _ in self.compiles:
            if rank is not None:
                ranks_of.setdefault(pid, set()).add(rank)
        for key in [key for key in self.compiles if key[1] is None]:
            ranks = ranks_of.get(key[0], set())
            if len(ranks) == 1:
                (rank,) = ranks
                self.adopt(key, (key[0], rank, key[2]))
        taken = {rank for _, rank, _ in self.compiles if rank is not None}
        lanes: dict[tuple[int, int | None], Lane] = {}
        free = max(taken, default=-1) + 1
        for pid, rank in sorted(
            {(pid, rank) for pid, rank, _ in self.compiles},
            key=lambda pair: (pair[1] is None, pair[1] or 0, self.pids[pair[0]]),
        ):
            if rank is not None:
                lane = Lane(rank, f"rank {rank}")
            else:
                lane, free = Lane(free, f"process {pid}"), free + 1
            lanes[pid, rank] = lane
        for (pid, rank, _), compiled in self.compiles.items():
            compiled.lane = lanes[pid, rank]
        self.session.lanes = sorted(set(lanes.values()))

    def adopt(self, old: tuple[int, int | None, str], new: tuple[int, int | None, str]) -> None:
        """Move what a process wrote before it knew its rank to that rank."""
        early = self.compiles.pop(old)
        early.rank = new[1]
        late = self.compiles.get(new)
        if late is None:
            self.compiles[new] = early
            return
        _join(early, late)
        early.order = late.order
        self.compiles[new] = early

    def share_time(self) -> None:
        for (pid, rank), shares in self.shares:
            for (compile_id, step), seconds in sorted(shares.items()):
                owner = self.compiles.get((pid, rank, compile_id))
                if owner is None:
                    owner = next(
                        (c for c in self.compiles.values() if c.pid == pid and c.id == compile_id),
                        None,
                    )
                if owner is None and step in _AROUND:
                    owner = max(
                        (c for c in self.compiles.values() if c.pid == pid and c.started),
                        key=lambda c: c.order,
                        default=None,
                    )
                if owner is not None:
                    owner.steps[step] = owner.steps.get(step, 0.0) + seconds
                else:
                    known = self.session.unowned.get(step, 0.0)
                    self.session.unowned[step] = known + seconds


#: timed steps that name no compile and have one in them
_AROUND: Final = ("fullgraph_capture",)


def _join(early: Compile, late: Compile) -> None:
    """Append what a second log, or the same log later on, holds about a compile."""
    base = len(early.artifacts)
    early.artifacts += [replace(one, number=base + one.number) for one in late.artifacts]
    early.notes += [replace(one, artifact=base + one.artifact) for one in late.notes]
    early.described += late.described
    early.metrics.update(late.metrics)
    early.symbols.update(late.symbols)
    early.fixed |= late.fixed
    early.held.update(late.held)
    early.attempts = max(early.attempts, late.attempts)
    early.started = early.started or late.started
    early.stack = early.stack or late.stack
    if late.function:
        early.function, early.file, early.line = late.function, late.file, late.line
    early.failure = late.failure or early.failure
    early.skipped = late.skipped or early.skipped
    early.given_up = late.given_up or early.given_up
    early.cache = late.cache or early.cache
    early.calls = late.calls or early.calls
    early.alias, early.call = early.alias or late.alias, early.call or late.call


def _settle(compiled: Compile) -> None:
    """Fill in what is known only after the whole compile."""
    if compiled.limited and not compiled.stack:
        compiled.started = False
    if compiled.described:
        compiled.artifacts.append(
            Artifact(
                number=len(compiled.artifacts),
                name="described_inputs",
                kind="text",
                attempt=0,
                place="",
                inline="\n".join(compiled.described),
            )
        )
    if not compiled.steps:
        seconds = measured(compiled.metrics.get("entire_frame_compile_time_s"))
        if seconds and seconds > 0:
            compiled.steps = {"entire_frame_compile": seconds}
    for note in compiled.noted("tc_error"):
        line = note.data.get("line")
        compiled.failure = Failure(
            type=str(note.data.get("type") or "Error"),
            reason=str(note.data.get("message") or ""),
            stage=str(note.data.get("stage") or ""),
            file=str(note.data.get("file") or ""),
            line=line if isinstance(line, int) else 0,
            command=str(note.data.get("command") or ""),
        )
    stopped = compiled.noted("make_fx_fail_partial")
    if stopped and compiled.call and compiled.failure is None:
        compiled.failure = _stopped(compiled, str(stopped[-1].data))
    errors = compiled.noted("dynamo_error")
    if errors and compiled.failure is None and not compiled.skipped:
        last = next((row for row in reversed(errors[-1].data.splitlines()) if row.strip()), "")
        kind, _, reason = last.partition(": ")
        compiled.failure = Failure(type=kind.rpartition(".")[2] or "Error", reason=reason)
    _keep_failures(compiled)


def _keep_failures(compiled: Compile) -> None:
    """Take a frame that was given up because of a break for what it is: skipped, not failed.

    PyTorch records both alike. All that counts failures reads `Compile.failure`.
    """
    failure = compiled.failure
    reported = (str(note.data) for note in compiled.noted("dynamo_graph_break_reason"))
    if failure is not None and any(map(GIVEN_UP.search, (failure.reason, *reported))):
        compiled.given_up, compiled.failure = failure, None
        compiled.skipped = failure.reason or failure.type


#: the line that operations below it are of, in a printed graph; a call of an operator in one
_GRAPH_PLACE: Final = re.compile(r"# File: (.+?):(\d+) in ")
_CALLED: Final = re.compile(r"torch\.ops\.(\w+\.\w+)")
#: namespaces of torch's own operators
BUILT_IN: Final = ("aten", "prims", "prim", "higher_order", "_c10d_functional", "c10d_functional")


def _stopped(compiled: Compile, graph: str) -> Failure:
    """Return the failure of an export or a trace that left the graph it had until then."""
    last = next((row.strip() for row in reversed(graph.splitlines()) if " = " in row), "")
    name = last.partition(":")[0].partition(" ")[0]
    places = _GRAPH_PLACE.findall(graph)
    home = (places[-1][0], int(places[-1][1])) if places else compiled.home
    asked = compiled.asked if not places else home  # the graph ends where the answer was needed
    file, line = asked if compiled.asked[0] else home
    called = _CALLED.search(last)
    theirs = called is not None and called[1].partition(".")[0] not in BUILT_IN
    why = "a branch or a conversion here depends on tensor data" if compiled.asked[0] else ""
    if theirs and called is not None and not why:
        why = f"{called[1]} is no operator of torch's"
    reason = f"tracing ended after the operation {name}" if name else "tracing ended at once"
    return Failure("TracingFailed", f"{reason}{': ' + why if why else ''}", "", file, line)


def _name_refused(compiles: Sequence[Compile]) -> None:
    """What was not compiled any more is of the function that its frame is of."""
    known: dict[tuple[Lane, str], Compile] = {}
    for one in compiles:
        if one.started:
            known.setdefault((one.lane, one.frame_id), one)
    for one in compiles:
        of = known.get((one.lane, one.frame_id))
        if of is not None and not one.function:
            one.function, one.file, one.line = of.function, of.file, of.line


def _name_methods(compiles: Sequence[Compile]) -> None:
    """Name methods with their class, where a record of any compile of the frame has it."""
    names = {}
    for compiled in compiles:
        for note in compiled.noted("tc_recompile", "tc_recompile_limit"):
            name = str(note.data.get("function") or "")
            if name.endswith("." + compiled.function):
                names[compiled.lane, compiled.frame_id] = name
    for compiled in compiles:
        compiled.alias = compiled.alias or names.get((compiled.lane, compiled.frame_id), "")


def _number_resumes(compiles: Sequence[Compile]) -> None:
    """Number resume functions of one name: PyTorch calls those of both sides of a branch alike.

    They are code objects of their own, and so are frames of their own, until a reset.
    """
    frames: dict[tuple[Lane, str, str, str], list[str]] = {}
    for one in compiles:
        if one.line_of_resume:
            frame = one.frame_id.rpartition("/")[2]
            turn = frame.rpartition("~")[0]
            known = frames.setdefault((one.lane, turn, one.file, one.function), [])
            if frame not in known:
                known.append(frame)
            one.twin = known.index(frame)


def _module_name(session: Session, compiled: Compile) -> str:
    """Name the module behind torch's own wrapper function, which is all the trace names."""
    guards = [one for one in compiled.artifacts if one.name == "dynamo_cpp_guards_str"]
    match = _TYPE_OF_FN.search(session.text(guards[-1])) if guards else None
    return match[1].rpartition(".")[2] if match else ""


def all_compiles(session: Session) -> Iterator[Compile]:
    """Compiles, then whatever else left artifacts (refused recompiles, records of no compile)."""
    yield from session.compiles
    yield from session.loose


def given_up(session: Session, compiles: Iterable[Compile]) -> list[Compile]:
    """Return what was not compiled any more of the frames that these compiles are of."""
    frames = {(one.lane.index, one.frame_id) for one in compiles}
    return [one for one in session.loose if (one.lane.index, one.frame_id) in frames]


def _plain_json(value: object) -> str:
    """Write JSON with an item on each line, as torch writes it in payloads."""
    return json.dumps(value, ensure_ascii=False, separators=(",\n", ": "))
