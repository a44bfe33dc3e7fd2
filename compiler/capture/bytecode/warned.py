"""Warnings that compiled code issues for the program's lines: frames of tc do not count."""

from __future__ import annotations

import sys
import types
import warnings
from typing import Any

PARAMETERS = ("message", "category", "stacklevel", "source")
#: a level that no stack reaches: the warning names no line of the program
NO_FRAME = 1 << 30


def warn(*args: Any, **kwargs: Any) -> None:
    """Do what ``warnings.warn`` does, counting the frames that there are without the compiler.

    The first one is that of the residual code which calls this.
    """
    given = {**dict(zip(PARAMETERS, args, strict=False)), **kwargs}
    message, category, level = map(given.get, PARAMETERS[:3])
    if isinstance(message, Warning):
        category = type(message)
    category = UserWarning if category is None else category
    level = 1 if level is None else level
    unusual = (
        len(args) > len(PARAMETERS) or set(given) - set(PARAMETERS) or message is None
    )
    kinds = (
        isinstance(category, type)
        and issubclass(category, Warning)
        and type(level) is int
    )
    frame = None if unusual or not kinds else _frame_at(level)
    if frame is None:
        extra = {} if unusual or not kinds else {"stacklevel": NO_FRAME}
        warnings.warn(*args[: 2 if extra else None], **{**kwargs, **extra})
        return
    place = frame.f_code.co_filename, frame.f_lineno, frame.f_globals
    warn_at(message, category, *place, source=given.get("source"))


def warn_at(
    message: Any,
    category: Any,
    file: str,
    line: int,
    module_globals: dict[str, Any],
    source: Any = None,
) -> None:
    """Issue a warning for a line of a module."""
    registry = module_globals.setdefault("__warningregistry__", {})
    module = module_globals.get("__name__", "<string>")
    warnings.warn_explicit(
        message, category, file, line, module, registry, source=source
    )


def _frame_at(level: int) -> types.FrameType | None:
    """Return the frame of the program that a stack level means; None above the outermost one."""
    frame = _program_frame(sys._getframe(1))
    while level > 1 and frame is not None:
        frame, level = _caller_in_program(frame), level - 1
    return frame


def _caller_in_program(frame: types.FrameType) -> types.FrameType | None:
    """Return the frame that has called one of the program, were the program not compiled."""
    return _program_frame(frame.f_back)


def _program_frame(frame: types.FrameType | None) -> types.FrameType | None:
    """Return the first frame, from this one up, that is neither tc's nor the import system's."""
    while frame is not None and (
        _is_of_tc(frame) or _imports(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    return frame


def _is_of_tc(frame: types.FrameType) -> bool:
    name = frame.f_globals.get("__name__")
    return isinstance(name, str) and name.partition(".")[0] == "tc"


def _imports(file: str) -> bool:
    return "importlib" in file and "_bootstrap" in file
