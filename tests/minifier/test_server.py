"""The judging process: what its children return, and what becomes of those that do not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support import python

from tc.minifier.answer import Answer
from tc.minifier.case import Case, Input, Step
from tc.minifier.fresh import Fresh
from tc.minifier.identity import Identity
from tc.minifier.oracle import NotRunnable, Oracle, ScriptOracle, Server
from tc.minifier.problem import Run, compiler_of, record, recorded
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


COMPILED = "import atexit, os, signal, sys, threading, time, torch, tc\n"
CALL = "tc.compile(lambda x: x + 1)(torch.ones(3))\n"
LATE = f"def late():\n    time.sleep(0.2)\n    {CALL}"
#: how a program may end -> what follows the imports, the kind of its end, graphs, what is said
ENDINGS = {
    "its streams are closed": (f"{CALL}sys.stdout.close(); sys.stderr.close()", "ok", 1, ""),
    "it has no streams": (f"{CALL}sys.stdout = sys.stderr = None; os.close(1)", "ok", 1, ""),
    "it leaves at once": (f"{CALL}os._exit(0)", "ok", 1, ""),
    "it fails at once": (f"{CALL}os._exit(3)", "exit", 1, "exit code 3"),
    "it says why it ends": (f"{CALL}sys.exit('no data')", "exit", 1, "with the words: no data"),
    "a child leaves at once": (f"os.fork() or os._exit(3)\nos.wait()\n{CALL}", "ok", 1, ""),
    "an interrupt": (f"{CALL}os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)", "script", 1,
                     "KeyboardInterrupt"),
    "no Exception": (f"class Stop(BaseException): pass\n{CALL}raise Stop('here')", "script", 1,
                     "Stop: here"),
    "no message": (f"class Odd(Exception):\n    def __str__(self): return 1 / 0\n{CALL}raise Odd()",
                   "script", 1, "Odd"),
    "a thread continues": (f"{LATE}threading.Thread(target=late).start()", "ok", 1, ""),
    "at its exit": (f"{LATE}atexit.register(late)", "ok", 1, ""),
    "it closes what it does not know": (f"{CALL}os.closerange(3, 99)", "ok", 1, ""),
    "it leaves a child behind": (f"{CALL}os.fork() or (os.setsid(), time.sleep(60))", "ok", 1, ""),
}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("how", ENDINGS)
def test_a_program_ends_as_python_ends_it(how: str, server: Server, tmp_path: Path) -> None:
    body, kind, graphs, said = ENDINGS[how]
    (tmp_path / "script.py").write_text(COMPILED + body + "\n")
    begun = time.monotonic()
    problem = recorded(server, Run(tmp_path / "script.py", seconds=30))
    assert (problem.kind, problem.facts["graphs"]) == (kind, graphs), problem
    assert said in problem.message
    assert time.monotonic() - begun < 30
    row = server.ask(
        {"do": "rerun", "path": str(tmp_path / "script.py"), "folder": str(tmp_path), "seconds": 30}
    )
    answer = Answer.of(row)
    assert answer.kind == kind and said in answer.message, answer
    assert answer.identity == problem.identity
    assert time.monotonic() - begun < 60


def test_a_script_that_puts_itself_in_its_place_is_recorded(server: Server, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    again = "os.environ['AGAIN'] = '1'\n    os.execv(sys.executable, [sys.executable, *sys.argv])"
    script.write_text(f"{COMPILED}if 'AGAIN' not in os.environ:\n    {again}\n{CALL}sys.exit(7)\n")
    problem = recorded(server, Run(script, seconds=60))
    assert (problem.kind, problem.facts["graphs"]) == ("exit", 1), problem
    assert "exit code 7" in problem.message


@pytest.mark.sample(1)
@pytest.mark.parametrize("apart", [False, True])
def test_a_file_where_the_user_is_takes_no_librarys_place(
    apart: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pickle", "json", "dataclasses", "sympy"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not the one')\n")
    (tmp_path / "home").mkdir()
    script = tmp_path / "home" / "script.py"
    script.write_text(f"{COMPILED}{CALL}sys.exit(7)\n")
    monkeypatch.chdir(tmp_path)
    if apart:
        assert record(Run(script, seconds=60), tmp_path).message.startswith("the script ends with")
        assert Fresh(60).run(script, tmp_path).identity == Identity("exit", message="exit code 7")
        return
    own = Server(tmp_path)
    try:
        assert recorded(own, Run(script, seconds=60)).facts["graphs"] == 1
    finally:
        own.close()


def test_a_limit_of_memory_that_the_user_set_is_kept(tmp_path: Path) -> None:
    code = (
        "import resource as r; r.setrlimit(r.RLIMIT_AS, (64 << 30, 64 << 30))\n"
        "from tc.minifier import server; server._as_new_process({'memory': 1 << 40})\n"
        "print(r.getrlimit(r.RLIMIT_AS)[1] >> 30)\n"
    )
    assert python("-c", code, cwd=tmp_path, warm=True).stdout.split() == ["64"]


def test_a_graph_that_goes_wrong_in_a_forked_process_counts(server: Server, tmp_path: Path) -> None:
    own = "import torch\ndef doubled(gm, inputs):\n    return lambda *a: (gm(*a)[0] * 2,)\n"
    call = "tc.compile(torch.sin, backend=doubled)(torch.ones(2, 2))"
    body = f"{own}os.fork() or {call}\nos.wait()\n{CALL}"
    (tmp_path / "script.py").write_text(COMPILED + body)
    problem = recorded(server, Run(tmp_path / "script.py", seconds=60))
    assert problem.kind == "wrong" and problem.case is not None
    assert Oracle(server=server).judge(problem.case).kind == "wrong"


STRICT = """\
lib = torch.library.Library("strict{number}", "DEF")
lib.define("root(Tensor x) -> Tensor")


@torch.library.impl(lib, "root", "CPU")
def root(x):
    if (x < 0).any():
        raise ValueError(f"negative: {{x.min().item():.2f}}")
    return x.sqrt()


@torch.library.register_fake("strict{number}::root")
def _(x):
    return torch.empty_like(x)


f = tc.compile(lambda x: torch.ops.strict{number}.root(x * 2) + 1)
f(torch.ones(3))
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "ending, kind",
    [
        ("try:\n    f(-torch.ones(3))\nexcept ValueError:\n    pass\n", "ok"),
        ("f(-torch.ones(3))\n", "script"),
    ],
)
def test_what_eager_raises_too_is_the_programs_own(
    ending: str, kind: str, server: Server, tmp_path: Path
) -> None:
    body = STRICT.format(number=len(kind))
    (tmp_path / "script.py").write_text(f"{COMPILED}{body}{ending}")
    problem = recorded(server, Run(tmp_path / "script.py", seconds=60))
    assert problem.kind == kind, problem
    assert problem.facts["refused"] == 1


def test_operators_of_a_library_run_alone(server: Server, tmp_path: Path) -> None:
    own = "def wrong(gm, inputs):\n    return lambda *a: (gm(*a)[0] * 2,)\n"
    body = STRICT.format(number=3).replace("+ 1)", "+ 1, backend=wrong)")
    (tmp_path / "script.py").write_text(f"{COMPILED}{own}{body}")
    problem = recorded(server, Run(tmp_path / "script.py", seconds=60))
    assert problem.kind == "wrong" and problem.case is not None
    assert Oracle(server=server).judge(problem.case).kind == "wrong"


def test_a_graph_that_does_not_run_by_itself_is_an_error_of_its_own(server: Server) -> None:
    step = Step("y", "torch.ops.nowhere.root($0)", ("x",))
    case = Case((Input("x", "randn", "x", (2,)),), (step,), ("y",))
    with pytest.raises(NotRunnable, match="nowhere"):
        Oracle(server=server).learn(case)


SPAWNS = """\
import multiprocessing
import torch
def work():
    import tc
    def rounds(gm, inputs):
        return lambda *args: [one * 1.25 for one in gm(*args)]
    assert tc.compile(torch.sin, backend=rounds)(torch.ones(1)) < 1
if __name__ == "__main__":
    import tc
    tc.compile(torch.sin)
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start(); process.join()
    raise SystemExit(process.exitcode)
"""


def test_nothing_is_compiled_in_programs_that_an_eager_program_starts(
    server: Server, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SPAWNS)
    run = Run(script, seconds=60)
    assert recorded(server, run).kind == "wrong"
    assert recorded(server, run, calls=(0, False)).kind == "ok"
    oracle = ScriptOracle(server=server, path=lambda: tmp_path / "own.py", place=lambda: tmp_path)
    assert oracle.ask(SPAWNS).kind == "exit" and oracle.is_sound(SPAWNS)
