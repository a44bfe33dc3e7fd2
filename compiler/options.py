"""Options of one `tc.compile` call, and the process-wide defaults users may change."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from tc.compiler.errors import OptionError

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@dataclass
class Config:
    """Process-wide settings; read when a frame is compiled.

    Attributes:
        recompile_limit: compiles of one code object after which it runs eagerly.
        automatic_dynamic_shapes: make a size dynamic when it changes for the first time.
        suppress_errors: run eagerly, with one warning, where the compiler fails.
        disable: make `tc.compile` return its argument unchanged.
        threads: OpenMP threads of generated kernels; 0 takes torch's number.
    """

    recompile_limit: int = 8
    automatic_dynamic_shapes: bool = True
    suppress_errors: bool = False
    disable: bool = field(default_factory=lambda: os.environ.get("TC_DISABLE") == "1")
    threads: int = 0

    def __setattr__(self, name: str, value: Any) -> None:
        names = [f.name for f in fields(self)]
        if name not in names:
            raise OptionError(f"tc.config has no setting {name!r}{nearest(name, names)}")
        object.__setattr__(self, name, value)

    @contextmanager
    def patch(self, **changes: Any) -> Iterator[None]:
        """Change settings for the length of a ``with`` block."""
        before = {name: getattr(self, name, None) for name in changes}
        for name, value in changes.items():
            setattr(self, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self, name, value)


config = Config()


@dataclass(frozen=True)
class Options:
    """What one `tc.compile` call asked for.

    Attributes:
        fullgraph: raise on a graph break.
        dynamic: True: all sizes dynamic at once; False: never; None: on their second value.
        backend: ``(gm, example_inputs) -> callable``.
        backend_name: its name, for logs and traces.
    """

    backend: Callable[..., Any]
    backend_name: str
    fullgraph: bool = False
    dynamic: bool | None = None
    mode: str | None = None
    extra: tuple[tuple[str, Any], ...] = ()


def nearest(name: str, known: list[str]) -> str:
    """Return ``; did you mean 'x'?`` for the closest known name, or an empty string."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
