"""What a step loses is a finding with its cost, before what costs less."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tc_log import Compiler

from tc.trace import (
    Artifact,
    AtenGraph,
    FunctionLines,
    Gap,
    GraphBreak,
    Guards,
    Profile,
    ProgramTime,
    Region,
    RegionsRan,
    SourceLines,
    StackFrame,
    StepTime,
)
from tc.trace.findings import Diagnosis

FILE = "/home/me/model.py"
TINY = StepTime(3, "k0_add", (f"{FILE}:5",), 1e-6, 100, 100)
LARGE = StepTime(3, "k0_add", (f"{FILE}:5",), 0.01, 80_000_000, 10)
PROGRAM = ProgramTime("0/0", "f", FILE, 3, "inference", 100, 1.0, 5, (), ())


def found(folder: Path, *programs: ProgramTime, events: Any = ()) -> Diagnosis:
    log = Compiler(folder).start()
    for event in events:
        log.say(event)
    return log.say(Profile(programs, 0, 1e10, 1e11)).end()


def ran(steps: tuple[StepTime, ...], **more: Any) -> ProgramTime:
    return replace(PROGRAM, steps=steps, **more)


@pytest.mark.parametrize(
    "code, one, line, saved",
    [
        ("TC311", ran((TINY,) * 50), 5, 1.0),
        ("TC312", ran((LARGE,)), 5, 0.5),
        ("TC312", ran((replace(LARGE, seconds=0.1, fresh=40_000_000),)), 5, 0.5),
        ("TC313", ran((LARGE, replace(LARGE, copies=True, places=(f"{FILE}:6",)))), 6, 0.5),
        ("TC315", ran((LARGE,), eager=0.001, instead=0.01), 5, 0.9),
    ],
)
def test_what_a_program_loses_is_reported_at_its_line(
    tmp_path: Path, code: str, one: ProgramTime, line: int, saved: float
) -> None:
    first = found(tmp_path, one).findings[0]
    assert (first.code, first.where.line, first.times) == (code, line, 100)
    assert first.running == pytest.approx(saved)
    assert first.timed and "× 100 calls = " in first.cost


@pytest.mark.parametrize(
    "one",
    [
        ran((TINY,) * 5),  # few
        ran((TINY,) * 50, seconds=0.005),  # not worth anybody's time
        ran((TINY,) * 50, calls=3),
        ran((replace(LARGE, seconds=0.1),)),  # far below what memory gives, for another reason
        ran((replace(LARGE, operations=999_000_000),)),  # bound by arithmetic
        ran((replace(LARGE, operations=999_000_000),), eager=0.0099, instead=0.01),
    ],
)
def test_what_loses_nothing_is_no_finding(tmp_path: Path, one: ProgramTime) -> None:
    assert found(tmp_path, one).findings == []


def test_other_processes_are_no_limit_of_a_step(tmp_path: Path) -> None:
    waited = replace(LARGE, seconds=0.1, busy=0.01)
    assert found(tmp_path, ran((waited,))).findings[0].code == "TC312"


SOURCE = "def f(x):\n    y = {}\n    return y @ w\n"


@pytest.mark.parametrize(
    ("name", "line", "what", "advice"),
    [
        ("k0_clone", "x.mT.contiguous()", "into another layout", "outside of the step"),
        ("k0_clone", "x.repeat_interleave(2, 0)", "to repeat values", "expand()"),
        ("aten.repeat.default", "tiled(x)", "to repeat values", "expand()"),
        ("k0_flip_cat", "torch.cat([x, x.flip(0)])", "to join tensors", "allocate the whole once"),
        ("aten.stack.default", "stacked", "to join tensors", "allocate the whole once"),
    ],
)
def test_advice_about_copies_goes_by_what_they_are_for(
    tmp_path: Path, name: str, line: str, what: str, advice: str
) -> None:
    step = replace(LARGE, name=name, copies=True, places=(f"{FILE}:4",))
    source = SourceLines((FunctionLines(FILE, "f", 3, SOURCE.format(line), (3, 4), (3, 4)),))
    (first,) = found(tmp_path, ran((step,)), events=[source]).findings
    assert (first.code, first.where.source.strip()) == ("TC313", f"y = {line}")
    assert what in first.title and advice in first.fix[0]


WIDE = f"""inference graph
  in[0]  x: f32[8, 8]
  in[1]  scale: f64[8]
  {{}}: f32[8, 8] = aten.relu(x)  # {FILE}:4
  mul: f64[8, 8] = aten.mul.Tensor({{}}, scale)  # {FILE}:4
  add: f64[8, 8] = aten.add.Tensor(mul, 1)  # {FILE}:5
  return [add]
"""


@pytest.mark.parametrize(
    ("graph", "advice"),
    [
        (WIDE.replace("{}", "relu"), "float64: they become that at model.py:4"),
        (WIDE.replace("f64", "f32").replace("{}", "relu"), "bfloat16 halves the bytes"),
        (WIDE.replace("f32", "f64").replace("{}", "relu"), "bfloat16 halves the bytes"),
    ],
    ids=["by a constant", "float32", "float64 by its inputs"],
)
def test_values_that_become_float64_are_advised_to_stay_float32(
    tmp_path: Path, graph: str, advice: str
) -> None:
    first = found(tmp_path, ran((LARGE,)), events=[AtenGraph("inference", graph)]).findings[0]
    assert first.code == "TC312" and advice in first.fix[0]
    assert ("float64" in first.why) == ("float64" in advice)


def test_guards_are_reported_at_the_line_that_most_of_them_are_for(tmp_path: Path) -> None:
    gaps = (Gap("0/0", "inference", 99, 0.5),)
    kinds, exprs = ["ID"] * 3, ["a", "b", "c"]
    guards = Guards(kinds, exprs, exprs, [(FILE, 4), (FILE, 7), (FILE, 7)])
    one = ran((), gaps=gaps, guards=0.004, checked=3, seconds=0.1)
    (first,) = found(tmp_path, one, events=[guards]).findings
    assert (first.code, first.where.line) == ("TC314", 7)
    assert first.title == "3 guards of f take 4.00 ms in each call"
    assert first.running == pytest.approx(0.396)


def test_a_graph_that_fell_back_costs_its_calls_at_the_line_that_did_it(tmp_path: Path) -> None:
    log = Compiler(tmp_path).start()
    log.say(Artifact("tc_graph_runs_eagerly", f"a sparse tensor appears.\n{FILE}:9"))
    found = log.say(RegionsRan((Region("0/0", "f", FILE, 3, "operations", 50, 2, 0.02),))).end()
    (first,) = found.findings
    assert (first.code, first.where.line, first.where.file) == ("TC701", 9, FILE)
    assert first.why.endswith("a sparse tensor appears.") and first.fix
    assert (first.running, first.times) == (pytest.approx(0.5), 50)


def test_guards_of_the_tensors_of_many_kernels_are_a_part_of_these(tmp_path: Path) -> None:
    gaps = (Gap("0/0", "inference", 100, 2.0),)

    def codes(folder: str, handed: int, steps: tuple[StepTime, ...]) -> list[tuple[str, float]]:
        one = ran(steps, gaps=gaps, guards=0.015, checked=60, handed=handed)
        found_here = found(tmp_path / folder, one).findings
        return [(each.code, round(each.running, 3)) for each in found_here]

    assert codes("a", 60, (TINY,) * 50) == [("TC311", 2.5)]  # stacked tensors have one guard
    assert codes("b", 50, (TINY,) * 50) == [("TC311", 2.25)]  # the rest is not worth a finding
    assert codes("c", 0, (TINY,) * 50) == [("TC314", 1.5), ("TC311", 1.0)]
    assert codes("d", 60, (TINY,) * 5) == [("TC314", 1.5)]


def test_guards_take_no_longer_than_what_passes_between_two_calls(tmp_path: Path) -> None:
    gaps = (Gap("0/0", "inference", 100, 0.2),)
    one = ran((), gaps=gaps, guards=0.004, checked=3, seconds=0.1)
    (first,) = found(tmp_path, one).findings
    assert (first.code, first.running) == ("TC314", pytest.approx(0.2))


def test_findings_stand_by_what_they_cost(tmp_path: Path) -> None:
    resumed = "torch_dynamo_resume_in_f_at_4"
    broke = GraphBreak("TC104", "call", "", FILE, 4, "f", stack=(StackFrame(FILE, 4, "f"),))

    def codes(folder: str, at_break: float) -> list[str]:
        gap = Gap("0/0", "inference", 100, at_break)
        after = replace(PROGRAM, compile="1/0", function=resumed, seconds=0.01, gaps=(gap,))
        log = Compiler(tmp_path / folder).start().say(broke).start(frame=1, name=resumed)
        return [one.code for one in log.say(
            Profile((ran((TINY,) * 50), after), 0, 1e10, 1e11)).end().findings]  # fmt: skip

    assert codes("a", 5.0) == ["TC104", "TC311"]
    assert codes("b", 0.5) == ["TC311", "TC104"]


def test_a_break_between_two_backwards_costs_there_too(tmp_path: Path) -> None:
    resumed = "torch_dynamo_resume_in_f_at_9"  # the branch continues at a later line
    broke = GraphBreak("TC110", "branch", "", FILE, 4, "f", stack=(StackFrame(FILE, 4, "f"),))
    log = Compiler(tmp_path).start().say(broke).start(frame=1, name=resumed)
    forward = replace(
        PROGRAM, compile="1/0", function=resumed, graph="forward",
        gaps=(Gap("0/0", "forward", 100, 0.2),),
    )  # fmt: skip
    back = replace(PROGRAM, graph="backward", gaps=(Gap("1/0", "backward", 100, 0.3),))
    diagnosis = log.say(Profile((forward, back))).end()
    (first,) = (one for one in diagnosis.findings if one.code == "TC110")
    assert (first.between, first.times) == (pytest.approx(0.5), 100)
    ((_, cost),) = diagnosis.session.step_costs
    assert [row.broke for row in cost.rows if row.between] == [f"{FILE}:4"] * 2
    assert dict(cost.lines())[f"{FILE}:4"] == pytest.approx(0.5)
