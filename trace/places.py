"""Where something is in the user's code: known to all compiles, also where nobody listens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StackFrame:
    """One line of a user stack; ``loc`` is its source text."""

    file: str
    line: int
    name: str
    loc: str | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.name}"
