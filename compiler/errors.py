"""Errors of the compiler: what happened, where in the user's code, what to do next."""

from __future__ import annotations


class TcError(Exception):
    """Base of all errors raised by tc."""


class OptionError(TcError, ValueError):
    """An option, mode or setting that does not exist or has a value it cannot take."""


class Unsupported(TcError):
    """A graph break under ``fullgraph=True``."""


class StageError(TcError, RuntimeError):
    """A stage of the compiler failed.

    Attributes:
        stage: name of the stage, e.g. ``loops.lower``.
    """

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


class BackendError(StageError):
    """The backend given to `tc.compile` raised."""


class VerifyError(TcError):
    """An artifact broke one of its invariants; names the pass that made it."""
