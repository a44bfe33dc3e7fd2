"""Events of an earlier compile, emitted again: kept as records, rebuilt only where asked for.

In: an event. Out: bytes that fit into a file; from it, the records, and the event itself.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any, get_args, get_origin, get_type_hints

from tc.trace.all_events import EVENTS
from tc.trace.events import (
    ATEN_GRAPHS,
    Artifact,
    AtenGraph,
    Event,
    Fact,
    OutputCode,
    OutputGraph,
)  # fmt: skip
from tc.trace.wire import Payload, RawJson, Record

_LENGTH = struct.Struct("<Q")
_KINDS = {wire: kind for kind, wire in ATEN_GRAPHS.items()}


@dataclass(frozen=True)
class Remembered(Event):
    """An event that was emitted before, as its one record.

    Attributes:
        name: of the record or artifact.
        payload: its text, as files hold it: nothing is left to do when it is emitted again.
        encoding: of an artifact; empty for other records.
        filename: of generated code: where it is now.
        facts: of a captured graph: what stands beside its text, as JSON.
    """

    name: str
    payload: Payload
    encoding: str = ""
    filename: str = ""
    facts: str = ""

    @classmethod
    def of(cls, event: Event) -> Remembered:
        """Return an event as its record.

        Raises:
            ValueError: it has several records, or facts beside its text (a file name is left out).
        """
        if isinstance(event, Remembered):
            return event
        (record,) = event.records
        payload = record.payload or ""
        kept = payload if isinstance(payload, Payload) else Payload.of(payload)
        if record.key == "artifact":
            metadata: Any = record.metadata
            return cls(metadata["name"], kept, metadata["encoding"])
        if isinstance(event, OutputGraph):
            return cls(record.key, kept, facts=str(record.metadata))
        if record.metadata and not isinstance(event, OutputCode):
            raise ValueError(f"{record.key} has more than a text")
        return cls(record.key, kept)

    def to_records(self) -> tuple[Record, ...]:
        """See `Event`."""
        if self.encoding:
            metadata = {"name": self.name, "encoding": self.encoding}
            return (Record("artifact", metadata, self.payload),)
        if self.facts:
            return (Record(self.name, RawJson(self.facts), self.payload),)
        where = {"filename": self.filename, "file_path": self.filename} if self.filename else {}
        return (Record(self.name, where, self.payload),)

    @cached_property
    def original(self) -> Event:
        """The event itself."""
        text = self.payload.text
        if self.name in _KINDS:
            return AtenGraph(_KINDS[self.name], text)
        if self.name == OutputGraph.wire:
            return OutputGraph(text, json.loads(self.facts)["sizes"])
        if self.name == OutputCode.wire:
            return OutputCode(text, self.filename)
        kind = EVENTS.get(self.name, Artifact)
        if issubclass(kind, Fact):
            return _fact(kind, json.loads(text))
        return Artifact(self.name, text, self.encoding)


def packed(events: Iterable[Event]) -> bytes:
    """Return events as `unpacked` reads them: a list of them after its length, then their texts.

    Raises:
        ValueError: one has several records, or facts beside its text.
    """
    kept = [Remembered.of(event) for event in events]
    rows = [
        (one.name, one.encoding, one.facts, one.payload.digest, len(one.payload.lines))
        for one in kept
    ]
    texts = [one.payload.lines for one in kept]
    listed = json.dumps(rows).encode()
    return b"".join((_LENGTH.pack(len(listed)), listed, *texts))


def unpacked(content: bytes | memoryview) -> tuple[Remembered, ...]:
    """Return the events that `packed` was given, as their records.

    Raises:
        ValueError, TypeError: it was not written by `packed`.
    """
    if len(content) < _LENGTH.size:
        raise ValueError("it is cut short")
    at = _LENGTH.size + _LENGTH.unpack_from(content)[0]
    texts = memoryview(content)  # they are not copied: they are many, and long
    events = []
    for name, encoding, facts, digest, size in json.loads(bytes(texts[_LENGTH.size : at])):
        text = Payload(digest, texts[at : at + size])
        events.append(Remembered(name, text, encoding, facts=facts))
        at += size
    if at != len(content):
        raise ValueError("texts are missing, or left over")
    return tuple(events)


def _fact(kind: type[Fact], content: Any) -> Fact:
    """Return the fact that was written as that; one of a single field is that field's value."""
    names = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    if len(names) == 1:
        content = {names[0]: content}
    found: Fact = revived(kind, content)
    return found


def revived(kind: Any, value: Any) -> Any:
    """Return a value read from JSON as the type it was written from: dataclasses and tuples."""
    if is_dataclass(kind) and isinstance(kind, type):
        types = get_type_hints(kind)
        return kind(**{name: revived(types[name], item) for name, item in value.items()})
    if get_origin(kind) is tuple:
        return tuple(revived(get_args(kind)[0], item) for item in value)
    return value
