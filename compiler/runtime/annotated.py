"""A program whose steps are events of torch's profilers: made and run only while one is active.

In: a program's wrapper and the facts about its lines. Out: the same function, with each line that
computes something inside an event that names the kernel or the operation, the user's lines and the
compile. `load` inserts a test of torch's profiler flag before each wrapper: one load from a module,
which is the only cost of a call without a profiler.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch._C._profiler import _RecordFunctionFast as Event

from tc import trace
from tc.compiler.core.artifacts import Program, StepCost
from tc.trace.places import file_name

#: names in wrappers that no generated name can equal
PROFILER, ANNOTATED = "_tc_profiler", "_tc_annotated"
_EVENT, _ABOUT = "_tc_event", "_tc_about"
#: a wrapper's first lines -> the same with the test, which keeps the line numbers of its body
_HEAD = "\n\ndef call(args):\n"
_WATCHED = f"\ndef call(args):\n    if {PROFILER}._is_profiler_enabled: return {ANNOTATED}(args)\n"
#: a line that calls a kernel, and what it is called with
_KERNEL = re.compile(r"\w+\(([A-Za-z_]\w*(?:, [A-Za-z_]\w*)*)\)")
#: the number of user lines in an event's name; ``user_lines`` has all
MOST_LINES = 4


def watched(source: str) -> str:
    """Return a wrapper's source with the test of the profilers' flag before its body."""
    return source.replace(_HEAD, _WATCHED, 1)


class Annotated:
    """Runs a program with its events.

    Args:
        names: the wrapper's globals.
    """

    def __init__(self, program: Program, names: dict[str, Any]) -> None:
        self._source, self._steps = program.wrapper_source, program.costs
        self._kind, self._names = program.kind, names
        self._compile_id = trace.current_compile()
        self._call: Any = None

    def __call__(self, args: list[Any]) -> tuple[Any, ...]:
        """Run it inside an event that contains the others."""
        if self._call is None:
            self._call = self._made()
        of = "" if self._compile_id is None else f"{self._compile_id} "
        with Event(f"tc {of}{self._kind} graph"):
            result: tuple[Any, ...] = self._call(args)
        return result

    def _made(self) -> Any:
        """Return the wrapper with a ``with`` before each step: on its line, so that lines stay.

        One replacement a step, because a profiler may be recording stacks meanwhile.
        """
        lines = self._source.split("\n")
        about = {step.line: self._about(step) for step in self._steps}
        for step in self._steps:
            lines[step.line - 1] = _as_event(lines[step.line - 1], step.line, self._title(step))
        code = compile("\n".join(lines), "<tc annotated wrapper>", "exec")
        names = {**self._names, _EVENT: Event, _ABOUT: about}
        exec(code, names)
        return names["call"]

    def _title(self, step: StepCost) -> str:
        parts = [step.name.removeprefix("torch.ops."), short_places(step.places)]
        if self._compile_id is not None:
            parts.append(f"[{self._compile_id}]")
        return " ".join(part for part in parts if part)

    def _about(self, step: StepCost) -> dict[str, str]:
        """Return the arguments that profilers store with an event if they record shapes."""
        about = {"tc_step": step.name, "user_lines": ", ".join(step.places)}
        if self._compile_id is not None:
            about["compile_id"] = str(self._compile_id)
        return about


def short_places(places: Sequence[str]) -> str:
    """Return lines (``/folder/file.py:3``) as an event's name has them: ``file.py:3,4``."""
    by_file: dict[str, list[str]] = {}
    for place in places[:MOST_LINES]:
        file, _, line = place.rpartition(":")
        by_file.setdefault(file_name(file), []).append(line)
    text = " ".join(f"{file}:{','.join(lines)}" for file, lines in by_file.items())
    return f"{text},…" if len(places) > MOST_LINES else text


def _as_event(line: str, number: int, title: str) -> str:
    """Return a line of a wrapper inside its event, which records what a kernel is called with."""
    step = line.strip()
    if step.startswith("return "):
        return line
    kernel = _KERNEL.fullmatch(step)
    given = f"({kernel[1]},)" if kernel else "()"
    event = f"{_EVENT}({title!r}, {given}, {_ABOUT}[{number}])"
    return f"    with {event}: {step}"


def annotate(program: Program, names: dict[str, Any]) -> None:
    """Add the names that `watched` uses to a wrapper's globals."""
    names[PROFILER] = torch.autograd.profiler
    names[ANNOTATED] = Annotated(program, names)
