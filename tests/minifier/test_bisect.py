"""tc-bisect: the verdict on broken and healthy compilers."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from faultbench import BLOCKS, written
from minifier_scripts import SMALL, chain, tool

from tc.minifier import bisect, issue
from tc.minifier.answer import Answer
from tc.minifier.bisect import main
from tc.minifier.case import Call
from tc.minifier.console import Progress
from tc.minifier.ladder import STAGES, Ladder
from tc.minifier.odds import runs_for
from tc.minifier.oracle import Oracle
from tc.minifier.problem import Problem
from tc.minifier.verdict import Verdict


def test_wrong_usage_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["nowhere.py"]) == 2
    assert main(["nowhere.py", "--runs", "0"]) == 2
    reported = capsys.readouterr().err
    assert reported.splitlines() == [
        "tc-bisect: name a script; try tc-bisect --help",
        "tc-bisect: there is no script nowhere.py; try tc-bisect --help",
        "tc-bisect: argument --runs: a whole number from 1 on is needed, not '0'; "
        "try tc-bisect --help",
    ]


def test_stages_are_those_of_the_compiler() -> None:
    from tc.compiler.api import REPLAYED

    assert tuple(REPLAYED) == STAGES


class Requests:
    """A server that keeps what it is asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(request["call"])
        return {"kind": "ok", "identity": None}


@pytest.mark.parametrize(
    "given, kept",
    [
        ({"dynamic": "True", "options": "{'freezing': True}"}, True),
        ({"backend": "'inductor'", "dynamic": "True", "options": "{'freezing': True}"}, True),
        ({"backend": "mine", "dynamic": "True", "options": "{'mine': 3}"}, False),
    ],
)
def test_only_our_backend_takes_its_options(given: dict[str, str], kept: bool) -> None:
    server: Any = Requests()
    case = dataclasses.replace(chain(2), call=Call("tc", tuple(given.items())))
    Ladder(Oracle(server=server), case, Answer("ok")).stage("loops")
    options = f", options={given['options']}" if kept else ""
    assert server.calls == [f"tc.compile(f, backend=replayed, dynamic=True{options})"]


@pytest.mark.parametrize("compiler, first", [("tc", "capture"), ("torch", "eager")])
def test_a_function_as_backend_is_a_rung_of_its_own(compiler: str, first: str) -> None:
    server: Any = Requests()
    case = dataclasses.replace(chain(2), call=Call(compiler, (("backend", "mine"),)))
    ladder = Ladder(Oracle(server=server), case, Answer("ok"))
    assert list(ladder.names()) == [first, "mine"]
    ladder.backend("mine")
    ladder.backend("eager")
    assert [call.partition("backend=")[2] for call in server.calls] == ["mine)", "'eager')"]


def test_the_step_and_the_line_are_found(tmp_path: Path) -> None:
    written(tmp_path, SMALL)
    done = tool("tc.minifier.bisect", "script.py", "--json", fault="tc:wrong:tanh", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["verdict"], found["stage"], found["step"]) == ("bug", "loops", "loops.lower.tanh")
    assert [line.rpartition(":")[2] for line in found["lines"]] == ["4"]
    assert found["workaround"] == "TC_BISECT=loops.lower.tanh:1"
    assert found["element"]["output"] == 0


@pytest.mark.slow
def test_a_healthy_script_has_no_bug(tmp_path: Path) -> None:
    written(tmp_path, BLOCKS)
    done = tool("tc.minifier.bisect", "script.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("VERDICT  no bug: 1 graph agrees with eager in 1 checked call")


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault, stage, step, line",
    [
        ("tc:kernel:tanh", "kernels", "kernel.k", "10"),
        ("tc:fused:tanh", "kernels", "kernel.k", "10"),
        ("tc-step:fuse:native_layer_norm+native_layer_norm", "schedule", "schedule.fuse", "7"),
        ("tc:wrong:log1p", "loops", "loops.lower.log1p", "17"),
    ],
)
def test_faults_of_each_stage(fault: str, stage: str, step: str, line: str, tmp_path: Path) -> None:
    written(tmp_path, BLOCKS)
    done = tool("tc.minifier.bisect", "script.py", "--json", fault=fault, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["stage"] == stage
    assert found["step"].startswith(step)
    assert line in [where.rpartition(":")[2] for where in found["lines"]]


OWN_BACKEND = """
import torch
import tc

def mine(gm, inputs):
    if any(node.target is torch.cos for node in gm.graph.nodes):
        raise KeyError("no cos here")
    return gm.forward

tc.compile(lambda x: torch.cos(x), backend=mine)(torch.randn(3))
"""


@pytest.mark.slow
def test_a_backend_that_the_script_defines_is_named(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(OWN_BACKEND)
    done = tool("tc.minifier.bisect", "script.py", "--json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["verdict"], found["stage"]) == ("bug", "backend mine")
    assert found["place"].endswith("script.py:5") and found["workaround"] == "eager"


def test_a_backend_that_fails_in_some_runs_is_blamed_by_as_many_as_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run that is right without the backend proves nothing if half of those with it are."""
    turns = itertools.cycle(["ok", "wrong"])

    def found(facts: dict[str, Any]) -> tuple[Any, list[str]]:
        without: list[str] = []

        def alone(*_: Any) -> Problem:
            without.append("eager")
            return Problem("ok")

        monkeypatch.setattr(bisect, "record", alone)
        monkeypatch.setattr(bisect, "recorded", lambda *_: Problem(next(turns)))
        run: Any = None
        search = bisect.Search(run, run, tmp_path, 9.0, Progress())
        return search.own_backend(Problem("wrong", facts=facts), run), without

    verdict, without = found({"own_backends": [("mine", "script.py:5")]})
    assert verdict.facts["stage"] == "backend mine" and verdict.facts["share"] < 0.6
    assert len(without) == runs_for(verdict.facts["share"]) > 5
    turns = itertools.cycle(["wrong"])
    verdict, without = found({"own_backends": [("mine", "script.py:5")]})
    assert "share" not in verdict.facts and len(without) == 1


@pytest.mark.slow
def test_the_ladder_of_torch(tmp_path: Path) -> None:
    written(tmp_path, BLOCKS, "torch")
    done = tool("tc.minifier.bisect", "script.py", "--json", fault="torch:wrong:tanh", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["stage"] == "inductor"
    assert found["workaround"] == "backend=aot_eager_decomp_partition"


def test_a_verdict_is_the_text_of_an_issue() -> None:
    verdict = Verdict(1, "step 3, loops.lower.tanh, computes torch.tanh wrong")
    verdict.add("your line", "model.py:3   y = a | b")
    text = issue.of_verdict(verdict, "train.py", "import tc\n")
    assert text.startswith("# step 3, loops.lower.tanh, computes torch.tanh wrong\n")
    assert "```python\nimport tc\n```" in text and "## Versions" in text
    assert "| your line | model.py:3   y = a \\| b |" in text


def test_one_form_of_the_output_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([__file__, "--json", "--issue"]) == 2
    assert "--json and --issue are two forms of one output" in capsys.readouterr().err
