"""What the closing lines of TC_LOGS foretell and charge is what the report says of the same run."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tc import trace
from tc.trace import (
    CompileId,
    CreateSymbol,
    FrameStart,
    GraphBreak,
    Guards,
    Metrics,
    Recompile,
    RecompileCause,
    StackFrame,
)
from tc.trace.findings import diagnose
from tc.trace.logcosts import MOST_REPLAYED
from tc.trace.logs import set_logs
from tc.trace.session import load
from tc.trace.writer import TraceWriter

FILE = "/m.py"


@pytest.fixture(autouse=True)
def quiet_afterwards() -> Iterator[None]:
    yield
    set_logs()


def compile_one(
    at: CompileId, name: str, seconds: float, held: dict[str, int], *reported: trace.Event
) -> None:
    """One compile as the compiler reports it; what is held to a negative value is a symbol."""
    fixed = {source: value for source, value in held.items() if value >= 0}
    checks = [f"same({source}, {value})" for source, value in fixed.items()]
    with trace.compiling(at):
        trace.emit(FrameStart((StackFrame(FILE, 5, name),)))
        for event in reported:
            trace.emit(event)
        for source, value in held.items():
            if value < 0:
                trace.emit(CreateSymbol("s0", str(-value), "[2, 9]", source, ()))
        trace.emit(Guards(["EQUALS"] * len(fixed), list(fixed), checks, [None] * len(fixed)))
        trace.emit(
            Metrics(
                str(at),
                name,
                FILE,
                5,
                entire_frame_compile_time_s=seconds,
                phases={"entire_frame_compile": seconds},
            )
        )


def recompile(number: int, *changes: tuple[str, int, int]) -> Recompile:
    causes = [
        RecompileCause(source, f"{source} == {old}", str(old), str(new), "a constant")
        for source, old, new in changes
    ]
    return Recompile("f", FILE, 5, CompileId(0, number - 1), tuple(causes))


def broken(line: int, title: str, function: str = "f", resume: str | None = None) -> GraphBreak:
    stack = (StackFrame(FILE, line, function),)
    return GraphBreak("TC101", title, "", FILE, line, function, stack=stack, resume=resume)


def reported(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    set_logs()
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def steps_of(compiles: list[dict[str, int]]) -> None:
    before: dict[str, int] = {}
    for number, held in enumerate(compiles):
        changes = [(s, abs(before[s]), abs(held[s])) for s in before if before[s] != held[s]]
        events = (recompile(number, *changes),) if number else ()
        compile_one(CompileId(0, number), "f", 1.0, held, *events)
        before = held


@pytest.mark.parametrize(
    ("compiles", "left"),
    [
        ([{"a": 1}, {"a": 2}, {"a": 3}], ["a: 2 → 0"]),
        ([{"a": 1, "b": 1}, {"a": 2, "b": -2}, {"a": 3, "b": -2}], ["a: 2 → 1", "b: 1 → 0"]),
        ([{"a": 1, "b": 1}, {"a": 2, "b": 2}, {"a": 3, "b": 3}], ["a, b: 2 → 0"]),
        ([{"a": 1}, {"a": 1}, {"a": 2}], []),  # played through, another number of recompiles
    ],
)
def test_the_forecast_is_that_of_the_report(
    compiles: list[dict[str, int]],
    left: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    writer = TraceWriter(str(tmp_path))
    trace.add_sink(writer)
    set_logs(recompiles=True, format="json")
    steps_of(compiles)
    trace.remove_sink(writer)
    counts = [row for row in reported(capsys) if "recompiles" in row]
    assert [row.get("forecast", []) for row in counts] == [left]
    again = [one for one in diagnose(load(str(tmp_path))).findings if one.code == "TC201"]
    assert {one.forecast for one in again} == {tuple(left)}


def test_the_forecast_is_one_line_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    set_logs(recompiles=True)
    steps_of([{"a": 1}, {"a": 2}, {"a": 3}])
    set_logs()
    assert "    left if it no longer changed (predicted): a: 2 → 0\n" in capsys.readouterr().err


def test_of_too_many_compiles_nothing_is_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    set_logs(recompiles=True)
    steps_of([{"a": n} for n in range(MOST_REPLAYED + 3)])
    set_logs()
    assert "predicted" not in capsys.readouterr().err


def test_the_cost_of_a_break_is_that_of_the_report(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    writer = TraceWriter(str(tmp_path))
    trace.add_sink(writer)
    set_logs(graph_breaks=True, format="json")
    on = "torch_dynamo_resume_in_f_at_9"
    compile_one(CompileId(0, 0), "f", 8.0, {}, broken(9, "item"))
    compile_one(
        CompileId(1, 0), on, 2.0, {}, broken(9, "print", on)
    )  # resumed in one of the same name
    compile_one(CompileId(2, 0), on, 4.0, {}, broken(3, "branch", "h", "on_in_f"))
    compile_one(CompileId(3, 0), "on_in_f", 1.0, {})
    compile_one(CompileId(4, 0), "other", 16.0, {})
    trace.remove_sink(writer)
    seconds = next(row["seconds"] for row in reported(capsys) if "counts" in row)
    found = [one for one in diagnose(load(str(tmp_path))).findings if one.code == "TC101"]
    assert seconds == {one.id: one.seconds for one in found}
    assert sorted(one.seconds for one in found) == [1.0, 2.0, 4.0]


def test_the_most_expensive_break_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    set_logs(graph_breaks=True)
    compile_one(CompileId(0, 0), "f", 1.0, {}, broken(7, "cheap"), broken(7, "cheap"))
    compile_one(CompileId(1, 0), "g", 1.0, {}, broken(9, "costly", "g"))
    compile_one(CompileId(2, 0), "torch_dynamo_resume_in_g_at_9", 2.5, {})
    capsys.readouterr()
    set_logs()
    rows = capsys.readouterr().err.splitlines()[1:3]
    assert rows[0].endswith("costly  2.50 s compiling") and rows[1].endswith("cheap")
