"""A session goes in; cache misses of graphs that had been compiled before come out."""

from __future__ import annotations

from typing import Final

from tc.trace.cachekeys import Change, Miss
from tc.trace.findings.model import Cause, Event, Where

_MOST_NAMED: Final = 3
_SETTING: Final = "]"


def cache_misses(missed: list[Miss]) -> list[Event]:
    """Return each miss that settings or the machine caused: the same graph was there before.

    A graph or an input that is new to the cache has to miss; that is no cause of trouble.
    """
    events: list[Event] = []
    for miss in missed:
        if not miss.same_graph or not miss.differing:  # ranks may look up one key at a time
            continue
        if any(one.about_the_program for one in miss.changes):
            continue
        compiled, artifact = miss.entry.compiled, miss.entry.artifact
        names = [readable(change) for change in miss.changes]
        told = ", ".join(names[:_MOST_NAMED])
        rest = miss.differing - _MOST_NAMED
        told += f" and {rest} more" if rest > 0 else ""
        events.append(
            Event(
                code="TC402",
                title=f"cache missed: {miss}",
                why=f"the same graph was compiled before, as [{miss.nearest.compiled.slug}], "
                f"with other settings: {told}",
                fix=_fix(miss),
                where=Where(*compiled.home, function=compiled.alias or compiled.function),
                reason=", ".join(names),
                compiled=compiled,
                place=artifact.place,
                artifact=artifact.number,
                detail="; ".join(str(change) for change in miss.changes[:_MOST_NAMED]),
                causes=tuple(
                    Cause(readable(change), change.old, change.new, "cache key")
                    for change in miss.changes
                ),
                # forward and backward may miss both, but the compile took its time once
                seconds=0.0
                if any(event.compiled is compiled for event in events)
                else compiled.seconds,
            )
        )
    return events


def readable(change: Change) -> str:
    """`inductor_config[epilogue_fusion]` -> `epilogue_fusion`."""
    head, found, rest = change.name.partition("_config[")
    return rest.removesuffix(_SETTING) if found and head else change.name


def _fix(miss: Miss) -> tuple[str, ...]:
    settings = [one for one in miss.changes if "config[" in one.name]
    rows = [
        f"set {readable(one)} the same both times: {one.old or 'absent'} or {one.new or 'absent'}"
        for one in settings[:_MOST_NAMED]
    ]
    if not settings and miss.changes:
        rows = [f"keep {readable(miss.changes[0])} the same"]
    return tuple(rows)
