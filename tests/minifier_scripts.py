"""Scripts for the tools to work on, and how to run a tool with a broken compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from faultbench import environment
from support import python

from tc.minifier.case import Case, Fact, Input, Step

TENSOR = Fact("tensor", (2, 3), (3, 1), "torch.float32")

SMALL = """\
import torch, tc
def f(x, w):
    y = torch.sin(x @ w) + 1
    z = torch.tanh(y)
    return z * 2, y.sum(0)
torch.manual_seed(0)
tc.compile(f)(torch.randn(8, 16), torch.randn(16, 16))
print("the script ran")
"""


def tool(
    name: str, *arguments: str, fault: str = "", cwd: Path, timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    """Run a tool in a folder; every process below it has the broken compiler."""
    return python(
        "-m", name, *arguments, cwd=cwd, timeout=timeout, variables=environment(fault, cwd)
    )


def started(name: str, *arguments: str, fault: str, cwd: Path) -> subprocess.Popen[str]:
    """Start a tool and return at once."""
    return subprocess.Popen(
        [sys.executable, "-m", name, *arguments],
        cwd=cwd,
        env=environment(fault, cwd),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def chain(length: int) -> Case:
    """x -> sin -> sin ...; each third step also takes an earlier one."""
    steps = []
    for number in range(length):
        refs = [f"v{number - 1}" if number else "x"]
        form = "torch.sin($0)"
        if number % 3 == 2:
            refs.append(f"v{number - 2}")
            form = "$0 + $1"
        steps.append(Step(f"v{number}", form, tuple(refs)))
    facts = dict.fromkeys(("x", *(step.name for step in steps)), TENSOR)
    x = Input("x", "recorded", "x", (2, 3))
    return Case((x,), tuple(steps), (steps[-1].name,), facts=facts)
