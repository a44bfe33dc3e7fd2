"""Finds the lines of user code that a translation interpreted."""

from __future__ import annotations

import linecache
import sysconfig
from collections.abc import Iterable, Iterator
from types import CodeType

from tc import trace
from tc.compiler.capture.bytecode.resume_functions import user_code
from tc.compiler.capture.frame import Frame, Program

#: starts of file names that are not user code: Python's, installed packages', and no file
_THEIRS = tuple(
    {
        path
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
        if (path := sysconfig.get_path(name))
    }
    | {"<"}
)


def lines_of(frames: Iterable[Frame]) -> Iterator[trace.FunctionLines]:
    """Yield the interpreted functions of the user that have source code."""
    # by id: code of two files may be equal
    traced: dict[int, tuple[CodeType, set[int]]] = {}
    for program, (walked, runs) in _visited(frames).items():
        code = user_code(walked)
        _, found = traced.setdefault(id(code), (code, set()))
        for number in {number for run in runs for number in range(*run)}:
            positions = program.instructions[number].positions
            if positions is not None and positions.lineno is not None:
                found.add(positions.lineno)
    for code, found in traced.values():
        lines = {line for _, _, line in code.co_lines() if line}
        first = code.co_firstlineno
        text = linecache.getlines(code.co_filename)[first - 1 : _last(code)]
        if text:
            yield trace.FunctionLines(
                code.co_filename,
                code.co_qualname,
                first,
                "".join(text),
                tuple(sorted(lines)),
                tuple(sorted(found & lines)),
            )


def _visited(
    frames: Iterable[Frame],
) -> dict[Program, tuple[CodeType, set[tuple[int, int]]]]:
    """Return the code, and ranges of interpreted instructions, as first and one past last."""
    found: dict[Program, tuple[CodeType, set[tuple[int, int]]]] = {}
    theirs: set[Program] = set()  # most frames are of torch.nn
    for frame in frames:
        program = frame.program
        if program in found:
            found[program][1].update(frame.visited())
        elif program not in theirs:
            if user_code(frame.code).co_filename.startswith(_THEIRS):
                theirs.add(program)
            else:
                found[program] = frame.code, frame.visited()
    return found


def _last(code: CodeType) -> int:
    """Return the last line of a function, nested functions included."""
    mine = max(
        (line for _, _, line in code.co_lines() if line), default=code.co_firstlineno
    )
    inner = (_last(const) for const in code.co_consts if isinstance(const, CodeType))
    return max((mine, *inner))
