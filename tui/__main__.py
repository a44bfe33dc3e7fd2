"""The command line of tc-tui: arguments go in; a terminal application and an exit code come out."""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tc import __version__
from tc.trace.arguments import Parser
from tc.trace.commands import command
from tc.trace.delivery import INTERNAL, OK, USAGE, complain, fail, run_tool
from tc.trace.reader import STDIN, Unreadable, find_logs

if TYPE_CHECKING:
    from tc.trace.findings import Diagnosis
    from tc.tui.keys import Table

UNREADABLE: Final = 3

_HELP: Final = """\
Look into a compiler run from the terminal, finished or still running.

examples:
  tc-tui tc_trace/                     what is wrong, where, and what to do about it
  tc-tui --follow tc_trace/            the same while the program runs
  tc-tui tc_trace/ --goto 0/2          to a compile, or to a finding (TC201-7f3a)

usage:
  tc-tui [TRACE] [--follow] [--goto ID] [--all] [--split A B] [--keys FILE] [--theme dark|light]

TRACE is a folder, a log, a packed log (.gz, .zst) or - for stdin. Logs of tc (TC_TRACE)
and of PyTorch (TORCH_TRACE) are read alike. A folder with several runs: the newest.
Without TRACE: the folder that TC_TRACE or TORCH_TRACE names, else tc_trace.
Into a pipe or a file, the findings are printed as text, with the same exit codes.

options:
  --follow               start even if nothing is there yet, and keep reading (key F)
  --goto ID              a finding, a compile such as 0/2, or a function (its name, or fn NAME)
  --all                  all runs of the folder, not the newest alone
  --split A B            two traces, compiles (0/0 0/1) or ranks (r0 r1) side by side
  --keys FILE            other keys; default: $XDG_CONFIG_HOME/tc/tui.toml, if it is there
  --theme dark|light     default: dark (key T)
  --version, --help

keys:
  ? lists them all. Enter goes in, Esc out, / filters, : commands, q quits.

environment:
  TC_TRACE, TORCH_TRACE  the folder to read if none is given
  TC_EDITOR, VISUAL, EDITOR   what `o` opens
  NO_COLOR               no colours: those of the terminal itself

exit codes:
  0 fine   2 wrong usage   3 nothing readable   4 internal error   130 Ctrl-C
"""


class _Usage(Exception):
    """The command was not understood; the text says why."""


class _Parser(Parser):
    usage_error = _Usage


def main(argv: Sequence[str] | None = None) -> int:
    """Run tc-tui and return its exit code; one sentence on stderr says what went wrong."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    codes = {_Usage: USAGE, Unreadable: UNREADABLE}
    return run_tool("tc-tui", lambda: _run(arguments), codes)


def _run(arguments: list[str]) -> int:
    if "--help" in arguments or "-h" in arguments:
        sys.stdout.write(_HELP)
        return OK
    if arguments == ["--version"]:
        print(
            f"tc-tui {__version__} · python {platform.python_version()} · "
            "reads TORCH_TRACE logs up to torch 2.13"
        )
        return OK
    options = _parser().parse_args(arguments)
    if options.split is None:
        _check(options)
    table = _keys(options.keys)
    terminal = sys.stdout.isatty()
    if options.follow and not terminal:
        raise _Usage("--follow needs a terminal: it shows a trace that grows")
    if options.split is not None:
        return _split(options, terminal, table)
    with tempfile.TemporaryDirectory(prefix="tc-tui-") as scratch:
        trace = options.trace
        if trace == STDIN:
            trace = _from_stdin(Path(scratch), terminal)
        return _show(trace, options, table) if terminal else _print(trace, options)


def _parser() -> _Parser:
    parser = _Parser(prog="tc-tui", add_help=False, allow_abbrev=False)
    parser.add_argument("trace", nargs="?", default=_usual_trace(), metavar="TRACE")
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--goto", default="", metavar="ID")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--split", nargs=2, metavar=("A", "B"))
    parser.add_argument("--keys", default="", metavar="FILE")
    parser.add_argument("--theme", choices=("dark", "light"), default="dark")
    return parser


def _usual_trace() -> str:
    """Return the trace that is read if none is named."""
    return os.environ.get("TC_TRACE") or os.environ.get("TORCH_TRACE") or "tc_trace"


def _keys(file: str) -> Table:
    """Read the user's keys; what is wrong with them is wrong usage, without a terminal as well."""
    from tc.tui.keymap import WrongKeys, read_table

    try:
        return read_table(file, os.environ)
    except WrongKeys as error:
        raise _Usage(str(error)) from error


def _check(options: argparse.Namespace) -> None:
    """Refuse what cannot become readable; with --follow a log may still appear."""
    if options.trace == STDIN or options.follow:
        return
    if not os.path.exists(options.trace):
        raise _Usage(
            f"{options.trace} does not exist "
            f"({command('tc-tui', '--follow', options.trace)} waits for it)"
        )
    find_logs(options.trace)


def _from_stdin(scratch: Path, terminal: bool) -> str:
    """Copy stdin to a file; where there is a terminal, let the keyboard be stdin then."""
    if sys.stdin.isatty():
        raise _Usage("- reads a log from stdin, and stdin is the keyboard")
    log = scratch / "stdin.log"
    with log.open("wb") as file:
        while chunk := sys.stdin.buffer.read(1 << 20):
            file.write(chunk)
    if not terminal:
        return str(log)
    try:
        os.dup2(os.open("/dev/tty", os.O_RDWR), sys.stdin.fileno())
    except OSError as error:
        raise _Usage("there is no terminal to read keys from") from error
    return str(log)


def _show(trace: str, options: argparse.Namespace, table: Table) -> int:
    from tc.tui.app import TraceApp
    from tc.tui.feed import Feed

    shown = STDIN if options.trace == STDIN else trace
    feed = Feed(trace, all_runs=options.all, shown=shown)
    app = TraceApp(feed, follow=options.follow, goto=options.goto, theme=options.theme, keys=table)
    app.run()
    if app.last_words:
        return fail("tc-tui", app.return_code or UNREADABLE, app.last_words)
    return INTERNAL if app.return_code else OK  # Textual has shown the traceback


def _split(options: argparse.Namespace, terminal: bool, table: Table) -> int:
    """Show two traces, compiles or ranks side by side; without a terminal, print them."""
    from tc.tui.feed import Feed
    from tc.tui.pairs import Side, printed, sides_in, start, whole
    from tc.tui.split import SplitApp, command_of

    if options.follow or options.goto:
        raise _Usage("--split goes neither with --follow nor with --goto")
    read: dict[str, Diagnosis] = {}

    def side(name: str) -> Side:
        trace = name if os.path.exists(name) else options.trace
        if not os.path.exists(trace) and trace != _usual_trace():
            raise _Usage(f"--split: {name} is no trace, and there is none at {trace} that has it")
        if not os.path.exists(trace):  # none was named, so that its path would say nothing
            raise _Usage(
                f"--split: {name} does not exist; for a compile or a rank, name its trace as well: "
                f"{command('tc-tui', 'TRACE', '--split', *options.split)}"
            )
        if trace not in read:
            if terminal:
                complain(f"tc-tui: reading {trace} …")
            read[trace] = Feed(trace, all_runs=options.all).read()
        shows = command("tc-tui", trace)
        if trace == name:
            return whole(read[trace], name, shows)
        found = sides_in(read[trace], name, shows)
        if found is None:
            raise _Usage(f"--split: {name} is no trace, and no compile or rank of {trace}")
        return found

    a, b = map(side, options.split)
    if not terminal:
        _write(printed(start(a, b)))
        return OK
    named = all(map(os.path.exists, options.split))
    again = command_of("" if named else options.trace, options.split)
    app = SplitApp(a, b, command=again, theme=options.theme, keys=table)
    app.run()
    return INTERNAL if app.return_code else OK


def _print(trace: str, options: argparse.Namespace) -> int:
    """Print the findings where there is no terminal to show them in."""
    from tc.tui.facts import Model
    from tc.tui.feed import Feed
    from tc.tui.printed import absent, named, printed

    model = Model(Feed(trace, all_runs=options.all).read())
    if options.goto and named(model, options.goto) is None:
        raise _Usage(absent(options.goto))
    _write(printed(model, options.goto))
    return OK


def _write(text: str) -> None:
    """Print text, without signs that the output cannot show."""
    from tc.tui.look import plain

    encoding = sys.stdout.encoding or "ascii"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = plain(text).encode(encoding, "replace").decode(encoding)
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
