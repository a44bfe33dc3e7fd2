"""Programs and commands of the site go in; what they print comes out, written below them.

Run it after a change of a page, or of what tc says: ``python tests/make_examples.py [PAGE ...]``.
Of a page these blocks count:

- ``python title="NAME"``: a program. It is written to a file of that name in the page's folder.
- ``text title="prints"`` right after one: the program is run, and this is what it printed. All
  programs of this kind share a process, which begins each as a new one would.
- ``console``: commands, each after a prompt, run in that folder; their output follows them.
  ``bench/`` and ``examples/`` are there, as in a checkout.

`tests/test_tutorials.py` does the same, and compares what it gets with what stands there.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
COMMANDS = {"tc-report": "tc.tlparse", "tc-tui": "tc.tui", "tc-minify": "tc.minifier",
            "tc-bisect": "tc.minifier.bisect"}  # fmt: skip
PRINTS = "prints"


def pages() -> list[Path]:
    """Return README and the pages of the site that hold such blocks."""
    site = (path for path in sorted((ROOT / "docs").rglob("*.md")) if "tutorials" not in str(path))
    found = (ROOT / "README.md", *site)
    return [
        path
        for path in found
        if any(title or kind == "console" for kind, title, _ in BLOCK.findall(path.read_text()))
    ]


@dataclass
class Page:
    """A page, the folder its programs stand in, and what they printed."""

    path: Path
    folder: Path
    blocks: list[re.Match[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.text = self.path.read_text("utf-8")
        self.blocks = list(BLOCK.finditer(self.text))

    def programs(self) -> list[Path]:
        """Write all programs, and return those that are run for what they print."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("bench", "examples"):
            (self.folder / name).symlink_to(ROOT / name)
        run = []
        for number, block in enumerate(self.blocks):
            if block[1] == "python" and block[2]:
                (self.folder / block[2]).write_text(block[3], "utf-8")
            elif block[2] == PRINTS:
                run.append(self.folder / self.blocks[number - 1][2])
        return run

    def rewritten(self, printed: Iterable[str], commands: bool = True) -> str:
        """Return the text of the page with what its programs printed, and its commands."""
        texts = iter(printed)
        made, end = [], 0
        for block in self.blocks:
            made.append(self.text[end : block.start(3)])
            if block[2] == PRINTS:
                made.append(shown(next(texts)))
            elif block[1] == "console" and commands:
                made.append(self._commands(block[3]))
            else:
                made.append(block[3])
            end = block.end(3)
        return "".join((*made, self.text[end:]))

    def _commands(self, block: str) -> str:
        environment = {**clean(self.folder), "PATH": f"{shims(self.folder)}:{os.environ['PATH']}"}
        made = []
        for line in block.splitlines():
            if not line.startswith("$ "):
                continue
            done = subprocess.run(
                ["bash", "-c", line.removeprefix("$ ")], cwd=self.folder, env=environment,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
                stdin=subprocess.DEVNULL, check=False,
            )  # fmt: skip
            made.append(f"{line}\n{shown(done.stdout.replace(f'{self.folder}/', ''))}")
        return "".join(made)


def shown(text: str) -> str:
    """Return what was printed as a page shows it: no empty lines at the ends, no blanks there."""
    lines = [line.rstrip() for line in text.splitlines()]
    return "\n".join(lines).strip("\n") + "\n" if text.strip() else ""


def clean(folder: Path) -> dict[str, str]:
    """Return the variables of a child that starts as on a new machine."""
    left = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TC_", "TORCH_LOGS", "TORCH_TRACE", "TRITON_INTERPRET", "PYTEST"))
    }
    return {**left, "PYTHONPATH": str(ROOT), "HOME": str(folder), "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore", "COLUMNS": "100"}  # fmt: skip


def shims(folder: Path) -> Path:
    """Return a folder with the commands of this checkout, run by this interpreter."""
    place = folder / ".bin"
    place.mkdir(exist_ok=True)
    for name, module in {**COMMANDS, "python": ""}.items():
        what = f"-m {module}" if module else ""
        (place / name).write_text(
            f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{ROOT}" exec {sys.executable} {what} "$@"\n'
        )
        (place / name).chmod(0o755)
    return place


def printed_by(programs: list[Path], folder: Path) -> list[str]:
    """Run programs, one after the other in one process; return what each printed.

    Raises:
        AssertionError: the process failed.
    """
    if not programs:
        return []
    done = subprocess.run(
        [sys.executable, __file__, "--programs"], input=json.dumps([str(p) for p in programs]),
        env=clean(folder), capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[str] = json.loads(done.stdout)
    return found


class _Output:
    """What `sys.stdout` and `sys.stderr` are: the text of the program that runs."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self.text: list[str] = []

    def write(self, text: str) -> int:
        """Keep it."""
        self.text.append(text)
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def isatty(self) -> bool:
        """Return that it is none."""
        return False


def _serve(answer: TextIO) -> None:
    """Run the programs that stdin names, and write what each printed to `answer`."""
    import runpy
    import traceback

    programs = [Path(name) for name in json.load(sys.stdin)]
    output: Any = _Output()
    sys.stdout = sys.stderr = output
    import torch

    import tc

    made = []
    for program in programs:
        os.chdir(program.parent)
        torch.manual_seed(0)
        tc.reset()
        tc.counters.clear()
        try:
            runpy.run_path(program.name, run_name="__main__")
        except Exception:
            traceback.print_exc()
        tc.set_logs()  # a log that ends has its closing lines, as at the end of a process
        made.append("".join(output.text))
        output.text.clear()
    json.dump(made, answer)


def rewritten(paths: Iterable[Path], folder: Path, commands: bool = True) -> dict[Path, str]:
    """Return the pages as they should be; with their commands run only where that is asked for."""
    found = [Page(path, folder / f"{path.parent.name}_{path.stem}") for path in paths]
    programs = {id(page): page.programs() for page in found}
    printed = iter(printed_by([one for page in found for one in programs[id(page)]], folder))
    return {
        page.path: page.rewritten([next(printed) for _ in programs[id(page)]], commands)
        for page in found
    }


if __name__ == "__main__":
    if sys.argv[1:] == ["--programs"]:
        _serve(sys.stdout)
    else:
        chosen = [Path(name).resolve() for name in sys.argv[1:]] or pages()
        with tempfile.TemporaryDirectory() as scratch:
            for path, text in rewritten(chosen, Path(scratch)).items():
                path.write_text(text, "utf-8")
