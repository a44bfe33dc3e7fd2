"""A backend that a script passes as a function goes with the graph, or the script is reduced."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from minifier_scripts import tool

from tc.minifier.own_backend import OwnBackend

WRONG = """
import torch
import tc

SIGN = -1

{backend}

def model(x):
    y = torch.cos(x) + 1
    return torch.sin(y) * 2, y.sum(0)

torch.manual_seed(0)
tc.compile(model, backend={name})(torch.randn(8, 8))
"""
#: backends that compute -cos where the graph has cos: name, definition, whether its text is taken
BODY = """def {name}(gm, inputs):
    def run(*args):
        return [SIGN * part for part in gm.forward(*args)]
    return run
"""
BACKENDS = {
    "a function": ("mine", BODY.format(name="mine"), True),
    "a lambda": ("mine", "mine = lambda gm, inputs: lambda *a: [-v for v in gm(*a)]", True),
    "under another name": ("other", BODY.format(name="mine") + "other = mine", True),
    "a name of the case": ("f", BODY.format(name="f"), False),
    "a closure": ("make()", "def make():\n" + textwrap.indent(
        BODY.format(name="mine") + "return mine", "    "), False),
    "a relative import": ("mine", "from .x import y\n" + BODY.format(name="mine").replace(
        "SIGN", "y"), False),
}  # fmt: skip


@pytest.mark.parametrize("kind", BACKENDS)
def test_the_text_of_a_backend_is_taken_where_it_means_the_same(kind: str) -> None:
    name, text, taken = BACKENDS[kind]
    source = "SIGN = -1\n" + text
    module = type(sys)("of_a_test")
    exec(source.replace("from .x import y\n", "y = 1\n"), vars(module))
    backend = eval(name, vars(module))
    backend.__module__ = "__main__"
    before, sys.modules["__main__"] = sys.modules["__main__"], module
    try:
        own = OwnBackend.of(backend, source)
    finally:
        sys.modules["__main__"] = before
    assert bool(own.text) == taken, own
    if taken:
        names: dict[str, object] = {}
        exec(own.text, names)
        assert callable(names[own.name])


def reduced(backend: str, folder: Path) -> tuple[subprocess.CompletedProcess[str], str]:
    name, text, _ = BACKENDS[backend]
    (folder / "script.py").write_text(WRONG.format(backend=text, name=name))
    done = tool("tc.minifier", "script.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    return done, (folder / "minified.py").read_text()


@pytest.mark.slow
def test_a_graph_has_the_backend_that_fails(tmp_path: Path) -> None:
    done, text = reduced("a function", tmp_path)
    assert (
        "backend=mine)" in text and "def mine(" in text and "fails alike in 5 of 5" in done.stderr
    )
    bisected = tool("tc.minifier.bisect", "minified.py", cwd=tmp_path)
    assert "backend mine of the script is at fault" in bisected.stdout


@pytest.mark.slow
def test_a_script_is_reduced_whose_backend_cannot_be_taken(tmp_path: Path) -> None:
    done, text = reduced("a closure", tmp_path)
    assert "the script itself is reduced" in done.stderr and "fails alike" in done.stderr
    assert "make()" in text or "backend=" in text


@pytest.mark.slow
def test_a_backend_whose_code_hangs_is_at_fault(tmp_path: Path) -> None:
    """No graph is being checked then, and the process does not live to say what it used."""
    body = "def mine(gm, inputs):\n    def run(*args):\n        while True: pass\n    return run\n"
    script = WRONG.format(backend=body, name="mine").replace("tc.compile(", "torch.compile(")
    (tmp_path / "script.py").write_text(script)
    done = tool("tc.minifier.bisect", "script.py", "--seconds", "5", cwd=tmp_path)
    assert "backend mine of the script is at fault" in done.stdout
    assert "while lowering" not in done.stdout
