"""What a script sets of its compilers is part of the case."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from minifier_scripts import chain, tool
from torch import fx

from tc.compiler import api
from tc.minifier import settings
from tc.minifier.case import Case, Input, Step, from_json, to_json
from tc.minifier.graphs import copied
from tc.minifier.oracle import Oracle, Server
from tc.minifier.passes.context import fewer_settings
from tc.minifier.problem import Run, recorded


def test_what_a_script_sets_is_seen() -> None:
    before = settings.current()
    assert settings.changed(before) == ()
    with api.config.patch(fallback_random=False):
        assert settings.changed(before) == ("tc.config.fallback_random = False",)
    torch.use_deterministic_algorithms(True)
    try:
        assert "torch.use_deterministic_algorithms(True)" in settings.changed(before)
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_graph_that_is_called_in_autocast_is_run_in_autocast() -> None:
    before = settings.current()
    with torch.autocast("cpu", torch.float16):
        given = settings.changed(before)
    assert given == (
        "torch.set_autocast_enabled('cpu', True)",
        "torch.set_autocast_dtype('cpu', torch.float16)",
    )
    product = Step("y", "$0 @ $0", ("x",))
    case = Case((Input("x", "ones", "x", (3, 3)),), (product,), ("y",), settings=given)
    names: dict[str, Any] = {}
    with torch.autocast("cpu", enabled=False):  # which puts back what the program sets
        exec(case.program(), names)
        assert names["f"](names["x"]).dtype is torch.float16
    assert not torch.is_autocast_enabled("cpu")
    torch.set_autocast_dtype("cpu", torch.bfloat16)


AUTOCAST = """\
import torch, tc
def rounds(gm, inputs):
    def run(*args):
        return [one * 1.25 if one.dtype is torch.bfloat16 else one for one in gm(*args)]
    return run
net = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4)))
with torch.no_grad(), torch.autocast("cpu"):
    tc.compile(net, backend=rounds)(torch.randn(2, 8))
"""


@pytest.mark.slow
def test_a_failure_in_autocast_is_reduced_as_a_graph(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(AUTOCAST)
    done = tool("tc.minifier", "s.py", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (found["calls"], found["verified"]) == (1, found["runs"])
    assert "torch.set_autocast_enabled('cpu', True)" in (tmp_path / "minified.py").read_text()


def test_a_case_sets_it_again() -> None:
    given = ("torch._inductor.config.cpp.threads = 1", "tc.config.specialize_int = True")
    case = dataclasses.replace(chain(2), settings=given)
    text = case.program()
    assert text.startswith("import tc\nimport torch\nimport torch._inductor.config\n")
    assert all(f"\n{one}\n" in text for one in given)
    assert from_json(json.loads(json.dumps(to_json(case)))) == case
    *_, least = fewer_settings(case, lambda smaller: given[0] in smaller.settings)
    assert least.settings == given[:1]


def test_a_copied_graph_is_not_changed_with_the_first() -> None:
    gm = fx.symbolic_trace(torch.nn.ReLU())
    copy = copied(gm)
    for node in gm.graph.nodes:
        if node.op == "call_function":
            node.target = torch.neg
    gm.recompile()
    assert copy(torch.tensor(-3.0)) == 0


@pytest.mark.slow  # test_bisect.py finds the stage and the line of a wrong compile
@pytest.mark.parametrize("compiler", ["tc", "torch"])
def test_a_backend_that_rewrites_its_graph_is_found_out(compiler: str, tmp_path: Path) -> None:
    backend = "relu_accuracy_error_TESTING_ONLY"
    (tmp_path / "s.py").write_text(
        f"import torch, tc\ndef f(x): return torch.relu(x) * 2\n"
        f"{compiler}.compile(f, backend={backend!r})(torch.randn(8))\n"
    )
    done = tool("tc.minifier.bisect", "s.py", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (done.returncode, found["stage"]) == (1, backend)
    assert found["title"] == f"backend {backend} computes torch.relu wrong"


DOUBLE = """\
import torch, tc
torch.set_default_dtype(torch.float64)
def doubled(gm, inputs):
    return lambda *args: [one * 2 for one in gm(*args)]
def f(x, y):
    steps = torch.arange(3) * 0.5
    return steps @ x + y.sum()
tc.compile(f, backend=doubled)(torch.randn(3, 2), torch.randn(2, dtype=torch.float32))
"""


def test_the_default_dtype_of_a_script_is_that_of_its_case(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(DOUBLE)
    server = Server(tmp_path)
    try:
        problem = recorded(server, Run(script, seconds=60))
        assert problem.kind == "wrong" and problem.case is not None
        oracle = Oracle(server=server)
        assert oracle.judge(problem.case).kind == "wrong"
        inputs = tuple(dataclasses.replace(one, fill="randn") for one in problem.case.inputs)
        made = dataclasses.replace(oracle.learn(problem.case), inputs=inputs)
        assert oracle.judge(made).kind == "wrong"
        small = [dataclasses.replace(one, fill="text", text="torch.ones(3, 2)") for one in inputs]
        assert oracle.judge(dataclasses.replace(made, inputs=tuple(small))).kind == "wrong"
    finally:
        server.close()
    assert "torch.set_default_dtype(torch.float64)" in made.program()
    assert "torch.randn(2, dtype=torch.float32)" in made.program()
