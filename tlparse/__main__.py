"""The command line of tc-report: arguments go in; a report, a summary and an exit code come out."""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tc import __version__
from tc.tlparse.cli import (
    GATE_FAILED,
    UNREADABLE,
    beside,
    beside_report,
    is_file,
    load,
    say,
    write,
    write_folder,
)
from tc.tlparse.usage import Usage
from tc.trace.arguments import Parser, whole_number
from tc.trace.commands import command
from tc.trace.delivery import OK, USAGE, run_tool
from tc.trace.reader import STDIN, Unreadable
from tc.trace.words import count, did_you_mean

if TYPE_CHECKING:  # imported when needed: `--help` must be fast
    from tc.trace.findings import Diagnosis

_FORMS: Final = {
    "summary": ("text", "json", "brief", "sarif"),
    "check": ("text", "json", "junit"),
}
VERBS: Final = ("summary", "show", "check", "diff", "upgrade", "run", "serve", "explain")
_OTHERS: Final = 10  # findings that a name fits, besides the one shown
_LAST_PORT: Final = (1 << 16) - 1
_HELP: Final = """\
Explain a compiler run: where graphs broke, what recompiled and why, where the time went.

examples:
  tc-report tc_trace/                        one offline HTML file, and a summary
  tc-report run -- python train.py           run it with tracing on, then report
  tc-report serve tc_trace/                  the report in a browser, while the program runs
  tc-report summary tc_trace/ --json         the same for scripts, CI and agents
  tc-report check tc_trace/ --max-graph-breaks 0 --max-recompiles 2
  tc-report diff before/ after/              what changed: graphs, kernels, findings, times
  tc-report upgrade python env/bin/python -- train.py    what another torch changes

usage:
  tc-report TRACE [-o FILE] [--split] [--json] [--open] [--all] [--redact=WHAT]
  tc-report summary TRACE [--json | --format brief|sarif] [--all]
  tc-report show ID [TRACE] [--json]
  tc-report check TRACE [--max-graph-breaks N] [--max-recompiles N] [--max-failures N]
                        [--baseline FILE] [--write-baseline FILE] [--absent ID]...
                        [--json | --format junit]
  tc-report run [--verify-fixes] [-o FILE] [--trace FOLDER] [--json] [--open] -- COMMAND...
  tc-report serve TRACE [--port N] [--no-open] [--all]
  tc-report explain CODE [--json]
  tc-report diff A B [--html FILE] [--json] [--exit-code]
  tc-report upgrade [--trace FOLDER] [--html FILE] [--json] PYTHON_A PYTHON_B -- PROGRAM...

TRACE is a folder, a log (.gz, .zst too), a pattern of logs, an archive (.zip, .tar.gz) or - for
stdin, of tc (TC_TRACE) or of PyTorch (TORCH_TRACE). A folder with several runs: the newest.

options:
  -o FILE                the report; default: tc_report.html beside the trace
  --json                 print the summary as JSON
  --format FORM          summary: brief (for agents), sarif (for code hosts); check: junit (for CI)
  --open                 open the report in a browser
  --redact=WHAT          for sharing: leave out source,paths,names (or some of them)
  --split                texts in files beside the report: for traces of gigabytes
  --all                  all runs of the folder, not the newest alone
  --jobs N               read many logs in N processes (default: by their size)
  --cluster ADDRESS      let the workers of a Dask cluster read them
  --max-graph-breaks N   check: fail above N graph breaks
  --max-recompiles N     check: fail above N recompiles
  --max-failures N       check: fail above N failed compiles (0 without a baseline)
  --baseline FILE        check: fail on findings that are not in FILE
  --write-baseline FILE  check: write the findings of now to FILE, to be accepted
  --absent ID            check: fail if this finding is there still; may be given several times
  --verify-fixes         run: run it again with each fix that can be tried, and report the outcome
  --port N               serve: at this port of 127.0.0.1 (default: 6116, or one that is free)
  --no-open              serve: open no browser
  --html FILE            diff, upgrade: write a page as well
  --exit-code            diff: exit 1 if graphs, kernels, compiles or findings differ
  --completion SHELL     print what completes these options in a shell (bash, fish, zsh)
  --version, --help

environment:
  TC_TRACE=FOLDER        tc writes its trace there; `show` reads it if no TRACE is given
  TORCH_TRACE=FOLDER     PyTorch writes its trace there

exit codes:
  0 fine   1 check failed; upgrade, diff --exit-code found differences
   2 wrong usage   3 nothing readable   4 internal error   130 Ctrl-C
"""


class _Parser(Parser):
    usage_error = Usage


def main(argv: Sequence[str] | None = None) -> int:
    """Run tc-report and return its exit code; one sentence on stderr says what went wrong."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    collecting = gc.isenabled()
    gc.disable()  # one pass that makes no cycles: looking for some would take a tenth of it
    try:
        return run_tool(
            "tc-report", lambda: _run(arguments), {Usage: USAGE, Unreadable: UNREADABLE}
        )
    finally:
        if collecting:
            gc.enable()


def _run(arguments: list[str]) -> int:
    if not arguments:
        raise Usage("name a trace: a folder, a log, or - for stdin")
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--help" in own or "-h" in own:
        sys.stdout.write(_HELP)
        return OK
    if arguments == ["--version"]:
        print(
            f"tc-report {__version__} · python {platform.python_version()} · "
            "reads TORCH_TRACE logs up to torch 2.13"
        )
        return OK
    if arguments[0] == "--completion" and len(arguments) == 2:
        return _completion(arguments[1])
    if arguments[0] in _WITH_PROGRAM:
        return _WITH_PROGRAM[arguments[0]](arguments[1:])
    verb = arguments[0] if arguments[0] in VERBS else "report"
    if verb == "report":
        _refuse_misspelt(arguments[0])
    options = _parser(verb).parse_args(arguments if verb == "report" else arguments[1:])
    if (
        verb not in ("diff", "explain")
        and options.trace in VERBS
        and not os.path.exists(options.trace)
    ):
        raise Usage(f"{options.trace} is a command; a folder of that name is ./{options.trace}")
    return _RUN[verb](options)


def _refuse_misspelt(first: str) -> None:
    """Refuse what is neither a path nor a command; a command that is near is named.

    Raises:
        Usage: it is one letter or two away from a command.
    """
    if first.startswith("-") or os.path.exists(first) or not first.isalpha():
        return
    meant = did_you_mean(first, VERBS, 0.7)
    if meant:
        raise Usage(f"{first} is no command and no path (did you mean {meant}?)")


def _parser(verb: str) -> _Parser:
    parser = _Parser(prog="tc-report", add_help=False, allow_abbrev=False)
    _add_options(parser, verb)
    return parser


def _add_options(parser: argparse.ArgumentParser, verb: str) -> None:
    if verb == "run":
        return _add_run_options(parser)
    if verb == "upgrade":
        return _add_upgrade_options(parser)
    if verb == "serve":
        return _add_serve_options(parser)
    if verb == "show":
        parser.add_argument("id", metavar="ID")
        parser.add_argument("trace", nargs="?", default=os.environ.get("TC_TRACE") or "tc_trace")
    elif verb == "explain":
        parser.add_argument("code", metavar="CODE")
    elif verb == "diff":
        parser.add_argument("a", metavar="A")
        parser.add_argument("b", metavar="B")
        parser.add_argument("--html", metavar="FILE")
        parser.add_argument("--exit-code", action="store_true")
    else:
        parser.add_argument("trace", metavar="TRACE")
    if verb in ("report", "summary", "show"):
        parser.add_argument("--redact", metavar="WHAT", default="")
    else:
        parser.set_defaults(redact="")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--jobs", type=whole_number(1), metavar="N")
    parser.add_argument("--cluster", metavar="ADDRESS", default="")
    if verb in _FORMS:
        parser.add_argument("--format", choices=_FORMS[verb], default="text")
    if verb == "report":
        parser.add_argument("-o", "--output", metavar="FILE")
        parser.add_argument("--open", action="store_true")
        parser.add_argument("--split", action="store_true")
    if verb == "check":
        parser.add_argument("--max-graph-breaks", type=whole_number(0), metavar="N")
        parser.add_argument("--max-recompiles", type=whole_number(0), metavar="N")
        parser.add_argument("--max-failures", type=whole_number(0), metavar="N")
        parser.add_argument("--baseline", metavar="FILE")
        parser.add_argument("--write-baseline", metavar="FILE")
        parser.add_argument("--absent", action="append", metavar="ID", default=[])


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE")
    parser.add_argument("--trace", metavar="FOLDER")
    parser.add_argument("--verify-fixes", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--open", action="store_true")


def _add_upgrade_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="PYTHON_A")
    parser.add_argument("b", metavar="PYTHON_B")
    parser.add_argument("--trace", metavar="FOLDER")
    parser.add_argument("--html", metavar="FILE", default="")
    parser.add_argument("--json", action="store_true")


def _add_serve_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", metavar="TRACE")
    parser.add_argument("--port", type=whole_number(0, _LAST_PORT), metavar="N")
    parser.add_argument("--no-open", action="store_true")
    parser.add_argument("--all", action="store_true")


def _load(options: argparse.Namespace, trace: str = "") -> Diagnosis:
    return load(
        trace or options.trace,
        all_runs=options.all,
        redact=options.redact,
        jobs=options.jobs,
        cluster=options.cluster,
    )


def _completion(shell: str) -> int:
    """Print a script that completes the options of this tool in a shell."""
    try:
        import shtab
    except ImportError as error:
        raise Usage("--completion needs shtab: pip install 'tc-compile[completion]'") from error
    if shell not in shtab.SUPPORTED_SHELLS:
        raise Usage(f"--completion takes one of {', '.join(shtab.SUPPORTED_SHELLS)}, not {shell!r}")
    parser = argparse.ArgumentParser(prog="tc-report")
    verbs = parser.add_subparsers()
    for verb in VERBS:
        _add_options(verbs.add_parser(verb, help=verb), verb)
    _add_options(parser, "report")
    print(shtab.complete(parser, shell))
    return OK


def _report(options: argparse.Namespace) -> int:
    from tc.tlparse import summary
    from tc.tlparse.report import render, split_blocks

    target = Path(options.output) if options.output else beside(options.trace)
    if options.split and not is_file(target):
        raise Usage(f"--split writes texts beside the report: {target} has to be a file")
    diagnosis = _load(options)
    if options.split:
        data = target.with_name(f"{target.stem}_data")
        write_folder(data, split_blocks(diagnosis))
        write(target, render(diagnosis, data.name), "-o")
    else:
        write(target, render(diagnosis), "-o")
    out = beside_report(target)
    if options.json:
        print(json.dumps({**summary.as_json(diagnosis), "report": str(target)}, indent=1), file=out)
    else:
        say(summary.text(diagnosis, options.trace), out)
        say(f"report: {target}", out)
    if options.open:
        import webbrowser

        webbrowser.open(target.absolute().as_uri())  # a link is kept: texts lie beside it
    return OK


def _summary(options: argparse.Namespace) -> int:
    from tc.tlparse import summary

    diagnosis = _load(options)
    form = _form(options)
    if form == "json":
        print(json.dumps(summary.as_json(diagnosis), indent=1))
    elif form == "sarif":
        from tc.tlparse.sarif import sarif

        print(json.dumps(sarif(diagnosis), indent=1))
    elif form == "brief":
        from tc.tlparse.brief import brief

        say(brief(diagnosis, options.trace))
    else:
        say(summary.text(diagnosis, options.trace))
    return OK


def _form(options: argparse.Namespace) -> str:
    """Return the form of what is printed; `--json` is short for `--format json`."""
    if options.json and options.format not in ("text", "json"):
        raise Usage(f"--json and --format {options.format} ask for two forms; choose one")
    return "json" if options.json else str(options.format)


def _show(options: argparse.Namespace) -> int:
    if Path(options.id).exists():
        asked = command("tc-report", "show", "ID", options.id)
        raise Usage(f"ID is missing: {asked}; the summary has the ids")
    diagnosis = _load(options)
    found = diagnosis.matching(options.id)
    finding = diagnosis.finding(options.id)
    if finding is None:
        known = ", ".join(one.id for one in diagnosis.findings[:5]) or "none"
        raise Usage(f"no finding {options.id} in {options.trace}; it has: {known}")
    others = [one for one in found if one is not finding] if finding.id != options.id else []
    if options.json:
        rows = {"schema": 1, **finding.to_json(), "others": [one.id for one in others]}
        print(json.dumps(rows, indent=1))
        return OK
    say(str(finding))
    for seen in finding.occurrences[:20]:
        compiled = f"[{seen.compile}] {seen.lane}" if seen.compile else seen.lane
        record = f"record {seen.place}" if seen.place else ""
        parts = (part for part in (compiled, record, seen.detail) if part)
        say("       " + "  ".join(parts))
    if finding.evidence:
        say("\nin the compiler's words:\n" + finding.evidence)
    if others:
        say(f"\n{options.id} is the start of {count(len(others), 'other finding')} as well:")
        say("\n".join(f"    {one.next.plus(options.trace)}" for one in others[:_OTHERS]))
    return OK


def _check(options: argparse.Namespace) -> int:
    from tc.tlparse import gate

    gate.refuse_unknown(options.absent)
    known = gate.Baseline.read(options.baseline) if options.baseline else None
    diagnosis = _load(options)
    failures = options.max_failures
    if failures is None and known is None:  # a baseline says which failures may pass
        failures = 0
    limits = gate.Limits(options.max_graph_breaks, options.max_recompiles, failures)
    if options.write_baseline:
        gate.write_baseline(diagnosis, options.write_baseline)
    return gate.check(diagnosis, limits, known, options.absent, form=_form(options))


def _diff(options: argparse.Namespace) -> int:
    from tc.tlparse import difftext
    from tc.tlparse.compare import compare

    a, b = (_load(options, path) for path in (options.a, options.b))
    comparison = compare(a, b)
    if options.html:
        from tc.tlparse import diffpage

        write(Path(options.html), [diffpage.render(comparison, options.a, options.b)], "--html")
    out = beside_report(Path(options.html or "."))
    if options.json:
        print(json.dumps(difftext.as_json(comparison), indent=1), file=out)
    else:
        say(difftext.text(comparison, options.a, options.b), out)
        if options.html:
            say(f"page: {options.html}", out)
    return GATE_FAILED if options.exit_code and comparison.differs else OK


def _explain(options: argparse.Namespace) -> int:
    from tc.tlparse import verbs

    return verbs.explain(options.code, as_json=options.json)


def _with_program(verb: str, arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options before ``--`` and the program behind it."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    options, unknown = _parser(verb).parse_known_args(arguments[:at])
    program = arguments[at + 1 :]
    if unknown and at == len(arguments) and not unknown[0].startswith("-"):
        raise Usage(f"put -- before the program: {command('tc-report', verb, '--', *unknown)}")
    if unknown:
        raise Usage(f"unrecognized arguments: {' '.join(unknown)}")
    if not program or not program[0]:
        pythons = ("PYTHON_A", "PYTHON_B") if verb == "upgrade" else ()
        words = ("train.py",) if pythons else ("python", "train.py")
        example = command("tc-report", verb, *pythons, "--", *words)
        raise Usage(f"name the program after --: {example}")
    return options, program


def _upgrade(arguments: list[str]) -> int:
    from tc.tlparse.upgrade import upgrade

    options, program = _with_program("upgrade", arguments)
    pythons = options.a, options.b
    return upgrade(pythons, program, options.trace, options.html, as_json=options.json)


def _serve(options: argparse.Namespace) -> int:
    from tc.tlparse.serve import serve

    if options.trace == STDIN:
        raise Usage("serve follows a folder or a log; stdin cannot be read again")
    return serve(options.trace, port=options.port, all_runs=options.all, show=not options.no_open)


def _run_program(arguments: list[str]) -> int:
    from tc.tlparse import verbs

    options, program = _with_program("run", arguments)
    return verbs.run(
        program,
        options.output,
        options.trace,
        as_json=options.json,
        show=options.open,
        verify=options.verify_fixes,
    )


_WITH_PROGRAM: Final = {"run": _run_program, "upgrade": _upgrade}
_RUN: Final = {
    "report": _report,
    "summary": _summary,
    "show": _show,
    "check": _check,
    "diff": _diff,
    "explain": _explain,
    "serve": _serve,
}


if __name__ == "__main__":
    sys.exit(main())
