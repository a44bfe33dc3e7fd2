"""Every event becomes records that strict readers take."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from event_samples import FRAME, SAMPLES, example
from hypothesis import given, settings
from hypothesis import strategies as st

from tc.trace import (
    EVENTS,
    Artifact,
    AtenGraph,
    CompileId,
    Event,
    GraphBreak,
    Metrics,
    Recompile,
    RecompileCause,
    Span,
)
from tc.trace.kinds import Kind
from tc.trace.wire import texts_json, to_json

pytestmark = pytest.mark.usefixtures("no_passes")


def test_every_event_has_a_sample() -> None:
    assert {type(event) for event in SAMPLES} == set(EVENTS.values())


@pytest.mark.parametrize("kind", dict.fromkeys(EVENTS.values()), ids=lambda kind: kind.__name__)
def test_an_example_of_any_event_can_be_made_of_its_types(kind: type[Event]) -> None:
    if kind is not Span:  # its records are put together by hand, out of real times
        assert example(kind).to_records()


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_records_are_named_as_registered(event: Event) -> None:
    records = event.to_records()
    names = {r.metadata["name"] if r.key == "artifact" else r.key for r in records}  # type: ignore[index]
    if isinstance(event, Artifact):
        return
    assert any(EVENTS.get(name) is type(event) for name in names), names


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_json_payloads_are_json(event: Event) -> None:
    for record in event.to_records():
        metadata: Any = record.metadata
        if record.key == "artifact" and metadata["encoding"] == "json":
            assert record.payload is not None
            json.loads(record.payload)


def test_a_wire_name_has_one_event() -> None:
    with pytest.raises(ValueError, match="has a row already"):

        class Again(Event, wire=Kind("dynamo_start")):
            pass

    assert EVENTS["dynamo_start"].__name__ == "FrameStart"


def test_graph_break_reads_well() -> None:
    event = GraphBreak(
        code="TC110",
        title="branch depends on tensor data",
        why="bool() of a tensor",
        file="m.py",
        line=3,
        function="f",
        source_line="    if x.sum() > 0:",
        fix=("use torch.where",),
        stack=(replace(FRAME, col=4, end_col=11),),
        resume="torch_dynamo_resume_in_f_at_3",
    )
    text, facts = event.to_records()
    assert text.metadata == {"name": "dynamo_graph_break_reason", "encoding": "string"}
    assert text.payload is not None and facts.payload is not None
    assert text.payload.splitlines()[0] == "Graph break in user code at m.py:3 in f"
    assert "Fix: use torch.where" in text.payload
    content = json.loads(facts.payload)
    assert content["stack"] == [
        {**vars(FRAME), "col": 4, "end_col": 11},
    ]
    assert text.payload.endswith("    y = x.sin()\n        ^^^^^^^")
    assert content["fix"] == ["use torch.where"]
    assert content["resume"] == "torch_dynamo_resume_in_f_at_3"


def test_recompile_names_the_older_compile() -> None:
    cause = RecompileCause("x.shape[0]", "x.shape[0] == 4", "4", "5", "size", now_dynamic=True)
    reasons, facts = Recompile("f", "m.py", 3, CompileId(0, 1), (cause,)).to_records()
    assert reasons.payload is not None and facts.payload is not None
    assert json.loads(reasons.payload) == ["0/1: x.shape[0] == 4  # x.shape[0] was 4, is now 5"]
    content = json.loads(facts.payload)
    assert content["of"] == "0/1"
    assert content["causes"][0]["now_dynamic"] is True


def test_a_failure_always_has_a_reason() -> None:
    (record,) = Metrics(fail_type="KeyError").to_records()
    assert record.metadata["fail_reason"] == "KeyError"  # type: ignore[index]


def test_metrics_of_a_backward_have_their_own_name() -> None:
    assert Metrics(is_forward=False).to_records()[0].key == "bwd_compilation_metrics"


def test_metrics_report_time_in_both_units() -> None:
    (record,) = Metrics(start_time=100.0, entire_frame_compile_time_s=0.5).to_records()
    values: Any = record.metadata
    assert (values["start_time_us"], values["duration_us"]) == (100_000_000, 500_000)
    assert values["end_time_us"] == 100_500_000


def test_graphs_without_an_event_of_their_own_are_artifacts() -> None:
    (record,) = AtenGraph("post_grad", "g").to_records()
    assert record.key == "artifact"
    assert record.metadata == {"name": "inductor_post_grad_graph", "encoding": "string"}


def test_an_artifact_cannot_leave_the_folder_of_a_reader() -> None:
    (record,) = Artifact("../../etc/passwd", "x").to_records()
    assert "/" not in record.metadata["name"]  # type: ignore[index]


# --- JSON ---------------------------------------------------------------------------------------


class Nasty:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def test_json_takes_everything() -> None:
    circle: list[object] = []
    circle.append(circle)
    value = {
        "nan": float("nan"),
        "inf": [float("-inf")],
        "nasty": Nasty(),
        (1, 2): {3},
        "circle": circle,
        "surrogate\ud800": "\udfff",
        "bytes": b"x",
    }
    text = to_json(value)
    assert text.isascii()
    back = json.loads(text, parse_constant=lambda name: 1 / 0)
    assert back["nan"] == "nan" and back["nasty"] == "<Nasty>" and back["(1, 2)"] == [3]
    assert "\\ud" not in text


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
FINITE = SCALARS.filter(lambda value: not (isinstance(value, float) and abs(value) == float("inf")))
JSON = st.recursive(
    FINITE, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
)


@settings(max_examples=20, deadline=None)
@given(JSON)
def test_json_round_trip(value: object) -> None:
    assert json.loads(to_json(value)) == value


@pytest.mark.parametrize(
    "texts",
    [[], [""], ["", ""], ["a", "L['x'].y"], ["a\nb", "c"], ['say "no"'], ["a\\n"], ["é"], ["\x00"]],
)
def test_lists_of_texts_are_json(texts: list[str]) -> None:
    assert texts_json(iter(texts)) == to_json(texts)
    assert json.loads(texts_json(texts)) == texts
