"""What makes two failures the same one: a value that search and verification both compare.

    python -c BOOT identity.py RESULT HOME SCRIPT [ARGUMENT ...]

runs a script, and writes to the file RESULT how it ended; HOME is where it finds its neighbours.
Only the standard library is imported here: any Python can run it, with torch and tc or without.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import faulthandler
import json
import os
import re
import signal
import sys
import threading
import traceback
import types
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any, Final

#: packages of compilers, and how many parts of a path below them name the stage
PACKAGES: Final = {
    "compiler": "",
    "_inductor": "inductor.",
    "_dynamo": "dynamo.",
    "_functorch": "functorch.",
}
ACCEPTS: Final = "compiled code accepts what eager refuses"  # how such a repro ends
ROUNDING: Final = "rounding"  # the kind of a difference that a float64 run explains
COMPILED: Final = "compiled code"  # the stage of what no part of a compiler raises
#: parts of compilers that call compiled code; while they compile, others are called by them
RUNNING: Final = ("runtime", "dynamo.eval_frame", "dynamo.external_utils", "inductor.output_code")
#: files of code that compilers generate: tc's, by the hash of their content, and Inductor's
GENERATED: Final = re.compile(r"<tc |.*/(?:[0-9a-f]{40}|c[a-z2-7]{51})\.py$")
WORDS: Final = 200  # characters of a message that count

LIBRARY: Final = ("/torch/", "/tc/", "/lib/python", "/minifier/", "/compiler/", "<")
ASK: Final = signal.SIGUSR2  # asks a process what it is doing
#: how a process starts in which no file of the folder that it runs in takes a library's place; the
#: first entry of its path is no folder, and is replaced by that of the script
ALONE: Final = (
    "import sys; getattr(sys.flags, 'safe_path', 0) or sys.path.pop(0); "
    "sys.path.insert(0, sys.executable); "
)
BOOT: Final = ALONE + (
    "del sys.argv[0]; own = {'__name__': '__main__', '__file__': sys.argv[0]}; "
    "exec(compile(open(sys.argv[0], 'rb').read(), sys.argv[0], 'exec'), own)"
)


@dataclass(frozen=True)
class Identity:
    """One failure, without what differs between two runs of it.

    Attributes:
        kind: ``raises``; ``wrong``, ``nan``: compiled values differ from eager's; ``rounding``:
            by no more than rounding explains; ``accepts``: eager raises and compiled code does
            not; ``died``; ``hangs``; ``exit``.
        stage: part of the compiler that it happens in; of what differs in values, in which respect.
        types: the exception and those it was raised from, the root cause last; of ``died`` the
            signal.
        message: of the root cause, normalised.
        operation: what was being compiled, as far as the exception or the stack knows it.
    """

    kind: str
    stage: str = ""
    types: tuple[str, ...] = ()
    message: str = ""
    operation: str = ""

    def __str__(self) -> str:
        parts = (self.kind, self.stage, " < ".join(self.types), self.operation, self.message)
        return "|".join(part for part in parts if part)

    def is_akin(self, other: Identity) -> bool:
        """Return whether a graph alone may be what a whole script fails with.

        A recorder stands between the compiler and the script, so that outer exceptions may differ.
        """
        return self.is_like(other) and (self.kind != "raises" or self.message == other.message)

    def is_like(self, other: Identity) -> bool:
        """Return whether a part of a compiler may fail as the whole does.

        Values that are NaN in one graph may be wrong in another.
        """
        values = ("wrong", "nan")
        if self.kind in values or other.kind in values:
            return self.kind in values and other.kind in values
        return self.kind == other.kind and self.types[-1:] == other.types[-1:]

    @property
    def unjudged(self) -> Identity:
        """The failure as a process knows it that has nothing to judge rounding by."""
        return Identity("wrong") if self.kind == ROUNDING else self

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> Identity:
        """Return the identity of `as_json`."""
        return cls(**{**row, "types": tuple(row["types"])})


# -- of exceptions -----------------------------------------------------------------------------
def of_exception(error: BaseException) -> Identity:
    """Return the identity of an exception that left a program."""
    chain = list(causes(error))
    root = chain[-1]
    if isinstance(root, SystemExit):
        return Identity("exit", message=normalised_exit(root))
    held = getattr(root, "tc_identity", None)  # of `tc.minifier.runner.Differs`
    found = Identity.of_json(held.as_json()) if held else accepted(error) or difference(root)
    if found is not None:
        return found
    name, text = plain_message(type(root).__name__, normalised(text_of(root)))
    names = [type(one).__name__ for one in chain]
    if names[-1] != name:
        names.append(name)
    return Identity("raises", stage_of(error), tuple(names), text, operation_of(root))


def normalised_exit(stop: SystemExit) -> str:
    """Return how a program ends itself, in words: by a number, or with a text that it prints."""
    if isinstance(stop.code, int):
        return f"exit code {stop.code}"
    return f"exit with {normalised(text_of(stop))}"


def text_of(error: BaseException) -> str:
    """Return an exception's message; nothing, where its class cannot make one."""
    try:
        return str(error)
    except Exception:
        return ""


def message_of(error: BaseException) -> str:
    """Return the first line of an exception's message, as `first_line` prints it."""
    return first_line(text_of(error))


def first_line(text: str) -> str:
    """Return the first line of a text; what cannot be printed, or be in a program, is escaped."""
    line = next(iter(text.strip().splitlines()), "")
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in line)


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those it was raised from, the root cause last."""
    seen: set[int] = set()
    inner: BaseException | None = error
    while inner is not None and id(inner) not in seen:
        seen.add(id(inner))
        yield inner
        held = getattr(inner, "inner_exception", None)
        inner = held if isinstance(held, BaseException) else inner.__cause__


def frames(error: BaseException) -> Iterator[types.FrameType]:
    """Yield the frames of an exception, the innermost last."""
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def stage_of(error: BaseException) -> str:
    """Return the part of the compiler that an exception comes from.

    Compiled code is called by a part of the compiler, which has nothing to do with what it raises.
    """
    chain = list(causes(error))
    found = ""
    for frame in frames(chain[-1]):
        name = frame.f_code.co_filename
        part = COMPILED if GENERATED.match(name) else part_of(name)
        if part and not (found == COMPILED and part in RUNNING):
            found = part
    if found:
        return found
    stages = (getattr(one, "stage", None) for one in (error, chain[-1]))
    return str(next(filter(None, stages), COMPILED))


def part_of(filename: str) -> str:
    """Return the part of a compiler that a file belongs to, or nothing."""
    parts = PurePath(filename).parts
    for package, prefix in PACKAGES.items():
        if package in parts:
            place = len(parts) - parts[::-1].index(package)
            others = package == "compiler" and parts[place - 2] in ("torch", "triton")
            if place < len(parts) and not others:
                return f"{prefix}{PurePath(parts[place]).stem}"
    return ""


def operation_of(error: BaseException) -> str:
    """Return the operation that the compiler worked on when an exception was raised."""
    for frame in reversed(list(frames(error))):
        if part_of(frame.f_code.co_filename):
            found = operation_in(frame)
            if found:
                return found
    return ""


def operation_in(frame: types.FrameType) -> str:
    """Return the operation of the graph node that a frame of a compiler works on, or nothing."""
    for name in ("node", "n", "call"):
        held: Any = frame.f_locals.get(name)
        if hasattr(held, "op") and hasattr(held, "target") and held.op == "call_function":
            return str(getattr(held.target, "__name__", held.target))
    return ""


def plain_message(name: str, text: str) -> tuple[str, str]:
    """Return type and words of an exception that others may be wrapped around."""
    while found := re.match(r"(?:\w+\.)*(\w*(?:Error|Exception)): (?=\S)", text):
        name, text = found[1], text[found.end() :]
    return name, text


def normalised(message: str) -> str:
    """Return the first line that names an error, without what differs between equal failures."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    naming = [line for line in lines if re.search(r"\berror\b[: ]", line)] or lines
    text = naming[0] if naming else ""
    text = re.sub(r"[\w./\-]+\.py:\d+( in \w+)?", "PLACE", text)
    text = re.sub(r"(/[\w.\-]+)+/?", "PATH", text)
    text = re.sub(r"0x[0-9a-fA-F]+", "N", text)
    text = re.sub(r"_?\d+(\.\d+)?", "", text)
    return re.sub(r"\s+", " ", text)[:WORDS]


# -- of values ---------------------------------------------------------------------------------
def accepted(error: BaseException) -> Identity | None:
    """Return the identity of what a repro raises where compiled code accepts and eager raises."""
    if (
        not isinstance(error, AssertionError)
        or text_of(error) != ACCEPTS
        or error.__cause__ is None
    ):
        return None
    return Identity("accepts", types=(type(error.__cause__).__name__,))


def difference(error: BaseException) -> Identity | None:
    """Return the identity of a failed ``torch.testing.assert_close``; None for other exceptions."""
    if not isinstance(error, AssertionError):
        return None
    for frame in frames(error):
        code = frame.f_code
        if code.co_name == "assert_close" and code.co_filename.endswith("_comparison.py"):
            names = frame.f_locals
            return compared(list(leaves(names["actual"])), list(leaves(names["expected"])))
    return None


def leaves(value: Any) -> Iterator[Any]:
    """Yield what a nest of lists, tuples and dicts holds."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list | tuple):
        yield value
        return
    for item in value:
        yield from leaves(item)


def compared(actual: list[Any], expected: list[Any]) -> Identity:
    """Return in which respect values differ, as `tc.minifier.judge` names it."""
    if len(actual) != len(expected):
        return Identity("wrong", "count")
    for mine, theirs in zip(actual, expected, strict=True):
        if (mine is None) != (theirs is None) or hasattr(mine, "shape") != hasattr(theirs, "shape"):
            return Identity("wrong", "type")
        if hasattr(mine, "shape") and (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
            return Identity("wrong", "shape")
    for mine, theirs in zip(actual, expected, strict=True):
        if hasattr(mine, "isfinite") and bool((mine.isfinite() != theirs.isfinite()).any()):
            return Identity("nan")
    return Identity("wrong")


# -- of processes ------------------------------------------------------------------------------
def of_hang(stack: Mapping[str, Any]) -> Identity:
    """Return the identity of a process that did not end; see `tc.minifier.observe.Watch`."""
    return Identity("hangs", stack.get("stage") or "", operation=stack.get("operation") or "")


def of_death(signal_name: str) -> Identity:
    """Return the identity of a process that a signal ended."""
    return Identity("died", types=(signal_name,))


# -- what a process is doing -------------------------------------------------------------------
def watch(path: str) -> None:
    """Write to a file what this process is doing, whenever it is asked by the signal `ASK`.

    Python code answers in detail. Where C code does not return, only the lines are known.
    """

    def answer(number: int, frame: types.FrameType | None) -> None:
        found = doing(frame)
        with contextlib.suppress(OSError), open(f"{path}.part", "w") as file:
            json.dump(found, file)
        with contextlib.suppress(OSError):
            os.replace(f"{path}.part", path)

    signal.signal(ASK, answer)
    faulthandler.register(ASK, open(f"{path}.c", "w"), all_threads=False, chain=True)  # noqa: SIM115


def doing(frame: types.FrameType | None) -> dict[str, Any]:
    """Return stage, operation and line that a stack of frames works on."""
    stage = operation = line = user = ""
    while frame is not None:
        name = frame.f_code.co_filename
        stage = stage or (COMPILED if part_of(name) in RUNNING else part_of(name))
        if part_of(name):
            operation = operation or operation_in(frame)
            line = line or line_in(frame)
        elif not user and not any(part in name for part in LIBRARY) and not GENERATED.match(name):
            user = f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return {"stage": stage, "operation": operation, "line": line or user}


def line_in(frame: types.FrameType) -> str:
    """Return the user's line, ``file:line``, of the node that a frame works on, or nothing."""
    for name in ("node", "n", "call"):
        meta = getattr(frame.f_locals.get(name), "meta", None)
        if isinstance(meta, dict):
            places = re.findall(r'File "([^"]+)", line (\d+)', str(meta.get("stack_trace") or ""))
            own = [place for place in places if "/torch/" not in place[0]]
            if own:
                return ":".join(own[-1])
    return ""


def asked(path: str) -> dict[str, Any]:
    """Return what a process that was asked has answered; nothing where it could not."""
    try:
        with open(path) as file:
            found: dict[str, Any] = json.load(file)
        return found
    except (OSError, ValueError):
        pass
    try:
        with open(f"{path}.c") as file:
            places = re.findall(r'File "([^"]+)", line (\d+) in', file.read())
    except OSError:
        return {}
    stages = [part for name, _ in places if (part := part_of(name))]
    own = [place for place in places if not any(part in place[0] for part in LIBRARY)]
    lines = [":".join(place) for place in own if not GENERATED.match(place[0])]
    stage = stages[0] if stages and stages[0] not in RUNNING else COMPILED
    return {"stage": stage, "operation": "", "line": lines[0] if lines else ""}


# -- a script of its own -----------------------------------------------------------------------
def run_program(path: str) -> BaseException | None:
    """Run a file as a program; returns the exception that it ends with, if it does not end well.

    Its module stays ``__main__``: threads and functions registered with `atexit` need it later.
    """
    module = types.ModuleType("__main__")
    vars(module).update(__file__=path, __cached__=None, __builtins__=builtins)
    sys.modules["__main__"] = module
    try:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, vars(module))
    except SystemExit as stop:
        return stop if stop.code not in (None, 0) else None
    except BaseException as error:
        return error
    return None


@contextlib.contextmanager
def as_process() -> Iterator[None]:
    """Give the program that runs in this block the end that Python gives a process.

    Its threads are joined, and the functions that it registered with `atexit` are called. Those
    that were registered before belong to the process that this one is a fork of.
    """
    atexit._clear()
    if (util := sys.modules.get("multiprocessing.util")) is not None:
        atexit.register(util._exit_function)
    yield
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    flush()


def flush() -> None:
    """Write out what the program has printed, unless it has closed or replaced its streams."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def main() -> None:
    """Run the script named on the command line, and write how it ended."""
    result, home, script, *arguments = sys.argv[1:]
    watch(f"{result}.stack")
    sys.argv = [script, *arguments]
    sys.path[0] = home
    error = run_program(script)
    if error is not None and not isinstance(error, SystemExit):
        with contextlib.suppress(Exception):  # the program may have closed the stream
            traceback.print_exception(error)
    found = of_exception(error) if error is not None else None
    with open(f"{result}.part", "w") as file:
        json.dump({"identity": found.as_json() if found else None}, file)
    os.replace(f"{result}.part", result)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
