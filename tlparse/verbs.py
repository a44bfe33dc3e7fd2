"""Commands of tc-report beyond reading a trace: `run` a program, `explain` a code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tc.tlparse.cli import beside_report, load, say, write
from tc.tlparse.usage import Usage
from tc.trace.delivery import USAGE, complain
from tc.trace.reader import Unreadable

if TYPE_CHECKING:  # imported when needed: `--help` must be fast
    from tc.trace.findings import Diagnosis

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
_SIGNALLED: Final = 128
_WIDTH: Final = 100


def run(
    command: Sequence[str],
    output: str | None,
    folder: str | None,
    *,
    as_json: bool,
    show: bool,
    verify: bool = False,
) -> int:
    """Run a program with tracing on, report on it, and return its exit code.

    Args:
        as_json: print JSON; what the program prints on stdout goes to stderr then.
        verify: run it again with each fix that can be tried, and report what that gave.
    """
    where = fresh(folder, "tc_trace")
    environment = {**os.environ, "TC_TRACE": str(where), "TORCH_TRACE": str(where)}
    began = time.monotonic()
    try:
        # JSON is all that stdout holds then; a descriptor that is closed is left to the program.
        apart = {"stdout": 2} if as_json and sys.stderr is not None else {}
        code = call(command, environment, **apart)
    except FileNotFoundError:
        where.rmdir()
        complain(f"tc-report: {command[0]}: no such program")
        return NOT_FOUND
    except OSError as error:
        where.rmdir()
        complain(f"tc-report: cannot run {command[0]}: {error.strerror}")
        return NOT_EXECUTABLE
    sys.stdout.flush()
    seconds = time.monotonic() - began
    try:
        diagnosis = load(str(where))
        if verify:
            diagnosis = _verified(command, diagnosis, where, code, seconds)
        target = Path(output) if output else where / "tc_report.html"
        _report(diagnosis, where, target, as_json, show)
    except Unreadable:
        complain(f"tc-report: the program wrote no trace to {where}: it compiled nothing")
    return code


def fresh(folder: str | None, usual: str) -> Path:
    """Make a folder of its own for this run: the usual name, else `usual-2`, and so on.

    Args:
        folder: the name that the user asks for; the folder has to be new or empty.
    """
    number = 1
    while True:
        name = folder or (usual if number == 1 else f"{usual}-{number}")
        try:
            where = Path(name).resolve()
            where.mkdir(parents=True)
            return where
        except FileExistsError as error:
            if folder and (not where.is_dir() or any(where.iterdir())):
                raise Usage(f"{folder} is there already; name a new folder") from error
            if folder:
                return where
            number += 1
        except OSError as error:
            raise Usage(
                f"cannot make {name}: {error.strerror}; name another with --trace"
            ) from error


def call(command: Sequence[str], environment: dict[str, str], **streams: Any) -> int:
    """Wait for the program; Ctrl-C is its business, and a signal becomes 128 + its number.

    A terminal sends Ctrl-C to both processes, but only this one gets a SIGTERM: it is passed on.

    Args:
        streams: `stdin`, `stdout`, `stderr` as of `subprocess.Popen`.
    """
    with subprocess.Popen(command, env=environment, **streams) as program:
        before = {
            signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
            signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: program.terminate()),
        }
        try:
            code = program.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return _SIGNALLED - code if code < 0 else code


def _verified(
    command: Sequence[str], diagnosis: Diagnosis, where: Path, code: int, seconds: float
) -> Diagnosis:
    """Try the fixes on the program; what came of it is kept beside the trace."""
    from tc.tlparse.tries import Program, tried
    from tc.trace.findings import diagnose
    from tc.trace.trials import write_trials

    trials = tried(Program(command, code, seconds), diagnosis)
    try:
        write_trials(where, trials)
    except OSError as error:
        raise Usage(f"cannot write to {where}: {error.strerror}") from error
    diagnosis.session.trials = tuple(trials)
    return diagnose(diagnosis.session)


def _report(diagnosis: Diagnosis, where: Path, target: Path, as_json: bool, show: bool) -> None:
    from tc.tlparse import summary
    from tc.tlparse.report import render

    write(target, render(diagnosis), "-o")
    out = beside_report(target)
    if as_json:
        result = {**summary.as_json(diagnosis), "trace": str(where), "report": str(target)}
        print(json.dumps(result, indent=1), file=out)
    else:
        say(summary.text(diagnosis, str(where)), out)
        say(f"report: {target}", out)
    if show:
        import webbrowser

        webbrowser.open(target.resolve().as_uri())


# ------------------------------------------------------------------------------------ explain


def codes() -> dict[str, dict[str, Any]]:
    """Return what is known of each code; `tests/make_codes.py` writes it from rows and pages."""
    text = (files("tc.tlparse") / "static" / "codes.json").read_text("utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found


def explain(code: str, *, as_json: bool) -> int:
    """Explain a code, without a trace and without a network."""
    known = codes()
    name = code.upper().partition("-")[0]
    if name not in known:
        near = ", ".join(one for one in known if one[:3] == name[:3])
        among = f"there are {len(known)}, such as these" if near else "there are"
        complain(f"tc-report: no code {code}; {among}: {near or ', '.join(known)}")
        return USAGE
    if as_json:
        print(json.dumps({"schema": 1, "code": name, **known[name]}, indent=1))
    else:
        say(explained(name, known[name]))
    return 0


def explained(name: str, row: dict[str, Any]) -> str:
    """Return one code as a person reads it."""
    lines = [f"{name}  {row['title']}"]
    meaning = row["text"] or (f"{row['why'][0].upper()}{row['why'][1:]}." if row["why"] else "")
    lines += ["", *textwrap.wrap(meaning, _WIDTH)] if meaning else []
    lines += [""] if row["fix"] else []
    for number, fix in enumerate(row["fix"]):
        head = "  fix  " if number == 0 else "   or  "
        lines += textwrap.wrap(fix, _WIDTH, initial_indent=head, subsequent_indent=" " * 7)
    for title, key in (("this breaks", "breaks"), ("this does not", "instead")):
        if row[key]:
            lines += ["", f"{title}:", *(f"    {line}" for line in row[key].split("\n"))]
    lines += ["", f"more: {row['page']}"]
    return "\n".join(lines)
