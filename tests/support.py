"""What tests of several rooms share: where things lie, and how to run a program of ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# The variables that would make a child process log, trace, or take another path than asked for.
OURS = ("TC_", "TORCH_LOGS", "TORCH_TRACE", "TORCHINDUCTOR_", "TRITON_INTERPRET")


def shared(name: str = "") -> Path:
    """A file or folder of the shared material; skips the test where that is not there.

    It is looked for in ``TC_SHARED``, else beside the checkout in ``../shared``.
    """
    home = Path(os.environ.get("TC_SHARED") or ROOT.parent / "shared")
    path = home / name
    if not path.exists():
        pytest.skip(f"{path} is not there (TC_SHARED names the folder of shared material)")
    return path


def heeds_ctrl_c() -> None:
    """Undo in a child what `nohup` and shells in the background do: ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def python(
    *arguments: str,
    timeout: float = 120,
    cwd: Path | str | None = None,
    variables: dict[str, str] | None = None,
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
