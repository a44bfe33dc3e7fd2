"""The command line of tc-minify: a script in; the smallest program that fails alike out."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tc import __version__
from tc.minifier.check import NOT_RUN, Command, Interpreter, ProgramOracle
from tc.minifier.console import (
    NOT_REPRODUCED,
    Progress,
    Usage,
    require_torch,
)
from tc.minifier.fresh import Fresh
from tc.minifier.job import Setting
from tc.minifier.journal import Journal, digest
from tc.minifier.options import HELP, Options, parsed
from tc.minifier.oracle import OracleError
from tc.minifier.problem import NotReproduced
from tc.minifier.script_job import ScriptJob
from tc.minifier.workplace import Workplace
from tc.trace.delivery import INTERNAL, OK, USAGE, run_tool


def main(argv: Sequence[str] | None = None) -> int:
    """Run tc-minify and return its exit code; one sentence on stderr says what went wrong."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    codes = {Usage: USAGE, NotReproduced: NOT_REPRODUCED, OracleError: INTERNAL, OSError: INTERNAL}
    return run_tool(
        "tc-minify", lambda: _answered(arguments), codes, "interrupted before anything was reduced"
    )


def _answered(arguments: Sequence[str]) -> int:
    """Follow the arguments; returns the exit code."""
    if not arguments:
        raise Usage("name a script")
    if arguments[0] in ("-h", "--help"):
        sys.stdout.write(HELP)
        return OK
    if list(arguments) == ["--version"]:
        print(f"tc-minify {__version__} · python {platform.python_version()}")
        return OK
    return _run(parsed(arguments))


def _run(options: Options) -> int:
    start = time.monotonic()
    if not options.check and not options.python:
        require_torch()
    journal = opened(options)
    with Workplace("tc-minify", options.own_caches) as place:
        setting = Setting(
            options.subject, options.output, Progress(), journal, options.seconds, start,
            options.budget, options.runs, options.json, options.issue,
        )  # fmt: skip
        finished = False
        try:
            if options.check or options.python:
                code = of_program(options, setting)
            else:
                from tc.minifier.search_job import SearchJob

                code = SearchJob(setting, place, options.first_seconds).run()
            finished = code in (OK, NOT_REPRODUCED) and not stopped_early(setting)
            return code
        except NotReproduced:
            finished = True
            raise
        finally:
            if journal.is_empty or (finished and not options.keep_history):
                journal.remove()


def stopped_early(setting: Setting) -> bool:
    """Return whether there is something left to continue with."""
    return time.monotonic() > setting.deadline


def opened(options: Options) -> Journal:
    """Return the journal of a reduction, new or continued.

    Raises:
        Usage: what is to be continued is another script's.
    """
    key = digest(f"{options.subject.text}\n{options.subject.arguments}\n{options.check}")
    if not options.resume:
        Journal(options.history).remove()
    journal = Journal(options.history)
    known = journal.load("subject.json")
    if known is not None and known != key:
        raise Usage(f"{options.history} is of another script, or of other arguments")
    journal.save("subject.json", key)
    return journal


def of_program(options: Options, setting: Setting) -> int:
    """Reduce a program that is judged by a command, or run by another Python."""
    subject = options.subject
    name = Path(subject.file.name if subject.file else "script.py").name
    runs: Command | Interpreter
    if options.check:
        runs = Command(options.check)
    else:
        runs = Interpreter(
            Fresh(options.first_seconds, options.python, arguments=subject.arguments)
        )
    oracle = ProgramOracle(
        seconds=options.first_seconds, journal=setting.journal, runs=runs, home=subject.home,
        name=name, versions="" if isinstance(runs, Command) else runs.versions,
    )  # fmt: skip

    def verify(path: Path, count: int) -> int:
        text = path.read_text(encoding="utf-8")
        return sum(oracle.is_target(oracle.ask(text)) for _ in range(count))

    job = ScriptJob(setting, oracle, verify)
    if not job.begin(subject.text, range(max(options.runs, 1))):
        why = NOT_RUN.get(job.answer.detail.get("code", 0)) if options.check else None
        if why:
            raise Usage(f"--check: the command {why}: {options.check}")
        how = job.answer.message or "it ends well"
        raise NotReproduced(f"{subject.label} does not fail: {how}")
    setting.note(f"it fails: {job.answer.message}")
    return job.run(subject.text)


if __name__ == "__main__":
    sys.exit(main())
