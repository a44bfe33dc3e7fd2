"""A session goes in; every cause of trouble in it, said once with its fix, comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pkgutil import iter_modules

from tc.trace.cachekeys import Miss, misses
from tc.trace.compiles import Compile
from tc.trace.findings.codes import CODES, Code, Order, code_of, is_timed
from tc.trace.findings.following import behind_breaks
from tc.trace.findings.forecast import with_forecasts
from tc.trace.findings.limits import behind_causes
from tc.trace.findings.merged import merged
from tc.trace.findings.model import Event, Finding, Occurrence, Recompile, Where, gather
from tc.trace.findings.quoting import quoted
from tc.trace.findings.ranks import compared
from tc.trace.findings.recompiles import recompiles
from tc.trace.findings.rows import FINDINGS, Facts
from tc.trace.notebook import Shown, View
from tc.trace.ranks import Ranks
from tc.trace.session import Session
from tc.trace.timing import duration
from tc.trace.trials import Trial
from tc.trace.words import count

__all__ = [
    "CODES",
    "Code",
    "Diagnosis",
    "Finding",
    "Occurrence",
    "Order",
    "Where",
    "code_of",
    "diagnose",
    "duration",
    "is_timed",
]

for _module in iter_modules(__path__):  # all: each puts rows into `FINDINGS` and `CODES`
    import_module(f"{__name__}.{_module.name}")


@dataclass(frozen=True, slots=True)
class Diagnosis(Shown):
    """All that is known of a run: its session, what happened, and why.

    Attributes:
        breaks, skips, limits: each happening, in order.
        failures: each compile that failed: the happenings behind the findings of `Order.FAILURES`,
            so that no count of failures can be of anything that is not shown as one.
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
        marks.update((id(event.compiled), "error") for event in self.failures)
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
        if id(compiled) in self._marks:
            return self._marks[id(compiled)]
        return "cached" if compiled.cache == "hit" else "ok"

    def __str__(self) -> str:
        return "\n\n".join((self._title, *map(str, self.findings)))

    @property
    def _title(self) -> str:
        return f"{self.session.title}: {count(len(self.findings), 'finding')}"

    def as_view(self) -> View:
        """See `Shown`."""
        items = [one.as_item() for one in self.findings]
        return View("findings", str(self), {"title": self._title, "causes": items})

    @property
    def together(self) -> Trial | None:
        """What the best fixes of several findings gave at the same time, if that was tried."""
        return next((one for one in self.session.trials if not one.text), None)

    def finding(self, name: str) -> Finding | None:
        """Return the finding of that id; the start of an id or a code will do if it is one."""
        exact = next((one for one in self.findings if one.id == name), None)
        return exact or next(iter(self.matching(name)), None)

    def matching(self, name: str) -> list[Finding]:
        """Return all findings of a code, of an id, or of the start of one of these."""
        return [one for one in self.findings if one.id.startswith(name)] if name else []


def diagnose(session: Session) -> Diagnosis:
    """Find every cause of trouble in a session: all rows of `FINDINGS`, each cause once."""
    again = recompiles(session)
    facts = Facts(session, again, misses(session), compared(session, again))
    events: dict[str, list[Event]] = {}
    ready: dict[Order, list[Finding]] = {order: [] for order in Order}
    for name, row in FINDINGS.items():
        found = row.find(facts)
        events[name] = [one for one in found if isinstance(one, Event)]
        ready[row.order] += [one for one in found if isinstance(one, Finding)]
    events = quoted(session, events)
    left = merged(events)
    causes: list[Finding] = []
    for order in Order:
        names = [name for name, row in FINDINGS.items() if row.order is order]
        listed = gather(event for name in names for event in left[name]) + ready[order]
        if order is Order.TIME:  # among the causes, by what each cost: equal ones stay behind
            first = next((n for n, one in enumerate(causes) if one.kind.order is Order.CAUSES), -1)
            first = len(causes) if first < 0 else first
            listed = sorted([*causes[first:], *listed], key=lambda one: -one.total)
            del causes[first:]
        causes += listed
    causes = behind_breaks(facts, behind_causes(facts, causes))
    causes = with_forecasts(facts, causes)
    causes = [replace(one, trials=_trials_of(session, one.id)) for one in causes]
    return Diagnosis(
        session,
        breaks=events["graph_breaks"],
        recompiles=again,
        failures=[one for name, row in FINDINGS.items() if row.order is Order.FAILURES
                  for one in left[name]],
        skips=events["skips"],
        limits=events["limits"],
        misses=facts.misses,
        ranks=facts.ranks,
        findings=causes,
    )  # fmt: skip


def _trials_of(session: Session, name: str) -> tuple[Trial, ...]:
    return tuple(one for one in session.trials if one.text and one.findings == (name,))
