"""What tests of several packages share: paths, and how to run a program of tc."""

from __future__ import annotations

import atexit
import itertools
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from warm import Warm, fits

ROOT = Path(__file__).resolve().parent.parent
# The variables that would make a child process log, trace, or take another path than asked for.
PREFIXES = ("TC_", "TORCH_LOGS", "TORCH_TRACE", "TORCHINDUCTOR_", "TRITON_INTERPRET")
WARM = Warm()
atexit.register(WARM.close)


def python(
    *arguments: str,
    timeout: float = 120,
    cwd: Path | str | None = None,
    variables: dict[str, str] | None = None,
    encoding: str | None = None,
    warm: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter with arguments, in a clean environment that can import ``tc``.

    Args:
        warm: fork it from a process that has loaded torch (see `warm`), where that makes no
            difference to the program. It is not for tests of what is loaded, or read at the start.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith(PREFIXES)}
    if cache := os.environ.get("TC_CACHE_DIR"):
        environment["TC_CACHE_DIR"] = cache
    environment.setdefault("PYTHONPATH", str(ROOT))
    base = dict(environment)
    environment.update(variables or {})
    if warm and fits(arguments, environment, base):
        code, *texts = WARM.run(arguments, str(cwd or ROOT), environment, base, timeout)
        out, err = (text.decode(encoding or "utf-8") for text in texts)
        return subprocess.CompletedProcess([sys.executable, *arguments], code, out, err)
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        encoding=encoding,
        timeout=timeout,
        cwd=cwd or ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
    )


def succeed(*arguments: str, **how: object) -> str:
    """Run like `python`, fail the test with the whole output unless it exits 0; return stdout."""
    done = python(*arguments, **how)  # type: ignore[arg-type]
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def own_cache(folder: Path) -> str:
    """Make a cache with nothing in it but our C extension modules, which take a second to build.

    For programs whose test is not about what is built, nor about the time it takes.
    """
    from tc.compiler.runtime import extension, store

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TC_CACHE_DIR", os.environ["TC_TEST_CACHE"])
        library = extension.built()
        patch.setenv("TC_CACHE_DIR", str(folder))
        assert store.store().write(library.name, store.sealed(library.content, library.name))
    return str(folder)


def crossed(**axes: Iterable[Any]) -> pytest.MarkDecorator:
    """Return the mark of a test that takes every combination of some arguments.

    The default suite has one of them for each value of the first axis, and counts through the
    combinations of the others meanwhile; all others are slow.
    """
    values = [tuple(axis) for axis in axes.values()]
    others = itertools.cycle(itertools.product(*map(range, map(len, values[1:]))))
    usual = {(first, *next(others)) for first in range(len(values[0]))}
    return pytest.mark.parametrize(
        ",".join(axes),
        [
            pytest.param(
                *(axis[k] for axis, k in zip(values, place, strict=True)),
                marks=() if place in usual else pytest.mark.slow,
            )
            for place in itertools.product(*map(range, map(len, values)))
        ],
    )
