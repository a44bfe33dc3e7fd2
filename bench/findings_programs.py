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
    mark_dynamic, maybe_mark_dynamic = tc.mark_dynamic, tc.maybe_mark_dynamic
else:
    compile = lambda f=None, **k: torch.compile(f, **{"backend": BACKEND, **k})
    from torch._dynamo import mark_dynamic, maybe_mark_dynamic
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
    """

    text: str
    sides: tuple[str, ...]
    backend: str = ""


_SIDES: Final = ("torch", "tc")
_TEXTS: Final = Path(__file__).with_suffix(".txt")


def _programs() -> dict[str, Program]:
    """Read the programs; a line `#### NAME [sides=...] [backend=...]` begins each."""
    found = {}
    for part in _TEXTS.read_text("utf-8").split("#### ")[1:]:
        head, _, text = part.partition("\n")
        name, *words = head.split()
        said = dict(word.split("=") for word in words)
        sides = tuple(said["sides"].split(",")) if "sides" in said else _SIDES
        found[name] = Program(text, sides, said.get("backend", ""))
    return found


PROGRAMS: Final = _programs()


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
