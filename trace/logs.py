"""TC_LOGS: switches and events in; each cause logged once on stderr, repeats counted at exit."""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
from collections.abc import Iterable, MutableMapping
from contextlib import suppress
from typing import Any, TextIO

import structlog

from tc.trace import words
from tc.trace.emit import add_sink, remove_sink, warn
from tc.trace.ids import process_rank
from tc.trace.lognames import OF_BACKEND, SAME_AS, instead_of
from tc.trace.logsink import LogSink
from tc.trace.logtext import ASCII, FORMATS, Message, render, to_ascii

TOPICS = {
    "graph_breaks": "where capture stops and why, with fixes; skipped functions (+ adds stacks)",
    "recompiles": "which inputs changed, old and new value; the recompile limit (+ shows each)",
    "guards": "the facts a compile relies on (+ names the kind of each)",
    "graph_code": "the captured graph as Python",
    "aot_graphs": "the graphs of ATen operations: inference, or forward and backward",
    "partition": "what forward keeps for backward, what backward computes again, and why",
    "output_code": "the generated program",
    "kernel_code": "the generated kernels, one by one",
    "autotuning": "equal ways to compute something, timed on this machine, and the one taken",
    "cache": "graphs found on disk or not, and why none was looked for",
    "dynamic": "sizes and numbers that became symbols: value, range, where from",
    "fusion": "what was fused with what, and what was not",
    "perf_hints": "graphs that run op by op, and why",
    "schedule": "the plan: kernels, calls and buffers in order",
    "runtime": "what a step costs: programs, their kernels and calls, and Python between, at exit",
    "memory": "what a step holds, as planned: the peak of each graph and the lines that hold it",
    "summary": "compiles, seconds, cache hits and failures at exit",
}
OFF, ON, VERBOSE = 0, 1, 2


# --- switches -----------------------------------------------------------------------------------


def read_switches(text: str) -> tuple[dict[str, int], list[str], bool]:
    """Read e.g. ``+graph_breaks,recompiles,-guards``.

    Returns:
        Topic -> level, the names that are no topic, and whether help was asked for.
    """
    levels: dict[str, int] = {}
    unknown: list[str] = []
    wants_help = False
    for word in re.split(r"[,\s]+", text.strip()):
        sign, name = (word[0], word[1:]) if word[:1] in ("+", "-") else ("", word)
        level = {"+": VERBOSE, "-": OFF, "": ON}[sign]
        if name == "help":
            wants_help = True
            continue
        for topic in _topics_of(name):
            verbose = level and topic.startswith("+")
            levels[topic.removeprefix("+")] = VERBOSE if verbose else level
        if name and not _topics_of(name):
            unknown.append(name)
    return {name: level for name, level in levels.items() if level}, unknown, wants_help


def _topics_of(name: str) -> list[str]:
    """Return the topics that a name selects, with ``+`` for more; none if it is unknown."""
    if name == "all":
        return list(TOPICS)
    if name in SAME_AS:
        return SAME_AS[name].split(",")
    return [name] if name in TOPICS else []


def _without_topic(name: str, names: Iterable[str], where: str) -> str:
    """Return a sentence about a name that is no topic: what to use in its place."""
    said = instead_of(name)
    if said is not None:
        return f"{where} has no {name!r}, {said}"
    return f"{where} has no {name!r}{did_you_mean(name, names)}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return ``; did you mean x?``, or a list of all names when none is near."""
    known = list(names)
    nearest = words.did_you_mean(name, known)
    return f"; did you mean {nearest}?" if nearest else f"; known are {', '.join(known)}"


def help_text() -> str:
    """Return the page TC_LOGS=help prints."""
    wide = max(map(len, TOPICS))
    rows = [f"  {name:<{wide}}  {what}" for name, what in TOPICS.items()]
    return "\n".join(
        (
            "TC_LOGS=NAME,NAME,...   name: on   +name: more   -name: off",
            *rows,
            f"  {'all':<{wide}}  all of the above",
            f"TC_LOGS_FORMAT={'|'.join(FORMATS)}   TC_LOGS_OUT=FILE ({{rank}} and {{pid}} expand)",
            "For example: TC_LOGS=graph_breaks,recompiles python train.py",
        )
    )


def setup_from_text(text: str, form: str | None = None, out: str | None = None) -> None:
    """Switch logs on as the environment says; what it says wrong is warned about, once."""
    levels, unknown, wants_help = read_switches(text)
    for name in dict.fromkeys(unknown):
        warn(_without_topic(name, [*TOPICS, "all", "help"], "TC_LOGS"))
    if form and form not in FORMATS:
        warn(f"TC_LOGS_FORMAT has no {form!r}{did_you_mean(form, FORMATS)}; full is used")
        form = None
    if wants_help:
        print(help_text(), file=sys.stderr)
    if levels:
        _switch(levels, form or "full", out)


def set_logs(*, format: str = "full", out: str | None = None, **topics: Any) -> None:
    """Choose what is logged from now on; replaces the earlier choice, without topics all is quiet.

    Args:
        format: full, short, json or github.
        out: a file that gets the same text as stderr.
        topics: names as in TC_LOGS: True, False, or "+" for more; or a level of `logging`, as
            `torch._logging.set_logs` takes: DEBUG is more, INFO is on, what is above is off. A name
            that only PyTorch has changes nothing; one line says what to use.

    Raises:
        ValueError: a topic or format does not exist.
    """
    words = []
    for name, how in topics.items():
        if name in (*TOPICS, *SAME_AS, "all"):
            words.append(f"{_sign(how)}{name}")
            continue
        said = _without_topic(name, [*TOPICS, "all"], "set_logs")
        if instead_of(name) is None:
            raise ValueError(said)
        warn(said)
    if format not in FORMATS:
        raise ValueError(f"no log format {format!r}{did_you_mean(format, FORMATS)}")
    _switch(read_switches(",".join(words))[0], format, out)


def follow(names: Iterable[str]) -> None:
    """Report what TORCH_LOGS asks of a backend; a choice made for tc itself comes first.

    Args:
        names: the artifacts that are switched on in PyTorch; those about capture it prints.
    """
    wanted = OF_BACKEND.intersection(names)
    of_program = _board.sink is not None and not _board.followed
    if wanted != _board.followed and not of_program:
        _switch(read_switches(",".join(wanted))[0], "full", None)
        _board.followed = wanted


def _sign(how: Any) -> str:
    """Return what stands before the name of a topic in TC_LOGS."""
    if isinstance(how, int) and not isinstance(how, bool):
        return "+" if 0 < how <= logging.DEBUG else "" if 0 < how <= logging.INFO else "-"
    return "+" if how == "+" else "" if how else "-"


# --- on and off ---------------------------------------------------------------------------------


class _Switchboard:
    """What is switched on in this process, and how the ``tc`` logger was before."""

    def __init__(self) -> None:
        self.sink: LogSink | None = None
        self.handlers: list[logging.Handler] = []
        self.followed: frozenset[str] = frozenset()
        self.before = (logging.NOTSET, True)


_board = _Switchboard()


def _switch(levels: dict[str, int], form: str, out: str | None) -> None:
    _switch_off()
    _board.followed = frozenset()
    if not levels:
        return
    logger = logging.getLogger("tc")
    _board.before = (logger.level, logger.propagate)
    _board.handlers = [_ErrorHandler(form)]
    if out:
        with suppress_and_warn(f"TC_LOGS_OUT={out}"):
            _board.handlers.append(_file_handler(out, form))
    for handler in _board.handlers:
        logger.addHandler(handler)
    logger.setLevel(min(logger.level or logging.INFO, logging.INFO))
    logger.propagate = False  # the handler passes records on itself
    _board.sink = LogSink(levels, _speaker())
    add_sink(_board.sink)
    atexit.register(_switch_off)


def _switch_off() -> None:
    """Log the counts and leave the ``tc`` logger as it was."""
    sink, _board.sink = _board.sink, None
    if sink is None:
        return
    atexit.unregister(_switch_off)
    remove_sink(sink)
    logger = logging.getLogger("tc")
    with suppress(Exception):  # stderr may be closed at exit
        sink.finish()
    for handler in _board.handlers:
        logger.removeHandler(handler)
        with suppress(Exception):
            handler.close()
    logger.level, logger.propagate = _board.before


class suppress_and_warn:
    """A context in which an error becomes one warning that starts with ``what``."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> bool:
        if isinstance(error, Exception):
            warn(f"{self.what} is not written ({error})")
            return True
        return False


# --- structlog over the stdlib ------------------------------------------------------------------


def _speaker() -> Any:
    """Return what `LogSink` speaks through: structlog in front of the stdlib logger ``tc``."""
    return structlog.wrap_logger(
        logging.getLogger("tc"),
        processors=[structlog.stdlib.filter_by_level, _add_rank, _to_stdlib],
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def _add_rank(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Name the rank on every message of a job that has several."""
    rank = process_rank()
    if rank is not None and os.environ.get("WORLD_SIZE") != "1":
        event["rank"] = rank
    return event


def _to_stdlib(
    _: object, __: str, event: MutableMapping[str, Any]
) -> tuple[tuple[str], dict[str, Any]]:
    """End of the chain: text for handlers of the user, the message itself for tc's handlers."""
    message: Message = event["message"]
    if "rank" in event:
        message = message.on_rank(event["rank"])
    return (str(message),), {"extra": {"tc_message": message}}


class _Formatter(logging.Formatter):
    """Lays a message out for one stream; warnings of tc without a message stay one sentence."""

    def __init__(self, form: str, colour: bool = False, ascii_only: bool = False) -> None:
        super().__init__()
        self.form = form
        self.colour = colour
        self.ascii_only = ascii_only

    def format(self, record: logging.LogRecord) -> str:
        message = getattr(record, "tc_message", None)
        if not isinstance(message, Message):
            message = Message("tc", "summary", record.getMessage())
            if self.form in ("full", "short"):
                return to_ascii(message.title) if self.ascii_only else message.title
        return render(message, self.form, self.colour, self.ascii_only)


class _ErrorHandler(logging.Handler):
    """Prints to whatever ``sys.stderr`` is now, and passes records on to the user's handlers.

    The root logger's handlers for stdout and stderr are left out: nothing is printed twice, and
    never on stdout. Log files, aggregators and pytest's caplog get everything.
    """

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form

    def emit(self, record: logging.LogRecord) -> None:
        """Print, then pass on."""
        stream = sys.stderr
        if stream is not None:
            layout = _Formatter(self.form, _has_colour(stream), not _shows(stream))
            if text := layout.format(record):
                stream.write(f"{text}\n")
                stream.flush()
        consoles = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
        for handler in logging.getLogger().handlers:
            if getattr(handler, "stream", None) not in consoles and record.levelno >= handler.level:
                handler.handle(record)


class _OutHandler(logging.FileHandler):
    """The file of TC_LOGS_OUT."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, unless its text in the chosen format is empty."""
        if self.format(record):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Let the error reach `tc.trace.emit`, which removes the sink."""
        raise


def _file_handler(out: str, form: str) -> logging.Handler:
    rank = process_rank()
    path = out.replace("{pid}", str(os.getpid())).replace("{rank}", str(rank or 0))
    if folder := os.path.dirname(path):
        os.makedirs(folder, exist_ok=True)
    handler = _OutHandler(path, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(_Formatter(form))
    return handler


def _has_colour(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()


def _shows(stream: TextIO) -> bool:
    """Return whether the stream's encoding has our glyphs."""
    try:
        "".join(ASCII).encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
