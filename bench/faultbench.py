"""Broken compilers on purpose: programs, the faults planted in them, and how to run a tool on both.

The one set that tests/minifier and bench/minify.py work on. A fault is planted by
faults/sitecustomize.py in every process below, as a bug of the compiler would be.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAULTS = ROOT / "bench" / "faults"
# Variables that would make a child log, trace, or take another path than asked for.
PREFIXES = ("TC_", "TORCH_LOGS", "TORCH_TRACE", "TORCHINDUCTOR_", "TORCHDYNAMO_")

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
DEEP = BLOCKS.replace("Model(8, 32)", "Model(40, 32)").replace("i == 3", "i == 23")

TRAINING = """\
import torch, tc
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(20))
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
    for i in range(24):
        y = torch.sin(y @ w) + y
    y = torch.relu(y).view(x.size(0) // 2, 2, -1)
    for i in range(12):
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
        for _ in range(24):
            x = torch.sin(self.l(x))
            x = twice(x) + 1
        return torch.log(torch.tanh(x) + 2)
with torch.no_grad():
    COMPILER.compile(Model())(torch.randn(4, 8))
"""

CONDITION = """\
import torch, tc
def f(x):
    for _ in range(24):
        x = torch.sin(x) * 2
    y = torch.cond(x.sum() > 0, lambda x: torch.relu(x).sin(), lambda x: x.cos() + 1, (x,))
    for _ in range(24):
        y = torch.cos(y) * 2
    return y
COMPILER.compile(f)(torch.randn(4, 8))
"""


@dataclass(frozen=True)
class Fault:
    """A compiler broken in one way, and a program that shows it.

    Attributes:
        fault: what sitecustomize.py plants, without the compiler.
        nodes: how few a failing graph can have: inputs, calls and the output.
        words: what a right result holds.
        one_op: a single op is enough, so few questions should do.
    """

    compiler: str
    fault: str
    program: str
    nodes: int
    words: tuple[str, ...]
    one_op: bool = True

    @property
    def name(self) -> str:
        return f"{self.compiler}:{self.fault}"

    def script(self, folder: Path) -> Path:
        """Write the program."""
        return written(folder, self.program, self.compiler)


PAIR = ("log1p", "relu")
MINIFY = (
    Fault("tc", "wrong:tanh", BLOCKS, 3, ("tanh",)),
    Fault("tc", "nan:tanh", DEEP, 3, ("tanh",)),
    Fault("tc", "crash:tanh", BLOCKS, 3, ("tanh",)),
    Fault("tc", "crash:log1p+relu", BLOCKS, 4, PAIR, one_op=False),
    Fault("tc", "wrong:log1p+relu", DEEP, 4, PAIR, one_op=False),
    Fault("tc", "gcc:tanh", BLOCKS, 3, ("tanh",)),
    Fault("tc", "kernel:tanh", BLOCKS, 3, ("tanh",)),
    Fault("tc", "fused:tanh", BLOCKS, 4, ("tanh",), one_op=False),
    Fault("tc", "symbolic:relu", DYNAMIC, 3, ("relu", "dynamic=True")),
    Fault("tc", "wrong:log", CUSTOM, 3, ("log",)),
    Fault("tc", "crash:mine.twice", CUSTOM, 3, ("mine.twice", "custom_op")),
    Fault("tc", "decomposition:silu_backward", TRAINING, 3, ("silu", "backward")),
    Fault("tc", "wrong:sigmoid", TRAINING, 3, ("sigmoid",)),
    Fault("torch", "wrong:tanh", BLOCKS, 3, ("tanh",)),
    Fault("torch", "nan:tanh", BLOCKS, 3, ("tanh",)),
    Fault("torch", "crash:tanh", DEEP, 3, ("tanh",)),
    Fault("torch", "crash:log1p+relu", BLOCKS, 4, PAIR, one_op=False),
    Fault("torch", "symbolic:relu", DYNAMIC, 3, ("relu", "dynamic=True")),
    Fault("torch", "crash:relu", CONDITION, 3, ("relu",)),
    Fault("torch", "wrong:sigmoid", TRAINING, 3, ("sigmoid",)),
)


def written(folder: Path, text: str, compiler: str = "tc") -> Path:
    """Write a script."""
    path = folder / "script.py"
    path.write_text(text.replace("COMPILER", compiler))
    return path


def environment(fault: str, folder: Path) -> dict[str, str]:
    """Variables of a process with a broken compiler, and caches of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIXES)}
    kept |= {
        "PYTHONPATH": f"{FAULTS}:{ROOT}",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no pool of processes: it would cost more
    }
    if cache := os.environ.get("TC_CACHE_DIR"):
        kept["TC_CACHE_DIR"] = cache
    if fault:
        kept |= {"TC_TEST_FAULT": fault, "TC_CACHE_DIR": str(folder / "cache")}
    return kept


@dataclass(frozen=True)
class Run:
    """A finished process, and the CPU seconds of it and of all it waited for."""

    code: int
    out: str
    err: str
    cpu: float


def run(
    arguments: list[str],
    folder: Path,
    fault: str = "",
    variables: Mapping[str, str] | None = None,
    seconds: float = 900,
) -> Run:
    """Run this interpreter in a folder, below a broken compiler."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env={**environment(fault, folder), **(variables or {})},
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
        )
        code, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        code, out, err = -1, "", f"no end after {seconds:.0f} s"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(code, out, err, cpu)
