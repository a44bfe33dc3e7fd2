"""tc-bisect on compilers of which one step is wrong, and on sound ones.

    python bench/blame.py                   # 30 random faults in the demo GPT and an MLP
    python bench/blame.py --healthy         # 30 sound programs: nothing may be blamed
    python bench/blame.py --faults 6 --seed 7 --program mlp
    python bench/blame.py --compare         # the line alone, by tc-bisect compare; healthy ones too

A fault is drawn at random from the steps that a sound compile of the program takes: rules,
decompositions, lowerings, passes, fusions, kernels (faults/steps.py). Draws that do not show (the
program's own check against eager passes), or where it is not known which line they belong to, are
made again. Right is: the step named is the one that
was broken, and each line named is one that it works for.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from faultbench import ROOT, run

GPT = f"""\
import runpy, sys
sys.path.insert(0, "{ROOT}/examples")
sys.argv = ["gpt.py", "--steps", "2", "--bytes", "2"]
runpy.run_path("{ROOT}/examples/gpt.py", run_name="__main__")
"""
MLP = """\
import torch, tc
import torch.nn.functional as F
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(32, 64), torch.nn.Linear(64, 64)
        self.c, self.norm = torch.nn.Linear(64, 8), torch.nn.LayerNorm(64)
    def forward(self, x, y):
        h = F.silu(self.a(x / 2))
        h = self.norm(h)
        h = F.softplus(self.b(h)) / 1
        g = torch.sigmoid(h * 1) - 0.25
        h = torch.where(h > 0.8, h, g)
        h = h / h.square().mean(-1, keepdim=True).sqrt()
        z = F.log_softmax(self.c(h), dim=-1)
        return -(z * y).sum(-1).mean()
torch.manual_seed(0)
model = Model()
x, y = torch.randn(16, 32), torch.softmax(torch.randn(16, 8), -1)
found = []
for function in (tc.compile(model), model):
    loss = function(x, y)
    found.append([loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))])
torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)
"""
PROGRAMS = {"gpt": GPT, "mlp": MLP}
KINDS = ("rule", "decompose", "lower", "fuse", "kernel", "pass")
WEIGHTS = (5, 6, 7, 6, 5, 1)


@dataclass(frozen=True)
class Draw:
    """A step to break in a program."""

    program: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.program} {self.kind} {self.name}"


def facts_of(log: Path) -> list[list[object]]:
    """The notes of faults/steps.py."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def steps_of(program: str) -> dict[str, list[str]]:
    """Every step that a sound compile of a program takes, by kind."""
    with tempfile.TemporaryDirectory(prefix="tc-bench-") as name:
        folder = Path(name)
        (folder / "script.py").write_text(PROGRAMS[program])
        done = run(["script.py"], folder, "tc-step:list:", {"TC_TEST_FAULT_LOG": f"{name}/log"})
        assert done.code == 0, done.err
        steps: dict[str, list[str]] = {}
        for kind, step in facts_of(folder / "log"):
            steps.setdefault(str(kind), []).append(str(step))
    return {kind: sorted(names) for kind, names in steps.items()}


def draws(programs: list[str], seed: int) -> Iterator[Draw]:
    """Random steps, none twice."""
    steps = {program: steps_of(program) for program in programs}
    for program, kinds in steps.items():
        summary = ", ".join(f"{len(names)} {kind}" for kind, names in kinds.items())
        print(f"{program}: {summary}", flush=True)
    dice, seen = random.Random(seed), set()
    while len(seen) < sum(len(names) for kinds in steps.values() for names in kinds.values()):
        program = dice.choice(programs)
        kind = dice.choices(KINDS, WEIGHTS)[0]
        if not steps[program].get(kind):
            continue
        draw = Draw(program, kind, dice.choice(steps[program][kind]))
        if draw not in seen:
            seen.add(draw)
            yield draw


@dataclass(frozen=True)
class Trial:
    """What tc-bisect said of a fault; ``shown`` is False where the program does not fail."""

    shown: bool
    step: str = ""
    step_right: bool = False
    lines: tuple[str, ...] = ()
    lines_right: bool = False
    cpu: float = 0.0
    note: str = ""


def base(step: str) -> str:
    """A step without what differs between a graph and a part of it: the kernel's number."""
    return re.sub(r"^kernel\.k\d+_", "kernel.", step)


def trial(draw: Draw, verb: tuple[str, ...] = ()) -> Trial:
    """Break the step, see that it shows, and ask tc-bisect."""
    with tempfile.TemporaryDirectory(prefix="tc-bench-") as name:
        folder, log = Path(name), Path(name, "log")
        script = folder / "script.py"
        script.write_text(PROGRAMS[draw.program])
        fault = f"tc-step:{draw.kind}:{draw.name}"
        first = run(["script.py"], folder, fault, {"TC_TEST_FAULT_LOG": str(log)})
        fired = [fact for fact in facts_of(log) if fact[0] == "fired"]
        if first.code == 0 or not fired or "AssertionError" not in first.err:
            return Trial(False)
        done = run(["-m", "tc.minifier.bisect", *verb, "script.py", "--json"], folder, fault)
    lines = {place(str(line)) for fact in fired for line in fact[2]}
    if any(not fact[2] for fact in fired):
        lines |= lines_of_backward(draw.name, PROGRAMS[draw.program])
    if not lines:
        return Trial(False)  # what would be right is not known
    if done.code != 1:
        return Trial(True, cpu=done.cpu, note=(done.out + done.err).strip()[-150:])
    said = json.loads(done.out)
    if verb:
        named = tuple(place(line) for line in said.get("lines") or [str(said.get("line"))])
        right = set(named) <= lines
        return Trial(True, str(said.get("value")), right, named, right, done.cpu,
                     f"{said.get('distance')}")  # fmt: skip
    step = str(said.get("step"))
    named = tuple(place(line) for line in said.get("lines", ()))
    return Trial(
        True, step, base(step) in {base(str(fact[1])) for fact in fired}, named,
        bool(named) and set(named) <= lines, done.cpu, f"{said['stage']}, {said['probes']} probes",
    )  # fmt: skip


def place(line: str) -> str:
    """``gpt.py:7`` for a line anywhere."""
    return Path(line.strip()).name


def lines_of_backward(name: str, program: str) -> set[str]:
    """The lines that call the op whose gradient an op computes (its notes have no line)."""
    op = re.sub(r"_backward.*|^_|^native_|\..*", "", name.removeprefix("aten."))
    return {
        f"script.py:{number}"
        for number, text in enumerate(program.splitlines(), 1)
        if op in text or (op == "layer_norm" and "self.norm(" in text)
    }


def faults(count: int, seed: int, programs: list[str], verb: tuple[str, ...]) -> None:
    """Run trials until so many faults showed."""
    trials: list[Trial] = []
    hidden = 0
    for draw in draws(programs, seed):
        found = trial(draw, verb)
        if not found.shown:
            hidden += 1
            continue
        trials.append(found)
        verdict = f"{'✓' if found.step_right else '✗'}{'✓' if found.lines_right else '✗'}"
        said = f"{found.step} {' '.join(found.lines)} ({found.note}, {found.cpu:.0f} CPU s)"
        print(f"{verdict} {str(draw)[:60]:60} {said}", flush=True)
        if len(trials) == count:
            break
    steps, lines = (sum(getattr(t, w) for t in trials) for w in ("step_right", "lines_right"))
    print(f"right step {steps} of {len(trials)}, right line {lines} of {len(trials)}; "
          f"{hidden} draws did not show")  # fmt: skip


def healthy(count: int, verb: tuple[str, ...]) -> None:
    """Run tc-bisect on programs with a sound compiler."""
    claimed, sound = 0, 0
    for name, text in list(sound_programs())[:count]:
        with tempfile.TemporaryDirectory(prefix="tc-bench-") as folder:
            Path(folder, "script.py").write_text(text)
            done = run(["-m", "tc.minifier.bisect", *verb, "script.py"], Path(folder))
        claimed += done.code == 1
        sound += done.code == 0
        print(f"{done.code} {name:24} {(done.out or done.err).splitlines()[0][:110]}", flush=True)
    print(f"no bug {sound}, a bug claimed {claimed}, of {count}")


def sound_programs() -> Iterator[tuple[str, str]]:
    """Thirty programs: the two above, and functions of one kind of operation each."""
    yield from PROGRAMS.items()
    for name, body in BODIES.items():
        yield name, SOUND.format(body=body)


SOUND = """\
import torch, tc
import torch.nn.functional as F
def f(x, w):
    {body}
torch.manual_seed(0)
with torch.no_grad():
    for rows in (6, 6, 8):
        tc.compile(f)(torch.randn(rows, 32), torch.randn(32, 32))
"""
BODIES = {
    "pointwise": "return torch.sin(x).exp() + x.abs().sqrt() * w[0]",
    "ill-conditioned": "return (x + 1e7) - 1e7 + torch.tan(x * 100)",
    "softmax": "return torch.softmax(x @ w * 8, -1)",
    "cancel": "return (x.square().mean(0) - x.mean(0).square()).sqrt()",
    "variance": "return x.var(1), (x + 1000).var(1), x.std(0)",
    "layer norm": "return F.layer_norm(x, (32,), w[0], w[1])",
    "large sum": "return (x * 1e6).sum(), x.cumsum(0)",
    "logsumexp": "return torch.logsumexp(x * 50, 1), F.softplus(x * 30)",
    "half": "return (x.half() * w[0].half()).sum(1), x.half().exp()",
    "bfloat16": "return (x.bfloat16() @ w.bfloat16()).softmax(-1) + x.bfloat16()",
    "infinities": "return (x / 0), torch.log(x), x.clamp(max=0) / x.clamp(min=0)",
    "integers": "return (x * 10).int() // 3, (x * 10).long() % 7, x.argmax(1)",
    "comparisons": "return (x > w[:1]) & (x < 1), torch.where(x > 0, x, -x)",
    "indexing": "return x[[0, 2, 1]], x[:, ::3], w.gather(1, w.argsort(1))",
    "scatter": "return w.index_add(0, torch.tensor([0, 0, 5]), x[:3])",
    "cat": "return torch.cat([x, w[:3], x * 2]), torch.stack([x, x + 1])",
    "attention": "q = x[None, None]"
    "; return F.scaled_dot_product_attention(q, q, w[None, None, : x.shape[0]])",
    "matmul": "return torch.relu(x @ w + w[0]) @ w.t()",
    "convolution": "return F.conv1d(x[None], w[:18].reshape(3, x.shape[0], -1)[..., :3])"
    " if x.shape[0] == 6 else x",
    "pooling": "return F.max_pool1d(x[None], 3), F.avg_pool1d(x[None], 4, 2)",
    "batch norm": "return F.batch_norm(x, w[0], w[1].abs(), w[2], w[3])",
    "gelu": "return F.gelu(x), F.gelu(x, approximate='tanh'), F.silu(x), torch.erf(x)",
    "powers": "return x.abs() ** 2.5, x ** 3, 2 ** x, torch.rsqrt(x.abs() + 1e-3)",
    "in place": "y = x.clone(); y.add_(1); y[0] = 3; y.mul_(w[0]); return y",
    "views": "return x.t().reshape(-1, 4).flip(0), x.unfold(1, 4, 2), x.expand(2, -1, -1)",
    "norms": "return F.normalize(x), x.norm(dim=1), torch.cdist(x, w)",
    "trigonometry": "return torch.sin(x * 1e4), torch.atan2(x, w[0]), torch.sinh(x * 5)",
    "float64": "return (x.double() @ w.double()).tanh() + x",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--program", choices=tuple(PROGRAMS), action="append")
    parser.add_argument("--healthy", action="store_true", help="30 sound programs instead")
    parser.add_argument("--compare", action="store_true", help="by tc-bisect compare")
    options = parser.parse_args()
    verb = ("compare",) if options.compare else ()
    if options.healthy:
        healthy(30, verb)
    else:
        faults(options.faults, options.seed, options.program or list(PROGRAMS), verb)


if __name__ == "__main__":
    main()
