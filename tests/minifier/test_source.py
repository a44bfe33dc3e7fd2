"""Scripts are reduced as text where there is no graph to reduce."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import warnings
from pathlib import Path

import pytest
from faultbench import written
from minifier_scripts import tool

from tc.minifier.passes import rendering, source

SCRIPT = '''
"""A script."""
import os, sys

class Shape:
    """Something."""
    sides = 4
    def area(self, size, depth=3):
        for _ in range(128):
            if size > 1:
                culprit(size + 12, os)
        return size
    def unused(self):
        return 1

def main():
    shape = Shape()
    with open(os.devnull) as f:
        print(shape.area(64))
main()
'''

CAPTURE = """\
import math
import torch, tc
class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(3))
        self.names = {"relu": torch.relu, "sin": torch.sin}
    def forward(self, x, kind="sin"):
        for layer in self.layers:
            x = layer(x) / math.sqrt(2)
            if kind in self.names:
                x = self.names[kind](x)
        return x.mean(0)
def main():
    compiled = tc.compile(Model(32).eval())
    for step in range(3):
        print(step, compiled(torch.randn(8, 32)).sum().item())
main()
"""

ONLY_COMPILED = """\
import torch, tc
def f(x, seen):
    for k in range(3):
        x = torch.sin(x) * k
    if torch.compiler.is_compiling():
        seen.append(1)
    return x
def main():
    seen = []
    print(tc.compile(f)(torch.ones(3), seen))
    if seen:
        raise ValueError("eager saw nothing")
main()
"""


def reduced(text: str, needed: str) -> str:
    """Reduce with an oracle that looks for words in a script that parses."""

    def fails(candidate: str) -> bool:
        ast.parse(candidate)
        return needed in candidate

    reported: list[str] = []
    result = source.reduced(text, fails, reported.append)
    assert not reported or reported[-1] == result
    return result


@pytest.mark.parametrize(
    "needed, left",
    [
        ("culprit(", "culprit()"),
        ("sides = 4", "sides = 4"),
        ("def area(self", "def area(self):\n    pass"),
        ("open(os", "with open(os):\n    pass"),
    ],
)
def test_what_is_needed_remains(needed: str, left: str) -> None:
    assert reduced(SCRIPT, needed) == left


#: a program, what its output has to be to fail alike, and the smallest program that prints it
INLINED = {
    "constructors": (
        "class A:\n    def __init__(self, size, *, name='x'):\n        pass\n"
        "    def run(self):\n        return self.kept\n"
        "a = A(4, name='y')\na.kept = 7\nprint(a.run())",
        "7\n",
        "class A:\n    pass\na = A\na.kept = 7\nprint(a.kept)",
    ),
    "methods": (
        "class A:\n    kept = 7\n    def one(self, by):\n        return self.kept // by\n"
        "    def two(self):\n        known = self.one(3)\n        return [known]\n"
        "def main(a):\n    found = a.two()\n    print(found)\nmain(A())",
        "[2]\n",
        "print([2])",
    ),
    "properties": (
        "class A:\n    def __init__(self):\n        self.kept = 7\n"
        "    @property\n    def both(self):\n        return [self.one, self]\n"
        "    @property\n    def one(self):\n        return self.kept\n"
        "a = A()\na.kept += 1\nprint(a.both[0], A().kept, type(a).__name__)",
        "8 7 A\n",
        "class A:\n    kept = 7\na = A()\na.kept += 1\n"
        "print([a.kept][0], A.kept, type(a).__name__)",
    ),
    "generators": (
        "def rows(count):\n    for step in range(count):\n        yield step + 5\n"
        "for number, row in enumerate(rows(2)):\n    print('got', number, row)",
        "got 0 5\ngot 1 6\n",
        "for number, row in enumerate((step + 5 for step in range(2))):\n"
        "    print('got', number, row)",
    ),
    "several at once": (
        "names = ['a', 'b', 'c']\nfor name, part in zip(names, 'xyz'):\n    print(part * 1)",
        "x\ny\nz\n",
        "for part in 'xyz':\n    print(part)",
    ),
    "tests": (
        "def f(x):\n    return x\nif (found := f(3)) > 2:\n    pass\n"
        "y = found\ny = y + input()\nprint(y)",
        "3\n",
        "print(3)",
    ),
}


@pytest.mark.parametrize("name", INLINED)
def test_what_names_stand_for_takes_their_place(name: str) -> None:
    text, printed, left = INLINED[name]
    assert made_smaller(text, printed) == left


def made_smaller(text: str, printed: str) -> str:
    """Reduce a program whose failure is what it prints; it reads from stdin, which says nothing."""

    def fails(candidate: str) -> bool:
        out = io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.suppress(Exception),
            warnings.catch_warnings(action="ignore"),
        ):
            exec(candidate, {"input": lambda: 0})
            return out.getvalue() == printed
        return False

    assert fails(text)
    return source.reduced(text, fails, lambda candidate: None)


def test_edits_are_taken_back() -> None:
    tree = ast.parse(SCRIPT)
    before = ast.unparse(tree)
    for made in source.TABLE:
        for _ in made(tree):
            rendering.rendered(tree)
        assert ast.unparse(tree) == before, made.__name__


@pytest.mark.slow
@pytest.mark.parametrize(
    "script, fault, words, lines",
    [(CAPTURE, "tc:capture:CONTAINS_OP", " in ", 25), (ONLY_COMPILED, "", "is_compiling", 16)],
)
def test_failures_without_a_graph_are_reduced_as_text(
    script: str, fault: str, words: str, lines: int, tmp_path: Path
) -> None:
    written(tmp_path, script)
    done = tool("tc.minifier", "script.py", "--json", fault=fault, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["verified"] == 5
    text = (tmp_path / "minified.py").read_text()
    assert words in text and len(text.splitlines()) == found["lines"] <= lines, text
