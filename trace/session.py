"""The records of one run go in; its compiles, with their artifacts, times and notes, come out."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tc.trace.compiles import FRAMEWORK, Artifact, Compile, Failure, Frame, Lane, Note
from tc.trace.reader import (
    STDIN,
    Defects,
    Record,
    Source,
    Unreadable,
    find_logs,
    parse_json,
    payload_of,
    read_records,
    stamp_text,
)
from tc.trace.runs import group, rank_in_name
from tc.trace.timing import Clock

# Artifacts that findings are made of; their payloads are kept in memory.
NOTED: Final = frozenset(
    (
        "dynamo_graph_break_reason", "recompile_reasons", "dynamo_error", "tc_graph_break",
        "tc_recompile", "tc_recompile_limit", "tc_frame_skipped", "tc_error", "tc_cache",
        "tc_graph_runs_eagerly",
    )
)  # fmt: skip
# Events of torch 2.13 and of tc that this reader understands or shows as they are.
KNOWN_EVENTS: Final = frozenset(
    (
        "chromium_event", "artifact", "str", "dynamo_start", "describe_storage",
        "describe_tensor", "describe_source", "dynamo_output_graph", "aot_joint_graph",
        "aot_forward_graph", "aot_backward_graph", "aot_inference_graph",
        "inductor_post_grad_graph", "inductor_pre_grad_graph", "inductor_output_code",
        "dynamo_cpp_guards_str", "compilation_metrics", "bwd_compilation_metrics",
        "compilation_metrics_runtime", "bwd_compilation_metrics_runtime",
        "aot_autograd_backward_compilation_metrics", "compiled_autograd_graph", "dump_file",
        "graph_dump", "guard_added_fast", "guard_added", "symbolic_shape_specialization",
        "create_unbacked_symbol", "create_symbol", "expression_created", "exported_program",
        "propagate_real_tensors_provenance", "propagate_real_tensors", "export",
        "missing_fake_kernel", "mismatched_fake_kernel", "guard_on_data_dependent_error",
        "dynamo_guards", "optimize_ddp_split_graph", "optimize_ddp_split_child", "link",
    )
)  # fmt: skip
_DESCRIBED: Final = ("describe_storage", "describe_tensor", "describe_source")
_STARTS: Final = frozenset(("dynamo_start", "dynamo_output_graph", "compilation_metrics"))
_SKIPS: Final = frozenset(("SkipFrame", "SkipCodeRecursiveException", "ShortenTraceback"))
_TYPE_OF_FN: Final = re.compile(r"source=L\['fn'\],.*type=<class '([\w.]+)'>")
_ANON: Final = "-/-"


@dataclass(slots=True)
class Session:
    """One run of a program, as its trace tells it."""

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

    @property
    def records(self) -> int:
        """Envelopes read, interned strings included."""
        return sum(self.events.values())

    @property
    def unknown(self) -> dict[str, int]:
        """Events this reader has no name for, counted."""
        return {k: n for k, n in sorted(self.events.items()) if k not in KNOWN_EVENTS}

    @property
    def frames(self) -> int:
        """Frames that were compiled at least once, over all lanes."""
        return len({(compiled.lane.index, compiled.frame_id) for compiled in self.compiles})

    def text(self, artifact: Artifact) -> str:
        """Return what an artifact holds."""
        return artifact.inline or self.bytes_of(artifact).decode("utf-8", "replace")

    def bytes_of(self, artifact: Artifact) -> bytes:
        """Return what an artifact holds as it lies in the log; it may be no UTF-8."""
        if artifact.span is None:
            return artifact.inline.encode("utf-8", "replace")
        return payload_of(self.sources[artifact.span.source], artifact.span)

    def close(self) -> None:
        """Let go of the logs."""
        for source in self.sources:
            source.close()


def load(path: str | Path, *, all_runs: bool = False) -> Session:
    """Read the newest run a path holds (or all of them).

    Raises:
        Unreadable: there is nothing to read, or no record in it.
    """
    sources = [Source(name) for name in find_logs(path)]
    name = "stdin" if str(path) == STDIN else Path(path).resolve().name
    runs = group(sources)
    if not runs:
        size = sum(map(len, sources))
        for source in sources:
            source.close()
        what = "is empty" if not size else "holds no trace record"
        raise Unreadable(f"{path} {what}; expected a log written with TC_TRACE or TORCH_TRACE")
    chosen = runs if all_runs else runs[-1:]
    kept = [log.source for run in chosen for log in run.logs]
    for source in sources:
        if source not in kept:
            source.close()
    builder = _Builder(Session(name, kept, other_runs=len(runs) - len(chosen)))
    for index, source in enumerate(kept):
        builder.read(index, source)
    session = builder.finish()
    if not session.records:
        session.close()
        raise Unreadable(f"{path} holds no readable trace record; was it cut or altered?")
    return session


class _Builder:
    """Folds records into a session; what is malformed is counted and passed over."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.compiles: dict[tuple[int, int | None, str], Compile] = {}
        self.clocks: dict[tuple[int, int | None], Clock] = {}
        self.strings: list[dict[int, str]] = []
        self.source_of: dict[int, set[int]] = {}
        self.stacks: list[tuple[int, int, Compile]] = []
        self.rank_of: dict[tuple[int, int], int] = {}
        self.pids: list[int] = []

    def read(self, index: int, source: Source) -> None:
        self.strings.append({})
        file_rank = rank_in_name(source.name)
        pid, first = -1, b""
        events: Counter[str] = Counter()
        for record in read_records(source, index, self.session.defects):
            events[record.event] += 1
            if record.pid != pid:
                pid = record.pid
                if pid not in self.pids:
                    self.pids.append(pid)
                self.source_of.setdefault(pid, set()).add(index)
            if not first or record.stamp < first:
                first = record.stamp
            try:
                self.take(index, file_rank, record)
            except (TypeError, ValueError, KeyError, AttributeError, IndexError):
                place = f"{source.name}:{record.line}"
                if self.session.defects.latest != place:  # else damage known already did this
                    self.session.defects.add("bad_record", place)
        self.session.events.update(events)
        if first:
            began = self.session.first_time
            self.session.first_time = min(began or stamp_text(first), stamp_text(first))

    def take(self, index: int, file_rank: int | None, record: Record) -> None:
        rank = record.context.get("rank")
        if isinstance(rank, int):
            self.rank_of[index, record.pid] = rank
        rank = self.rank_of.get((index, record.pid), file_rank)
        if record.event == "str":
            text, number = record.value
            self.strings[index][int(number)] = str(text)
            return
        if record.event == "chromium_event":
            event = parse_json(record.payload or b"")
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
        self.add_artifact(index, record, compiled, name)
        handler = getattr(self, f"on_{record.event}", None)
        if handler is not None:
            handler(index, record, compiled)

    def compile_for(self, record: Record, rank: int | None) -> Compile:
        key = record.pid, rank, _compile_id(record.context)
        found = self.compiles.get(key)
        if found is None:
            found = Compile(key[2], record.pid, rank, len(self.compiles))
            self.compiles[key] = found
        attempt = record.context.get("attempt")
        if isinstance(attempt, int):
            found.attempts = max(found.attempts, attempt + 1)
        if record.event in _STARTS and key[2] != _ANON:
            found.started = True
        return found

    def add_artifact(self, index: int, record: Record, compiled: Compile, name: str) -> None:
        attempt = record.context.get("attempt")
        note = ""
        if isinstance(record.value, dict):
            note = str(record.value.get("filename") or record.value.get("name") or "")
        inline = "" if record.span else _plain_json(record.value)
        artifact = Artifact(
            number=len(compiled.artifacts),
            name=name,
            kind=_kind(record, name),
            attempt=attempt if isinstance(attempt, int) else 0,
            place=f"{self.session.sources[index].name}:{record.line}",
            note="" if note == name else note,
            span=record.span,
            inline=inline,
        )
        compiled.artifacts.append(artifact)
        if "cache_" in name:
            compiled.cache = _cache_word(name, compiled.cache)
        if name in NOTED and record.event == "artifact":
            data: Any = record.text()
            if name.startswith("tc_") and name != "tc_graph_runs_eagerly":
                data = parse_json(data)
                if not isinstance(data, dict):
                    raise ValueError("no object")
                if name == "tc_cache":
                    compiled.cache = "hit" if data.get("hit") else "miss"
            compiled.notes.append(
                Note(name, data, artifact.attempt, artifact.number, artifact.place, record.time)
            )

    def version(self, name: str, record: Record) -> None:
        data = parse_json(record.payload or b"")
        for key, value in data.items():
            if value is not None:
                self.session.environment[str(key)] = str(value)
        if name == "tc_version":
            self.session.producer = "tc"

    def on_dynamo_start(self, index: int, record: Record, compiled: Compile) -> None:
        stack = record.value.get("stack")
        if isinstance(stack, list) and not compiled.stack:
            compiled.stack = stack
            self.stacks.append((index, record.pid, compiled))

    def on_compilation_metrics(self, index: int, record: Record, compiled: Compile) -> None:
        value = record.value
        compiled.metrics.update(value)
        if isinstance(value.get("co_name"), str):
            compiled.function = value["co_name"]
            compiled.file = str(value.get("co_filename") or "")
            line = value.get("co_firstlineno")
            compiled.line = line if isinstance(line, int) else 0
        kind = value.get("fail_type")
        if kind in _SKIPS:
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
                self.session.environment.setdefault(key, str(value[key]))

    def on_create_symbol(self, index: int, record: Record, compiled: Compile) -> None:
        source, value = record.value["source"], record.value["val"]
        compiled.symbols[str(source)] = str(value)

    def finish(self) -> Session:
        for index, pid, compiled in self.stacks:
            try:
                self.resolve(index, pid, compiled)
            except (TypeError, ValueError, KeyError, AttributeError):
                self.session.defects.add("bad_record", self.session.sources[index].name)
        self.name_lanes()
        self.share_time()
        ordered = sorted(self.compiles.values(), key=lambda one: (one.lane.index, one.order))
        for compiled in ordered:
            _settle(compiled)
            if FRAMEWORK.search(compiled.file):
                compiled.alias = _module_name(self.session, compiled)
        _name_methods(ordered)
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
        mine = sorted(self.source_of.get(pid, set()) - {index})
        for at in (index, *mine, *range(index - 1, -1, -1)):
            text: str | None = self.strings[at].get(number)
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
            key=lambda pair: (pair[1] is None, pair[1] or 0, self.pids.index(pair[0])),
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
        for artifact in early.artifacts:
            late.artifacts.append(artifact)
        late.notes = early.notes + late.notes

    def share_time(self) -> None:
        for (pid, rank), clock in self.clocks.items():
            clock.finish()
            for (compile_id, step), seconds in sorted(clock.shares().items()):
                owner = self.compiles.get((pid, rank, compile_id))
                if owner is None:
                    owner = next(
                        (c for c in self.compiles.values() if c.pid == pid and c.id == compile_id),
                        None,
                    )
                if owner is not None:
                    owner.steps[step] = owner.steps.get(step, 0.0) + seconds


def _settle(compiled: Compile) -> None:
    """Fill in what only the whole compile can tell."""
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
        seconds = compiled.metrics.get("entire_frame_compile_time_s")
        if isinstance(seconds, (int, float)) and seconds > 0:
            compiled.steps = {"entire_frame_compile": float(seconds)}
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
    errors = compiled.noted("dynamo_error")
    if errors and compiled.failure is None and not compiled.skipped:
        last = next((row for row in reversed(errors[-1].data.splitlines()) if row.strip()), "")
        kind, _, reason = last.partition(": ")
        compiled.failure = Failure(type=kind.rpartition(".")[2] or "Error", reason=reason)


def _name_methods(compiles: Sequence[Compile]) -> None:
    """Name methods with their class, where a record of any compile of the frame tells it."""
    names = {}
    for compiled in compiles:
        for note in compiled.noted("tc_recompile", "tc_recompile_limit"):
            name = str(note.data.get("function") or "")
            if name.endswith("." + compiled.function):
                names[compiled.lane, compiled.frame_id] = name
    for compiled in compiles:
        compiled.alias = compiled.alias or names.get((compiled.lane, compiled.frame_id), "")


def _module_name(session: Session, compiled: Compile) -> str:
    """Name the module behind torch's own wrapper function, which is all the trace names."""
    guards = [one for one in compiled.artifacts if one.name == "dynamo_cpp_guards_str"]
    match = _TYPE_OF_FN.search(session.text(guards[-1])) if guards else None
    return match[1].rpartition(".")[2] if match else ""


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
    """Say what an artifact is, so that it can be coloured."""
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


def _plain_json(value: object) -> str:
    """Write JSON with an item on each line, as torch writes it in payloads."""
    return json.dumps(value, ensure_ascii=False, separators=(",\n", ": "))


def all_compiles(session: Session) -> Iterator[Compile]:
    """Compiles, then whatever else left artifacts (refused recompiles, records of no compile)."""
    yield from session.compiles
    yield from session.loose
