"""A recompile goes in; the place of the user's that made its failed guard matter comes out."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from tc.trace.compiles import LIBRARY, own
from tc.trace.findings.model import Cause, Recompile, Where, here
from tc.trace.findings.reasons import COMMENT
from tc.trace.places import file_name

_LINE_IN: Final = re.compile(r"^(?P<code>.*?)\s*# (?P<file>\S+?):(?P<line>\d+) in (?P<fn>\S+)")
_USER_STACK: Final = "User stack trace:"
_FRAME: Final = re.compile(r'^\s*File "(.+)", line (\d+), in (\S+)\s*$')


def read_at(one: Recompile, lead: Cause) -> Cause:
    """Return a cause with the user's line that reads it, as PyTorch names it of the first one.

    The line may be in a function that was inlined: what is done with the input is done there.
    """
    first = next(iter(one.causes), None)
    mine = own(stack_of(one)) if first is not None and first.source == lead.source else None
    if mine is None or lead.line or LIBRARY.search(mine.file):
        return lead
    return replace(lead, file=mine.file, line=mine.line)


def where_of(one: Recompile, data: Any, lead: Cause) -> Where:
    """The user's line that made the failed guard matter, else where the function begins."""
    compiled = one.compiled
    if isinstance(data, dict):
        function = str(data.get("function") or compiled.function)
        if lead.line and not LIBRARY.search(lead.file):
            return Where(lead.file, lead.line, function=function)
        file, line = str(data.get("file") or compiled.file), data.get("line")
        if LIBRARY.search(file):
            return here(compiled)
        return Where(file, line if isinstance(line, int) else compiled.line, function=function)
    function = compiled.alias or compiled.function
    if lead.line:
        at = lead.file, lead.line
        frames = {(frame.file, frame.line): frame for frame in stack_of(one)}
        return frames.get(at, Where(*at, function=function))
    first = one.causes[:1]  # whose line is the one that PyTorch names
    if lead.source not in [cause.source for cause in first]:
        return here(compiled)
    mine = own(stack_of(one))
    if mine is not None and not LIBRARY.search(mine.file):
        return mine
    text = next((text for of, text in one.reasons if of == one.of), "")
    comment = COMMENT.search(text.partition("\n")[0])
    code = _LINE_IN.match(comment["comment"]) if comment else None
    users = LIBRARY.search(compiled.own_place[0]) or not LIBRARY.search(compiled.file)
    if code and users and file_name(code["file"]) == file_name(compiled.file):
        return Where(compiled.file, int(code["line"]), function=compiled.function,
                     source=code["code"].strip())  # fmt: skip
    return here(compiled)


def named_by(one: Recompile, data: Any) -> tuple[str, str] | None:
    """File and function of the code that was compiled, as TC_LOGS names it."""
    if not isinstance(data, dict):
        return one.compiled.home[0], one.compiled.alias or one.compiled.function
    return (str(data.get("file") or one.compiled.file),
            str(data.get("function") or one.compiled.function))  # fmt: skip


def stack_of(one: Recompile) -> tuple[Where, ...]:
    """The stack of the line that made the failed guard matter, as PyTorch prints it."""
    text = next((text for of, text in one.reasons if of == one.of), "")
    _, found, rest = text.partition(_USER_STACK)
    rows = rest.splitlines()
    return tuple(
        Where(match[1], int(match[2]), function=match[3],
              source=rows[n + 1].strip() if n + 1 < len(rows) else "")
        for n, row in enumerate(rows)
        if found and (match := _FRAME.match(row))
    )  # fmt: skip
