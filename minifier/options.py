"""The options of tc-minify: what is typed, checked before anything runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tc.minifier import writer
from tc.minifier.console import Parser, Usage, split_rest
from tc.minifier.subject import Subject, subject_of
from tc.trace.arguments import seconds, whole_number
from tc.trace.files import is_replaceable

HELP: Final = """\
Make the smallest program that fails like a script of yours.

examples:
  tc-minify train.py                     writes minified.py: a few lines, no data files
  tc-minify train.py -o bug.py --json    the result as JSON, for scripts and agents
  tc-minify train.py -- --steps 1        what follows -- goes to the script
  tc-minify -m package, notes.ipynb, tests/test_a.py::test_b    are scripts, too
  tc-minify any.py --check 'grep -q x {}'    as long as your command ends with 0

usage:
  tc-minify SCRIPT [options] [-- ARGUMENT ...]

The script calls tc.compile or torch.compile. It is run once; the first graph that crashes the
compiler, or gives another result than eager by more than rounding (measured against float64), is
cut down: calls, inputs, shapes, types, values. Every step fails in the same way as the first.

options:
  -o FILE         the result; default minified.py. The best so far is always there
  -m              SCRIPT is a module
  --json, --issue print the result as JSON, or as the text of an issue
  --seconds N     limit for one run (default 120; 600 for the first)
  --budget N      stop reducing after N seconds, keep the best (default: no limit)
  --runs N        look N times for a failure that does not always show
  --check CMD     0: still fails, 125: not judged, else: does not; {} is the file. Needs no torch
  --python EXE    run by another Python, which needs no tc; compares how the program ends
  --own-caches    use your compilers' caches (default: new ones, removed afterwards)
  --history       keep every step beside the result, as FILE without .py, and .history
  --resume        continue what was interrupted; gives the result an uninterrupted run gives
  --version, --help

exit codes:
  0 reduced   1 it does not fail   2 wrong usage   4 internal error   130 Ctrl-C, the best is kept
"""
FIRST: Final = 600.0  # seconds for the whole script, where no limit is given


@dataclass(frozen=True)
class Options:
    """What was typed.

    Attributes:
        first_seconds: limit for the first run.
        history: folder of the steps.
    """

    subject: Subject
    output: Path
    json: bool
    issue: bool
    seconds: float
    first_seconds: float
    budget: float
    runs: int
    check: str
    python: str
    own_caches: bool
    keep_history: bool
    resume: bool

    @property
    def history(self) -> Path:
        """Where answers and steps are kept while the reduction runs."""
        return self.output.with_suffix(".history")


def parsed(arguments: Sequence[str]) -> Options:
    """Return the options; what follows ``--`` belongs to the script.

    Raises:
        Usage: they cannot be followed.
    """
    own, rest = split_rest(arguments)
    found = _parser().parse_args(own)
    subject = subject_of(found.script, rest, found.module)
    limit = found.seconds
    output = output_of(found.output, subject)
    if found.check is not None and found.python:
        raise Usage("--check and --python exclude each other: let the command name its Python")
    if found.check is not None and not found.check.strip():
        raise Usage("--check needs a command")
    options = Options(
        subject=subject, output=output, json=found.json, issue=found.issue,
        seconds=limit or 120.0, first_seconds=limit or FIRST,
        budget=found.budget or float("inf"),
        runs=found.runs or 0, check=found.check or "",
        python=python_of(found.python), own_caches=found.own_caches,
        keep_history=found.history, resume=found.resume,
    )  # fmt: skip
    if options.resume and not (options.history / "answers.jsonl").exists():
        raise Usage(f"there is nothing to continue: no {options.history}")
    return options


def _parser() -> Parser:
    parser = Parser(prog="tc-minify", add_help=False, allow_abbrev=False)
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("-m", dest="module", action="store_true")
    parser.add_argument("-o", "--output", metavar="FILE", default="minified.py")
    for name in ("--json", "--issue", "--own-caches", "--history", "--resume"):
        parser.add_argument(name, action="store_true")
    for name in ("--seconds", "--budget"):
        parser.add_argument(name, type=seconds)
    parser.add_argument("--runs", type=whole_number(1))
    for name in ("--check", "--python"):
        parser.add_argument(name)
    return parser


def output_of(name: str, subject: Subject) -> Path:
    """Return where the result goes; nothing of the user's is written over."""
    output = Path(name)
    folder = Path(os.path.realpath(output)).parent  # of what a link names
    if not folder.is_dir():
        raise Usage(f"there is no folder {folder} to write {output.name} to")
    if output.is_dir():
        raise Usage(f"{output} is a folder")
    if not os.access(folder, os.W_OK):
        raise Usage(f"{folder} cannot be written to")
    if subject.file is not None and output.resolve() == subject.file.resolve():
        raise Usage(f"{output} is the script itself")
    if not is_replaceable(output):  # it is run, and read again
        raise Usage(f"{output} is no regular file; name another with -o")
    if output.exists() and not writer.is_of_minifier(output):
        raise Usage(f"{output} is there already and not of tc-minify's; name another with -o")
    history = output.with_suffix(".history")
    if history.exists() and not (history / "subject.json").exists():
        raise Usage(f"{history} is there already and not of tc-minify's; name another file with -o")
    return output


def python_of(name: str | None) -> str:
    """Return the path of an interpreter, or nothing."""
    if name is None:
        return ""
    found = shutil.which(name)
    if found is None:
        raise Usage(f"there is no Python {name}")
    try:
        done = subprocess.run(
            [found, "-c", "import sys; print(sys.version_info >= (3, 10), sys.executable)"],
            capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        raise Usage(f"{name} does not run") from None
    able, _, path = done.stdout.strip().partition(" ")
    if able != "True":
        raise Usage(f"{name} does not run, or is older than Python 3.10")
    return path  # of the interpreter itself, where the name is one of a wrapper
