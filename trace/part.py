"""One log goes in; the compiles it records come out, as far as one log shows them."""

from __future__ import annotations

import functools
import json
import sys
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tc.trace.all_events import EVENTS, Event, Fact
from tc.trace.compiles import FRAMEWORK, Artifact, Calls, Compile, Failure, Note
from tc.trace.ids import Numbering
from tc.trace.kinds import kind_of
from tc.trace.parsed import parse_counting, real, whole
from tc.trace.reader import (
    Cursor,
    Defects,
    Record,
    Source,
    Span,
    read_records,
    stamp_text,
)
from tc.trace.runs import rank_in_name
from tc.trace.stepcost import StepCost, merged, step_cost
from tc.trace.timing import Clock
from tc.trace.unframed import AOT_STEP, EXPORT, SPECIALIZED, Unframed, frames_in

_DESCRIBED: Final = ("describe_storage", "describe_tensor", "describe_source")
_STARTS: Final = frozenset(("dynamo_start", "dynamo_output_graph", "compilation_metrics"))
_BEFORE_START: Final = frozenset(("recompile_reasons", "tc_recompile"))
_SKIPS: Final = frozenset(("SkipFrame", "SkipCodeRecursiveException", "ShortenTraceback"))
TOO_OFTEN: Final = "Dynamo recompile limit exceeded"  # torch 2.15 records what it refuses
_ANON: Final = "-/-"


Key = tuple[int, int | None, str]  # process, rank, compile id


@dataclass(slots=True)
class Part:
    """What one log says; a plain value, so that another process can read the log.

    Attributes:
        index: the number of the log among those of the run.
        stacks: (process, compile) whose stack has names of files still to be looked up.
        framed: (process, frames) of other stacks, in which the names are put in place.
        shares: for each (process, rank), seconds by (compile id, step).
        step_costs: for each (process, rank), where its time went while compiled code ran.
    """

    index: int
    compiles: dict[Key, Compile] = field(default_factory=dict)
    shares: dict[tuple[int, int | None], dict[tuple[str, str], float]] = field(default_factory=dict)
    step_costs: dict[tuple[int, int | None], StepCost] = field(default_factory=dict)
    strings: dict[int, str] = field(default_factory=dict)
    stacks: list[tuple[int, Compile]] = field(default_factory=list)
    framed: list[tuple[int, list[Any]]] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)
    defects: Defects = field(default_factory=Defects)
    events: Counter[str] = field(default_factory=Counter)
    environment: dict[str, str] = field(default_factory=dict)
    producer: str = "torch"
    first_time: str = ""
    written: bool = False

    @property
    def unfinished(self) -> bool:
        """Whether the log ends in the middle of a record, or of a compile."""
        return "truncated" in self.defects.counts or any(
            one.left_in for one in self.compiles.values()
        )

    def is_written(self) -> None:
        """Take the end of the log for what it is while its writer lives: the rest will follow."""
        self.written = True
        self.defects.counts.pop("truncated", None)
        self.defects.places.pop("truncated", None)
        for compiled in self.compiles.values():
            compiled.left_in = ""


def read_part(log: Source | str, index: int) -> Part:
    """Read one log, or the log at a path; what is malformed is counted and passed over."""
    source = Source(log) if isinstance(log, str) else log
    reader = PartReader(source, Part(index))
    reader.read()
    if source is not log:
        source.close()
    return reader.finish()


class PartReader:
    """Folds the records of one log into a part."""

    def __init__(self, source: Source, part: Part) -> None:
        self.source, self.part = source, part
        self.clocks: dict[tuple[int, int | None], Clock] = {}
        self.rank_of: dict[int, int] = {}
        self.calls: dict[tuple[int, int | None], dict[str, Calls]] = {}
        self.profiles: dict[tuple[int, int | None], dict[str, Any]] = {}
        self.numbering = Numbering()
        self.unframed = Unframed()

    def copy(self) -> PartReader:
        """Return the same state in objects of its own, so that finishing one leaves the other."""
        part = self.part
        own = {id(one): one.copy() for one in part.compiles.values()}
        other = PartReader(
            self.source,
            replace(
                part,
                compiles={key: own[id(one)] for key, one in part.compiles.items()},
                strings=dict(part.strings),
                step_costs=dict(part.step_costs),
                stacks=[(pid, own[id(one)]) for pid, one in part.stacks],
                pids=list(part.pids),
                defects=deepcopy(part.defects),
                events=part.events.copy(),
                environment=dict(part.environment),
            ),
        )
        other.clocks = {key: clock.copy() for key, clock in self.clocks.items()}
        other.rank_of = dict(self.rank_of)
        other.calls = {key: dict(calls) for key, calls in self.calls.items()}
        other.profiles = dict(self.profiles)
        other.numbering = self.numbering.copy()
        other.unframed = self.unframed.copy()
        return other

    def read(self, cursor: Cursor | None = None, end: int | None = None) -> None:
        """Take the records of the log, or a part of them (see `read_records`)."""
        part, source = self.part, self.source
        file_rank = rank_in_name(source.name)
        pid, first = -1, b""
        for record in read_records(source, part.index, part.defects, cursor, end):
            part.events[record.event] += 1
            if record.pid != pid:
                pid = record.pid
                if pid not in part.pids:
                    part.pids.append(pid)
            if not first or record.stamp < first:
                first = record.stamp
            try:
                self.take(file_rank, record)
            except (TypeError, ValueError, KeyError, AttributeError, IndexError):
                place = f"{source.name}:{record.line}"
                if part.defects.latest != place:  # else damage known already did this
                    part.defects.add("bad_record", place)
        if first:
            part.first_time = min(part.first_time or stamp_text(first), stamp_text(first))

    def finish(self) -> Part:
        """Return the part, what was timed shared out."""
        for key, clock in self.clocks.items():
            clock.finish()
            self.part.shares[key] = clock.shares()
            for name, step in clock.left.items():
                if compiled := self.part.compiles.get((*key, name)):
                    compiled.left_in = step
        for (pid, rank), calls in self.calls.items():
            for name, counted in calls.items():
                if compiled := self.part.compiles.get((pid, rank, name)):
                    compiled.calls = counted
        return self.part

    def take(self, file_rank: int | None, record: Record) -> None:
        rank = record.context.get("rank")
        if isinstance(rank, int):
            self.rank_of[record.pid] = rank
        rank = self.rank_of.get(record.pid, file_rank)
        if record.event == "str":
            text, number = record.value
            self.part.strings[int(number)] = str(text)
            return
        if record.event == "chromium_event":
            event = self.parsed(record)
            args = event.get("args") or {}
            if event.get("name") == AOT_STEP and args.get("compile_id") in (None, "None"):
                name = self.unframed.timed(record.pid, str(event.get("ph")))
                self.started((record.pid, rank, name))
                event["args"] = {**args, "compile_id": name}
            elif isinstance(args.get("compile_id"), str):
                args["compile_id"] = self.numbering.name(record.pid, args["compile_id"])
            self.clocks.setdefault((record.pid, rank), Clock()).add(event)
            return
        compiled = self.compile_for(record, rank)
        name = _name_of(record)
        if name == "torch_version" or name == "tc_version":
            self.version(name, record)
        if record.event in _DESCRIBED:
            compiled.described.append(
                f"{record.event} {json.dumps(record.value, ensure_ascii=False)}"
            )
            return
        self.add_artifact(record, compiled, name)
        if name == "tc_run":
            regions = self.parsed(record)["regions"]
            counted = self.calls.setdefault((record.pid, rank), {})
            for written, calls in map(_calls_of, regions):
                counted[self.numbering.name(record.pid, written)] = calls
        if name == "tc_profile":
            named = functools.partial(self.numbering.name, record.pid)
            known = self.profiles.get((record.pid, rank), {})
            made = merged(known, self.parsed(record), named)
            self.part.step_costs[record.pid, rank] = step_cost(made)
            self.profiles[record.pid, rank] = made
        handler = getattr(self, f"on_{record.event}", None)
        if handler is not None:
            handler(record, compiled)

    def parsed(self, record: Record, text: str | None = None) -> Any:
        """Return the JSON of a payload; numbers that are none are counted as damage."""
        value, missing = parse_counting(record.payload or b"" if text is None else text)
        place = f"{self.source.name}:{record.line}"
        if missing and self.part.defects.latest != place:
            self.part.defects.add("bad_number", place, missing)
        return value

    def compile_for(self, record: Record, rank: int | None) -> Compile:
        written = _compile_id(record.context)
        if written == _ANON:
            pass
        elif record.event == "dynamo_start" and not record.context.get("attempt"):
            self.numbering.begin(record.pid, written)
        elif record.event == "artifact" and record.value.get("name") in _BEFORE_START:
            self.numbering.announce(record.pid, written)
        called = self.unframed.of(record, self.part.strings) if written == _ANON else None
        if called is not None:
            found = self.started((record.pid, rank, called[0]))
            found.call = found.call or called[1].code
            found.alias = called[1].title
            found.function, found.file = called[1].function, called[1].file
            found.line = called[1].line
            return found
        key = record.pid, rank, self.numbering.name(record.pid, written)
        known = self.part.compiles.get(key)
        found = known or Compile(key[2], record.pid, rank, len(self.part.compiles))
        if known is None:
            self.part.compiles[key] = found
        attempt = record.context.get("attempt")
        if isinstance(attempt, int):
            found.attempts = max(found.attempts, attempt + 1)
        if record.event in _STARTS and key[2] != _ANON:
            found.started = True
        return found

    def started(self, key: Key) -> Compile:
        """Return a compile that no frame asked for, made if this is its first record."""
        found = self.part.compiles.get(key)
        if found is None:
            found = Compile(key[2], key[0], key[1], len(self.part.compiles), started=True)
            self.part.compiles[key] = found
        return found

    def add_artifact(self, record: Record, compiled: Compile, name: str) -> None:
        attempt = record.context.get("attempt")
        note = ""
        if isinstance(record.value, dict):
            note = str(record.value.get("filename") or record.value.get("name") or "")
        artifact = Artifact(
            number=len(compiled.artifacts),
            name=name,
            kind=_kind(record, name),
            attempt=attempt if isinstance(attempt, int) else 0,
            place=f"{self.source.name}:{record.line}",
            span=record.span or Span(self.part.index, *record.head, event=record.event),
            note="" if note == name else note,
        )
        compiled.artifacts.append(artifact)
        if "cache_" in name:
            compiled.cache = _cache_word(name, compiled.cache)
        kind = kind_of(name)
        if kind.kept and not kind.record and record.event == "artifact":
            data: Any = record.text()
            if issubclass(EVENTS.get(name, Event), Fact):
                data = self.parsed(record, data)
                if not isinstance(data, dict):
                    raise ValueError("no object")
                if name == "tc_cache":
                    compiled.cache = "hit" if data.get("hit") else "miss"
            compiled.notes.append(
                Note(name, data, artifact.attempt, artifact.number, artifact.place, record.time)
            )

        of_export = bool(compiled.call) and compiled.alias == EXPORT
        is_kept = kind.kept or (name == SPECIALIZED and of_export)
        if is_kept and kind.record and isinstance(record.value, dict):  # of an export
            where = artifact.attempt, artifact.number, artifact.place
            compiled.notes.append(Note(name, record.value, *where, record.time))
            frames = frames_in(record.value)
            if isinstance(frames, list):
                self.part.framed.append((record.pid, frames))

    def version(self, name: str, record: Record) -> None:
        data = self.parsed(record)
        for key, value in data.items():
            if value is not None:
                self.part.environment[str(key)] = str(value)
        if name == "tc_version":
            self.part.producer = "tc"

    def on_dynamo_start(self, record: Record, compiled: Compile) -> None:
        stack = record.value.get("stack")
        if not isinstance(stack, list | None):
            raise TypeError("no stack")
        if stack and not compiled.stack:
            compiled.stack = stack
            self.part.stacks.append((record.pid, compiled))

    def on_compilation_metrics(self, record: Record, compiled: Compile) -> None:
        value = record.value
        compiled.metrics.update(shared(value))
        if isinstance(value.get("co_name"), str):
            compiled.function = value["co_name"]
            compiled.file = str(value.get("co_filename") or "")
            line = value.get("co_firstlineno")
            compiled.line = line if isinstance(line, int) else 0
        kind = value.get("fail_type")
        if str(value.get("fail_reason") or "").startswith(TOO_OFTEN):
            compiled.limited = True
        elif kind in _SKIPS:
            compiled.skipped = str(value.get("fail_reason") or kind)
        elif kind:
            line = value.get("fail_user_frame_lineno")
            compiled.failure = Failure(
                type=str(kind),
                reason=str(value.get("fail_reason") or ""),
                file=str(value.get("fail_user_frame_filename") or ""),
                line=line if isinstance(line, int) else 0,
            )
        for key in ("pytorch_version", "python_version"):
            if value.get(key):
                self.part.environment.setdefault(key, str(value[key]))

    def on_create_unbacked_symbol(self, record: Record, compiled: Compile) -> None:
        """A value out of tensor data: the line where it came up may be where tracing ends."""
        if not compiled.call:
            return
        compiled.asked = self._users_line(record) or compiled.asked

    def on_symbolic_shape_specialization(self, record: Record, compiled: Compile) -> None:
        """A size that was symbolic became a constant: the line that needs its value."""
        place = self._users_line(record)
        if place is not None:
            for source in record.value.get("sources") or ():
                compiled.held.setdefault(str(source), place)

    def _users_line(self, record: Record) -> tuple[str, int] | None:
        """Return the innermost line of the user's own on the stack of a record."""
        frames = [one for one in record.value.get("user_stack") or () if isinstance(one, dict)]
        for frame in reversed(frames):
            number = frame.get("filename")
            name = self.part.strings.get(number, "") if isinstance(number, int) else str(number)
            if name and not FRAMEWORK.search(name) and isinstance(frame.get("line"), int):
                return name, frame["line"]
        return None

    def on_create_symbol(self, record: Record, compiled: Compile) -> None:
        source, value = record.value["source"], record.value["val"]
        compiled.symbols[str(source)] = str(value)
        if record.value.get("vr") == f"VR[{value}, {value}]":
            compiled.fixed.add(str(source))


def _calls_of(region: dict[str, Any]) -> tuple[str, Calls]:
    """Return the compile that a row of ``tc_run`` is about, and its calls."""
    count = whole(region["calls"])
    if region["how"] == "python":
        return str(region["compile"]), Calls(python=count)
    eager = count if region["how"] == "operations" else 0
    return str(region["compile"]), Calls(
        count, eager, whole(region["sampled"]), real(region["seconds"])
    )


def shared(values: dict[str, Any]) -> dict[str, Any]:
    """Return the same with each text once in memory: settings are alike in all compiles."""
    return {k: sys.intern(v) if type(v) is str else v for k, v in values.items()}


def _compile_id(context: dict[str, Any]) -> str:
    frame, number = context.get("frame_id"), context.get("frame_compile_id")
    autograd = context.get("compiled_autograd_id")
    parts = [f"!{autograd}"] if autograd is not None else []
    if frame is not None:
        parts += [str(frame), "-" if number is None else str(number)]
    return "/".join(parts) if parts else _ANON


def _name_of(record: Record) -> str:
    if record.event in ("artifact", "graph_dump", "dump_file"):
        name = record.value.get("name") if isinstance(record.value, dict) else None
        return str(name) if name else record.event
    return record.event


def _kind(record: Record, name: str) -> str:
    """Return what an artifact is, so that it can be coloured."""
    if record.span is None:
        return "json"
    head = (record.payload or b"")[:4096]
    if name == "inductor_output_code" or name.startswith(("fx_graph_runnable", "compiled_f")):
        return "cpp" if head.lstrip().startswith((b"#include", b"//")) else "python"
    if name.endswith("BYTECODE"):
        return "text"
    if "_graph" in name and "reason" not in name and "break" not in name:
        return "python"
    if isinstance(record.value, dict) and record.value.get("encoding") == "json":
        return "json" if head.lstrip()[:1] in (b"{", b"[") else "text"
    if head.lstrip()[:1] in (b"{", b"["):
        return "json"
    if head.lstrip().startswith((b"#include", b"extern")):
        return "cpp"
    return "python" if b"\ndef " in head or head.startswith((b"def ", b"import ")) else "text"


def _cache_word(name: str, before: str) -> str:
    word = next((w for w in ("miss", "bypass", "hit") if name.endswith(f"cache_{w}")), "")
    # A hit of the outer cache settles it; otherwise the innermost cache's word stays.
    return before if not word or (before == "hit" and name.startswith("fx_")) else word
