"""The compilers' caches of one run: as they were before the first try, and gone after it.

No answer may come out of what an earlier try has left: a graph that is found again is not compiled,
and a compiler that fails while it compiles does not fail then.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

#: variables that name folders in which compilers keep what they made
CACHES: Final = ("TC_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
FIRST: Final = "TC_MINIFY_CACHES"  # the folder of the first caches; unset: those of the user


def caches_in(folder: Path) -> dict[str, str]:
    """Return the variables of caches in a folder."""
    return {variable: str(folder / variable.lower()) for variable in CACHES}


@contextmanager
def caches_of_one_run() -> Iterator[dict[str, str]]:
    """Yield the variables of caches that nothing else uses; none, where the user's are used."""
    first = os.environ.get(FIRST)
    if not first:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="caches-", ignore_cleanup_errors=True) as name:
        if os.path.isdir(first):
            shutil.copytree(first, name, dirs_exist_ok=True)
        yield caches_in(Path(name))
