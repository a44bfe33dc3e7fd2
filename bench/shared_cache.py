"""Many processes start at once on one shared cache: each graph is compiled once, and none fails.

    python bench/shared_cache.py --processes 16 --rounds 3
    python bench/shared_cache.py --processes 16 --rounds 10 --kill
    python bench/shared_cache.py --processes 8 --address file:///tmp/shared-cache

Every process runs one program (a model trained for a step, and functions without gradients) and
compares its results with eager's. All of them call the C compiler through a script that writes down
what it compiles, so calls are counted where they are made. With ``--kill``, processes that are
compiling are killed at random moments, and as many start in their place; a graph whose compile was
killed is then compiled again, and counted as such. The last line of output is a JSON object; the
exit status is 1 if anything was compiled twice without a kill, or a process failed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import json, sys
import torch
import tc
from tc import trace

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8)
)
x = torch.randn(16, 32)

def step(run):
    model.zero_grad()
    loss = torch.nn.functional.cross_entropy(run(x), torch.arange(16) % 8)
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]

def first(x):
    return torch.softmax(x * 2, -1).sum(0)

def second(x):
    return (x.sin() + x.cos()).cumsum(1), x.amax(1)

print("ready", flush=True)
sys.stdin.readline()
compiles = []
with trace.capture_events() as events:
    found = [step(tc.compile(model))]
    with torch.no_grad():
        found += [tc.compile(f)(x) for f in (first, second)]
expected = [step(model), first(x), second(x)]
torch.testing.assert_close(found, expected)
generated = sum(e.name == "codegen" and e.ph == "B" for e in events if isinstance(e, trace.Span))
print(json.dumps({"generated": generated}))
"""
COMPILER = """#!/bin/sh
for argument in "$@"; do case "$argument" in *.c) basename "$argument" >> {log} ;; esac; done
exec gcc "$@"
"""


@dataclass
class Round:
    """What one round of processes did.

    Attributes:
        compiled: source -> calls of the C compiler.
        generated: graphs that were compiled to source, in all processes that ended by themselves.
    """

    compiled: Counter[str] = field(default_factory=Counter)
    generated: int = 0
    kills: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def repeated(self) -> int:
        """Calls of the C compiler for a source that it was called for before."""
        return sum(self.compiled.values()) - len(self.compiled)


def one_round(count: int, kill: random.Random | None, cache: str, folder: Path) -> Round:
    """Start processes at once and wait for all of them."""
    log = folder / "compiled"
    compiler = folder / "gcc"
    compiler.write_text(COMPILER.format(log=shlex.quote(str(log))))
    compiler.chmod(0o755)
    variables = {
        **os.environ, "TC_CACHE_DIR": cache, "CC": str(compiler), "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM], env=variables, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    found = Round()
    running = [start() for _ in range(count)]
    for process in running:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            found.failures.append(process.communicate()[1])
    begun = time.perf_counter()
    for process in running:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    if kill is not None:
        killed(running, kill, found, Path(cache))
    for process in running:
        output, errors = process.communicate(timeout=600)
        if process.returncode == -signal.SIGKILL and kill is not None:
            continue
        if process.returncode or errors:
            found.failures.append(errors or f"exit status {process.returncode}")
        else:
            found.generated += json.loads(output.splitlines()[-1])["generated"]
    found.seconds = time.perf_counter() - begun
    found.compiled.update(log.read_text().split())
    return found


def killed(
    running: list[subprocess.Popen[str]], kill: random.Random, found: Round, cache: Path
) -> None:
    """Kill, at random moments, processes that have a claim: those that are compiling."""
    victims = len(running) // 4
    while found.kills < victims:
        time.sleep(kill.uniform(0.05, 0.6))
        left = [process for process in running if process.poll() is None]
        if len(left) <= len(running) - victims:
            return
        claims = list(cache.glob("tmp/*.claim*"))
        owners = {text.split()[1] for text in map(_text, claims) if len(text.split()) == 4}
        compiling = [process for process in left if str(process.pid) in owners]
        if compiling:
            os.killpg(kill.choice(compiling).pid, signal.SIGKILL)
            found.kills += 1


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def main() -> int:
    """Run the rounds and print what they did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kill", action="store_true", help="kill processes that compile")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--address", help="a folder or address; default: a new folder")
    asked = parser.parse_args()
    rounds = []
    for number in range(asked.rounds):
        with tempfile.TemporaryDirectory(prefix="tc-bench-") as name:
            folder = Path(name)
            cache = asked.address or str(folder / "cache")
            kill = random.Random(asked.seed + number) if asked.kill else None
            done = one_round(asked.processes, kill, cache, folder)
            if asked.address:
                shutil.rmtree(cache.removeprefix("file://"), ignore_errors=True)
        rounds.append(done)
        print(
            f"{len(done.compiled)} sources, {done.repeated} compiled again, {done.generated} graphs"
            f" generated, {done.kills} kills, {len(done.failures)} failures, {done.seconds:.1f} s"
        )
        for failure in done.failures:
            print(failure)
    failures = sum(len(done.failures) for done in rounds)
    again = sum(done.repeated for done in rounds)
    kills = sum(done.kills for done in rounds)
    print(json.dumps({"failures": failures, "compiled_again": again, "kills": kills}))
    return int(failures > 0 or again > kills)


if __name__ == "__main__":
    sys.exit(main())
