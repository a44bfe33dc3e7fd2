"""Small programs whose traces `tc-report` has to be right about, and what they leave behind.

    python bench/findings_programs.py FOLDER [--side torch|tc] [--backend NAME] [NAME ...]

Each program is run in a process of its own, once under `torch.compile` with TORCH_TRACE and once
under `tc.compile` with TC_TRACE; FOLDER gets the program (`NAME.py`) and its logs (`NAME.SIDE/`).
A program prints its results, so that a run with an edit can be held against the first run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HEADER: Final = """\
import os
import torch
SIDE = os.environ["FINDINGS_SIDE"]
BACKEND = os.environ.get("FINDINGS_BACKEND", "eager")
torch.manual_seed(0)
if SIDE == "tc":
    import tc
    compile = lambda f=None, **k: tc.compile(f, **{"backend": BACKEND, **k})
    mark_dynamic = tc.mark_dynamic
else:
    compile = lambda f=None, **k: torch.compile(f, **{"backend": BACKEND, **k})
    mark_dynamic = torch._dynamo.mark_dynamic
def show(*values):
    for v in values:
        print(v.double().sum().item() if isinstance(v, torch.Tensor) else v, flush=True)
"""


@dataclass(frozen=True, slots=True)
class Program:
    """One program.

    Attributes:
        text: what follows the header.
        sides: the compilers that it can be run under.
        backend: the backend it needs; empty for the one that was asked for.
        fails: it ends with an error, which is what it is about.
    """

    text: str
    sides: tuple[str, ...] = ("torch", "tc")
    backend: str = ""
    fails: bool = False


_TORCH: Final = ("torch",)
PROGRAMS: Final[dict[str, Program]] = {}


def _program(name: str, text: str, sides: Sequence[str] = ("torch", "tc"), **rest: object) -> None:
    PROGRAMS[name] = Program(text, tuple(sides), **rest)  # type: ignore[arg-type]


_program(
    "kv_cache",
    """
class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(8, 24)
        self.k = None
        self.v = None
    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        self.k = k if self.k is None else torch.cat([self.k, k], 1)
        self.v = v if self.v is None else torch.cat([self.v, v], 1)
        return torch.softmax(q @ self.k.transpose(1, 2), -1) @ self.v
model = Attention()
step = compile(model)
with torch.no_grad():
    x = torch.randn(1, 4, 8)
    for _ in range(6):
        y = step(x)
        x = y[:, -1:]
        show(y)
""",
)
_program(
    "kv_argument",
    """
def step(x, cache):
    keys = [torch.cat([k, x], 1) for k in cache]
    return sum(k.sum() for k in keys), keys
f = compile(step)
cache = [torch.zeros(1, 1, 8) for _ in range(4)]
for i in range(5):
    out, cache = f(torch.ones(1, 1, 8) * i, cache)
    show(out)
""",
)
_program(
    "kv_dict",
    """
def step(x, past):
    past["k"] = torch.cat([past["k"], x], 1)
    past["v"] = torch.cat([past["v"], x * 2], 1)
    return (past["k"] * past["v"]).sum()
f = compile(step)
past = {"k": torch.ones(1, 2, 4), "v": torch.ones(1, 2, 4)}
for i in range(5):
    show(f(torch.ones(1, 1, 4), past))
""",
)
_program(
    "string_argument",
    """
def act(x, mode):
    if mode == "relu":
        return torch.relu(x)
    if mode == "tanh":
        return torch.tanh(x)
    return x.sigmoid()
f = compile(act)
x = torch.randn(8)
for mode in ("relu", "tanh", "sigmoid"):
    show(f(x, mode))
""",
)
_program(
    "string_attribute",
    """
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mode = "train"
    def forward(self, x):
        return x * 2 if self.mode == "train" else x + 1
m = M()
f = compile(m)
x = torch.randn(4)
show(f(x))
m.mode = "eval"
show(f(x))
m.mode = "test"
show(f(x))
""",
)
_program(
    "closure_number",
    """
def make():
    scale = 1
    def f(x):
        return x * scale
    def bump():
        nonlocal scale
        scale += 1
    return f, bump
f, bump = make()
g = compile(f)
x = torch.ones(4)
for _ in range(4):
    show(g(x))
    bump()
""",
)
_program(
    "closure_string",
    """
def make():
    mode = "a"
    def f(x):
        return x * 2 if mode == "a" else x * 3
    def to(name):
        nonlocal mode
        mode = name
    return f, to
f, to = make()
g = compile(f)
x = torch.ones(4)
for name in ("a", "b", "c"):
    to(name)
    show(g(x))
""",
)
_program(
    "int_argument",
    """
def f(x, n):
    return x * n + n
g = compile(f)
x = torch.ones(4)
for n in (2, 3, 4, 5):
    show(g(x, n))
""",
)
_program(
    "float_argument",
    """
def f(x, lr):
    return x - lr * x.sin()
g = compile(f)
x = torch.ones(4)
for lr in (0.1, 0.2, 0.3):
    show(g(x, lr))
""",
)
_program(
    "bool_argument",
    """
def f(x, flag):
    return x * 2 if flag else x + 1
g = compile(f)
x = torch.ones(4)
for flag in (True, False, True):
    show(g(x, flag))
""",
)
_program(
    "enum_argument",
    """
import enum
class Kind(enum.Enum):
    A = 1
    B = 2
    C = 3
def f(x, kind):
    if kind is Kind.A:
        return x + 1
    return x * 2 if kind is Kind.B else x * 3
g = compile(f)
x = torch.ones(4)
for kind in Kind:
    show(g(x, kind))
""",
)
_program(
    "none_argument",
    """
def f(x, mask=None):
    if mask is None:
        return x * 2
    return x * mask
g = compile(f)
x = torch.ones(4)
show(g(x))
show(g(x, torch.zeros(4)))
""",
)
_program(
    "int_attribute",
    """
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0
    def forward(self, x):
        self.step += 1
        return x + self.step
m = M()
f = compile(m)
x = torch.ones(4)
for _ in range(4):
    show(f(x))
""",
)
_program(
    "float_attribute",
    """
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.temperature = 1.0
    def forward(self, x):
        return x / self.temperature
m = M()
f = compile(m)
x = torch.ones(4)
for t in (1.0, 0.5, 0.25):
    m.temperature = t
    show(f(x))
""",
)
_program(
    "global_number",
    """
SCALE = 1
def f(x):
    return x * SCALE
g = compile(f)
x = torch.ones(4)
for n in (1, 2, 3):
    SCALE = n
    show(g(x))
""",
)
_program(
    "list_length",
    """
def f(xs):
    return sum(x * 2 for x in xs)
g = compile(f)
for n in (2, 3, 4):
    show(g([torch.ones(4)] * n))
""",
)
_program(
    "dict_keys",
    """
def f(batch):
    out = 0
    for name in batch:
        out = out + batch[name]
    return out
g = compile(f)
show(g({"a": torch.ones(3)}))
show(g({"a": torch.ones(3), "b": torch.ones(3)}))
""",
)
_program(
    "size",
    """
def f(x):
    return (x * 2).sum(0)
g = compile(f)
for n in (3, 4, 5):
    show(g(torch.ones(n, 2)))
""",
)
_program(
    "stride",
    """
def f(x):
    return x.view(-1) * 2 if x.is_contiguous() else x.reshape(-1) * 2
g = compile(f)
x = torch.arange(12.0).view(3, 4)
show(g(x))
show(g(torch.arange(12.0).view(4, 3).t()))
""",
)
_program(
    "dtype",
    """
def f(x):
    return x * 2 + 1
g = compile(f)
for dtype in (torch.float32, torch.float64, torch.bfloat16):
    show(g(torch.ones(4, dtype=dtype)))
""",
)
_program(
    "rank",
    """
def f(x):
    return x * 2
g = compile(f)
show(g(torch.ones(4)))
show(g(torch.ones(4, 1)))
show(g(torch.ones(4, 1, 1)))
""",
)
_program(
    "requires_grad",
    """
def f(x):
    return (x * 2).sum()
g = compile(f)
show(g(torch.ones(4)))
y = g(torch.ones(4, requires_grad=True))
show(y)
""",
)
_program(
    "inference_mode",
    """
def f(x):
    return torch.relu(x) * 2
g = compile(f)
x = torch.randn(4)
show(g(x))
with torch.no_grad():
    show(g(x))
with torch.inference_mode():
    show(g(x))
    show(g(torch.ones(4)))
""",
)
_program(
    "autocast",
    """
lin = torch.nn.Linear(4, 4)
def f(x):
    return lin(x) * 2
g = compile(f)
x = torch.ones(2, 4)
with torch.no_grad():
    show(g(x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        show(g(x))
""",
)
_program(
    "default_dtype",
    """
def f(x):
    return x + torch.ones(4)
g = compile(f)
x = torch.ones(4)
show(g(x))
torch.set_default_dtype(torch.float64)
show(g(x))
torch.set_default_dtype(torch.float32)
""",
)
_program(
    "train_eval",
    """
m = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
f = compile(m)
x = torch.ones(2, 4)
m.train()
f(x)
m.eval()
show(f(x))
""",
)
_program(
    "module_identity",
    """
def run(layer, x):
    return layer(x)
g = compile(run)
x = torch.ones(2, 4)
layers = [torch.nn.Linear(4, 4, bias=(i % 2 == 0)) for i in range(3)]
with torch.no_grad():
    for layer in layers:
        show(g(layer, x))
""",
)
_program(
    "function_identity",
    """
def run(fn, x):
    return fn(x)
g = compile(run)
x = torch.ones(4)
for i in range(3):
    show(g(lambda y, i=i: y * (i + 1), x))
""",
)
_program(
    "hook_added",
    """
m = torch.nn.Linear(4, 4)
f = compile(m)
x = torch.ones(2, 4)
with torch.no_grad():
    show(f(x))
    m.register_forward_hook(lambda mod, args, out: out * 2)
    show(f(x))
""",
)
_program(
    "break_print",
    """
def f(x):
    y = x * 2
    print("y has", y.shape[0])
    return y + 1
g = compile(f)
show(g(torch.ones(4)))
""",
)
_program(
    "break_item",
    """
def f(x):
    n = x.sum().item()
    return x * n
g = compile(f)
show(g(torch.ones(4)))
""",
)
_program(
    "break_branch",
    """
def f(x):
    if x.sum() > 0:
        return x * 2
    return x - 1
g = compile(f)
show(g(torch.ones(4)))
show(g(-torch.ones(4)))
""",
)
_program(
    "break_nonzero",
    """
def f(x):
    picked = x[x > 0]
    return picked * 2
g = compile(f)
show(g(torch.tensor([1.0, -1.0, 2.0])))
""",
)
_program(
    "break_twice",
    """
def f(x):
    y = x * 2
    print("one")
    y = y + 1
    print("two")
    return y * 3
g = compile(f)
show(g(torch.ones(4)))
""",
)
_program(
    "break_in_library",
    """
import contextlib
@contextlib.contextmanager
def timed(name):
    print(name)
    yield
def f(x):
    with timed("block"):
        x = x * 2
    return x + 1
g = compile(f)
show(g(torch.ones(4)))
""",
)
_program(
    "break_in_loop",
    """
def f(x):
    for i in range(3):
        x = x + 1
        if x.sum() > 100:
            x = x * 0
    return x
g = compile(f)
show(g(torch.ones(4)))
""",
)
_program(
    "disabled_call",
    """
@torch.compiler.disable
def helper(x):
    return x * 2
def f(x):
    return helper(x + 1) + 1
g = compile(f)
show(g(torch.ones(4)))
""",
)
_program(
    "custom_op_no_fake",
    """
lib = torch.library.Library("mine", "DEF")
lib.define("twice(Tensor x) -> Tensor")
lib.impl("twice", lambda x: x * 2, "CPU")
def f(x):
    return torch.ops.mine.twice(x) + 1
g = compile(f)
show(g(torch.ones(4)))
""",
    fails=True,
)
_program(
    "custom_op_wrong_fake",
    """
@torch.library.custom_op("mine2::head", mutates_args=())
def head(x: torch.Tensor) -> torch.Tensor:
    return x[:2].clone()
@head.register_fake
def _(x):
    return torch.empty_like(x)
def f(x):
    return head(x * 2) + 1
g = compile(f)
show(g(torch.ones(4)))
""",
)
_program(
    "fake_error",
    """
def f(x, y):
    return x @ y
g = compile(f)
try:
    g(torch.ones(3, 4), torch.ones(3, 4))
except Exception as error:
    print(type(error).__name__)
""",
)
_program(
    "fullgraph",
    """
def f(x):
    y = x * 2
    print("here")
    return y
g = compile(f, fullgraph=True)
try:
    g(torch.ones(4))
except Exception as error:
    print("refused")
""",
)
_program(
    "backend_fails",
    """
def bad(gm, example_inputs):
    raise RuntimeError("no luck with this graph")
def f(x):
    return x * 2
g = compile(f, backend=bad)
try:
    show(g(torch.ones(4)))
except Exception as error:
    print(type(error).__name__)
""",
)
_program(
    "recompile_limit",
    """
def f(x, mode):
    return x * len(mode)
g = compile(f)
x = torch.ones(4)
for i in range(12):
    show(g(x, "m" * (i + 1)))
""",
)
_program(
    "exporting",
    """
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(4, 4)
    def forward(self, x):
        return torch.relu(self.lin(x))
m = M().eval()
ep = torch.export.export(m, (torch.ones(2, 4),))
show(ep.module()(torch.ones(2, 4)))
""",
    _TORCH,
)
_program(
    "exporting_fails",
    """
class M(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x
try:
    torch.export.export(M(), (torch.ones(2, 4),))
except Exception as error:
    print(type(error).__name__)
""",
    _TORCH,
)
_program(
    "aot_inductor",
    """
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(4, 4)
    def forward(self, x):
        return torch.relu(self.lin(x)).sum(-1)
m = M().eval()
ep = torch.export.export(m, (torch.ones(2, 4),))
path = torch._inductor.aoti_compile_and_package(ep)
run = torch._inductor.aoti_load_package(path)
show(run(torch.ones(2, 4)))
""",
    _TORCH,
)
_program(
    "make_fx_fails",
    """
from torch.fx.experimental.proxy_tensor import make_fx
def f(x):
    y = x * 2
    if y.sum().item() > 0:
        return y
    return x
try:
    make_fx(f, tracing_mode="fake")(torch.ones(4))
except Exception as error:
    print(type(error).__name__)
""",
    _TORCH,
)
_program(
    "compiled_autograd",
    """
torch._dynamo.config.compiled_autograd = True
lin = torch.nn.Linear(4, 4)
def f(x):
    return lin(x).relu().sum()
g = compile(f)
for n in (2, 3, 4):
    x = torch.ones(n, 4)
    loss = g(x)
    loss.backward()
    show(loss)
def train(x):
    loss = (lin(x) ** 2).sum()
    loss.backward()
    return loss
""",
    _TORCH,
    backend="aot_eager",
)
_program(
    "cache_layers",
    """
def f(x):
    return torch.relu(x @ x) + 1
for _ in range(2):
    g = compile(f)
    show(g(torch.ones(8, 8)))
    torch.compiler.reset() if SIDE == "torch" else tc.reset()
""",
    backend="inductor",
)
_program(
    "cache_bypass",
    """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        return g * 2
def f(x):
    return Scale.apply(x).sum() + torch.ops.aten._embedding_bag.default(
        torch.ones(4, 4), torch.arange(4), torch.arange(2))[0].sum()
for _ in range(2):
    g = compile(f)
    show(g(torch.ones(4, requires_grad=True)))
    torch.compiler.reset() if SIDE == "torch" else tc.reset()
""",
    backend="inductor",
)
_program(
    "ddp_same",
    """
import torch.distributed as dist
import torch.multiprocessing as mp
def work(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    f = compile(model)
    for n in (2, 3 if rank == 0 else 5, 4):
        out = f(torch.ones(n, 4)).sum()
        out.backward()
    dist.barrier()
    if rank == 0:
        show(out)
    dist.destroy_process_group()
if __name__ == "__main__":
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(work, (port,), nprocs=2)
""",
    backend="aot_eager",
)
_program(
    "reset_twice",
    """
def f(x):
    return x + 1
for _ in range(3):
    g = compile(f)
    show(g(torch.ones(4)))
    torch.compiler.reset() if SIDE == "torch" else tc.reset()
""",
)
_program(
    "generator",
    """
def pieces(x):
    for i in range(3):
        yield x + i
def f(x):
    out = 0
    for p in pieces(x):
        out = out + p
    return out
g = compile(f)
show(g(torch.ones(4)))
""",
)
_program(
    "callable_default",
    """
def f(x, size=(2, 2)):
    return x.view(*size) * 2
g = compile(f)
x = torch.ones(4)
show(g(x))
show(g(x, (4, 1)))
show(g(x, (1, 4)))
""",
)


def run(folder: Path, name: str, side: str, backend: str = "eager", limit: float = 240) -> int:
    """Run one program under one compiler; return its exit code (124: it took too long)."""
    program = PROGRAMS[name]
    file = folder / f"{name}.py"
    file.write_text(HEADER + program.text)
    logs = folder / f"{name}.{side}"
    logs.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "FINDINGS_SIDE": side,
        "FINDINGS_BACKEND": program.backend or backend,
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / f"cache.{name}"),
        "TC_CACHE_DIR": str(folder / f"tc_cache.{name}"),
        "TORCH_TRACE" if side == "torch" else "TC_TRACE": str(logs),
    }
    with open(logs / "output.txt", "w") as output:
        try:
            done = subprocess.run(
                [sys.executable, str(file)], stdout=output, stderr=subprocess.STDOUT,
                env=environment, timeout=limit, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return 124
    return done.returncode


def main() -> None:
    """Run the programs that are named, or all of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--side", choices=("torch", "tc"))
    parser.add_argument("--backend", default="eager")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names or PROGRAMS:
        for side in PROGRAMS[name].sides:
            if options.side in (None, side):
                code = run(options.folder, name, side, options.backend)
                print(f"{name:24} {side:6} exit {code}", flush=True)


if __name__ == "__main__":
    main()
