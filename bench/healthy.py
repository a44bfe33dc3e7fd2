"""tc-bisect on sound programs drawn at random, some of which fail now and then by themselves.

    python bench/healthy.py --count 200 --seed 7     # a line each, a summary at the end
    python bench/healthy.py --flaky 1.0              # all of them fail in 30 % of their runs
    python bench/healthy.py --only 41                # one of them, its text first

A program is a module or a function of a few operations, used as people do: in training, in
inference, with sizes that grow, with a break, with state that changes, compared with eager or not.
A share of them fails in 30 % of its runs for a reason that no compiler has a part in: a lost
connection, an exit code, a signal, a file that is not there yet, before, between, in, or after the
calls of compiled code. No verdict may be a bug.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from blame import BODIES

from tc.minifier.bisect import Search
from tc.minifier.console import Progress
from tc.minifier.oracle import Server
from tc.minifier.problem import Run
from tc.minifier.subject import subject_of
from tc.minifier.verdict import BUG, Verdict
from tc.minifier.workplace import Workplace

RATE = 0.3
#: expressions of a tensor h of 16 columns, in place of which they stand; each keeps the shape
CALLS = (
    "torch.sin({h})", "torch.tanh({h})", "torch.relu({h})", "F.gelu({h})", "F.silu({h})",
    "{h} * 1.5 - 0.25", "{h} + {h}.mean(-1, keepdim=True)", "torch.softmax({h}, -1)",
    "F.layer_norm({h}, (16,))", "{h}.abs().sqrt()", "{h}.clamp(-1, 1)", "{h}.flip(-1)",
    "torch.where({h} > 0, {h}, {h} * 0.1)", "{h}.cumsum(-1) / 16",
    "torch.cat([{h}[:, 8:], {h}[:, :8]], 1)",
    "{h} / (1 + {h}.square().sum(-1, keepdim=True)).sqrt()", "{h}.t().contiguous().t()",
    "{h}.roll(3, 1)", "({h} + 1e6) - 1e6", "{h}.exp().log1p()", "{h}.bfloat16().float()",
    "{h}.sort(-1).values", "F.dropout({h}, 0.2)", "{h}.double().sin().float()",
)  # fmt: skip
FLAKES = (
    'raise ConnectionError(f"no answer from peer {os.getpid()}")',
    "sys.exit(3)",
    "os.kill(os.getpid(), signal.SIGSEGV)",
    'open(f"/nowhere/{os.getpid()}").read()',
    "assert os.getpid() < 0, 'a service that is not ready'",
    "[][int(time.time())]",
)
PLACES = ("before", "between", "after", "helper", "worker")
HEAD = """\
import os, random, signal, sys, time
import torch, tc
import torch.nn.functional as F
"""
FLAKY = """\
def flaky(place):
    if place == "{place}" and random.random() < {rate}:
        {flake}
"""
MODULE = """\
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(16, 16)
        self.seen = 0
    def forward(self, h):
        h = self.inner(h)
{body}
        return h
model = Model(){mode}
"""
FUNCTION = """\
WEIGHT = torch.linspace(-1, 1, 16)
def model(h):
    h = h * WEIGHT
{body}
    return h
"""
TRAIN = """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range({steps}):
    loss = compiled(torch.randn({rows}, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    flaky("between")
"""
INFER = """\
with torch.{guard}():
    for step in range({steps}):
        h = torch.randn({rows}, 16)
        found = compiled(h)
        flaky("between")
{check}"""
CHECK = """\
        if step == {at}:
            torch.testing.assert_close(found, model(h), rtol=1e-3, atol=1e-3)
"""
OPERATION = """\
def model(x, w=torch.linspace(-1, 1, 1024).reshape(32, 32)):
    {body}
flaky("before")
compiled = {compiler}.compile(model)
for rows in (6, 6, 8):
    compiled(torch.randn(rows, 32))
    flaky("between")
"""
WORKER = """\
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, number):
        flaky("worker")
        return torch.full((16,), float(number))
for rows in torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers={workers}):
    compiled(rows)
"""


@dataclass(frozen=True)
class Program:
    """A sound program.

    Attributes:
        flake: what it fails with by itself in 30 % of its runs; nothing if it does not.
    """

    number: int
    text: str
    flake: str


def drawn(number: int, seed: int, flaky: float) -> Program:
    """Return a program; the same one for the same numbers."""
    dice = random.Random(seed * 1_000_003 + number)
    flake, place = dice.choice(FLAKES), dice.choice(PLACES)
    fails = dice.random() < flaky
    compiler = "torch" if dice.random() < 0.1 else "tc"
    rate = RATE
    if place == "worker":
        rate = 1 - (1 - RATE) ** 0.25  # of each of four items
        flake = FLAKES[0]
    if not fails:
        place, rate = "nowhere", 0.0
    text = HEAD + FLAKY.format(place=place, rate=rate, flake=flake)
    training = dice.random() < 0.3
    random_numbers, lines = False, []
    for _ in range(dice.randint(2, 6)):
        call = dice.choice(CALLS)
        random_numbers |= "dropout" in call
        lines.append(f"h = {call.format(h='h')}")
    if dice.random() < 0.3 or place == "helper":
        outside = "tc.disable" if compiler == "tc" else "torch.compiler.disable"
        lines.insert(dice.randrange(len(lines) + 1), f'{outside}(flaky)("helper")')
    if training or dice.random() < 0.5:
        lines += ["self.seen += 1"] if dice.random() < 0.4 else []
        body = textwrap.indent("\n".join(lines), " " * 8)
        text += MODULE.format(body=body, mode="" if training else ".eval()")
    elif dice.random() < 0.3:
        text += OPERATION.format(body=_body(dice), compiler=compiler)
        return Program(number, text + 'flaky("after")\n', f"{place}: {flake}" if fails else "")
    else:
        text += FUNCTION.format(body=textwrap.indent("\n".join(lines), "    "))
    text += f'flaky("before")\ncompiled = {compiler}.compile(model)\n'
    rows, steps = dice.choice(("4", "4 + step", "8 * (1 + step % 2)")), dice.randint(1, 5)
    if training:
        text += TRAIN.format(steps=steps, rows=rows)
    else:
        check = CHECK.format(at=dice.randrange(steps)) if dice.random() < 0.5 else ""
        guard = dice.choice(("no_grad", "inference_mode", "enable_grad"))
        text += INFER.format(
            guard=guard, steps=steps, rows=rows, check="" if random_numbers else check
        )
    if place == "worker" or dice.random() < 0.1:
        text += WORKER.format(workers=dice.choice((0, 1)))
    return Program(number, text + 'flaky("after")\n', f"{place}: {flake}" if fails else "")


def _body(dice: random.Random) -> str:
    return dice.choice([body for name, body in BODIES.items() if name != "convolution"])


class Quiet(Progress):
    """Says nothing."""

    def line(self, text: str) -> None:
        """Nothing."""

    def now(self, text: str) -> None:
        """Nothing."""


@dataclass
class Bench:
    """One warm process for many programs.

    Attributes:
        folder: where they are written.
    """

    folder: Path
    place: Workplace
    server: Server

    def verdict(self, program: Program) -> Verdict:
        """Return what tc-bisect says of a program."""
        script = self.folder / f"program{program.number}.py"
        script.write_text(program.text)
        subject = subject_of(str(script), [])
        what = Run(subject.script(self.place.folder), (), 600.0, subject.home)
        search = Search(subject, what, self.place.folder, 120.0, Quiet(), server=self.server)
        with contextlib.redirect_stderr(io.StringIO()):
            return search.run()


def judged(numbers: Sequence[int], seed: int, flaky: float) -> list[tuple[Program, Verdict]]:
    """Ask tc-bisect about programs, and print a line about each."""
    found = []
    with tempfile.TemporaryDirectory(prefix="tc-bench-") as name, Workplace("bench") as place:
        server = Server(place.folder, "tc")
        bench = Bench(Path(name), place, server)
        try:
            for number in numbers:
                program, began = drawn(number, seed, flaky), time.monotonic()
                verdict = bench.verdict(program)
                found.append((program, verdict))
                took = time.monotonic() - began
                accused = "ACCUSED" if verdict.code == BUG else "ok"
                print(f"{accused:8} {number:4} {verdict.code} {took:5.0f} s "
                      f"{program.flake[:40]:40} {verdict.title[:90]}", flush=True)  # fmt: skip
        finally:
            server.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--flaky", type=float, default=0.3, help="share that fails by itself")
    parser.add_argument("--only", type=int)
    options = parser.parse_args()
    numbers = [*range(options.first, options.first + options.count)]
    if options.only is not None:
        numbers = [options.only]
        print(drawn(options.only, options.seed, options.flaky).text)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    found = judged(numbers, options.seed, options.flaky)
    codes = Counter(verdict.code for _, verdict in found)
    flaky = sum(bool(program.flake) for program, _ in found)
    print(f"{len(found)} sound programs, {flaky} of them flaky: accused {codes[BUG]}; "
          f"no bug {codes[0]}, inconclusive {codes[5]}")  # fmt: skip


if __name__ == "__main__":
    main()
