"""Scripts for the tools to work on, and how to run a tool with a broken compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support import ROOT, python

FAULTS = Path(__file__).parent / "minifier" / "faults"

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

BLOCKS = """\
import torch, tc
class Block(torch.nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n, self.a, self.b = torch.nn.LayerNorm(d), torch.nn.Linear(d, d), torch.nn.Linear(d, d)
    def forward(self, x, last):
        y = torch.sin(self.a(self.n(x)))
        y = torch.sigmoid(y) * 2 + 1
        if last:
            y = torch.tanh(y)
        return x + self.b(y)
class Model(torch.nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(d) for _ in range(n))
    def forward(self, x):
        x = torch.log1p(x.abs())
        for i, block in enumerate(self.blocks):
            x = block(x, i == 3)
        return torch.relu(x)
torch.manual_seed(0)
model = Model(8, 32).eval()
with torch.no_grad():
    COMPILER.compile(model)(torch.randn(16, 32))
"""

TRAINING = """\
import torch, tc
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(6))
    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = torch.nn.functional.silu(layer(x)) if i == 3 else torch.sigmoid(layer(x)) * 2
        return x
torch.manual_seed(0)
model = Model()
compiled = COMPILER.compile(model)
for _ in range(2):
    compiled(torch.randn(4, 16)).square().mean().backward()
"""

DYNAMIC = """\
import torch, tc
def f(x, w):
    y = x * 2 + x.shape[0]
    for i in range(10):
        y = torch.sin(y @ w) + y
    y = torch.relu(y).view(x.size(0) // 2, 2, -1)
    for i in range(5):
        y = torch.cos(y) * 0.5
    return y.sum(1)
f = COMPILER.compile(f)
torch.manual_seed(0)
for n in (4, 6, 8):
    f(torch.randn(n, 16), torch.randn(16, 16) / 4)
"""

CUSTOM = """\
import torch, tc
SCALE = 3.0
@torch.library.custom_op("mine::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * SCALE
@twice.register_fake
def _(x):
    return torch.empty_like(x)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(8, 8)
    def forward(self, x):
        for _ in range(6):
            x = torch.sin(self.l(x))
            x = twice(x) + 1
        return torch.log(torch.tanh(x) + 2)
with torch.no_grad():
    COMPILER.compile(Model())(torch.randn(4, 8))
"""

CONDITION = """\
import torch, tc
def f(x):
    for _ in range(8):
        x = torch.sin(x) * 2
    y = torch.cond(x.sum() > 0, lambda x: torch.relu(x).sin(), lambda x: x.cos() + 1, (x,))
    for _ in range(8):
        y = torch.cos(y) * 2
    return y
COMPILER.compile(f)(torch.randn(4, 8))
"""


def written(folder: Path, text: str, compiler: str = "tc") -> Path:
    """Write a script."""
    path = folder / "script.py"
    path.write_text(text.replace("COMPILER", compiler))
    return path


def tool(
    name: str, *arguments: str, fault: str = "", cwd: Path, timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    """Run a tool in a folder; every process below it has the broken compiler."""
    return python(
        "-m", name, *arguments, cwd=cwd, timeout=timeout, variables=environment(fault, cwd)
    )


def environment(fault: str, cwd: Path) -> dict[str, str]:
    """Variables that break a compiler, with caches of its own."""
    variables = {"PYTHONPATH": f"{FAULTS}:{ROOT}", "TORCHINDUCTOR_CACHE_DIR": str(cwd / "inductor")}
    if fault:
        variables |= {"TC_TEST_FAULT": fault, "TC_CACHE_DIR": str(cwd / "cache")}
    return variables


def started(name: str, *arguments: str, fault: str, cwd: Path) -> subprocess.Popen[str]:
    """Start a tool and return at once."""
    return subprocess.Popen(
        [sys.executable, "-m", name, *arguments],
        cwd=cwd,
        env={**os.environ, **environment(fault, cwd)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
