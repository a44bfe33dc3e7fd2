"""Graphs of the processes that a script starts as new interpreters."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tc.minifier import spawned
from tc.minifier.oracle import Oracle, Server
from tc.minifier.problem import Run, forget, recorded

WAITS = """\
import multiprocessing
import torch, tc

def doubled(gm, inputs):
    return lambda *args: [one * FACTOR for one in gm(*args)]

def work(queue):
    queue.put(tc.compile(torch.sin, backend=doubled)(torch.ones(2, 2)).tolist())

if __name__ == "__main__":
    context = multiprocessing.get_context("METHOD")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,), daemon=True)
    process.start()
    queue.get()
    process.join()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A warm process, which every test asks."""
    made = Server(tmp_path_factory.mktemp("server"), "tc")
    yield made
    made.close()


def script(folder: Path, method: str, factor: float) -> Run:
    """Write a script that waits for what another process computes."""
    path = folder / "script.py"
    path.write_text(WAITS.replace("METHOD", method).replace("FACTOR", str(factor)))
    return Run(path, seconds=100)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_graph_that_goes_wrong_in_another_process_ends_the_script(
    method: str, server: Server, tmp_path: Path
) -> None:
    problem = recorded(server, script(tmp_path, method, 2.0))
    assert problem.kind == "wrong" and problem.case is not None
    assert Oracle(server=server).judge(problem.case).kind == "wrong"


def test_graphs_of_other_processes_are_counted(server: Server, tmp_path: Path) -> None:
    for method in ("spawn", "fork"):
        problem = recorded(server, script(tmp_path, method, 1.0))
        assert problem.kind == "ok"
        assert [problem.facts[name] for name in ("compiles", "graphs", "calls")] == [1, 1, 1]


def test_how_a_forked_process_ends_is_not_how_the_script_does(
    server: Server, tmp_path: Path
) -> None:
    text = "import os, torch, tc\ntc.compile(torch.sin)(torch.ones(2))\n"
    (tmp_path / "script.py").write_text(f"{text}if os.fork():\n    os.wait()\n    [][1]\n")
    problem = recorded(server, Run(tmp_path / "script.py", seconds=60))
    assert problem.kind == "script" and "IndexError" in problem.message


def test_only_programs_of_multiprocessing_are_begun_with_the_line(tmp_path: Path) -> None:
    program = "from multiprocessing.spawn import spawn_main; spawn_main(pipe_handle=3)"
    assert spawned.recording(["python", "-c", program, "--x"], "join\n") == [
        "python", "-c", f"join\n{program}", "--x"
    ]  # fmt: skip
    tracker = ["python", "-c", "from multiprocessing.resource_tracker import main;main(3)"]
    assert spawned.recording(tracker, "join\n") == tracker


def test_what_another_process_finds_is_not_counted_twice(tmp_path: Path) -> None:
    origin = spawned.Origin(str(tmp_path), "script.py", str(tmp_path), os.getpid() + 1)
    assert not origin.is_here
    facts = {**dict.fromkeys(spawned.COUNTED, 2), "refusal": "", "compiler": "tc"}
    spawned.leave_counts(origin, facts)
    first = {"graphs": 1, "calls": 0, "compiler": ""}
    total = spawned.with_counts(first, tmp_path)
    assert (total["graphs"], total["calls"], total["compiler"]) == (3, 2, "tc")
    assert spawned.with_counts({**facts, spawned.ELSEWHERE: True}, tmp_path)["graphs"] == 2
    assert json.loads(next(iter(spawned.left_by_others(tmp_path))).read_text())["calls"] == 2
    forget(tmp_path)
    assert not list(spawned.left_by_others(tmp_path))
