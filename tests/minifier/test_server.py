"""The judging process: what its children return, and what becomes of those that do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tc.minifier.case import Case, Input, Step
from tc.minifier.oracle import Oracle, Server
from tc.minifier.problem import Run, compiler_of, recorded
from tc.minifier.writer import with_data

SETTING = """\
import os, sys
os.environ["TORCH_SETTING"] = "7"
import torch, tc
assert sys.stdin.read() == "" and sys.argv[1:] == ["--steps", "2"] and __name__ == "__main__"
tc.compile(lambda x: x + 1)(torch.ones(3))
print("much")
sys.exit(5)
"""

SMALL = torch.tensor([[1.5, float("inf")], [-2.0, 0.25]], dtype=torch.float64)
LARGE = torch.arange(3000).view(30, 100).t()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    torch.save({"small": SMALL, "large": LARGE}, folder / "inputs.pt")
    running = Server(folder, "tc", 1)
    yield running
    running.close()


def judged(server: Server, body: str, **more: Any) -> dict[str, Any]:
    program = f"import os, time, torch, tc\ndef f(x):\n    {body}\nx = torch.ones(3)\n"
    return server.ask(
        {"do": "judge", "program": program, "arguments": ["x"], "call": "tc.compile(f)",
         "backward": False, "seconds": 60, **more}
    )  # fmt: skip


def test_a_right_program_is_ok(server: Server) -> None:
    assert judged(server, "return torch.sin(x) + 1")["kind"] == "ok"


def test_requests_are_not_for_programs_to_read(server: Server) -> None:
    body = "import sys; x = x + len(sys.stdin.read()) + len(os.read(0, 99)); return x"
    assert judged(server, body)["kind"] == "ok"


def test_children_that_do_not_come_back_are_answers(server: Server) -> None:
    late = judged(server, "time.sleep(60)", seconds=0.5)
    assert (late["kind"], late["identity"]["kind"]) == ("timeout", "hangs")
    died = judged(server, "os.abort()")
    assert (died["kind"], died["identity"]["types"]) == ("died", ["SIGABRT"])
    greedy = judged(server, "return torch.empty(1 << 40)", memory=1 << 30)
    assert greedy["kind"] == "invalid"
    assert judged(server, "return x + 1")["kind"] == "ok"


@pytest.mark.parametrize("key, value", [("small", SMALL), ("large", LARGE)])
def test_recorded_values_become_text(server: Server, key: str, value: torch.Tensor) -> None:
    row = server.ask({"do": "text", "key": key, "shape": list(value.shape)})
    made = eval(row["text"], {"torch": torch, "inf": float("inf")})
    assert torch.equal(made, value)
    assert len(row["text"]) < 10_000


def test_values_are_kept_before_they_are_written_to(server: Server) -> None:
    steps = (
        Step("a", "$0[:2, :3] * 2", ("x",)),
        Step("b", "$0.add_(1)", ("a",), mutates=True),
        Step("c", "$0.chunk(2)", ("b",)),
        Step("d", "$0[0]", ("c",)),
    )
    case = Case(
        (Input("x", "recorded", "large", (100, 30), (1, 100), "torch.int64"),), steps, ("d",)
    )
    known = Oracle(server=server).learn(case)
    assert {name: fact.kind for name, fact in known.facts.items()} == {
        "x": "tensor", "a": "tensor", "b": "tensor", "c": "other", "d": "tensor",
    }  # fmt: skip
    row = server.ask({"do": "text", "key": "a", "shape": [2, 3]})
    assert torch.equal(eval(row["text"], {"torch": torch}), LARGE[:2, :3] * 2)


def test_values_too_large_for_text_lie_in_a_file(server: Server, tmp_path: Path) -> None:
    server.ask({"do": "export", "keys": ["large"], "path": str(tmp_path / "x.pt")})
    text = with_data("import torch\n\ny = recorded('large', (2, 3))\n", "x.pt")
    names: dict[str, Any] = {"__file__": str(tmp_path / "x.py")}
    exec(text, names)
    assert torch.equal(names["y"], LARGE[:2, :3])


def test_a_script_runs_in_a_fork_as_it_would_alone(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SETTING)
    server = Server(tmp_path)
    try:
        problem = recorded(server, Run(script, ["--steps", "2"], 60))
        assert server.compiler == ""  # started again, with what the script sets
        assert judged(server, "return x + float(os.environ['TORCH_SETTING'])")["kind"] == "ok"
    finally:
        server.close()
    assert (problem.kind, problem.facts["graphs"]) == ("exit", 1)
    assert "exit code 5" in problem.message
    assert problem.facts["environment"] == {}  # known from the start, the second time
    assert (tmp_path / "script.log").read_text() == "much\n"


@pytest.mark.parametrize(
    "text, compiler",
    [
        ("@torch.compile\ndef f(x): ...", "torch"),
        ("model.compile()", "torch"),
        ("import torch\nimport tc\ntc.compile(f)", "tc"),
        ("import helpers", ""),
    ],
)
def test_the_compiler_of_a_script_is_guessed(text: str, compiler: str) -> None:
    assert compiler_of(text) == compiler
