"""A session goes in; cache misses of graphs that had been compiled before come out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tc.trace.cachekeys import Change, Lookup, Miss, lookups
from tc.trace.compiles import Compile
from tc.trace.findings.codes import Code, Order
from tc.trace.findings.hints import named_in
from tc.trace.findings.model import Cause, Event, here
from tc.trace.findings.rows import Facts, finding
from tc.trace.layers import named
from tc.trace.timing import duration

_MOST_NAMED: Final = 3
_SETTING: Final = "]"
_LEAST: Final = 1.0  # seconds
_SHARE: Final = 0.1
_HEX: Final = re.compile(r"\b0x[0-9a-f]+\b|\b\d{4,}\b")
_CUSTOM_PASS: Final = (
    "make the pass a torch._inductor.custom_graph_pass.CustomGraphPass, whose uuid() says which "
    "version it is: then it is a part of the key"
)
_NOTHING: Final = "nothing to do if this time is no trouble: each process compiles it once"
#: words of a reason -> what to do, the first that is found
_PASSED_FIXES: Final = (
    ("freezing", ("switch freezing and max_autotune off where a fast start matters more",)),
    ("custom pass", (_CUSTOM_PASS,)),
    ("symbolic", ("sizes that take few values: mark them static, and each graph is kept",)),
    ("needs guards on sizes", ("sizes that take few values: mark them static, and each graph is "
                               "kept",)),
    ("cache_hash", ("give the context_fn an attribute cache_hash, a text that says which version "
                    "it is",)),
    ("without uuid()", ("give it a method uuid() that says which version it is",)),
    ("FX graph cache is not enabled", ("torch._inductor.config.fx_graph_cache = True",)),
    ("call_function target", ("name it and its version in torch._inductor.config."
                              "unsafe_marked_cacheable_functions: then it is a part of the key",)),
    ("large constant", ("pass the tensor as an argument, or make it a buffer of the module",)),
    ("sizes depend on data", ("use a form of fixed shape: torch.where or a multiplied mask in "
                              "place of x[mask]",)),
)  # fmt: skip


_MODES: Final = "state"  # the part of a key of tc that holds grad mode, autocast and the like


def _in_one_process(miss: Miss) -> bool:
    return miss.entry.compiled.lane == miss.nearest.compiled.lane


@finding(
    Code(
        "TC402",
        "a cache missed a graph that it had: other settings or versions",
        "set the named parts of the key the same in both runs",
        "cached",
    )
)
def cache_misses(facts: Facts) -> list[Event]:
    """Return each miss that settings or the machine caused: the same graph was there before.

    A graph or an input that is new to the cache has to miss; that is no cause of trouble.
    """
    events: list[Event] = []
    for miss in facts.misses:
        if not miss.same_graph or not miss.differing:  # ranks may look up one key at a time
            continue
        if any(one.about_the_program for one in miss.changes):
            continue
        if [one.name for one in miss.changes] == [_MODES] and _in_one_process(miss):
            continue  # autocast or the like was switched between two calls: TC201 reports it
        compiled, artifact = miss.entry.compiled, miss.entry.artifact
        names = [readable(change) for change in miss.changes]
        changes = ", ".join(names[:_MOST_NAMED])
        rest = miss.differing - _MOST_NAMED
        changes += f" and {rest} more" if rest > 0 else ""
        events.append(
            Event(
                code="TC402",
                title=f"cache missed: {miss}",
                why=f"the same graph was compiled before, as [{miss.nearest.compiled.slug}], "
                f"with other settings: {changes}",
                fix=_fix(miss),
                where=here(compiled),
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


@finding(
    Code(
        "TC403",
        "something was compiled past the caches: each run compiles it again",
        "the reason is reported: sizes that come out of data, freezing, an operator that cannot "
        "be kept",
        "cached",
    ),
    order=Order.TIME,
)
def bypasses(facts: Facts) -> list[Event]:
    """Return what was compiled past the caches, one cause a reason, where it took long.

    The next run compiles it again, however full the caches are.
    """
    session = facts.session
    total = sum(one.seconds for one in session.compiles)
    by_reason: dict[str, list[Event]] = {}
    looks = lookups(session)
    for look in looks:
        reason = _HEX.sub("…", look.why.removeprefix("not kept: "))
        if look.found != "bypass" or not reason or not look.compiled.started:
            continue
        events = by_reason.setdefault(reason, [])
        counted = any(event.compiled is look.compiled for event in events)  # forward and backward
        one = look.compiled
        others = [other for other in looks if other.compiled is one and other.cache != look.cache]
        events.append(
            Event(
                code="TC403",
                title="compiled past the cache",
                why=f"{_kept(look, others)}: {reason}",
                fix=(*named_in(reason, _PASSED_FIXES), _NOTHING),
                where=here(one),
                reason=reason,
                compiled=one,
                place=one.artifacts[look.artifact].place,
                artifact=look.artifact,
                detail=f"{look.cache}: {look.why}",
                seconds=0.0 if counted else _lost(look.cache, one, others),
            )
        )
    found: list[Event] = []
    for events in by_reason.values():
        lost = sum(event.seconds for event in events)
        if lost >= max(_LEAST, _SHARE * total):
            longest = max(events, key=lambda event: event.seconds)
            found += [replace(event, where=longest.where) for event in events]
    return found


def _kept(look: Lookup, others: Sequence[Lookup]) -> str:
    """What of a compile is not kept, and what the other layers saved of it all the same."""
    rest = [one for one in others if one.found != "bypass"]
    if not rest and look.cache == _OF_TC:
        return (
            "its graph is not kept, so each run captures and lowers it again, but for its kernels"
        )
    if not rest:
        return "nothing of it is kept, so each run compiles it again"
    saved = sum(one.saved for one in rest)
    names = " and ".join(dict.fromkeys(named(one) for one in rest))
    if any(one.found == "hit" for one in rest):
        by_others = f"; {names} still had its part"
        by_others += f", which saved {duration(saved)}" if saved else ""
    else:
        by_others = f"; {names} keeps its part for the next run"
    return f"{named(look)} keeps nothing of it, so its part is done again in each run{by_others}"


#: tc's cache of graphs, beside which built kernels are kept by what they are made of
_OF_TC: Final = "tc"


def _lost(cache: str, one: Compile, others: Sequence[Lookup]) -> float:
    """The seconds of a compile that no cache can save the next time."""
    kept = [other for other in others if other.found != "bypass"]
    if kept and all(other.found == "miss" for other in kept):
        return one.phases.get("graph passes", 0.0)  # the rest is kept by the other layer
    if cache == _OF_TC:
        return one.seconds - one.phases.get("build", 0.0)
    return one.seconds


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
