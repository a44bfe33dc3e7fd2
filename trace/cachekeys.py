"""Cache events of a session go in; for each miss, the key parts that differ from the nearest
earlier entry come out."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tc.trace.compiles import Artifact, Compile
from tc.trace.parsed import parse_json
from tc.trace.session import Session, all_compiles

# Where a key is recorded: PyTorch's two caches (on a hit as on a miss), and tc's.
_EVENTS: Final = re.compile(r"(?:fx_graph|aotautograd)_cache_(?:hit|miss)|tc_cache")
_WINDOW: Final = 60
_LONGEST: Final = 240
_LOOKUP: Final = re.compile(
    r"(?P<cache>fx_graph|aotautograd|tc_graph)_cache_(?P<found>hit|miss|bypass)"
)
_LONGEST_REASON: Final = 200
_TIME_SAVED: Final = re.compile(r'"time_saved_ns": (\d{1,30})\b')
_LIST_BEGINS: Final = '"components": ["['
_BETWEEN: Final = '", "['  # no string of JSON holds this: its first quote would end it
_LIST_ENDS: Final = re.compile(r'(?<!\\)"\]')
_NO_PART: Final = -1
_DECODER: Final = json.JSONDecoder()
_AS_DIGITS: Final = bytes.maketrans(b"\0\1", b"01")
_MOST_PARTS: Final = 40
_TC_PASSED: Final = "tc_graph_cache_bypass"
_OF_PROGRAM: Final = ("gm", "inputs", "lines", "kind", "sizes")
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
        """Whether it is the graph, its lines or inputs that differ, not settings or the machine."""
        return self.name in _OF_PROGRAM or self.name.startswith(("graph", "example_inputs"))


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
        self._bit_of_head: dict[str, int] = {}  # the same by what precedes the printed value
        self._names: list[str] = []
        self._graphs: dict[int, str] = {}  # bits of graphs: their hashes
        self.entries: list[Entry] = []

    def add(self, session: Session, compiled: Compile, artifact: Artifact) -> Entry | None:
        """Take one cache event; None if it records no key."""
        text = session.text(artifact)
        heads = _heads(text)
        if heads is None:
            heads = [row[1:].partition(": ")[0] for row in rows_of(text)]
        known = self._bit_of_head
        numbers = {known[head] if head in known else self._number(head) for head in heads}
        numbers.discard(_NO_PART)
        if not numbers:
            return None
        present = bytearray(max(numbers) + 1)
        for number in numbers:
            present[number] = 1
        bits = int(present[::-1].translate(_AS_DIGITS), 2)
        graph = next((self._graphs[one] for one in self._graphs.keys() & numbers), "")
        hit = "cache_hit" in artifact.name or (
            artifact.name == "tc_cache" and compiled.cache == "hit"
        )
        entry = Entry(_cache_of(artifact.name), compiled, artifact, hit, bits, graph)
        self.entries.append(entry)
        return entry

    def _number(self, head: str) -> int:
        """Return the bit of a part `hash] name` that occurs for the first time in this form."""
        digest, found, name = head.partition("] ")
        if not found:
            return _NO_PART
        number = self._bit_of.setdefault((name, digest), len(self._bit_of))
        if number == len(self._names):
            self._names.append(name)
            if name in ("gm", "graph"):
                self._graphs[number] = digest
        self._bit_of_head[head] = number
        return number

    def values(self, session: Session, artifact: Artifact, names: list[str]) -> dict[str, str]:
        """Return the printed values of these parts of a key."""
        text = session.text(artifact)
        found = _quoted(text, names)
        if found is None:
            found = dict.fromkeys(names, "")
            for row in rows_of(text):
                part = _part(row)
                if part and part[0] in found:
                    found[part[0]] = part[2]
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


def explain(ring: KeyRing, session: Session, entry: Entry, other: Session, nearest: Entry) -> Miss:
    """Compare two entries part by part, by hash; printed values may differ at equal hashes."""
    names = ring.names(entry.bits ^ nearest.bits)
    new, old = (
        ring.values(of, at.artifact, names) for of, at in ((session, entry), (other, nearest))
    )
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


def rows_of(text: str) -> list[str]:
    """Return the parts of the key that an event records, each as `[hash] name: printed value`."""
    try:
        data = parse_json(text)
    except ValueError:
        return []
    if not isinstance(data, dict):
        return []
    if isinstance(data.get("parts"), dict):  # tc's: the value is printed in full
        return [f"[{_digest(text)}] {name}: {text}" for name, text in data["parts"].items()]
    listed: Any = data.get("components")
    return [row for row in listed if isinstance(row, str)] if isinstance(listed, list) else []


def _digest(value: object) -> str:
    return hashlib.md5(str(value).encode("utf-8", "replace"), usedforsecurity=False).hexdigest()


def _heads(text: str) -> list[str] | None:
    """Return `hash] name` of each part without parsing the values, which are nine tenths of it.

    None if the text is not printed as torch does.
    """
    start = text.find(_LIST_BEGINS)
    if start < 0 or text.find(_LIST_BEGINS, start + 1) >= 0:
        return None
    stop = _LIST_ENDS.search(text, text.rfind(_BETWEEN))
    if stop is None:
        return None
    rows = text[start + len(_LIST_BEGINS) : stop.start()].split(_BETWEEN)
    heads = [row.partition(": ")[0] for row in rows]
    return None if any("\\" in head for head in heads) else heads


def _quoted(text: str, names: list[str]) -> dict[str, str] | None:
    """Find the parts of these names in a printed key without parsing the rest of it.

    None if the text does not say it that plainly.
    """
    found = {}
    for name in names:
        at = text.find(f"] {name}: ")
        start = text.rfind('"[', 0, at)
        if at < 0 or start < 0:
            return None
        try:
            row, _ = _DECODER.raw_decode(text, start)
        except ValueError:
            return None
        part = _part(row)
        if part is None or part[0] != name:
            return None
        found[name] = part[2]
    return found


def _part(row: str) -> Part | None:
    digest, _, rest = row[1:].partition("] ")
    name, found, text = rest.partition(": ")
    return (name, digest, text) if row[:1] == "[" and found else None


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


@dataclass(frozen=True, slots=True)
class Lookup:
    """One look into a cache: `found` is hit, miss or bypass; `saved` seconds if it is known.

    `why` is the reason of a bypass, in the compiler's words.
    """

    cache: str
    found: str
    compiled: Compile
    artifact: int
    saved: float = 0.0
    why: str = ""


def lookups(session: Session) -> list[Lookup]:
    """Return every look into a cache, in the order of the log."""
    return session.once(_lookups)


def _lookups(session: Session) -> list[Lookup]:
    rows = []
    for compiled in all_compiles(session):
        for one in compiled.artifacts:
            if match := _LOOKUP.fullmatch(one.name):
                text = session.text(one)
                saved = _saved(text) if match["found"] == "hit" else 0.0
                why = bypass_reason(text) if match["found"] == "bypass" else ""
                name = _layer(why) if one.name == _TC_PASSED else match["cache"]
                name = name.replace("_", " ")
                rows.append(Lookup(name, match["found"], compiled, one.number, saved, why))
        for note in compiled.noted("tc_cache"):
            found = "hit" if note.data.get("hit") else "miss"
            rows.append(Lookup("tc", found, compiled, note.artifact))
    return rows


def _layer(why: str) -> str:
    """Both graphs of a training step are kept together, apart from the programs made of them."""
    return "tc training graph" if why.startswith("training graph: ") else "tc"


def bypass_reason(text: str) -> str:
    """Return why a cache was not asked, or kept nothing: tc's plain words, or PyTorch's JSON."""
    if text.lstrip().startswith("{"):
        try:
            text = str(parse_json(text).get("cache_bypass_reason") or "")
        except (ValueError, AttributeError):
            return ""
    return " ".join(text.split())[:_LONGEST_REASON]


def _saved(text: str) -> float:
    """Seconds that PyTorch says a hit has saved."""
    match = _TIME_SAVED.search(text)
    return int(match[1]) / 1e9 if match else 0.0
