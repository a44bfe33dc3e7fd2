"""What the compiler can report: typed facts in, wire records (key, metadata, payload) out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, NamedTuple

from tc.trace import cells
from tc.trace.chains import chain_lines
from tc.trace.ids import CompileId
from tc.trace.kinds import Kind, add_kind
from tc.trace.notebook import Item, Shown, View
from tc.trace.places import StackFrame
from tc.trace.wire import Payload, RawJson, Record, plain, quoted, texts_json, to_json

EVENTS: dict[str, type[Event]] = {}
"""Wire name -> event class. Names of artifacts stand here too."""


class Event:
    """Base of all events.

    ``class X(Event, wire=Kind("name", …))`` adds X to `EVENTS` and the row to `KINDS`: there is
    nothing else to do. An event that is written under several names has a row for each.
    """

    wire: ClassVar[str] = ""
    """The name of its records or artifact; the first one of several."""

    def __init_subclass__(cls, wire: Kind | tuple[Kind, ...] = ()) -> None:
        kinds = (wire,) if isinstance(wire, Kind) else wire
        for kind in kinds:
            add_kind(kind)
            EVENTS[kind.name] = cls
        cls.wire = kinds[0].name if kinds else ""

    def to_records(self) -> tuple[Record, ...]:
        """Return what a trace file holds of this event, in order."""
        raise NotImplementedError

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """The records with texts as files hold them: made once, for the trace and for caches."""
        return tuple(
            record._replace(payload=Payload.of(record.payload))
            if isinstance(record.payload, str)
            else record
            for record in self.to_records()
        )


class Stamped(NamedTuple):
    """An event with what `emit` knows about it: when, where, in which compile."""

    event: Event
    compile_id: CompileId | None
    time_ns: int
    origin_file: str
    origin_line: int


# --- what PyTorch records under the same name ---------------------------------------------------


@dataclass(frozen=True)
class Artifact(Event, wire=Kind("artifact", record=True)):
    """Any text or JSON value under a name of its own; shown by every reader."""

    name: str
    payload: object
    encoding: str = "string"

    def to_records(self) -> tuple[Record, ...]:
        """See `Event`."""
        # Readers make a file name of it: a slash could lead out of their folder.
        name = self.name.replace("/", "_").replace("\\", "_")
        text = self.payload if isinstance(self.payload, str) else to_json(self.payload)
        return (Record("artifact", {"name": name, "encoding": self.encoding}, text),)


@dataclass(frozen=True)
class FrameStart(
    Event, wire=Kind("dynamo_start", "where it was called from", "capture", record=True)
):
    """The compile of a frame begins; the stack ends in that frame."""

    stack: tuple[StackFrame, ...]

    def to_records(self) -> tuple[Record, ...]:
        """See `Event`."""
        return (Record("dynamo_start", {"stack": self.stack}),)


@dataclass(frozen=True)
class OutputGraph(
    Event, wire=Kind("dynamo_output_graph", "captured graph", "capture", record=True)
):
    """The captured graph as text, and the shape of each of its values."""

    code: str
    sizes: Mapping[str, object] = field(default_factory=dict)

    def to_records(self) -> tuple[Record, ...]:
        """See `Event`."""
        sizes = RawJson(to_json({"sizes": dict(self.sizes)}))
        return (Record("dynamo_output_graph", sizes, self.code),)


@dataclass(frozen=True)
class CreateSymbol(
    Event, wire=Kind("create_symbol", "a size became symbolic", "capture", record=True, loose=True)
):
    """A size or number became symbolic."""

    symbol: str
    val: str
    vr: str
    source: str
    user_stack: tuple[StackFrame, ...] = ()
    stack: tuple[StackFrame, ...] = ()

    def to_records(self) -> tuple[Record, ...]:
        """See `Event`."""
        return (Record("create_symbol", plain(self)),)


ATEN_GRAPHS = {
    "inference": "aot_inference_graph",
    "joint": "aot_joint_graph",
    "forward": "aot_forward_graph",
    "backward": "aot_backward_graph",
}
_ATEN_KINDS = (
    *(
        Kind(name, f"ATen graph: {kind}", "graph passes", record=True)
        for kind, name in ATEN_GRAPHS.items()
    ),
    Kind("inductor_post_grad_graph", "after the post-grad passes", "graph passes", record=True),
)


@dataclass(frozen=True)
class AtenGraph(Event, wire=_ATEN_KINDS):
    """A graph of ATen operations: inference, joint, forward, backward or post_grad."""

    kind: str
    code: str

    def to_records(self) -> tuple[Record, ...]:
        """See `Event`."""
        name = ATEN_GRAPHS.get(self.kind)
        if name is not None:
            return (Record(name, {}, self.code),)
        return Artifact(f"inductor_{self.kind}_graph", self.code).to_records()


@dataclass(frozen=True)
class OutputCode(Event, wire=Kind("inductor_output_code", "generated code", "code", record=True)):
    """The generated program and the file it was written to."""

    code: str
    filename: str

    def to_records(self) -> tuple[Record, ...]:
        """See `Event`."""
        where = {"filename": self.filename, "file_path": self.filename}
        return (Record("inductor_output_code", where, self.code),)


@dataclass(frozen=True)
class Span(Event, wire=Kind("chromium_event", record=True)):
    """One mark on the timeline: phase B(egin), E(nd) or i(nstant), time in microseconds."""

    name: str
    ph: str
    ts: float
    pid: int
    tid: int
    args: Mapping[str, object] = field(default_factory=dict)

    def to_records(self) -> tuple[Record, ...]:
        """See `Event`."""
        mark = mark_text(self.name, self.ph, self.ts, self.pid, self.tid, self.args)
        return (Record(self.wire, {}, mark),)


def mark_text(name: str, ph: str, ts: float, pid: int, tid: int, args: Mapping[str, object]) -> str:
    """Return a mark on the timeline as JSON; see `Span`."""
    # Put together by hand: there are many, and an encoder takes longer to start.
    listed = ", ".join(
        [
            f"{quoted(key)}: {quoted(arg) if type(arg) is str else to_json(arg)}"
            for key, arg in args.items()
        ]
    )
    scope = ', "s": "p"' if ph == "i" else ""
    return (
        f'{{"name": {quoted(name)}, "ph": "{ph}", "ts": {ts!r}, "pid": {pid}, "tid": {tid}, '
        f'"args": {{{listed}}}, "cat": "dynamo_timed"{scope}}}'
    )


@dataclass(frozen=True)
class Metrics(
    Event,
    wire=(
        Kind("compilation_metrics", "metrics", "metrics", record=True),
        Kind("bwd_compilation_metrics", "metrics of the backward", "metrics", record=True),
    ),
):
    """One compile in numbers; keys as PyTorch has them, except for tc's.

    Attributes:
        config: settings of this compile: its backend, and all that are not at their defaults.
        config_defaults: name in ``config`` -> its default.
        phases: stage -> seconds.
    """

    compile_id: str | None = None
    co_name: str | None = None
    co_filename: str | None = None
    co_firstlineno: int | None = None
    cache_size: int | None = None
    accumulated_cache_size: int | None = None
    guard_count: int | None = None
    graph_op_count: int | None = None
    graph_node_count: int | None = None
    graph_input_count: int | None = None
    start_time: float | None = None
    entire_frame_compile_time_s: float | None = None
    backend_compile_time_s: float | None = None
    inductor_compile_time_s: float | None = None
    code_gen_time_s: float | None = None
    fail_type: str | None = None
    fail_reason: str | None = None
    fail_user_frame_filename: str | None = None
    fail_user_frame_lineno: int | None = None
    non_compliant_ops: tuple[str, ...] = ()
    compliant_custom_ops: tuple[str, ...] = ()
    restart_reasons: tuple[str, ...] = ()
    dynamo_time_before_restart_s: float = 0.0
    has_guarded_code: bool = False
    num_graph_breaks: int | None = None
    recompile_reason: str | None = None
    stack_trace: tuple[str, ...] | None = None
    is_forward: bool = True
    config: Mapping[str, object] = field(default_factory=dict)
    config_defaults: Mapping[str, object] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)

    def to_records(self) -> tuple[Record, ...]:
        """See `Event`."""
        values: dict[str, object] = plain(self)
        if self.fail_type is not None and self.fail_reason is None:
            values["fail_reason"] = self.fail_type  # tlparse gives up on one without the other
        if self.start_time is not None and self.entire_frame_compile_time_s is not None:
            start, length = self.start_time * 1e6, self.entire_frame_compile_time_s * 1e6
            values["start_time_us"] = round(start)
            values["duration_us"] = round(length)
            values["end_time_us"] = round(start + length)
        key = "compilation_metrics" if self.is_forward else "bwd_compilation_metrics"
        return (Record(key, values),)


# --- what only tc records: artifacts named tc_..., one JSON value each --------------------------


class Fact(Event):
    """An event that is written as an artifact: its fields, as JSON, under its wire name."""

    def content(self) -> object:
        """Return the JSON value of the artifact."""
        return plain(self)

    @cached_property
    def text(self) -> str:
        """The artifact, as JSON."""
        return to_json(self.content())

    def to_records(self) -> tuple[Record, ...]:
        """See `Event`."""
        return Artifact(self.wire, self.text, "json").to_records()


@dataclass(frozen=True)
class GraphBreak(
    Fact, Shown, wire=Kind("tc_graph_break", "graph break, as data", "capture", kept=True)
):
    """Capture had to stop and continue in Python.

    Attributes:
        title: the reason in few words; why: one sentence in the user's vocabulary.
        col, end_col: as ``co_positions()`` gives them, 0-based UTF-8 byte offsets.
        fix: ways out, best first; a line starting with ``- `` or ``+ `` is part of a patch.
        stack: user frames, outermost first, each with the part of its line that ran.
        resume: name of the function that continues, or None when the frame runs in Python.
    """

    code: str
    title: str
    why: str
    file: str
    line: int
    function: str
    detail: str = ""
    fix: tuple[str, ...] = ()
    end_line: int | None = None
    col: int | None = None
    end_col: int | None = None
    source_line: str = ""
    stack: tuple[StackFrame, ...] = ()
    resume: str | None = None

    def __str__(self) -> str:
        lines = [f"Graph break in user code at {self.file}:{self.line} in {self.function}"]
        lines += [f"{self.code}: {self.title}", "", f"    {self.source_line.strip()}", ""]
        lines += [text for text in (self.why, self.detail) if text]
        lines += [f"Fix: {text}" for text in self.fix]
        lines.append(f"Continues in: {self.resume}" if self.resume else "The frame runs in Python.")
        if self.stack:
            lines += ["", "User stack, outermost first:", *chain_lines(self.stack, cut=False)]
        return "\n".join(lines)

    @property
    def short(self) -> str:
        """The break in few lines, with its cell if it is in a notebook."""
        head = f"{self.code} {self.title}  {cells.place(self.file, self.line)}"
        return "\n".join((head, *(f"     fix: {fix}" for fix in self.fix)))

    def as_item(self) -> Item:
        """Return what a notebook shows of it."""
        after = f"{self.resume} is compiled" if self.resume else ""
        return Item.of(
            self.code,
            self.title,
            f"{cells.place(self.file, self.line)} in {self.function}",
            self.source_line,
            rows=(("why", self.why), ("detail", self.detail), ("after it", after)),
            fixes=[(text, "") for text in self.fix],
            stack=[
                (f"{cells.place(one.file, one.line)} in {one.name}", one.loc) for one in self.stack
            ],
        )

    def as_view(self) -> View:
        """See `Shown`."""
        return View("findings", self.short, {"title": "graph break", "causes": [self.as_item()]})

    def to_records(self) -> tuple[Record, ...]:
        """See `Event`."""
        text = Artifact("dynamo_graph_break_reason", str(self))
        return (*text.to_records(), *super().to_records())


@dataclass(frozen=True)
class RecompileCause:
    """One input that no longer fits.

    Attributes:
        source: the input as the user would write it, e.g. ``self.step`` or ``x.shape[0]``.
        guard: the check that failed, as Python.
        kind: what sort of fact was checked, e.g. ``int`` or ``size``.
        now_dynamic: the new compile no longer depends on the value.
        file, line: of the user's line that made the compiler rely on it, 0 if that is not known.
    """

    source: str
    guard: str
    old: str
    new: str
    kind: str
    now_dynamic: bool = False
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.guard}  # {self.source} was {self.old}, is now {self.new}"


@dataclass(frozen=True)
class Recompile(Fact, wire=Kind("tc_recompile", "recompile, as data", "capture", kept=True)):
    """A function is compiled again; ``of`` is the older compile whose guards failed."""

    function: str
    file: str
    line: int
    of: CompileId
    causes: tuple[RecompileCause, ...]

    def content(self) -> object:
        """See `Fact`."""
        return {**plain(self), "of": str(self.of)}

    def to_records(self) -> tuple[Record, ...]:
        """See `Event`."""
        reasons = [f"{self.of}: {cause}" for cause in self.causes]
        listed = Artifact("recompile_reasons", to_json(reasons), "json")
        return (*listed.to_records(), *super().to_records())


@dataclass(frozen=True)
class RecompileLimit(
    Fact, wire=Kind("tc_recompile_limit", "recompile limit", "capture", kept=True)
):
    """A function was compiled too often and runs in Python from now on."""

    function: str
    file: str
    line: int
    limit: int
    causes: tuple[RecompileCause, ...] = ()


@dataclass(frozen=True)
class FrameSkipped(Fact, wire=Kind("tc_frame_skipped", "function skipped", "capture", kept=True)):
    """A function was not captured at all.

    Attributes:
        harmless: nothing is lost by it (it has no tensor operation, say): reported only on request.
    """

    function: str
    file: str
    line: int
    reason: str
    fix: str = ""
    harmless: bool = False


Place = tuple[str, int]
"""A file and a line of it."""


@dataclass(frozen=True)
class Guards(
    Fact,
    wire=(
        Kind("tc_guards", "guards, as data", "capture"),
        Kind("dynamo_cpp_guards_str", "guards", "capture", record=True),
    ),
):
    """All facts a compile relies on, in columns, as there are hundreds.

    The text has a fact a line, after a line for the user's line it is of; the JSON has ``sources``,
    and the number of that ``of`` each fact.

    Attributes:
        sources: what each is about, as Python over ``L`` (locals) and ``G`` (globals).
        exprs: the checks, as Python.
        places: of the user's lines that made them matter.
    """

    kinds: Sequence[str]
    sources: Sequence[str]
    exprs: Sequence[str]
    places: Sequence[Place | None]

    @cached_property
    def text(self) -> str:
        """The guards, one a line."""
        lines: list[str] = []
        last: Place | None = None
        for kind, expr, place in zip(self.kinds, self.exprs, self.places, strict=True):
            if place is not last and place != last:
                last = place
                lines.append(f"# {place[0]}:{place[1]}" if place is not None else "")
            lines.append(f"{kind}: {expr}")
        return "\n".join(lines)

    def to_records(self) -> tuple[Record, ...]:
        """See `Event`."""
        numbers = {source: number for number, source in enumerate(dict.fromkeys(self.sources))}
        of = list(map(numbers.__getitem__, self.sources))
        facts = f'{{"sources": {texts_json(numbers)}, "of": {of}}}'
        listed = Artifact("tc_guards", facts, "json").to_records()
        return (Record("dynamo_cpp_guards_str", {}, self.text), *listed)


@dataclass(frozen=True)
class Partition(Fact, wire=Kind("tc_partition", "what backward is given, and why", "graph passes")):
    """What forward keeps for backward and what backward computes again, each with its reason."""

    facts: Mapping[str, object]

    def content(self) -> object:
        """See `Fact`."""
        return self.facts


@dataclass(frozen=True)
class Fusion(Fact, wire=Kind("tc_fusion", "what was fused", "code")):
    """The decisions about one graph's kernels: what was lowered, fused, split; what not, and why.

    ``facts`` has the kind of ``graph`` and its ``decisions``: their ``kind``, whether they were
    ``taken``, the ``reason``, and for each of them the ``nodes`` it is about.
    """

    facts: Mapping[str, object]

    def content(self) -> object:
        """See `Fact`."""
        return self.facts


@dataclass(frozen=True)
class Kernel:
    """A generated kernel, its text, and the user lines (``file:line``) it computes."""

    name: str
    code: str = ""
    source_lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kernels(Fact, wire=Kind("tc_kernels", "kernels", "code")):
    """The kernels of one generated program."""

    kernels: tuple[Kernel, ...]

    def content(self) -> object:
        """See `Fact`."""
        return self.kernels


@dataclass(frozen=True)
class Provenance(Fact, wire=Kind("tc_provenance", "from your lines to kernels", "code")):
    """Which user line became which node, kernel and generated line."""

    facts: Mapping[str, object]

    def content(self) -> object:
        """See `Fact`."""
        return self.facts


@dataclass(frozen=True)
class Autotune(Fact, wire=Kind("tc_autotune", "ways timed on the machine", "code")):
    """Equal ways to compute something, timed on this machine.

    Attributes:
        question: what is computed, with all that decides how long it takes.
        seconds: way -> seconds of one call.
        chosen: the way taken; the first one is left only for one that is clearly faster.
        known: whether the times were kept from an earlier compile.
    """

    question: str
    seconds: Mapping[str, float]
    chosen: str
    known: bool = False


@dataclass(frozen=True)
class Cache(Fact, wire=Kind("tc_cache", "cache", "cache", kept=True)):
    """A look into the cache; ``parts`` name all that went into the key.

    ``waited``: the entry was not there at first, and another process made it in the meantime.
    """

    hit: bool
    key: str
    parts: Mapping[str, object] = field(default_factory=dict)
    waited: bool = False


@dataclass(frozen=True)
class CompileError(Fact, wire=Kind("tc_error", "error of the compiler", "capture", kept=True)):
    """The compiler itself failed; ``command`` reproduces it."""

    stage: str
    type: str
    message: str
    file: str | None = None
    line: int | None = None
    command: str | None = None


@dataclass(frozen=True)
class Counters(Fact, wire=Kind("tc_counters", "counters", "metrics", loose=True)):
    """Running numbers by name."""

    counters: Mapping[str, int]

    def content(self) -> object:
        """See `Fact`."""
        return self.counters
