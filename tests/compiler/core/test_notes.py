"""What stages write down: changes of graphs that can be undone and done again, steps by number."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from aot_harness import captured
from aot_harness import trace as traced
from hypothesis import given
from hypothesis import strategies as st

import tc
from tc import trace
from tc.compiler import library, loops, schedule
from tc.compiler.aot.passes import PASSES
from tc.compiler.core.gate import Gate
from tc.compiler.core.notes import MOST_FIRINGS, Notes, _replaced
from tc.trace.emit import capture_events
from tc.trace.passes import done, undone
from tc.trace.wire import to_json

X = torch.randn(4, 16)
W, B = torch.randn(16, 16), torch.randn(16)


def node_lines(text: str) -> list[str]:
    """Return the lines of a graph's record that are nodes, in the graph's order."""
    return [line for line in text.splitlines() if line.startswith("  ")]


def wordy(x: Any, w: Any, b: Any) -> Any:
    y = x.view(4, 16).t().t()
    z = torch.nn.functional.linear(y, w, b).exp() + x.exp() * 1
    x.sin()
    return z, x.exp(), z


def record(event: trace.Event) -> dict[str, Any]:
    """The record as a reader of the log has it."""
    (wire,) = event.to_records()
    assert wire.payload is not None
    found: dict[str, Any] = json.loads(wire.payload)
    return found


def aot_and_library(function: Any, args: tuple[Any, ...]) -> tuple[str, list[dict[str, Any]], str]:
    notes = [Notes(), Notes()]
    with torch.no_grad():
        graph = traced(function, args, gate=Gate().noted(notes[0]))
        between = str(graph)
        library.arrange(graph.module, Gate().noted(notes[1]))
    records = [
        record(event)
        for stage, note in zip(("aot", "library"), notes, strict=True)
        for event in note.to_events(stage, "inference")
    ]
    return between, records, str(graph)


def test_a_graphs_text_can_be_followed_through_all_passes() -> None:
    between, (aot, arranged), final = aot_and_library(wordy, (X, W, B))
    lines = node_lines(between)
    for ran in reversed(aot["passes"]):
        before = undone(lines, ran)
        assert before is not None
        assert done(before, ran) == lines
        assert (before != lines) == ran["changed"]
        lines = before
    assert sum("aten.exp" in line for line in lines) > 2, "as recorded, before any pass"
    assert any("aten.sin" in line for line in lines)
    lines = node_lines(between)
    for ran in arranged["passes"]:
        after = done(lines, ran)
        assert after is not None
        lines = after
    assert lines == node_lines(final)
    assert [ran["name"] for ran in arranged["passes"] if ran["changed"]] == ["library.compute_tiny"]


def test_passes_have_the_numbers_of_the_gate() -> None:
    _, (aot, _), _ = aot_and_library(wordy, (X, W, B))
    passes = {ran["name"]: ran for ran in aot["passes"]}
    names = [f"aot.{graph_pass.__name__}" for graph_pass in PASSES]
    assert list(passes) == [*names, "aot.separate_outputs"]
    first = passes[names[0]]["first"]
    assert [(passes[n]["first"], passes[n]["last"]) for n in names] == [
        (first + i, first + i) for i in range(len(names))
    ]
    assert aot["first"] == 1 and aot["last"] == first + len(names) - 1
    (step,) = aot["steps"]
    assert (step["name"], step["count"]) == ("aot.decompose.aten.t", 3)


def test_a_refused_pass_is_reported() -> None:
    notes = Notes()
    gate = Gate(refuse_from={"aot.drop_no_ops": 1}).noted(notes)
    with torch.no_grad():
        traced(wordy, (X, W, B), gate=gate)
    (event,) = notes.to_events("aot", "inference")
    (ran,) = [ran for ran in record(event)["passes"] if ran["refused"]]
    assert ran["name"] == "aot.drop_no_ops" and not ran["changed"]
    assert undone(["  a"], ran) == ["  a"]


def test_lowering_and_scheduling_report_their_steps() -> None:
    gates = [Gate().noted(Notes()), Gate().noted(Notes())]
    with torch.no_grad():
        graph = traced(lambda x: torch.softmax(x * 1, -1).exp() / 2, (X,))
    schedule.plan(loops.lower(graph.module, gates[0]), gates[1])
    (lowered,), (planned,) = (
        [record(event) for event in gate.notes.to_events(stage, "inference")]  # type: ignore[union-attr]
        for gate, stage in zip(gates, ("loops", "schedule"), strict=True)
    )
    steps = {step["name"]: step for step in lowered["steps"]}
    assert steps["loops.lower.exp"]["at"] == ["exp"]
    assert [ran["name"] for ran in lowered["passes"]] == [
        *("loops.lower", "loops.refine", "loops.simplify"),
    ]
    fired = {firing["rule"]: firing for firing in lowered["firings"]}
    row = fired["loops.rule.div_power"]
    assert row["before"].startswith("div(") and row["after"].startswith("mul(")
    assert steps[row["rule"]]["first"] == row["number"] <= lowered["last"]
    fuse = planned["passes"][0]
    assert fuse["name"] == "schedule.fuse" and fuse["after"] < fuse["before"]


def test_what_is_reported_is_bounded() -> None:
    notes = Notes()
    for number in range(10 * MOST_FIRINGS):
        notes.step(number + 1, "loops.rule.x", True, f"n{number}")
        notes.firing("loops.rule.x", "a", "b")
    (event,) = notes.to_events("loops", "inference")
    assert event.left_out == 9 * MOST_FIRINGS  # type: ignore[attr-defined]
    assert len(to_json(event.content())) < 20_000  # type: ignore[attr-defined]
    gm = captured(lambda x: [x := x.sin() for _ in range(2000)][-1], (X,))
    with notes.graph_pass("aot.some", gm.graph):
        for node in list(gm.graph.nodes)[1::2]:
            node.kwargs = {"out": None}
    ran = notes.passes[-1][1]
    assert ran.changed and ran.left_out and sum(len(e.added) for e in ran.edits) <= 1000


def test_a_compile_reports_each_stage_of_each_graph_with_the_users_lines() -> None:
    def model(x: Any, w: Any) -> Any:
        return torch.nn.functional.gelu(x @ w) * 1

    with capture_events() as events:
        tc.compile(model)(X, W.clone().requires_grad_()).sum().backward()
    reported = {(e.graph, e.stage): record(e) for e in events.of(trace.StageRan)}
    stages = ("library", "loops", "schedule")
    assert reported.keys() == {("joint", "aot"), ("forward", "aot"), ("backward", "aot")} | {
        (kind, stage) for kind in ("forward", "backward") for stage in stages
    }
    here = f"{__file__}:{model.__code__.co_firstlineno + 1}"
    steps = {step["name"]: step for step in reported["joint", "aot"]["steps"]}
    assert steps["aot.decompose.aten.gelu_backward"]["at"] == [here]
    assert reported["forward", "loops"]["firings"][-1]["line"] == here
    for kind in ("joint", "backward"):
        lines = node_lines(next(e.code for e in events.of(trace.AtenGraph) if e.kind == kind))
        for ran in reversed(reported[kind, "aot"]["passes"]):
            before = undone(lines, ran)
            assert before is not None, (kind, ran["name"])
            lines = before


def test_formulas_that_the_cut_puts_into_a_joint_graph_are_a_pass_of_it() -> None:
    net = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 1)
    )
    with capture_events() as events:
        tc.compile(net)(torch.randn(4, 8)).sum().backward()
    (code,) = [e.code for e in events.of(trace.AtenGraph) if e.kind == "joint"]
    assert "_again" in code
    (reported,) = [e for e in events.of(trace.StageRan) if (e.graph, e.stage) == ("joint", "aot")]
    names = [ran.name for ran in reported.passes if ran.changed]
    assert names[-1] == "aot.partition" and "aot.fold_transposes" in names
    lines: list[str] | None = node_lines(code)
    for ran in reversed(record(reported)["passes"]):
        lines = undone(lines, ran) if lines is not None else None
        assert lines is not None, ran["name"]
    assert not any("_again" in line for line in lines or [])


@given(st.permutations(range(8)), st.sets(st.integers(0, 7)), st.sets(st.integers(0, 12)))
def test_any_change_of_order_is_reported(order: list[int], gone: set[int], new: set[int]) -> None:
    old, now = list(range(8)), [item for item in [*order, *range(8, 13)] if item not in gone]
    now = [item for item in now if item < 8 or item in new]
    result: list[int] = []
    at = 0
    kept = [item if item < 8 else -1 for item in now]
    for line, removed, added in _replaced(len(old), kept):
        assert removed.start == line and (removed or added)
        result += [*old[at:line], *(now[i] for i in added)]
        at = removed.stop
    assert [*result, *old[at:]] == now


@pytest.mark.parametrize("broken", [{"left_out": 1}, {"before": 7}, {"edits": [{"line": 0,
                         "removed": ["  z"], "added": []}]}])  # fmt: skip
def test_what_does_not_fit_is_not_guessed(broken: dict[str, Any]) -> None:
    ran = {"refused": False, "left_out": 0, "before": 2, "after": 1, **{"edits": []}}
    ran["edits"] = [{"line": 1, "removed": ["  b"], "added": []}]
    assert done(["  a", "  b"], ran) == ["  a"]
    assert done(["  a", "  b"], {**ran, **broken}) is None
