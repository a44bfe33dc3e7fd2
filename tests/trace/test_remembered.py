"""What was emitted once is emitted again from its records, as the same event."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from event_samples import SAMPLES

from tc import trace
from tc.trace import (
    Artifact,
    AtenGraph,
    Event,
    Fusion,
    Kernels,
    OutputCode,
    Provenance,
    Remembered,
    StageRan,
)
from tc.trace.emit import capture_events
from tc.trace.remembered import packed, unpacked
from tc.trace.wire import Payload, to_json

KEPT = (AtenGraph, Fusion, Kernels, Provenance, StageRan)


@pytest.mark.parametrize(
    "event", [one for one in SAMPLES if isinstance(one, KEPT)], ids=lambda one: type(one).__name__
)
def test_the_same_event_comes_back(event: Event) -> None:
    kept = Remembered.of(event)
    (record,), (own,) = kept.to_records(), event.to_records()
    assert record[:2] == own[:2] and isinstance(record.payload, Payload)
    assert record.payload.text == own.payload
    assert record.payload.digest == hashlib.md5((own.payload or "").encode()).hexdigest()
    assert kept.original.to_records() == event.to_records()
    assert type(kept.original) is (Artifact if event == AtenGraph("post_grad", "graph 5")
                                   else type(event))  # fmt: skip
    assert Remembered.of(kept) is kept


def test_types_come_back() -> None:
    (event,) = [one for one in SAMPLES if isinstance(one, StageRan)]
    assert Remembered.of(event).original == event


def test_texts_come_back() -> None:
    event = Artifact("tc_plan", "a\n\tb é")
    assert Remembered.of(event).original == event


def test_a_file_gives_back_what_was_put_into_it() -> None:
    events = [one for one in SAMPLES if isinstance(one, KEPT)]
    events += [Artifact("tc_plan", "a\n\n\tb é \ud800\n"), Artifact("empty", "")]
    found = unpacked(packed(events))
    assert found == tuple(map(Remembered.of, events))
    assert found[-2].original == Artifact("tc_plan", "a\n\n\tb é \\ud800\n")
    assert unpacked(packed(())) == ()


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b + b"x", lambda b: b"", lambda b: b"{"]
)
def test_a_damaged_file_is_refused(damage: Callable[[bytes], bytes]) -> None:
    content = packed([Artifact("tc_plan", "a\nb")])
    with pytest.raises((ValueError, TypeError)):
        unpacked(damage(content))


def test_code_is_kept_without_its_place() -> None:
    (event,) = [one for one in SAMPLES if isinstance(one, OutputCode)]
    (kept,) = unpacked(packed([event]))
    assert kept.filename == ""
    (record,) = replace(kept, filename=event.filename).to_records()
    (own,) = event.to_records()
    assert record[:2] == own[:2] and isinstance(record.payload, Payload)
    assert record.payload == Payload.of(event.code)
    assert replace(kept, filename=event.filename).original == event


def test_a_captured_graph_is_kept_with_the_sizes_of_its_values() -> None:
    event = trace.OutputGraph("g\nh", {"x": [1, "s0"]})
    (kept,) = unpacked(packed([event]))
    (record,), (own,) = kept.to_records(), event.to_records()
    assert record.metadata == own.metadata and json.loads(to_json(own.metadata))["sizes"]
    assert isinstance(record.payload, Payload) and record.payload.text == own.payload
    assert kept.original == event


def test_what_has_other_facts_is_not_kept() -> None:
    with pytest.raises(ValueError):
        Remembered.of(trace.Metrics())


def test_listeners_hear_the_event_and_files_get_the_records() -> None:
    class File:
        takes_records = True

        def __init__(self) -> None:
            self.heard: list[Event] = []

        def write(self, stamped: trace.Stamped) -> None:
            self.heard.append(stamped.event)

    file = File()
    trace.add_sink(file)
    kept = Remembered.of(Fusion({"a": [1]}))
    try:
        with capture_events() as events:
            trace.emit(kept)
            trace.emit_all((kept, Fusion({})))
    finally:
        trace.remove_sink(file)
    assert list(events) == [Fusion({"a": [1]}), Fusion({"a": [1]}), Fusion({})]
    assert file.heard == [kept, kept, Fusion({})]
