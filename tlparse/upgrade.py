"""Two Pythons and a program go in; the first stage and line at which its two runs differ comes out.

    tc-report upgrade PYTHON_A PYTHON_B -- train.py --steps 10

For an engineer who is about to move to another version of torch. Each run has caches of its own,
empty at the start, so that their times compare.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tc.tlparse.cli import GATE_FAILED, load, say, write
from tc.tlparse.outputs import difference, same
from tc.tlparse.usage import Usage
from tc.tlparse.verbs import call, fresh
from tc.trace.commands import command
from tc.trace.delivery import OK, complain
from tc.trace.reader import Unreadable

if TYPE_CHECKING:  # imported when needed: `--help` must be fast
    from tc.tlparse.compare import Comparison, CompileDiff
    from tc.trace.findings import Diagnosis, Finding

#: by how much the times of two runs have to differ to be called different
_NOISE: Final = 1.25
_PYTHON: Final = re.compile(r"(.*/)?python[\d.]*$")
_SHOWN: Final = 160


@dataclass(frozen=True, slots=True)
class Side:
    """One run of the program.

    Attributes:
        code: its exit code, 128 + the signal that ended it.
        seconds: from its start to its end, tracing included.
        output: what it printed on stdout.
    """

    python: str
    folder: Path
    code: int
    seconds: float
    output: str
    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True)
class Stage:
    """What one stage came to: the first difference in words, empty if there is none."""

    name: str
    difference: str = ""


def upgrade(
    pythons: Sequence[str], command: Sequence[str], folder: str | None, html: str, *, as_json: bool
) -> int:
    """Run a program under two Pythons and print where its runs first differ.

    Args:
        command: a script or ``-m module`` with its arguments; a ``python`` before it is dropped.
        folder: for traces, outputs and caches; None: ``tc_upgrade`` here.
        html: a file for the page of `tc-report diff`; empty: none.

    Returns:
        0 if breaks, recompiles, graphs, kernels and results are the same, else 1.

    Raises:
        Usage: there is no such Python, or the program did not start or compiled nothing.
    """
    from tc.tlparse.compare import compare

    words = list(command[1:] if _PYTHON.match(command[0]) else command)
    if not words:
        raise Usage("name the program after --: tc-report upgrade PY_A PY_B -- train.py")
    programs = [_program(python) for python in pythons]
    where = fresh(folder, "tc_upgrade")
    a, b = (
        _run(python, [program, *words], where / side)
        for python, program, side in zip(pythons, programs, "ab", strict=True)
    )
    comparison = compare(a.diagnosis, b.diagnosis)
    stages = list(_stages(a, b, comparison))
    if html:
        from tc.tlparse import diffpage

        write(Path(html), [diffpage.render(comparison, str(a.folder), str(b.folder))], "--html")
    if as_json:
        print(json.dumps(_json(a, b, stages), indent=1))
    else:
        say(_text(a, b, stages, where))
    return GATE_FAILED if any(one.difference for one in stages if one.name != "speed") else OK


def _program(python: str) -> str:
    """Return the path of a Python.

    Raises:
        Usage: there is none.
    """
    program = shutil.which(python)
    if program is None:
        raise Usage(f"{python} is no program; name a Python, such as env/bin/python")
    return program


def _run(python: str, command: list[str], folder: Path) -> Side:
    """Run a command of one Python, its output kept in a file."""
    trace, caches = folder / "trace", folder / "caches"
    for one in (trace, caches):
        one.mkdir(parents=True)
    environment = {
        **os.environ,
        "TC_TRACE": str(trace),
        "TORCH_TRACE": str(trace),
        "TC_CACHE_DIR": str(caches / "tc"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "torch"),
    }
    environment.pop("PYTHONHOME", None)
    complain(f"tc-report: running under {python}")
    began = time.monotonic()
    try:
        with open(folder / "output.txt", "wb") as output:
            code = call(command, environment, stdout=output, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise Usage(f"cannot run {python}: {error.strerror}") from error
    seconds = time.monotonic() - began
    printed = (folder / "output.txt").read_text("utf-8", "replace")
    try:
        diagnosis = load(str(trace))
    except Unreadable as error:
        how = f"ended with exit code {code}" if code else "compiled nothing"
        raise Usage(f"under {python} the program {how} and wrote no trace to {trace}") from error
    return Side(python, folder, code, seconds, printed, diagnosis)


def _stages(a: Side, b: Side, comparison: Comparison) -> Iterator[Stage]:
    """Yield what each stage came to, in the order in which one causes the next."""
    ended = f"exit code {a.code} → {b.code}" if a.code != b.code else ""
    yield Stage("end of the program", ended)
    for name, marks in (
        ("graph breaks", ("break", "skipped")),
        ("recompiles", ("recompile", "refused")),
        ("failures", ("error",)),
    ):
        yield Stage(name, _findings(comparison, marks))
    yield Stage("captured graphs", _first(comparison, "captured graph"))
    yield Stage("kernels", _first(comparison, "kernels"))
    alike = same(a.output, b.output)
    yield Stage("results", "" if alike else difference(a.output, b.output)[:_SHOWN])
    ratio = b.seconds / a.seconds
    apart = max(ratio, 1 / ratio) > _NOISE
    yield Stage("speed", f"{a.seconds:.1f} s → {b.seconds:.1f} s" if apart else "")


def _findings(comparison: Comparison, marks: Sequence[str]) -> str:
    """Return the first finding of some kinds that is new, gone, or of another count."""
    rows = [("new", one) for one in comparison.new]
    rows += [("gone", one) for one in comparison.gone]
    words = [f"{state}: {_finding(one)}" for state, one in rows if one.kind.mark in marks]
    words += [
        f"{_finding(old)}: {old.count} → {new.count} times"
        for old, new in comparison.changed
        if old.kind.mark in marks
    ]
    return _and_more(words)


def _finding(one: Finding) -> str:
    return f"{one.code} {one.title}" + (f" at {one.where.short}" if one.where.file else "")


def _first(comparison: Comparison, name: str) -> str:
    """Return the first compile whose stage of that name differs, with its first line that does."""
    words = []
    for function in comparison.functions:
        for one in function.compiles:
            row = _line(one, name)
            if row:
                words.append(f"{function.name}: {row}")
    return _and_more(words)


def _line(one: CompileDiff, name: str) -> str:
    from tc.tlparse.compare import IDENTICAL

    if one.a is None or one.b is None:
        return f"compiled {one.state}" if name == "captured graph" else ""
    for stage in one.stages:
        if stage.stage.startswith(name) and stage.hunks:
            changed = [row for row in stage.hunks[0].rows if not row.startswith("  ")]
            return " ".join(" | ".join(changed[:2]).split())[:_SHOWN]
        if stage.stage.startswith(name) and stage.state != IDENTICAL:
            return stage.state
    return ""


def _and_more(words: Sequence[str]) -> str:
    more = f" (and {len(words) - 1} more)" if len(words) > 1 else ""
    return f"{words[0]}{more}" if words else ""


def _text(a: Side, b: Side, stages: Sequence[Stage], where: Path) -> str:
    from tc.tlparse.summary import headline

    first = next((stage for stage in stages if stage.difference), None)
    lines = [
        f"first difference: {first.name}: {first.difference}" if first else "nothing differs",
        "",
    ]
    for name, side in (("A", a), ("B", b)):
        compiled = headline(side.diagnosis)
        lines += [f"{name}  {side.python}", f"   {compiled} · {side.seconds:.1f} s with tracing"]
    lines += [
        "",
        *(
            f"  {'≠' if s.difference else '='} {s.name:<19} {s.difference or 'the same'}"
            for s in stages
        ),
    ]
    more = command("tc-report", "diff", a.folder / "trace", b.folder / "trace")
    lines += ["", f"traces and outputs: {where}; more: {more}"]
    return "\n".join(lines)


def _json(a: Side, b: Side, stages: Sequence[Stage]) -> dict[str, Any]:
    sides = [
        {"python": one.python, "trace": str(one.folder / "trace"), "exit_code": one.code,
         "seconds": round(one.seconds, 3), **one.diagnosis.session.environment}
        for one in (a, b)
    ]  # fmt: skip
    first = next((one.name for one in stages if one.difference), None)
    rows = [
        {"stage": one.name, "differs": bool(one.difference), "difference": one.difference}
        for one in stages
    ]
    return {"schema": 1, "tool": "tc-report", "first": first, "a": sides[0], "b": sides[1],
            "stages": rows}  # fmt: skip
