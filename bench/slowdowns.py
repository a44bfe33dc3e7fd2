"""Programs with one planted slowdown, drawn at random: is it the first finding, at its line?

    python bench/slowdowns.py --count 40
    python bench/slowdowns.py --seed 7 --families item,layout --keep FOLDER

Each program is a model of random width and depth, called some hundred times (thousands where a
call takes microseconds), with one thing in it that makes its steps slow: family, shapes and place
are drawn from the seed, which is printed. Each runs in a process of its own under `tc.compile` with
TC_TRACE. It counts as named right if the first finding of the report has a code of the family and
one of the planted lines, which are marked in the program. ``--keep`` leaves programs and traces in
a folder.

Exit code 1 if fewer than nine of ten are named right.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
MARK: Final = "# planted"
NEEDED: Final = 0.9
HEAD: Final = """\
import io
import random
import time
import torch
import torch.nn.functional as F
import tc

torch.manual_seed({seed})
QUIET = io.StringIO()
"""
Draw = random.Random


@dataclass(frozen=True)
class Planted:
    """A program with a slowdown.

    Attributes:
        text: Python; the lines that are to be named end in `MARK`.
        codes: those of findings that name the cause.
    """

    text: str
    codes: tuple[str, ...]

    @property
    def lines(self) -> list[int]:
        """The numbers of the planted lines, from 1."""
        rows = self.text.splitlines()
        return [number for number, row in enumerate(rows, 1) if row.endswith(MARK)]


def network(draw: Draw, planted: Sequence[str], width: int, rows: int, train: bool = False) -> str:
    """Return a stack of layers, some lines planted between two of them, and the loop that runs it.

    Args:
        planted: the lines, over the activations ``x``.
        width: of a layer; ``rows`` of activations.
        train: each step is a training step.
    """
    depth = draw.randint(1, 4)
    place = draw.randint(0, depth)
    act = draw.choice(("F.relu", "F.gelu", "torch.tanh", "F.silu"))
    body = [f"        x = {act}(self.layers[{n}](x))" for n in range(depth)]
    if draw.random() < 0.5:
        body.append("        x = F.layer_norm(x, x.shape[-1:])")
    body[place:place] = [f"        {line}" for line in planted]
    step = ["        net(x)"]
    if train:
        step = ["    net(x).square().mean().backward()", "    net.zero_grad()"]
    elif draw.random() < 0.5:
        step = ["        out = net(x)", "        out.sum()"]
    lines = [
        "class Net(torch.nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        f"        layers = [torch.nn.Linear({width}, {width}) for _ in range({depth})]",
        "        self.layers = torch.nn.ModuleList(layers)",
        "",
        "    def forward(self, x):",
        *body,
        "        return x",
        "",
        "net = tc.compile(Net())",
        f"x = torch.randn({rows}, {width})",
        f"for turn in range({draw.randint(150, 300)}):",
        *([] if train else ["    with torch.no_grad():"]),
        *step,
    ]
    return "\n".join(lines) + "\n"


def broken(draw: Draw) -> Planted:
    """A graph break, in the model or in a loop of it."""
    ways = (
        [f"if x.abs().max() > 1e6:  {MARK}", "    x = x * 0.5"],
        [f"x = x * (0.5 + random.random())  {MARK}"],
        [f"print(x.shape[0], file=QUIET)  {MARK}"],
        [f"time.sleep(0)  {MARK}"],
        [f"x = x + len(torch.nonzero(x > 9)) * 0.0  {MARK}"],
        [f"for k in range({draw.randint(2, 4)}):",
         f"    if x.mean() > {draw.randint(5, 9)}:  {MARK}", "        x = x - 1",
         "    x = x * 0.9"],
        [f"tc.graph_break()  {MARK}"],
    )  # fmt: skip
    way = draw.choice(ways)
    train = draw.random() < 0.4
    text = network(draw, way, draw.choice((16, 32, 48)), draw.randint(2, 16), train)
    return Planted(text, ("TC1",))


def item(draw: Draw) -> Planted:
    """A number read out of a tensor."""
    read = draw.choice(("x.sum().item()", "float(x.abs().max())", "x.mean().tolist()",
                        "int(x.argmax())", "x[0, 0].item()"))  # fmt: skip
    way = [f"s = {read}  {MARK}", draw.choice(("x = x / (1 + abs(s))", "x = x + s * 0.01"))]
    train = draw.random() < 0.4
    text = network(draw, way, draw.choice((16, 64, 96)), draw.randint(2, 32), train)
    return Planted(text, ("TC1",))


def layout(draw: Draw) -> Planted:
    """A large tensor written in another layout before a product that does not need it."""
    heads, length, width = draw.choice((4, 8)), draw.choice((512, 768)), draw.choice((64, 96, 128))
    order = draw.choice(("0, 2, 1, 3", "1, 0, 2, 3", "2, 1, 0, 3"))
    text = f"""\
w = torch.randn({width}, {draw.choice((1, 2))})

@tc.compile
def mix(x):
    y = x.permute({order}).contiguous()  {MARK}
    return (y.view(-1, {width}) @ w).sum(0)

x = torch.randn({heads}, {length}, {draw.choice((4, 8))}, {width})
with torch.no_grad():
    for turn in range({draw.randint(60, 120)}):
        mix(x)
"""
    return Planted(text, ("TC313",))


def fell_back(draw: Draw) -> Planted:
    """A graph that was captured, and that the compiler leaves to ATen."""
    ways = (
        f"    x.unsqueeze_(0)  {MARK}\n    x = x.mean(0, keepdim=True)",
        f"    bits = x.view(torch.int32)  {MARK}",
        f"    s = x.relu().to_sparse()  {MARK}\n    x = torch.sparse.mm(s, x)",
        f"    s = x.abs().to_sparse_csr()  {MARK}\n    x = s @ x",
    )
    way = draw.choice(ways)
    size = draw.choice((64, 128, 200))
    text = f"""\
@tc.compile
def mix(x):
{way}
    for _ in range({draw.randint(3, 8)}):
        x = torch.tanh(x) * 1.5
    return x{", bits" if "bits" in way else ""}

x = torch.randn({size}, {size})
with torch.no_grad():
    for turn in range({draw.randint(100, 300)}):
        mix(x.clone())
"""
    return Planted(text, ("TC701", "TC1"))


def memory_bound(draw: Draw) -> Planted:
    """A chain of element-wise operations over tensors larger than the caches."""
    rows, columns = draw.randint(1500, 3500), draw.randint(1500, 3500)
    steps = draw.sample(("x * 2 + y", "torch.relu(y) - y", "x.abs() + x", "y * y - x",
                         "torch.where(x > y, x, y)", "(x - y).clamp(-1, 1)"), 3)  # fmt: skip
    body = "\n".join(f"    {n} = {step}  {MARK}" for n, step in zip("xyz", steps, strict=True))
    text = f"""\
@tc.compile
def chain(x, y):
{body}
    return {draw.choice(("x, z", "x, y, z", "z + x"))}  {MARK}

x, y = torch.randn({rows}, {columns}), torch.randn({rows}, {columns})
with torch.no_grad():
    for turn in range({draw.randint(40, 80)}):
        chain(x, y)
"""
    return Planted(text, ("TC312",))


def tiny(draw: Draw) -> Planted:
    """Some fifty kernels that each do next to nothing."""
    number, width = draw.randint(45, 70), draw.choice((4, 8, 12))
    products = f"""\
weights = [torch.randn({width}, {width}) for _ in range({number})]

@tc.compile
def run(x):
    for w in weights:
        x = torch.tanh(x @ w)  {MARK}
    return x

x = torch.randn({draw.randint(1, 4)}, {width})
"""
    updates = f"""\
moving = [torch.zeros(n + 1) for n in range({number})]
given = [torch.randn(n + 1) for n in range({number})]

@tc.compile
def run(x):
    for m, g in zip(moving, given):
        m.mul_(0.9).add_(g * x)  {MARK}
    return x + 1

x = torch.randn(1)
"""
    text = f"""\
{draw.choice((products, updates))}
with torch.no_grad():
    for turn in range({draw.randint(2000, 4000)}):
        run(x)
"""
    return Planted(text, ("TC311",))


def guarded(draw: Draw) -> Planted:
    """Guards of some two thousand objects."""
    number = draw.randint(1800, 2600)
    size = draw.choice(("2", "n % 5 + 1"))
    read = draw.choice((
        f"n = sum(p.numel() for p in self.held)  {MARK}",
        f"n = len([p for p in self.held if p.requires_grad])  {MARK}",
    ))  # fmt: skip
    width = draw.choice((16, 32))
    text = f"""\
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        held = [torch.nn.Parameter(torch.ones({size})) for n in range({number})]
        self.held = torch.nn.ParameterList(held)
        self.layer = torch.nn.Linear({width}, {width})

    def forward(self, x):
        {read}
        return torch.relu(self.layer(x)) / n

net = tc.compile(Net())
x = torch.randn({draw.randint(1, 8)}, {width})
with torch.no_grad():
    for turn in range({draw.randint(150, 300)}):
        net(x)
"""
    return Planted(text, ("TC314",))


FAMILIES: Final[dict[str, Callable[[Draw], Planted]]] = {
    "break": broken,
    "item": item,
    "layout": layout,
    "fallback": fell_back,
    "memory": memory_bound,
    "tiny": tiny,
    "guards": guarded,
}


def run(planted: Planted, folder: Path, seed: int) -> None:
    """Run a program with a trace; both stand in a folder.

    Raises:
        RuntimeError: it failed.
    """
    folder.mkdir(parents=True)
    script = folder / "program.py"
    script.write_text(planted.text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment |= {"TC_TRACE": str(folder / "trace"), "TC_LOGS": ""}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=environment
    )
    if done.returncode:
        raise RuntimeError(f"{script} failed:\n{done.stderr[-2000:]}")


def first_findings(folder: Path) -> list[tuple[str, int, str]]:
    """Return code, line and text of the findings of a trace, in their order."""
    from tc.trace.findings import diagnose
    from tc.trace.session import load

    found = diagnose(load(str(folder / "trace"))).findings
    return [(one.code, one.where.line, f"{one.title}  {one.cost}") for one in found]


def is_named(planted: Planted, found: Sequence[tuple[str, int, str]]) -> bool:
    """Return whether the first finding names the planted cause and a line of it."""
    if not found:
        return False
    code, line, _ = found[0]
    return code.startswith(planted.codes) and line in planted.lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=40, help="programs (%(default)s)")
    parser.add_argument("--seed", type=int, help="(drawn, and printed)")
    parser.add_argument("--families", default=",".join(FAMILIES), help="comma-separated (all)")
    parser.add_argument("--keep", help="leave programs and traces in this new folder")
    options = parser.parse_args()
    names = options.families.split(",")
    if unknown := set(names) - set(FAMILIES):
        parser.error(f"families are {', '.join(FAMILIES)}, not {', '.join(sorted(unknown))}")
    if options.keep and Path(options.keep).exists():
        parser.error(f"{options.keep} exists already")
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    draw, right, tried = Draw(seed), Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory(prefix="tc-slowdowns-") as temporary:
        place = Path(options.keep or temporary)
        for number in range(options.count):
            name = names[number % len(names)]
            planted = FAMILIES[name](draw)
            planted = Planted(HEAD.format(seed=number) + planted.text, planted.codes)
            folder = place / f"{number:02}-{name}"
            run(planted, folder, number)
            found = first_findings(folder)
            tried[name] += 1
            right[name] += is_named(planted, found)
            verdict = "right" if is_named(planted, found) else "WRONG"
            first = "; ".join(f"{code} :{line} {text}" for code, line, text in found[:2])
            print(f"{folder.name:14} {verdict}  planted {planted.lines}  {first}", flush=True)
    for name, times in tried.items():
        print(f"{name:10} {right[name]} of {times}")
    share = right.total() / max(tried.total(), 1)
    print(f"named right as the first finding: {right.total()} of {tried.total()} ({share:.0%})")
    sys.exit(share < NEEDED)


if __name__ == "__main__":
    main()
