"""Ordinary programs with a fault in what runs them, drawn at random; what tc-minify makes of each.

    python bench/hosts.py --count 32 --seed 7        # a line each, a summary at the end
    python bench/hosts.py --kind flaky
    python bench/hosts.py --kind program --forks    # programs without a compiler, much faster

A host is a script of 50 to 150 lines: argparse, classes, dataclasses, decorators, f-strings,
`match`, walrus, star expressions, async, several files. The op, the instruction, the exception and
the features are drawn. A result counts if it is verified by identity in every run, holds the word
that it has to, and is no longer than the floor of its kind.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import runpy
import statistics
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path

from faultbench import run

from tc.minifier import identity
from tc.minifier.answer import Answer
from tc.minifier.check import ProgramOracle
from tc.minifier.console import Progress
from tc.minifier.fresh import Fresh
from tc.minifier.job import Setting
from tc.minifier.journal import Journal
from tc.minifier.script_job import ScriptJob
from tc.minifier.subject import subject_of
from tc.minifier.verify import failures

OPS = ("tanh", "sigmoid", "relu", "log1p", "exp", "cos", "sqrt", "erf", "abs", "exp2", "rsqrt")
SCALAR = ("tanh", "exp", "cos", "sqrt", "erf", "exp2")  # with a C function of their own
#: instruction -> what a program that has it holds, one of several separated by bars
OPCODES = {"CONTAINS_OP": " in ", "BUILD_MAP": "{|**", "UNPACK_SEQUENCE": ", ", "LIST_EXTEND": "*"}
LIBRARY = "of a library"  # says a fault of an instruction that stands in no file of the program
ERRORS = {
    "ZeroDivisionError": "limit / (limit - limit)",
    "KeyError": "{'a': limit}[f'{limit!r}']",
    "IndexError": "[*range(limit)][limit + 5]",
    "AttributeError": "(lambda one: one.nothing)(limit)",
    "TypeError": "len(limit)",
    "UnicodeDecodeError": "bytes([200, limit]).decode()",
}


@dataclass(frozen=True)
class Host:
    """A program, what is wrong, and what has to be left of it.

    Attributes:
        files: name -> text; the first is the script.
        options: of tc-minify.
        word: what the result has to hold: one of several separated by bars.
        lines: how long it may be.
    """

    kind: str
    fault: str
    files: dict[str, str]
    options: tuple[str, ...]
    word: str
    lines: int


PLAIN_PARTS = '''
@dataclass(frozen=True)
class Record:
    name: str = "none"
    size: int = 4
    tags: list[str] = field(default_factory=lambda: ["a", "b"])

    @property
    def title(self) -> str:
        return f"{self.name!r:>{self.size}} [{', '.join(self.tags)}] {self.size=:03d}"


def logged(*names, level=1):
    def around(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            print(f"{function.__name__} {names} {len(args)} {f'{kwargs}'}")
            return function(*args, **kwargs)
        return inner
    return around


def kind_of(value):
    match value:
        case {"kind": str(found), **rest}:
            return f"{found} and {len(rest)}"
        case [first, *middle, last] if (count := len(middle)) > 1:
            return f"{first}..{last} ({count})"
        case Record(name="none") | None:
            return "nothing"
        case _:
            return "other"


async def gathered(count):
    async def one(number):
        await asyncio.sleep(0)
        return number * 2
    found = await asyncio.gather(*[one(n) for n in range(count)])
    return {f"k{n}": v for n, v in enumerate(found) if v != 3}


class Store:
    """Keeps rows; the first and the last matter."""

    def __init__(self, *rows, limit=8, **more):
        self.rows, self.limit, self.more = [*rows], limit, {**more}

    @logged("add", level=2)
    def add(self, row, /, *, twice=False):
        self.rows += [row, row] if twice else [row]
        first, *rest = self.rows
        return first if not rest else rest[-1]

    def __len__(self):
        return len(self.rows)
'''
PLAIN = '''
"""A program that keeps records."""
from __future__ import annotations
import argparse, asyncio, functools, sys
from dataclasses import dataclass, field
{imports}
{parts}

def report(store, limit):
    total = 0
    for number, row in enumerate(store.rows):
        if (text := kind_of(row)) and number < 3:
            print(f"{{number:02d}} {{text:<10}} {{'yes' if row else 'no'}}")
        total += len(text)
    try:
        store.add({{"kind": "x", "n": total}}, twice=True)
    except (ValueError, OSError) as error:
        raise SystemExit(f"no way: {{error}}") from error
    finally:
        total += 1
    {culprit}
    return total


def main():
    parser = argparse.ArgumentParser(description=f"run {{__name__}}")
    parser.add_argument("--limit", type=int, default=7)
    parser.add_argument("--name", default="none")
    args = parser.parse_args()
    store = Store(Record(), [1, 2, 3, 4], limit=args.limit, extra=True)
    found = asyncio.run(gathered(args.limit))
    print(Record(args.name).title, kind_of(found), *sorted(found), sep=" | ")
    print(f"{{report(store, args.limit)=}}")


if __name__ == "__main__":
    main()
'''
MODEL = '''
"""Trains, or at least runs, a model."""
from __future__ import annotations
import argparse, asyncio, functools, math
from dataclasses import dataclass, field
import torch, tc
{imports}
{parts}

class Block(torch.nn.Module):
    def __init__(self, width, names):
        super().__init__()
        self.lin = torch.nn.Linear(width, width)
        self.norm = torch.nn.LayerNorm(width)
        self.names = names
        self.table = {{"sin": torch.sin, "neg": torch.neg}}

    def forward(self, x, *, last=False):
        pair = (x, self.norm(x))
        y, z = pair
        for name in [*self.names, "sin"]:
            if name in self.table:
                y = self.table[name](self.lin(z)) + 0.5
        options = {{"scale": 2.0 if last else 1.0}}
        if last:
            y = {op}
        return x + y * options["scale"]


class Net(torch.nn.Module):
    def __init__(self, record, depth=4):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(16, record.tags) for _ in range(depth))

    def forward(self, x):
        for number, block in enumerate(self.blocks):
            x = block(x, last=number == 2)
        return x.square().mean(-1)


@logged("run")
def run(args, *rest):
    torch.manual_seed(args.seed)
    record = Record(args.name, tags=["neg", "none"])
    {runs}
    total = 0.0
    for step in range(args.steps):
        if (found := model(torch.rand(4, 16) + 0.5)).numel() > 3:
            total += found.sum().item()
        print(f"step {{step:03d}}: {{total:.3f}} {{'new' if step else 'first'!r}}")
    return total


def main():
    parser = argparse.ArgumentParser(description=f"run {{__name__}}")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="none")
    args = parser.parse_args()
    print(Record(args.name).title, kind_of([1, 2, 3, 4]), asyncio.run(gathered(3)))
    with torch.no_grad():
        result = run(args, *[1, 2])
    print(f"{{result=}}")


if __name__ == "__main__":
    main()
'''
ONCE = "model = tc.compile(Net(record).eval())"
THRICE = """for depth in (3, 4, 5):
        model = tc.compile(Net(record, depth).eval())
        print(depth, model(torch.rand(2, 16)).sum().item())"""


def drawn(source: random.Random, kind: str) -> Host:
    """Draw a program with a fault of a kind."""
    if kind == "program":
        error = source.choice(sorted(ERRORS))
        files = filled(source, PLAIN, culprit=f"print(f'{{{ERRORS[error]}}}')" if "'" not in
                       ERRORS[error] else f"print({ERRORS[error]})")  # fmt: skip
        options: tuple[str, ...] = ("--python", sys.executable)
        if source.random() < 0.5:
            options = ("--check", f"{sys.executable} {{}} 2>&1 | grep -q ^{error}")
        return Host(kind, error, files, options, "", 5)
    op = source.choice(SCALAR if kind in ("gcc", "kernel") else OPS)
    runs = ONCE
    if kind == "third":
        runs = THRICE
    files = filled(source, MODEL, op=f"torch.{op}(y)" if op != "erf" else "torch.erf(y)", runs=runs)
    if kind == "opcode":
        name = source.choice(sorted(OPCODES))
        return Host(kind, f"tc:opcode:{name}", files, (), OPCODES[name], 20)
    more = {"flaky": ("--runs", "20"), "hang": ("--seconds", "60")}.get(kind, ())
    lines = 25 if kind == "third" else 20
    return Host(kind, f"tc:{kind}:{op}", files, more, op, lines)


def filled(source: random.Random, template: str, **parts: str) -> dict[str, str]:
    """Return a program of one file, or of two."""
    if source.random() < 0.5:
        return {"script.py": template.format(imports="", parts=PLAIN_PARTS, **parts).lstrip()}
    head = "import asyncio, functools\nfrom dataclasses import dataclass, field\n"
    names = "from helpers import Record, Store, gathered, kind_of, logged"
    return {
        "script.py": template.format(imports=names, parts="", **parts).lstrip(),
        "helpers.py": textwrap.dedent(head + PLAIN_PARTS),
    }


KINDS = (
    "wrong", "third", "hang", "die", "flaky", "opcode", "crash", "program", "kernel", "nan", "gcc",
)  # fmt: skip


def judged(host: Host) -> tuple[bool, str, int]:
    """Run tc-minify on a program; returns whether it counts, why (not), and the lines left."""
    with tempfile.TemporaryDirectory(prefix="tc-bench-") as name:
        folder = Path(name)
        for file, text in host.files.items():
            (folder / file).write_text(text)
        fault = host.fault if host.fault.startswith("tc:") else ""
        done = run(["-m", "tc.minifier", "script.py", "--json", *host.options], folder, fault)
        if not done.out.startswith("{"):
            return False, (done.err.splitlines() or ["no word"])[-1][:150], 0
        found = json.loads(done.out)
        text = (folder / "minified.py").read_text()
        left = sorted(path.name for path in folder.iterdir())
    why = f"{found['lines']} lines, {found['verified']} of {found['runs']}, {found['tries']} tries"
    if done.code or not found["verified"]:
        return False, f"not verified: {why}", found["lines"]
    always = found["rule"] == [1, 1]
    if always and found["verified"] < found["runs"]:
        return False, f"not in every run: {why}", found["lines"]
    if not holds(text, host.word) and LIBRARY not in found["message"]:
        return False, f"{host.word} is missing: {why}", found["lines"]
    expected = {*host.files, "minified.py", "cache", "inductor", "__pycache__"}
    if not set(left) <= expected:
        return False, f"left behind: {sorted(set(left) - expected)}", found["lines"]
    return found["lines"] <= host.lines, f"{why}, {done.cpu:.0f} CPU s", found["lines"]


def holds(text: str, words: str) -> bool:
    """Return whether a text holds one of some words, which are separated by bars."""
    return any(word in text for word in words.split("|"))


def reduced_in_forks(host: Host) -> tuple[bool, str, int]:
    """Reduce a program that needs no compiler, each try in a fork; five fresh processes verify."""
    with tempfile.TemporaryDirectory(prefix="tc-bench-") as name:
        folder = Path(name)
        for file, text in host.files.items():
            (folder / file).write_text(text)
        output = folder / "minified.py"
        subject = subject_of(str(folder / "script.py"), ())
        setting = Setting(subject, output, Progress(), Journal(), 60, as_json=True)
        oracle = ProgramOracle(runs=forked, home=folder, name="script.py")

        def verify(path: Path, runs: int) -> int:
            assert oracle.target is not None
            return failures(path, oracle.target, Fresh(60), runs=runs)

        job = ScriptJob(setting, oracle, verify)
        if not job.begin(subject.text):
            return False, f"it does not fail: {job.answer.message}", 0
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = job.run(subject.text)
        found = json.loads(printed.getvalue())
        why = f"{found['lines']} lines, {found['verified']} of {found['runs']}"
        why += f", {found['tries']} tries, {found['seconds']:.0f} s"
        good = code == 0 and found["verified"] == found["runs"] and host.fault in str(oracle.target)
        return good and found["lines"] <= host.lines, why, found["lines"]


def forked(path: Path, seconds: float) -> Answer:
    """Run a program in a fork of this process."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        sys.argv, sys.path[0] = [str(path)], str(path.parent)
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        try:
            runpy.run_path(str(path), run_name="__main__")
            content = b"null"
        except BaseException as error:
            content = json.dumps(identity.of_exception(error).as_json()).encode()
        os.write(writer, content)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        row = json.loads(file.read() or b"null")
    os.waitpid(pid, 0)
    if row is None:
        return Answer("ok")
    found = identity.Identity.of_json(row)
    return Answer("script", found, str(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=32)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--kind", default="")
    parser.add_argument("--forks", action="store_true", help="with --kind program: much faster")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    source = random.Random(seed)
    print(f"seed {seed}", flush=True)
    good, lengths = 0, []
    for number in range(options.count):
        kind = options.kind or KINDS[number % len(KINDS)]
        host = drawn(source, kind)
        counts, why, lines = reduced_in_forks(host) if options.forks else judged(host)
        good += counts
        lengths.append(lines)
        mark = "ok " if counts else "NOT"
        print(f"{mark} {kind:8} {host.fault:24} {len(host.files)} files  {why}", flush=True)
    median = statistics.median(lengths)
    print(f"at the minimum and verified: {good} of {options.count}; median {median:g} lines")


if __name__ == "__main__":
    main()
