"""The memory of TC_LOGS: events in; a message for each new cause out, the counts at the end."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tc.trace import events as ev
from tc.trace.chains import callers_line, chain_lines, clean
from tc.trace.commands import command
from tc.trace.emit import after_fork_in_child
from tc.trace.fixes import NO_FIX
from tc.trace.guardtext import readable
from tc.trace.ids import CompileId, cause_id, in_users_words, plain_function
from tc.trace.kinds import kind_of
from tc.trace.lines import line_of
from tc.trace.logcosts import BreakCosts, Replays
from tc.trace.logtext import DASH, TIMES, WIDTH, Change, Message, brief, near, place_text
from tc.trace.memory import step_memory
from tc.trace.run_events import Profile
from tc.trace.stage_events import MemoryPlan
from tc.trace.stepcost import step_cost, table
from tc.trace.subjects import changed_of, leading, reason_of
from tc.trace.timing import duration
from tc.trace.wire import to_json
from tc.trace.words import count as counted

PLACES_PER_CAUSE = 5
LOGGED_PER_FUNCTION = 8
FOLDS_PER_FUNCTION = 4
ROWS = 10
OTHER_INPUTS = ("other inputs",)
VERBOSE = 2


@dataclass
class BreakTally:
    """One cause of graph breaks: how often, at which lines."""

    event: ev.GraphBreak
    places: Counter[int] = field(default_factory=Counter)


@dataclass
class Folded:
    """Recompiles not logged because an earlier one had the same inputs."""

    first: ev.Recompile
    last: ev.Recompile
    first_id: CompileId | None
    last_id: CompileId | None
    count: int = 0


@dataclass
class RecompileTally:
    """One function: which of its inputs were logged, how often each forced a recompile."""

    function: str
    count: int = 0
    logged: int = 0
    sources: Counter[str] = field(default_factory=Counter)
    frames: set[int] = field(default_factory=set)
    folded: dict[tuple[str, ...], Folded] = field(default_factory=dict)

    def fold(
        self, sources: tuple[str, ...], event: ev.Recompile, compile_id: CompileId | None
    ) -> None:
        """Count a recompile with those of the same inputs; too many kinds are thrown together."""
        if sources not in self.folded and len(self.folded) >= FOLDS_PER_FUNCTION:
            sources = OTHER_INPUTS
        folded = self.folded.setdefault(sources, Folded(event, event, compile_id, compile_id))
        folded.last, folded.last_id = event, compile_id
        folded.count += 1


class LogSink:
    """Receives all events, logs each cause once, keeps count of the rest.

    Args:
        levels: topic -> 1 (on) or 2 (verbose).
        speaker: a structlog logger; gets ``message=Message(...)``.
    """

    def __init__(self, levels: dict[str, int], speaker: Any) -> None:
        self.levels = levels
        self._speaker = speaker
        self._start_over()
        after_fork_in_child(self._start_over)

    def __str__(self) -> str:
        return "TC_LOGS"

    def _start_over(self) -> None:
        self._lock = threading.RLock()
        self._breaks: dict[str, BreakTally] = {}
        self._skips: Counter[tuple[str, str, str]] = Counter()
        self._recompiles: dict[tuple[str, str], RecompileTally] = {}
        self._costs = BreakCosts()
        self._replays = Replays()
        self._limits: set[tuple[str, str]] = set()
        self._errors: Counter[tuple[str, str, str]] = Counter()
        self._compiles: dict[str, list[float]] = {}
        self._functions: dict[int, str] = {}
        self._failed = 0
        self._cache: Counter[bool] = Counter()
        self._profile: Profile | None = None
        self._broken: dict[str, str] = {}  # compile -> the line at which its graph breaks

    def write(self, stamped: ev.Stamped) -> None:
        """Take one event; see `tc.trace.emit.Sink`."""
        if isinstance(stamped.event, REPLAYED) and "recompiles" in self.levels:
            with self._lock:
                self._replays.note(stamped.event, stamped.compile_id)
        row = LOGGERS.get(type(stamped.event))
        if row is None:
            return
        topic, log = row
        counts = topic in ("graph_breaks", "recompiles") and "summary" in self.levels
        counts |= topic == "graph_breaks" and "runtime" in self.levels  # it logs them at exit
        if topic and topic not in self.levels and not counts:
            return
        with self._lock:
            message = log(self, stamped.event, stamped.compile_id)
            if message is not None and (not topic or topic in self.levels):
                self._log(message)

    def _log(self, message: Message) -> None:
        speak = self._speaker.warning if message.mark == "error" else self._speaker.info
        speak(message.topic, message=message)

    # --- each kind of event ---------------------------------------------------------------------

    def frame_start(self, event: ev.FrameStart, compile_id: CompileId | None) -> None:
        """Remember whose compile it is."""
        if compile_id is not None and event.stack:
            self._functions[compile_id.frame] = plain_function(event.stack[-1].name)
            self._costs.begin(event, compile_id)

    def _document(self, topic: str, what: str, text: str, compile_id: CompileId | None) -> Message:
        function = self._functions.get(compile_id.frame, "") if compile_id else ""
        title = f"{what} of {function}" if function else what
        compiled = _bracket(compile_id)
        return Message(topic, "text", title, function=function, compile=compiled, text=text or "-")

    def graph_break(self, event: ev.GraphBreak, compile_id: CompileId | None) -> Message | None:
        """Log a break: in full at its first line, briefly at a few more, then only count."""
        name = cause_id(event.code, event.file, event.function, event.title)
        tally = self._breaks.setdefault(name, BreakTally(event))
        tally.places[event.line] += 1
        self._costs.broke(name, event, compile_id)
        if compile_id is not None:
            self._broken[f"{compile_id.frame}/{compile_id.compile}"] = f"{event.file}:{event.line}"
        if tally.places[event.line] > 1 or len(tally.places) > PLACES_PER_CAUSE:
            return None
        again = len(tally.places) > 1
        verbose = self.levels.get("graph_breaks", 0) >= VERBOSE
        more = [event.detail] if event.detail else []
        more += chain_lines(event.stack, cut=False)
        return Message(
            topic="graph_breaks",
            mark="break",
            title=f"graph break: {event.title}",
            code=event.code,
            id=f"{name}.{len(tally.places)}" if again else name,
            file=event.file,
            line=event.line,
            col=event.col,
            end_col=event.end_col if event.end_line in (None, event.line) else None,
            function=plain_function(event.function),
            compile=_bracket(compile_id),
            source_line=event.source_line or _source(event.file, event.line),
            why="as above" if again else event.why,
            fix=() if again else event.fix or (NO_FIX,),
            lead=callers_line(event.stack),
            lines=tuple(f"   {line.rstrip()}" for line in more) if verbose else (),
            facts={"stack": [vars(frame) for frame in event.stack]},
        )

    def frame_skipped(self, event: ev.FrameSkipped, _: CompileId | None) -> Message | None:
        """Log each skipped function once per reason; harmless ones only when asked for more."""
        if event.harmless and self.levels.get("graph_breaks", 0) < VERBOSE:
            return None
        key = (event.file, event.function, event.reason)
        self._skips[key] += 1
        if self._skips[key] > 1:
            return None
        return Message(
            topic="graph_breaks",
            mark="skip",
            title=f"{event.function} runs in Python: {event.reason}",
            code="TC190",
            id=cause_id("TC190", event.file, event.function, event.reason),
            file=event.file,
            line=event.line,
            function=event.function,
            fix=(event.fix,) if event.fix else (),
        )

    def recompile(self, event: ev.Recompile, compile_id: CompileId | None) -> Message | None:
        """Log a recompile that has an input not logged before; fold the others by their inputs."""
        causes = (replace(cause, source=readable(cause.source)) for cause in event.causes)
        event = replace(event, causes=tuple(causes))
        sources = tuple(sorted({cause.source for cause in event.causes}))
        key = (event.file, event.function)
        tally = self._recompiles.setdefault(key, RecompileTally(event.function))
        is_new = not tally.count or not tally.sources.keys() >= set(sources)
        tally.count += 1
        known = set(tally.sources)
        tally.sources.update(sources)
        if compile_id is not None:
            tally.frames.add(compile_id.frame)
        logs_all = self.levels.get("recompiles", 0) >= VERBOSE
        if not logs_all and (not is_new or tally.logged >= LOGGED_PER_FUNCTION):
            tally.fold(sources, event, compile_id)
            return None
        tally.logged += 1
        many = len(event.causes) > 1
        since = f"changed since {event.of.bracket}"
        lead = f"{len(event.causes)} inputs {since}; any one of them forces a recompile"
        rows = [_change(cause, "" if cause.source in known and not logs_all else _fix(cause, event))
                for cause in event.causes[:ROWS]]  # fmt: skip
        rest = len(event.causes) - len(rows)
        return Message(
            topic="recompiles",
            mark="recompile",
            title=f"recompiling {in_users_words(event.function)}",
            code="TC201",
            id=cause_id("TC201", event.file, event.function, _leading(event)),
            file=event.file,
            line=event.line,
            function=event.function,
            compile=_bracket(compile_id),
            lead=lead if many else f"one input {since}",
            changes=tuple(rows),
            lines=(f"     … and {rest} more",) if rest else (),
        )

    def recompile_limit(
        self, event: ev.RecompileLimit, compile_id: CompileId | None
    ) -> Message | None:
        """Log the limit once per function."""
        key = (event.file, event.function)
        if key in self._limits:
            return None
        self._limits.add(key)
        return Message(
            topic="recompiles",
            mark="error",
            title=f"{in_users_words(event.function)} reached recompile_limit ({event.limit}): "
            "from now on it runs EAGERLY",
            code="TC209",
            id=cause_id("TC209", event.file, event.function, ""),
            file=event.file,
            line=event.line,
            function=event.function,
            compile=_bracket(compile_id),
        )

    def compile_error(self, event: ev.CompileError, compile_id: CompileId | None) -> Message | None:
        """Log each failure of the compiler once."""
        key = (event.stage, event.type, event.message)
        self._errors[key] += 1
        if self._errors[key] > 1:
            return None
        return Message(
            topic="errors",
            mark="error",
            title=f"{event.stage} failed: {event.type}",
            code="TC900",
            id=cause_id("TC900", event.file or "", "", event.message),
            file=event.file or "",
            line=event.line or 0,
            compile=_bracket(compile_id),
            why=event.message,
            fix=(f"reproduce it with: {event.command}",) if event.command else (),
        )

    def guards(self, event: ev.Guards, compile_id: CompileId | None) -> Message:
        """Print all guards, one a line, with the user line that needs each; more names kinds."""
        if self.levels["guards"] >= VERBOSE:
            title = f"{len(event.kinds)} guards"
            return self._document("guards", title, event.text, compile_id)
        rows = []
        for expr, place in zip(event.exprs, event.places, strict=True):
            rows.append(f"{expr}  # {place_text(*place)}" if place else expr)
        return self._document("guards", f"{len(rows)} guards", "\n".join(rows), compile_id)

    def graph(self, event: ev.OutputGraph, compile_id: CompileId | None) -> Message:
        """Print a captured graph."""
        return self._document("graph_code", "captured graph", event.code, compile_id)

    def aten_graph(self, event: ev.AtenGraph, compile_id: CompileId | None) -> Message:
        """Print a graph of ATen operations."""
        return self._document("aot_graphs", f"{event.kind} graph", event.code, compile_id)

    def output_code(self, event: ev.OutputCode, compile_id: CompileId | None) -> Message:
        """Print a generated program."""
        title = f"generated program {near(event.filename)}"
        return self._document("output_code", title, event.code, compile_id)

    def kernels(self, event: ev.Kernels, compile_id: CompileId | None) -> Message:
        """Print generated kernels."""
        parts = []
        for kernel in event.kernels:
            lines = ", ".join(kernel.source_lines)
            parts.append(f"{kernel.name}  {lines}".rstrip() + f"\n{kernel.code}")
        return self._document("kernel_code", f"{len(parts)} kernels", "\n".join(parts), compile_id)

    def partition(self, event: ev.Partition, compile_id: CompileId | None) -> Message:
        """Print what is kept for backward and what is computed again, a value a line."""
        kept, again = (event.facts.get(key, ()) for key in ("kept", "again"))
        rows = [_value_text("keep", value) for value in kept]  # type: ignore[attr-defined]
        rows += [_value_text("again", value) for value in again]  # type: ignore[attr-defined]
        title = f"{event.facts.get('bytes', 0)} bytes kept for backward"
        return self._document("partition", title, "\n".join(rows), compile_id)

    def fusion(self, event: ev.Fusion, compile_id: CompileId | None) -> Message:
        """Print one decision of the scheduler on one line."""
        facts = [f"{key} {_flat(value)}" for key, value in event.facts.items()]
        title = f"fusion: {', '.join(facts)}"
        return Message("fusion", "text", title, compile=_bracket(compile_id))

    def autotune(self, event: ev.Autotune, compile_id: CompileId | None) -> Message:
        """Print the ways that were timed, on one line, the one taken first."""
        ways = sorted(event.seconds.items(), key=lambda way: (way[0] != event.chosen, way[1]))
        times = ", ".join(f"{name} {seconds * 1e6:.1f} us" for name, seconds in ways)
        known = " (known)" if event.known else ""
        title = f"autotuning: {event.question}: {times}{known}"
        return Message("autotuning", "text", title, compile=_bracket(compile_id))

    def metrics(self, event: ev.Metrics, compile_id: CompileId | None) -> None:
        """Count a compile; that of a backward is part of its function's."""
        name = plain_function(event.co_name) if event.co_name else "backward"
        seconds = event.entire_frame_compile_time_s or event.backend_compile_time_s or 0.0
        self._costs.end(seconds, compile_id)
        counted = self._compiles.setdefault(name, [])
        if event.is_forward or not counted:
            counted.append(seconds)
        else:
            counted[-1] += seconds
        self._failed += event.fail_type is not None

    def cache(self, event: ev.Cache, compile_id: CompileId | None) -> Message | None:
        """Count a look into the cache; log it, if asked."""
        self._cache[event.hit] += 1
        if "cache" not in self.levels:
            return None
        title = f"cache {'hit' if event.hit else 'miss'}: graph {event.key[:12]}"
        return Message("cache", "text", title, compile=_bracket(compile_id))

    def symbol(self, event: ev.CreateSymbol, compile_id: CompileId | None) -> Message:
        """Print the input that a symbol represents, on one line."""
        place = "".join(f"  {place_text(at.file, at.line)}" for at in event.user_stack[-1:])
        title = f"{event.symbol} = {event.val} in {event.vr}, of {event.source}{place}"
        return Message("dynamic", "text", title, compile=_bracket(compile_id))

    def artifact(self, event: ev.Artifact, compile_id: CompileId | None) -> Message | None:
        """Print a note of the compiler's, if its topic is asked for."""
        kind = kind_of(event.name)
        if kind.topic not in self.levels:
            return None
        if kind.topic == "schedule":
            return self._document(kind.topic, kind.label, str(event.payload), compile_id)
        title = f"{kind.label}: {event.payload}"
        return Message(kind.topic, "text", title, compile=_bracket(compile_id))

    def memory(self, event: MemoryPlan, compile_id: CompileId | None) -> Message:
        """Print the peak of a graph, and what holds it; a backward's with what it was given."""
        plan = dataclasses.asdict(event)
        title, *rows = step_memory([plan]).text() or ["no memory of its own"]
        what = f"memory of the {event.graph} graph, predicted: {title}"
        return self._document("memory", what, "\n".join(rows), compile_id)

    def profile(self, event: Profile, compile_id: CompileId | None) -> None:
        """Keep the newest record, which is logged at the end."""
        self._profile = event

    # --- the end --------------------------------------------------------------------------------

    def finish(self) -> None:
        """Log the counts."""
        with self._lock:
            counts = [*self._break_counts(), *self._recompile_counts()]
            if counts:
                counts[-1] = replace(counts[-1], lines=(*counts[-1].lines, _more()))
            for message in (*counts, *self._step_cost(), *self._totals()):
                self._log(message)
            self._start_over()

    def _break_counts(self) -> list[Message]:
        if not self._breaks or "graph_breaks" not in self.levels:
            return []
        cost = self._costs.seconds
        tallies = sorted(
            self._breaks.items(), key=lambda item: (-cost[item[0]], -item[1].places.total())
        )
        total = sum(tally.places.total() for _, tally in tallies)
        lines = {(tally.event.file, line) for _, tally in tallies for line in tally.places}
        title = (
            f"tc: {counted(len(tallies), 'cause')} of graph breaks "
            f"at {counted(len(lines), 'line')} ({counted(total, 'event')})"
        )
        rows = []
        for name, tally in tallies[:ROWS]:
            event = tally.event
            times = tally.places.total()
            others = len(tally.places) - 1
            more = f" and {counted(others, 'more line')}" if others else ""
            place = f"{place_text(event.file, event.line)}{more}"
            spent = f"  {duration(cost[name])} compiling" if cost[name] else ""
            rows.append(f"    {name:<11} {TIMES}{times:<4} {place}  {event.title}{spent}")
        if len(tallies) > ROWS:
            rows.append(f"    … and {len(tallies) - ROWS} more causes")
        facts = {
            "counts": {name: tally.places.total() for name, tally in tallies},
            "seconds": {name: round(cost[name], 6) for name, _ in tallies},
        }
        return [Message("graph_breaks", "summary", title, lines=tuple(rows), facts=facts)]

    def _recompile_counts(self) -> list[Message]:
        if "recompiles" not in self.levels:
            return []
        tallies = sorted(self._recompiles.values(), key=lambda tally: -tally.count)
        messages = []
        for tally in tallies[:ROWS]:
            title = f"tc: {in_users_words(tally.function)}  {counted(tally.count, 'recompile')}"
            rows = [_folded_row(*item) for item in tally.folded.items()]
            by_source = [f"{source} {TIMES}{n}" for source, n in tally.sources.most_common(5)]
            if len(tally.sources) > 5:
                by_source.append(f"{len(tally.sources) - 5} more")
            rows.append(f"    by input: {' · '.join(by_source)}")
            steps = [str(one) for one in self._replays.forecast(sorted(tally.frames))]
            if steps:
                left = f"    left if it no longer changed (predicted): {' · '.join(steps)}"
                rows.append(clean(left if len(left) <= WIDTH else f"{left[: WIDTH - 1]}…"))
            facts = {"function": tally.function, "recompiles": tally.count, "forecast": steps}
            rows = rows if tally.count > 1 else []
            messages.append(Message("recompiles", "summary", title, lines=tuple(rows), facts=facts))
        if len(tallies) > ROWS:
            rest = sum(tally.count for tally in tallies[ROWS:])
            title = f"tc: {len(tallies) - ROWS} more functions  {counted(rest, 'recompile')}"
            messages.append(Message("recompiles", "summary", title))
        return messages

    def _step_cost(self) -> list[Message]:
        if self._profile is None:
            return []
        cost = step_cost(dataclasses.asdict(self._profile)).with_breaks(self._broken)
        title, *rows = table(cost)
        return [
            Message("runtime", "summary", f"tc: {title}", lines=tuple(rows), facts=cost.to_json())
        ]

    def _totals(self) -> list[Message]:
        if "summary" not in self.levels:
            return []
        count = sum(map(len, self._compiles.values()))
        seconds = sum(map(sum, self._compiles.values()))
        breaks = sum(tally.places.total() for tally in self._breaks.values())
        recompiles = sum(tally.count for tally in self._recompiles.values())
        failures = self._failed + self._errors.total()
        facts = {
            "compiles": count,
            "functions": len(self._compiles),
            "seconds": round(seconds, 3),
            "graph_breaks": breaks,
            "recompiles": recompiles,
            "cache_hits": self._cache[True],
            "cache_misses": self._cache[False],
            "failures": failures,
        }
        parts = [
            f"{counted(count, 'compile')} of {counted(len(self._compiles), 'function')}",
            f"{seconds:.2f} s",
            counted(breaks, "graph break"),
            counted(recompiles, "recompile"),
            f"cache {self._cache[True]} of {self._cache.total()} hit",
            counted(failures, "failure"),
        ]
        slowest = sorted(self._compiles.items(), key=lambda item: -sum(item[1]))[:5]
        rows = tuple(f"    {sum(t):8.2f} s  {TIMES}{len(t):<4} {name}" for name, t in slowest)
        return [Message("summary", "summary", f"tc: {' · '.join(parts)}", lines=rows, facts=facts)]


def _more() -> str:
    """The one command that goes deeper."""
    folder = os.environ.get("TC_TRACE", "").strip()
    return (
        f"    more: {command('tc-report', folder)}"
        if folder
        else "    more: run with TC_TRACE=tc_trace, then tc-report tc_trace"
    )


def _leading(event: ev.Recompile) -> str:
    """What a recompile is reported under, with the names that reports use."""
    changed = [
        changed_of(readable(one.source), one.old, one.new, one.kind, one.guard, one.now_dynamic)
        for one in event.causes
    ]
    name = leading(changed)
    return next((reason_of(one) for one in changed if one.source == name), name)


def _bracket(compile_id: CompileId | None) -> str:
    return "" if compile_id is None else compile_id.bracket


def _source(file: str, line: int) -> str:
    """Return the user's line, if it can be read."""
    return line_of(file, line).rstrip("\n")


def _flat(value: object) -> str:
    return value if isinstance(value, str) else to_json(value)


def _fix(cause: ev.RecompileCause, event: ev.Recompile) -> str:
    """Return what the report advises first."""
    from tc.trace.findings.recompiles import advised  # here: few programs compile again

    if cause.now_dynamic:
        return ""
    return advised(dataclasses.asdict(cause), event.function, (event.file, event.line)) or NO_FIX


def _change(cause: ev.RecompileCause, fix: str) -> Change:
    notes = [cause.kind, "made dynamic now, later values reuse this" if cause.now_dynamic else ""]
    note = "; ".join(part for part in notes if part)
    return Change(in_users_words(cause.source), cause.old, cause.new, note, fix)


def _folded_row(sources: tuple[str, ...], folded: Folded) -> str:
    """One line: how many, of which inputs, from which value to which."""
    causes = (*folded.first.causes, *folded.last.causes)
    if len(causes) == 2 and {cause.source for cause in causes} == set(sources):
        steps = [f"{brief(cause.old, 15)} → {brief(cause.new, 15)}" for cause in causes]
        what = f"{sources[0]} {' … '.join(dict.fromkeys(steps))}"
    else:
        what = ", ".join(sources[:4]) + (" …" if len(sources) > 4 else "")
    ids = dict.fromkeys((_bracket(folded.first_id), _bracket(folded.last_id)))
    return clean(f"    ↻ TC201 {folded.count} more of the same: {what}   {DASH.join(ids)}".rstrip())


def _value_text(verb: str, value: Mapping[str, object]) -> str:
    facts = f"{verb:6}{value['name']}: {value.get('type', '')}, {value.get('bytes', 0)} bytes"
    line = f"  # {value['line']}" if value.get("line") else ""
    return f"{facts}: {value.get('reason', '')}{line}"


REPLAYED = (ev.Guards, ev.CreateSymbol, ev.Recompile)
"""What a forecast of the recompiles that would be left is made of."""

Teller = Callable[[LogSink, Any, CompileId | None], Message | None]

LOGGERS: dict[type[ev.Event], tuple[str, Teller]] = {
    ev.FrameStart: ("", LogSink.frame_start),
    ev.GraphBreak: ("graph_breaks", LogSink.graph_break),
    ev.FrameSkipped: ("graph_breaks", LogSink.frame_skipped),
    ev.Recompile: ("recompiles", LogSink.recompile),
    ev.RecompileLimit: ("recompiles", LogSink.recompile_limit),
    ev.CompileError: ("", LogSink.compile_error),
    ev.Guards: ("guards", LogSink.guards),
    ev.OutputGraph: ("graph_code", LogSink.graph),
    ev.AtenGraph: ("aot_graphs", LogSink.aten_graph),
    ev.OutputCode: ("output_code", LogSink.output_code),
    ev.Kernels: ("kernel_code", LogSink.kernels),
    ev.Partition: ("partition", LogSink.partition),
    ev.Fusion: ("fusion", LogSink.fusion),
    ev.Autotune: ("autotuning", LogSink.autotune),
    ev.Metrics: ("", LogSink.metrics),
    ev.Cache: ("", LogSink.cache),
    ev.CreateSymbol: ("dynamic", LogSink.symbol),
    Profile: ("runtime", LogSink.profile),
    MemoryPlan: ("memory", LogSink.memory),
    ev.Artifact: ("", LogSink.artifact),
}
"""Event -> the topic that wants it (empty: always) and how it is logged or counted."""
