"""Pieces of a file go in; they stand in its place at once, or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path


def replace_file(target: Path, pieces: Iterable[bytes]) -> None:
    """Write a file in one step: a reader never sees half of it.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    handle, name = tempfile.mkstemp(prefix=f".{target.stem}-", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
