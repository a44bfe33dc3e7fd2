"""The comparison of ranks goes in; what the page about ranks shows comes out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from tc.trace.compiles import Lane
from tc.trace.findings import Diagnosis
from tc.trace.ranks import Divergence, Estimate, Group, Step, aligned, estimates

_MOST_ROWS: Final = 200


def as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return plain values for the page; all lists are empty if the run had one process."""
    ranks = diagnosis.ranks
    seconds: defaultdict[Lane, float] = defaultdict(float)
    for compiled in diagnosis.session.compiles:
        seconds[compiled.lane] += compiled.seconds
    return {
        "groups": [_group(seconds, one) for one in ranks.groups],
        "divergences": [
            {
                "group": one.group.name,
                "most": one.most.name,
                "at": one.at,
                "chain": list(one.chain),
                "finding": _finding(diagnosis, one),
                "rows": [
                    [alike, _step(of_most), _step(of_group)]
                    for alike, of_most, of_group in aligned(one.most, one.group)[:_MOST_ROWS]
                ],
            }
            for one in ranks.divergences
        ],
        "estimates": [_estimate(one) for one in estimates(diagnosis.session)],
    }


def _finding(diagnosis: Diagnosis, divergence: Divergence) -> str:
    """Return the id of the finding that reports it; several groups may share one."""
    found = [one for one in diagnosis.findings if one.code == "TC601"]
    step = divergence.of_group or divergence.of_most
    slug = step.compiled.slug if step else ""
    return next((one.id for one in found if any(o.compile == slug for o in one.occurrences)), "")


def _group(spent: Mapping[Lane, float], group: Group) -> dict[str, Any]:
    seconds = [spent[lane] for lane in group.lanes]
    return {
        "name": group.name,
        "all": group.every_name,
        "compiles": sum(step.kind == "compile" for step in group.steps),
        "steps": len(group.steps),
        "collectives": [[name, n] for name, n in group.collectives.items()],
        "fastest": min(seconds),
        "slowest": max(seconds),
    }


def _step(step: Step | None) -> list[Any] | None:
    return None if step is None else [step.kind, step.words, step.compiled.slug, step.artifact]


def _estimate(one: Estimate) -> dict[str, Any]:
    order = sorted(one.seconds, key=lambda lane: (one.seconds[lane], lane))
    least, most = order[0], order[-1]
    return {
        "compile": one.compile,
        "operations": one.operations,
        "sameTensors": one.same_tensors,
        "fastest": [one.seconds[least], least.label],
        "slowest": [one.seconds[most], most.label],
    }
