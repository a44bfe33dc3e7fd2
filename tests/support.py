"""What tests of several rooms share: where things lie, and how to run a program of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The variables that would make a child process log, trace, or take another path than asked for.
OURS = ("TC_", "TORCH_LOGS", "TORCH_TRACE", "TORCHINDUCTOR_", "TRITON_INTERPRET")


def python(
    *arguments: str,
    timeout: float = 120,
    cwd: Path | str | None = None,
    variables: dict[str, str] | None = None,
    encoding: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter with arguments, in a clean environment that can import ``tc``."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
    if cache := os.environ.get("TC_CACHE_DIR"):
        environment["TC_CACHE_DIR"] = cache
    environment.setdefault("PYTHONPATH", str(ROOT))
    environment.update(variables or {})
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
