"""A session goes in; every cause of trouble in it, said once with its fix, comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tc.trace.cachekeys import Miss, misses
from tc.trace.compiles import Compile
from tc.trace.findings.breaks import graph_breaks
from tc.trace.findings.caches import bypasses, cache_misses
from tc.trace.findings.errors import damage, failures
from tc.trace.findings.exports import exports
from tc.trace.findings.forecast import forecasts, together
from tc.trace.findings.limits import limits
from tc.trace.findings.merged import merged
from tc.trace.findings.model import Event, Finding, Occurrence, Where, gather
from tc.trace.findings.ranks import compared, divergences
from tc.trace.findings.recompiles import Recompile, events, recompiles
from tc.trace.findings.skips import eager_graphs, skips, unreplayed
from tc.trace.findings.slow import slow_compiles
from tc.trace.findings.unread import captured_again, unread
from tc.trace.ranks import Ranks
from tc.trace.session import Session
from tc.trace.timing import duration
from tc.trace.trials import Trial

__all__ = ["Diagnosis", "Finding", "Occurrence", "Where", "diagnose", "duration"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that is known of a run: its session, what happened, and why.

    Attributes:
        breaks, failures, skips, limits: each happening, in order.
        recompiles: each recompile with its causes, refusals included.
        misses: each cache miss, compared with the nearest earlier entry.
        ranks: which ranks did the same, and where the others first did otherwise.
        findings: the causes; failures first, then by cost, then what only took time.
    """

    session: Session
    breaks: Sequence[Event]
    recompiles: Sequence[Recompile]
    failures: Sequence[Event]
    skips: Sequence[Event]
    limits: Sequence[Event]
    misses: Sequence[Miss]
    ranks: Ranks
    findings: Sequence[Finding]
    _marks: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Note what became of each compile: what comes last here counts most."""
        marks: dict[int, str] = {}
        marks.update((id(one.compiled), "recompile") for one in self.recompiles)
        marks.update((id(event.compiled), "break") for event in self.breaks)
        marks.update((id(one.compiled), "refused") for one in self.recompiles if one.refused)
        marks.update((id(event.compiled), "skipped") for event in self.skips)
        object.__setattr__(self, "_marks", marks)

    @property
    def break_causes(self) -> int:
        """How many causes the graph breaks have."""
        return len(gather(self.breaks))

    @property
    def recompile_count(self) -> int:
        """Recompiles that took place; refused ones are no compiles."""
        return sum(not one.refused for one in self.recompiles)

    def status(self, compiled: Compile) -> str:
        """What became of a compile: error, skipped, break, recompile, cached or ok."""
        if compiled.failure is not None:
            return "error"
        if id(compiled) in self._marks:
            return self._marks[id(compiled)]
        return "cached" if compiled.cache == "hit" else "ok"

    @property
    def together(self) -> Trial | None:
        """What the best fixes of several findings gave at the same time, if that was tried."""
        return next((one for one in self.session.trials if not one.text), None)

    def finding(self, name: str) -> Finding | None:
        """Return the finding of that id; the start of an id or a code will do if it is one."""
        exact = next((one for one in self.findings if one.id == name), None)
        return exact or next((one for one in self.findings if one.id.startswith(name)), None)


def diagnose(session: Session) -> Diagnosis:
    """Find every cause of trouble in a session."""
    breaks, found = graph_breaks(session), recompiles(session)
    failed, skipped, limited = failures(session), skips(session), limits(session, found)
    missed = misses(session)
    told = merged(breaks, failed, skipped, slow_compiles(session))
    ranks = compared(session, found)
    of_slug = {one.compiled.slug: one.compiled for one in found}
    again = gather(events(found, session.producer))
    frames = {
        one.id: dict.fromkeys(_frame(of_slug[seen.compile]) for seen in one.occurrences)
        for one in again
    }
    foretold = forecasts(session, found, set().union(*frames.values()))
    plans = {
        name: together([foretold[frame] for frame in held if frame in foretold])
        for name, held in frames.items()
    }
    again = [
        replace(
            one,
            forecast=tuple(map(str, plans[one.id])),
            replayed=bool(plans[one.id]) and plans[one.id][0].sources == (one.reason,),
        )
        for one in again
    ]
    causes = [
        *gather(told.failures),
        *gather(limited),
        *sorted(
            [
                *gather(told.breaks),
                *again,
                *gather(told.skips),
                *gather(eager_graphs(session)),
                *gather(unreplayed(session)),
                *gather(exports(session)),
                *gather(captured_again(session)),
                *gather(cache_misses(missed)),
                *gather(divergences(ranks, found, session.producer)),
            ],
            key=lambda one: (-one.seconds, -one.count, one.id),
        ),
        *gather([*bypasses(session), *told.slow]),
        *damage(session),
        *unread(session),
    ]
    causes = [replace(one, trials=_trials_of(session, one.id)) for one in causes]
    return Diagnosis(session, breaks, found, failed, skipped, limited, missed, ranks, causes)


def _trials_of(session: Session, name: str) -> tuple[Trial, ...]:
    return tuple(one for one in session.trials if one.text and one.findings == (name,))


def _frame(compiled: Compile) -> tuple[int, str]:
    return compiled.lane.index, compiled.frame_id
