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
        error_on_recompile: raise `RecompileError` in place of compiling a frame again.
        fail_on_recompile_limit_hit: raise at the limit in place of going on eagerly.
        capture_scalar_outputs: give ``item()`` and ``tolist()`` a symbol in place of a break.
        capture_dynamic_output_shape_ops: the same for ``nonzero``, masks and the like.
        assume_static_by_default: False makes all sizes dynamic from the first compile on.
        specialize_int: never make an integer argument dynamic.
    """

    recompile_limit: int = 8
    automatic_dynamic_shapes: bool = True
    suppress_errors: bool = False
    disable: bool = field(default_factory=lambda: os.environ.get("TC_DISABLE") == "1")
    threads: int = 0
    error_on_recompile: bool = False
    fail_on_recompile_limit_hit: bool = False
    capture_scalar_outputs: bool = False
    capture_dynamic_output_shape_ops: bool = False
    assume_static_by_default: bool = True
    specialize_int: bool = False

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

    backend: Callable[..., Callable[..., Any]]
    backend_name: str
    fullgraph: bool = False
    dynamic: bool | None = None
    mode: str | None = None
    extra: tuple[tuple[str, Any], ...] = ()


def nearest(name: str, known: list[str]) -> str:
    """Return ``; did you mean 'x'?`` for the closest known name, or an empty string."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
