"""Cache events of a session go in; for each miss, the key parts that differ from the nearest
earlier entry come out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tc.trace.compiles import Artifact, Compile
from tc.trace.reader import parse_json
from tc.trace.session import Session, all_compiles

# Where a key is recorded: PyTorch's two caches (on a hit as on a miss), and ours.
_EVENTS: Final = re.compile(r"(?:fx_graph|aotautograd)_cache_(?:hit|miss)|tc_cache")
_WINDOW: Final = 60
_LONGEST: Final = 240
_REMEMBERED: Final = 16
_MOST_PARTS: Final = 40
_RIVALS: Final = 2000  # how many earlier entries a miss is compared with

Part = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Entry:
    """One look into a cache; `bits` has a bit for each (name, hash) of its key."""

    cache: str
    compiled: Compile
    artifact: Artifact
    hit: bool
    bits: int
    graph: str  # the hash of the graph in the key: entries of one graph could be shared


@dataclass(frozen=True, slots=True)
class Change:
    """One part of a key that differs; "" where a side lacks it. Texts are cut to what differs."""

    name: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.name}: {self.old or 'absent'} → {self.new or 'absent'}"

    @property
    def about_the_program(self) -> bool:
        """Whether it is the graph or its inputs that differ, not settings or the machine."""
        return self.name == "gm" or self.name.startswith(("graph", "example_inputs", "inputs"))


@dataclass(frozen=True, slots=True)
class Miss:
    """Why a cache had nothing: what differs from the entry that is nearest."""

    entry: Entry
    nearest: Entry
    changes: tuple[Change, ...]
    differing: int
    parts: int
    same_graph: bool

    def __str__(self) -> str:
        return f"{self.differing} of {self.parts} key parts differ"


class KeyRing:
    """The keys seen so far, each as a set of bits, so that comparing two costs next to nothing."""

    def __init__(self) -> None:
        self._bit_of: dict[tuple[str, str], int] = {}
        self._names: list[str] = []
        self._parsed: dict[int, list[Part]] = {}
        self.entries: list[Entry] = []

    def add(self, session: Session, compiled: Compile, artifact: Artifact) -> Entry | None:
        """Take one cache event; None if it records no key."""
        parts = self.parts(session, artifact)
        if not parts:
            return None
        bits, graph = 0, ""
        for name, digest, _ in parts:
            number = self._bit_of.setdefault((name, digest), len(self._bit_of))
            if number == len(self._names):
                self._names.append(name)
            bits |= 1 << number
            if name in ("gm", "graph"):
                graph = digest
        hit = "cache_hit" in artifact.name or (
            artifact.name == "tc_cache" and compiled.cache == "hit"
        )
        entry = Entry(_cache_of(artifact.name), compiled, artifact, hit, bits, graph)
        self.entries.append(entry)
        return entry

    def parts(self, session: Session, artifact: Artifact) -> list[Part]:
        """Return the parts of a key; the last few keys read are remembered."""
        found = self._parsed.pop(id(artifact), None)
        if found is None:
            found = parts_of(session, artifact)
        self._parsed[id(artifact)] = found
        if len(self._parsed) > _REMEMBERED:
            del self._parsed[next(iter(self._parsed))]
        return found

    def nearest(self, entry: Entry) -> Entry | None:
        """Return the earlier entry with the fewest differing parts; the newest of equals."""
        rivals = [
            one for one in self.entries[-_RIVALS:] if one is not entry and one.cache == entry.cache
        ]
        same = [one for one in rivals if one.graph and one.graph == entry.graph]
        best, least = None, -1
        for one in same or rivals:
            far = (one.bits ^ entry.bits).bit_count()
            if best is None or far <= least:
                best, least = one, far
        return best

    def names(self, bits: int) -> list[str]:
        """Return the names of these parts, each once."""
        found: dict[str, None] = {}
        while bits:
            low = bits & -bits
            found.setdefault(self._names[low.bit_length() - 1])
            bits ^= low
        return list(found)


def misses(session: Session) -> list[Miss]:
    """Return each miss that has an earlier entry to be compared with."""
    ring, found = KeyRing(), []
    for compiled, artifact in cache_events(session):
        entry = ring.add(session, compiled, artifact)
        if entry is None or entry.hit:
            continue
        nearest = ring.nearest(entry)
        if nearest is not None:
            found.append(explain(ring, session, entry, session, nearest))
    return found


def cache_events(session: Session) -> Iterator[tuple[Compile, Artifact]]:
    """Yield every artifact that may hold a cache key, in the order of the log."""
    for compiled in all_compiles(session):
        for artifact in keyed(compiled):
            yield compiled, artifact


def keyed(compiled: Compile) -> list[Artifact]:
    """Return the cache events of one compile."""
    return [one for one in compiled.artifacts if _EVENTS.fullmatch(one.name)]


def explain(ring: KeyRing, ours: Session, entry: Entry, theirs: Session, nearest: Entry) -> Miss:
    """Compare two entries part by part, by hash; printed values may differ at equal hashes."""
    names = ring.names(entry.bits ^ nearest.bits)
    new = {name: text for name, _, text in ring.parts(ours, entry.artifact)}
    old = {name: text for name, _, text in ring.parts(theirs, nearest.artifact)}
    changes = [Change(name, *_differing(old.get(name, ""), new.get(name, ""))) for name in names]
    changes.sort(key=lambda one: (not one.about_the_program, one.name))
    return Miss(
        entry=entry,
        nearest=nearest,
        changes=tuple(changes[:_MOST_PARTS]),
        differing=len(names),
        parts=len(ring.names(entry.bits)),
        same_graph=bool(entry.graph) and entry.graph == nearest.graph,
    )


def parts_of(session: Session, artifact: Artifact) -> list[Part]:
    """Return (name, hash, printed value) of each part of the key an event records."""
    try:
        data = parse_json(session.text(artifact))
    except ValueError:
        return []
    if not isinstance(data, dict):
        return []
    if isinstance(data.get("parts"), dict):  # ours: the value stands for itself
        return [(str(name), str(value), str(value)) for name, value in data["parts"].items()]
    listed: Any = data.get("components")
    parts = []
    for row in listed if isinstance(listed, list) else ():
        if isinstance(row, str) and row[:1] == "[":  # `[hash] name: printed value`
            digest, _, rest = row[1:].partition("] ")
            name, found, text = rest.partition(": ")
            if found:
                parts.append((name, digest, text))
    return parts


def _cache_of(name: str) -> str:
    return name.partition("_cache_")[0] if "_cache_" in name else "tc"


def _differing(old: str, new: str) -> tuple[str, str]:
    """Cut two long texts to where they begin to differ."""
    if len(old) <= _LONGEST and len(new) <= _LONGEST:
        return old, new
    at = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), None)
    at = min(len(old), len(new)) if at is None else at
    start = max(at - _WINDOW, 0)
    return _cut(old, start), _cut(new, start)


def _cut(text: str, start: int) -> str:
    if not text:
        return ""
    stop = start + _LONGEST
    piece = " ".join(text[start:stop].split())
    return ("… " if start else "") + piece + (" …" if stop < len(text) else "")
