"""The command line of tc-precompile: a function and its inputs in; the cache, or a file, filled."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import tc
from tc.trace.arguments import Parser, whole_number
from tc.trace.delivery import OK, USAGE, complain, is_terminal, run_tool

FAILED: Final = 1
_HELP: Final = """\
Compile a function for inputs to come, without running it. Processes that call it later find its
graphs in the cache on disk (TC_CACHE_DIR), or in a file.

examples:
  tc-precompile package.model:forward --shape x=1..64,128 --shape mask=1..64
  tc-precompile package.model:net --shape "ids=B,T:int64" --size "B=1|8" --size T=16..512
  tc-precompile package.model:make() --eval --no-grad --shape x=8,3,224,224 --save net.tc

usage:
  tc-precompile MODULE:NAME [--shape NAME=SIZE,...[:DTYPE][@DEVICE][!grad]]...
                [--value NAME=VALUE]... [--size NAME=SIZES]... [options]

MODULE:NAME is a function or a module of torch; with () behind it, it is called to make one.
A SIZE is a number, a range 1..64 (or 8..64/8), several 8|16|32..64, or a name that --size explains.
A range gives code with symbolic sizes, and code of its own for sizes that this does not serve.

options:
  --shape INPUT   a tensor by the name of its parameter
  --value N=V     another argument, in Python's notation
  --size N=SIZES  what a size of that name may be
  --eval          call .eval() of the module first
  --no-grad, --inference-mode    compile for calls under these; otherwise backward is compiled too
  --mode MODE     as in tc.compile;  --fullgraph: a graph break is a failure
  --workers N     processes that compile several cases in parallel (default: one a core)
  --save FILE     also write a file for tc.load (docs/saving.md)
  --json          print the result as JSON
  --version, --help

exit codes:
  0 compiled   1 a case failed   2 wrong usage   4 internal error   130 Ctrl-C
"""


class Usage(Exception):
    """The command was not understood; the text says why."""


class Failed(Exception):
    """The program itself fails; the text says where."""


class _Parser(Parser):
    usage_error = Usage


def main(argv: Sequence[str] | None = None) -> int:
    """Run tc-precompile and return its exit code; one sentence on stderr says what went wrong."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return run_tool(
        "tc-precompile",
        lambda: _answered(arguments),
        {Usage: USAGE, Failed: FAILED},
        "interrupted; what was compiled is in the cache",
    )


def _answered(arguments: Sequence[str]) -> int:
    """Follow the arguments; returns the exit code."""
    if "-h" in arguments or "--help" in arguments:
        sys.stdout.write(_HELP)
        return OK
    if list(arguments) == ["--version"]:
        print(f"tc-precompile {tc.__version__} · python {platform.python_version()}")
        return OK
    return _run(_parsed(arguments))


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(prog="tc-precompile", add_help=False, allow_abbrev=False)
    parser.add_argument("target", metavar="MODULE:NAME")
    for name in ("--shape", "--size", "--value"):
        parser.add_argument(name, action="append", default=[])
    for name in ("--eval", "--no-grad", "--inference-mode", "--fullgraph", "--json"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("--mode")
    parser.add_argument("--save", metavar="FILE")
    parser.add_argument("--workers", type=whole_number(0))
    options: argparse.Namespace = parser.parse_args(arguments)
    if options.no_grad and options.inference_mode:
        raise Usage("--no-grad and --inference-mode exclude each other; give one")
    for given in (*options.size, *options.value):
        if not given.partition("=")[0].isidentifier() or "=" not in given:
            raise Usage(f"{given!r} is not NAME=...")
    for option in ("size", "value", "shape"):
        _refuse_repeated(option, getattr(options, option))
    if options.save:
        _refuse_unwritable(options.save)
    return options


def _refuse_repeated(option: str, given: Sequence[str]) -> None:
    """Refuse two answers to one question, of which only one would count."""
    names = [one.partition("=")[0].strip() for one in given if "=" in one]
    for name, times in Counter(names).items():
        if times > 1:
            raise Usage(f"--{option} {name}=... is given {times} times; give it once")


def _refuse_unwritable(name: str) -> None:
    """Refuse a place that no file can be written to, before anything is compiled."""
    target = os.path.realpath(name)
    if not os.path.isdir(os.path.dirname(target)):
        raise Usage(f"there is no folder for {name}")
    if os.path.isdir(target):
        raise Usage(f"--save needs a file, and {name} is a folder")
    if not os.access(os.path.dirname(target), os.W_OK):
        raise Usage(f"{name} cannot be written: its folder is read-only")


def _run(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("torch") is None:
        raise Usage("torch is not installed, and compiling needs it (pip install torch)")
    import torch

    function = _target(options.target)
    if options.eval:
        if not isinstance(function, torch.nn.Module):
            raise Usage(f"--eval is for modules; {options.target} is none")
        function.eval()
    texts = [*options.shape, *(given.replace("=", ":=", 1) for given in options.value)]
    sizes = dict(given.split("=", 1) for given in options.size)
    settings = {"mode": options.mode} if options.mode else {}
    if options.fullgraph:
        settings["fullgraph"] = True
    modes: AbstractContextManager[Any] = contextlib.nullcontext()
    if options.no_grad or options.inference_mode:
        modes = torch.no_grad() if options.no_grad else torch.inference_mode()
    try:
        with modes:
            found = tc.precompile(
                function, " ".join(texts), sizes=sizes, workers=options.workers,
                progress=_progress(), **settings,
            )  # fmt: skip
        saved = tc.save(options.save, function) if options.save and found.graphs else None
    except tc.exc.OptionError as error:
        raise Usage(str(error)) from None
    except (tc.exc.SavedFileError, tc.exc.StageError) as error:
        raise Failed(str(error)) from None
    print(json.dumps(found.as_json(), indent=2) if options.json else found)
    if saved is not None and not options.json:
        print(f"{options.save}: {saved}")
    return FAILED if found.errors else OK


def _target(name: str) -> Any:
    """Import what is to be compiled.

    Raises:
        Usage: there is nothing of that name.
        Failed: its module, or the function that makes it, raises.
    """
    module, _, path = name.partition(":")
    made = path.endswith("()")
    parts = path.removesuffix("()").split(".")
    if not module or not all(part.isidentifier() for part in parts):
        raise Usage(f"{name!r} is not MODULE:NAME")
    sys.path.insert(0, os.getcwd())
    found: Any
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module + ".").startswith(error.name + "."):
            raise Usage(f"there is no module {error.name}") from None
        raise Failed(_where(f"importing {module}", error)) from None
    except (Exception, SystemExit) as error:
        raise Failed(_where(f"importing {module}", error)) from None
    for part in parts:
        if not hasattr(found, part):
            raise Usage(f"{module} has no {path.removesuffix('()')}")
        found = getattr(found, part)
    if not made:
        return found
    try:
        return found()
    except (Exception, SystemExit) as error:
        raise Failed(_where(f"{name}", error)) from None


def _where(what: str, error: BaseException) -> str:
    """Return what raised, and at which line: of a syntax error, the line that has it."""
    if isinstance(error, SyntaxError) and error.filename:
        place = f"{error.filename}:{error.lineno}"
        return f"{what} raised {type(error).__name__}: {error.msg} ({place})"
    frames = traceback.extract_tb(error.__traceback__)
    frame = [one for one in frames if not one.filename.startswith("<frozen")][-1]
    return f"{what} raised {type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"


def _progress() -> Callable[[int, int, str], None]:
    """Return what shows on stderr how far the work is; on a terminal one line that changes."""
    live = is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"

    def show(done: int, of: int, text: str) -> None:
        line = f"{done} of {of}  {text}"
        if not live:
            complain(line)
            return
        width = shutil.get_terminal_size().columns - 1
        end = "\r\x1b[K" if done == of else ""
        complain(f"\r\x1b[K{line[:width]}{end}", "")

    return show


if __name__ == "__main__":
    sys.exit(main())
