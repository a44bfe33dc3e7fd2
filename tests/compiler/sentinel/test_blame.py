"""The guilty step of a finding is named, by tc-bisect, in the background."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import faultbench
import pytest

from tc import trace
from tc.compiler.sentinel import blame
from tc.compiler.sentinel.graph import Graph
from tc.trace import StackFrame

REPRO = """\
class GraphModule(torch.nn.Module):
    def forward(self, x):
        # File: /home/me/model.py:7 in forward, code: y = x.tanh()
        y = x.tanh()

        # File: /home/me/model.py:9 in forward, code: return y + 1
        return y + 1
"""


def graph() -> Graph:
    nothing: Any = None
    return Graph(nothing, nothing, StackFrame("model.py", 3, "forward"))


def blamed(folder: Path, monkeypatch: pytest.MonkeyPatch, *verdicts: dict[str, Any] | str) -> Any:
    """Return the event of a verdict, with these answers in the place of the tool's."""
    (folder / "repro.py").write_text(REPRO)
    answers = iter(verdicts)
    asked = []

    def run(command: list[str], stdout: Any, **given: Any) -> Any:
        asked.append(command[-1])
        answer = next(answers)
        stdout.write((answer if isinstance(answer, str) else json.dumps(answer)).encode())
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(blame.subprocess, "run", run)
    with trace.capture_events() as events:
        blame.blame(graph(), folder)
        assert blame.wait(30)
    (event,) = events.of(trace.SentinelVerdict)
    return event, asked


BUG = {
    "verdict": "bug",
    "title": "step 3 is wrong",
    "step": "loops.lower.tanh",
    "lines": ["r.py:4"],
}
RIGHT = {"verdict": "no bug", "title": "no bug"}


def test_the_verdict_is_an_event_with_the_lines_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event, asked = blamed(tmp_path, monkeypatch, BUG)
    assert (event.verdict, event.step) == ("bug", "loops.lower.tanh")
    assert event.lines == ("/home/me/model.py:7",)
    assert asked == ["--json"]


def test_what_is_right_alone_is_tried_with_the_caches_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event, asked = blamed(tmp_path, monkeypatch, RIGHT, BUG)
    assert event.title.startswith("it fails only with your cache")
    assert asked == ["--json", "--own-caches"]


def test_what_is_right_with_them_as_well_needs_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event, _ = blamed(tmp_path, monkeypatch, RIGHT, RIGHT)
    assert event.verdict == "inconclusive"
    assert "the repro alone gives right results" in event.title


def test_a_tool_that_dies_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    event, _ = blamed(tmp_path, monkeypatch, "half of a verdi")
    assert event.verdict == "inconclusive" and "exit code 1" in event.title


def test_a_verdict_that_is_there_is_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blamed(tmp_path, monkeypatch, BUG)
    event, asked = blamed(tmp_path, monkeypatch)
    assert (event.title, asked) == ("step 3 is wrong", [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "program", "step", "gradients"),
    [
        ("tc:wrong:tanh", faultbench.BLOCKS, "loops.lower.tanh", False),
        ("tc:kernel:tanh", faultbench.BLOCKS, "kernel.", False),
        ("tc:decomposition:silu_backward", faultbench.TRAINING, "aot.decompose.", True),
    ],
)
def test_a_planted_fault_is_found_and_blamed(
    fault: str, program: str, step: str, gradients: bool, tmp_path: Path
) -> None:
    faultbench.written(
        tmp_path, program + "\nfrom tc.compiler.sentinel import blame\nblame.wait(600)\n"
    )
    variables = {"TC_SENTINEL": "1/1000", "TC_CACHE_DIR": str(tmp_path / "cache")}
    done = faultbench.run(["script.py"], tmp_path, fault, variables)
    assert "sentinel: call 1 of the graph" in done.err, done.err
    assert ("gradients differ" in done.err) is gradients
    (verdict,) = (tmp_path / "cache" / "sentinel").glob("*/verdict.json")
    found = json.loads(verdict.read_text())
    assert found["verdict"] == "bug" and found["step"].startswith(step)
