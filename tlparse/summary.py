"""A diagnosis goes in; the text block for terminals and the JSON for machines come out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from tc.tlparse.settings import settings
from tc.trace.compiles import Compile, Lane, by_function, calls_to_json
from tc.trace.findings import Diagnosis, Finding, duration
from tc.trace.findings.model import recompiles_left
from tc.trace.fixes import NO_FIX, Fix
from tc.trace.ids import in_users_words
from tc.trace.layers import layers
from tc.trace.session import Session, all_compiles
from tc.trace.stepcost import StepCost, span
from tc.trace.timing import PHASES
from tc.trace.words import count

SCHEMA: Final = 1
_ASCII: Final = str.maketrans({
    "↯": "!", "↻": "~", "✗": "x", "✓": "*", "×": "x", "·": "-", "→": "->", "…": "...", "–": "-",
})  # fmt: skip
_TOP: Final = 10
_PARTS: Final = 3
_WIDTH: Final = 100
_MARK: Final = 60


def plain(text: str, encoding: str | None) -> str:
    """Replace what a terminal cannot show."""
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        text = text.translate(_ASCII)
        text = text.encode(encoding or "ascii", "replace").decode(encoding or "ascii", "replace")
    return text


def version_of(session: Session) -> str:
    """Name what wrote the trace."""
    known = session.environment
    torch = known.get("pytorch_version") or known.get("torch_version") or known.get("torch")
    tc = known.get("tc_version") or known.get("tc")
    if session.producer == "tc":
        return f"tc {tc or ''}".strip() + (f" · torch {torch}" if torch else "")
    return f"torch {torch}" if torch else "unknown version of torch"


def lanes_of(session: Session) -> str:
    """`2 ranks`, `1 process`."""
    ranks = all(lane.label.startswith("rank") for lane in session.lanes)
    return count(max(len(session.lanes), 1), "rank" if ranks else "process")


def phases_of(compiles: Iterable[Compile]) -> dict[str, float]:
    """Wall seconds by phase over these compiles, in the order of the pipeline."""
    total: Counter[str] = Counter()
    for compiled in compiles:
        total.update(compiled.phases)
    return {phase: total[phase] for phase in PHASES if total[phase]}


def headline(diagnosis: Diagnosis) -> str:
    """What was compiled, in one line."""
    session = diagnosis.session
    functions = len(by_function(session.compiles))
    seconds = sum(compiled.seconds for compiled in session.compiles)
    caches = layers(session)
    parts = [
        version_of(session),
        lanes_of(session),
        f"{count(len(session.compiles), 'compile')} of {count(functions, 'function')}",
        f"{duration(seconds)} compiling" + (" in all of them" if len(session.lanes) > 1 else ""),
    ]
    if len({one.counts for one in caches}) == 1:
        parts.append(f"cache {caches[0]}")
    under_way = [f"{one.title} [{one.slug}]" for one in session.compiles if one.under_way]
    if session.written and under_way:
        parts.append(f"running: compiling {under_way[-1]}")
    return " · ".join(parts)


def text(diagnosis: Diagnosis, path: str) -> str:
    """Return the summary as a person reads it: O(causes), 100 columns."""
    session = diagnosis.session
    lines = [headline(diagnosis)]
    causes = f"{count(diagnosis.break_causes, 'cause')} of graph breaks "
    causes += f"({count(len(diagnosis.breaks), 'event')})"
    lines.append(
        f"↯ {causes if diagnosis.breaks else '0 graph breaks'}   "
        f"↻ {count(diagnosis.recompile_count, 'recompile')}   "
        f"✗ {count(len(diagnosis.failures), 'failed compile')}"
    )
    for number, finding in enumerate(diagnosis.findings[:_TOP], 1):
        lines += _lines(number, finding)
    rest = len(diagnosis.findings) - _TOP
    if rest > 0:
        lines.append(f"    … and {rest} more in the report")
    if diagnosis.together:
        causes = count(len(diagnosis.together.findings), "fix")
        lines.append(
            _cut(f"    {causes} together: {diagnosis.together.outcome} (ran with the edits)")
        )
    if not diagnosis.findings:
        lines.append("✓ nothing needs attention")
    shares = phases_of(session.compiles)
    total = sum(shares.values())
    if total:
        rows = sorted(shares.items(), key=lambda row: -row[1])
        parts = " · ".join(f"{name} {100 * part / total:.0f} %" for name, part in rows[:4])
        lines.append(f"time: {parts}")
    lines += [
        _cut(_step_cost(lane, cost, len(session.step_costs)))
        for lane, cost in session.step_costs[:_TOP]
    ]
    caches = layers(session)
    if len({one.counts for one in caches}) > 1:
        lines.append(_cut("caches: " + " · ".join(f"{one.name} {one}" for one in caches)))
    set_ = settings(session)
    if set_.rows:
        lines.append(_cut(f"settings: {set_}: {' · '.join(map(str, set_.rows))}"))
    if session.other_runs:
        lines.append(f"newest run shown; {count(session.other_runs, 'older run')} left out (--all)")
    if diagnosis.findings:
        lines.append(f"more: {diagnosis.findings[0].next.plus(path)}")
    return "\n".join(lines)


def _step_cost(lane: Lane, cost: StepCost, lanes: int) -> str:
    """What running took most time, in one line."""
    rows = [row for row in cost.rows[:_PARTS] if row.steady]
    shares = " · ".join(
        f"{100 * row.steady / cost.seconds:.0f} % "
        + (f"graph break at {row.broke.rpartition('/')[2]}" if row.broke else row.label)
        for row in rows
    )
    where = f" ({lane.label})" if lanes > 1 else ""
    each = f"{span(cost.seconds / cost.count)} a step × {cost.count} = " if cost.count else ""
    return f"running{where}: {each}{duration(cost.seconds)}: {shares}"


def _lines(number: int, finding: Finding) -> list[str]:
    where = finding.where.short if finding.where.file else ""
    if finding.behind:
        where += f" → {finding.behind.short}"
    head = f"{number:>2}  {finding.id} ×{finding.count}  {finding.title}"
    place = "  ".join(part for part in (where, finding.cost) if part)
    ways = finding.fixes
    rows = [_cut(head)]
    if place:
        rows.append(_cut(f"      {place}"))
    if finding.failure:
        rows.append(_cut(f"      {finding.failure}"))
    rows.append(_fix(ways[0]) if ways else f"      fix: {NO_FIX}")
    if finding.forecast:
        mine = in_users_words(finding.reason)
        steps = enumerate(finding.forecast)
        number = next((n for n, one in steps if mine in one.rpartition(": ")[0].split(", ")), 0)
        then = "then " if number else ""
        left = recompiles_left(finding.forecast[number])
        rows.append(_cut(f"      {then}without {left} (predicted)"))
    return rows


def _fix(way: Fix) -> str:
    """The fix in a line; the result of its trial is kept, whatever has to be cut."""
    mark = f"  ({_cut(way.mark, _MARK)})"
    first = way.text.partition("\n")[0]
    return _cut(f"      fix: {first}", _WIDTH - len(mark)) + mark


def _cut(line: str, width: int = _WIDTH) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"


def as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the summary as plain values; `schema` changes when a key changes its meaning."""
    session = diagnosis.session
    return {
        "schema": SCHEMA,
        "tool": "tc-report",
        "name": session.name,
        "producer": session.producer,
        "environment": dict(sorted(session.environment.items())),
        "settings": settings(session).to_json(),
        "records": session.records,
        "strings": session.events["str"],
        "defects": dict(sorted(session.defects.counts.items())),
        "unknown_events": session.unknown,
        "other_runs": session.other_runs,
        "ranks": len(session.lanes),
        "frames": session.frames,
        "compiles": len(session.compiles),
        "graph_breaks": len(diagnosis.breaks),
        "recompiles": diagnosis.recompile_count,
        "failures": len(diagnosis.failures),
        "skipped": len(diagnosis.skips),
        "caches": [one.to_json() for one in layers(session)],
        "chromium_events": session.events["chromium_event"],
        "seconds": round(sum(one.seconds for one in session.compiles), 6),
        "calls": calls_to_json(all_compiles(session)),
        "running": [{"lane": lane.label, **cost.to_json()} for lane, cost in session.step_costs],
        "phases": {k: round(v, 6) for k, v in phases_of(session.compiles).items()},
        "together": diagnosis.together.to_json() if diagnosis.together else None,
        "findings": [finding.to_json() for finding in diagnosis.findings],
        "compile_list": [
            {
                "id": one.id,
                "lane": one.lane.label,
                "function": one.title,
                "file": one.home[0],
                "line": one.home[1],
                "status": diagnosis.status(one),
                "attempts": one.attempts,
                "seconds": round(one.seconds, 6),
                "cache": one.cache,
                "calls": calls_to_json([one]),
                "artifacts": len(one.artifacts),
            }
            for one in session.compiles
        ],
    }
