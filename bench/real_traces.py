"""Real logs of `TORCH_TRACE`, for tests and benchmarks: what `torch.compile` of 2.13 wrote.

`traces.tar.xz` holds them, 0.2 MB for 9.6, made by small programs (paths replaced by neutral ones).
Its README.md says what is true of each: it was counted by an independent reader.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tarfile
import tempfile
from functools import cache
from pathlib import Path

PACKED = Path(__file__).with_name("traces.tar.xz")


@cache
def unpacked() -> Path:
    """Return the folder of the logs, a folder each; it lasts as long as this process."""
    folder = Path(tempfile.mkdtemp(prefix="tc-traces-"))
    maker = os.getpid()

    def remove() -> None:
        if os.getpid() == maker:  # a fork ends earlier
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    with tarfile.open(PACKED) as packed:
        packed.extractall(folder, filter="data")
    return folder
