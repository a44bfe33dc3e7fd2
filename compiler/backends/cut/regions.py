"""Equal calls of a function marked by `nested_compile_region` are compiled once.

In: a captured graph, whose operations know which call of a marked function they belong to. Out: the
graph as parts, cut around these calls, and what compiles each: calls that are equal share one
compiled graph, as PyTorch's hierarchical compilation does it. They are equal if their graphs would
have one entry on disk (`cache/graph_key.py`): the same operations, of inputs that are laid out,
overlap and ask for gradients alike, under the same settings.

Nothing is fused across such a cut, so that the user has to ask for it (decision 095).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import fx

from tc import trace
from tc.compiler.backends.cut.parts import Part, key_of_part, parts_of, report_cut, why_whole
from tc.compiler.cache.graph_key import Key, Uncached
from tc.compiler.capture.parts.output_graph import REGION_CALL, RegionCall
from tc.compiler.core.frozen import NotPlain

CROSSED = "an operation writes to memory that several parts use, or a part gives no tensor"


@dataclass(frozen=True)
class Region:
    """A part of a graph that is a call of a marked function, or lies between two.

    Attributes:
        call: None lies between.
        key: equal for calls that compile to one graph; None is like no other.
        why: why there is no key.
    """

    part: Part
    call: RegionCall | None = None
    key: Key | None = None
    why: str = ""


def at_regions(gm: fx.GraphModule) -> tuple[Part, ...]:
    """Return a graph as parts in order; empty if no two calls are equal, or it stays whole."""
    calls = {node: call for node in gm.graph.nodes if (call := node.meta.get(REGION_CALL))}
    if len(set(calls.values())) < 2:
        return ()
    if why := why_whole(gm):
        report_cut(f"compiled whole: {why}")
        return ()
    found = _cut(gm, calls)
    counts = Counter(one.part.digest for one in found if one.key is not None)
    alone = [one for one in found if one.call is not None and counts[one.part.digest] < 2]
    if alone:  # they are compiled with what lies beside them
        single = {one.call for one in alone}
        left = {node: call for node, call in calls.items() if call not in single}
        found = _cut(gm, left) if left else ()
    if trace.enabled():
        report_cut("\n".join([*_graphs(found), *_reasons(alone)]) or "compiled whole: " + CROSSED)
    return tuple(one.part for one in found)


def _cut(gm: fx.GraphModule, calls: Mapping[fx.Node, RegionCall]) -> tuple[Region, ...]:
    """Return a graph as parts, one for each call and one for what lies between two."""
    numbers: dict[fx.Node, int] = {}
    owners: list[RegionCall | None] = []
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        call = calls.get(node)
        if not owners or call is not owners[-1]:
            owners.append(call)
        numbers[node] = len(owners) - 1
    unnamed = {number for number, call in enumerate(owners) if call is not None}
    parts = parts_of(gm, numbers, unnamed)
    return tuple(
        Region(part) if call is None else _keyed(part, call)
        for part, call in zip(parts, owners, strict=bool(parts))
    )


def _keyed(part: Part, call: RegionCall) -> Region:
    try:
        key = key_of_part(part)
    except (Uncached, NotPlain) as why:
        return Region(part, call, why=str(why))
    return Region(replace(part, digest=key.portable), call, key)


def _graphs(parts: Sequence[Region]) -> Iterator[str]:
    """Yield for each function how many of its calls share how many graphs."""
    calls: dict[str, list[Region]] = {}
    for one in parts:
        if one.call is not None:
            calls.setdefault(one.call.name, []).append(one)
    for name, ones in calls.items():
        sizes = {one.part.digest: one.part.size for one in ones}
        yield (
            f"{name}: {len(ones)} calls share {len(sizes)} graphs of "
            f"{' + '.join(map(str, sizes.values()))} operations"
        )


def _reasons(alone: Sequence[Region]) -> Iterator[str]:
    """Yield for each call that shares no graph the reason."""
    first: dict[str, Key] = {}
    for one in alone:
        assert one.call is not None
        name, why = one.call.name, one.why
        if one.key is not None:
            before, parts = first.setdefault(name, one.key), one.key.carried_parts
            differing = [part for part in parts if parts[part] != before.carried_parts.get(part)]
            why = f"no other has the same {', '.join(differing) or 'operations and inputs'}"
        yield f"{name}: call {one.call.number} shares no graph: {why}"
