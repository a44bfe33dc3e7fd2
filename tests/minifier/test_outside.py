"""tc-bisect where no graph goes wrong: capture fails, breaks, or lets pass what it must not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from faultbench import written
from minifier_scripts import tool

NAMES = """\
import torch, tc
def helper(x, names):
    if "a" in names:
        return x + 1
    return x
def f(x):
    y = torch.sin(x)
    return helper(y, ["a", "b"]) * 2
tc.compile(f)(torch.ones(3))
"""
BREAK = """\
import torch, tc
def f(x):
    print("sum", x.sum())
    return x * 2
COMPILER.compile(f, fullgraph=True)(torch.ones(3))
"""
STALE = """\
import torch, tc
class Model(torch.nn.Module):
    def forward(self, x, n):
        return x * n
settings = {"guard_filter_fn": lambda entries: [False for _ in entries]}
model = COMPILER.compile(Model(), options=settings, dynamic=False)
x = torch.ones(3)
for n in (2, 2, 2, 3, 3):
    y = model(x, n)
    assert torch.equal(y, x * n), n
"""
EXACT = """\
import torch, tc
def f(x):
    return torch.sin(x).sum()
x = torch.linspace(-9, 9, 5001)
assert tc.compile(f)(x).item() == f(x).item() + 1e-7
"""


def verdict(script: str, folder: Path, code: int, compiler: str = "tc", fault: str = "") -> Any:
    written(folder, script, compiler)
    done = tool("tc.minifier.bisect", "script.py", "--json", fault=fault, cwd=folder)
    assert done.returncode == code, done.stderr + done.stdout
    return json.loads(done.stdout)


def number(found: Any) -> list[str]:
    return [line.rpartition(":")[2] for line in found["lines"]]


@pytest.mark.slow
def test_a_guard_that_lets_too_much_pass_is_named(tmp_path: Path) -> None:
    found = verdict(STALE, tmp_path, 1)
    assert (found["step"], found["number"], found["of"]) == ("guards", 4, 4)
    assert number(found) == ["9"] and "Model" in found["title"]


@pytest.mark.slow
def test_a_guard_of_torch_is_named_too(tmp_path: Path) -> None:
    found = verdict(STALE, tmp_path, 1, "torch")
    assert (found["step"], found["number"]) == ("guards", 4)


@pytest.mark.slow
def test_the_handler_and_the_line_where_capture_fails(tmp_path: Path) -> None:
    found = verdict(NAMES, tmp_path, 1, fault="tc:opcode:CONTAINS_OP")
    assert (found["stage"], found["step"]) == ("capture", "CONTAINS_OP")
    assert number(found) == ["3"] and found["workaround"] == "disable"


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["tc", "torch"])
def test_a_break_where_none_may_be(compiler: str, tmp_path: Path) -> None:
    found = verdict(BREAK, tmp_path, 1, compiler)
    assert "breaks the graph" in found["title"] and number(found) == ["3"]


@pytest.mark.slow
def test_a_script_that_fails_by_itself_is_no_bug(tmp_path: Path) -> None:
    found = verdict(EXACT, tmp_path, 5)
    assert found["verdict"] == "inconclusive"


CAPTURE = """\
import torch
def f(x):
    return (-2) ** x
x = torch.tensor([0, 1, 2, 3])
assert torch.equal(torch.compile(f, backend="eager")(x), f(x))
"""


@pytest.mark.slow
def test_an_operation_that_torch_captures_wrongly_is_no_residual_code(tmp_path: Path) -> None:
    found = verdict(CAPTURE, tmp_path, 1)
    assert (found["step"], number(found)) == ("capture", ["5"])
    done = tool("tc.minifier.bisect", "compare", "script.py", "--json", cwd=tmp_path)
    assert done.returncode == 1 and json.loads(done.stdout)["line"].endswith(":3")
