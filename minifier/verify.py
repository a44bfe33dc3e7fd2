"""Runs a finished file as a stranger would: in fresh processes, in empty folders.

Each is a fresh interpreter, started from nothing. Where PyTorch's own compiler fails, whose loading
takes longer than the search, only the first is; the others are forks of a process that has loaded
it, compiled x + 1 and nothing else. A run counts if its failure has the identity looked for.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tc.minifier.answer import Answer
from tc.minifier.fresh import Fresh
from tc.minifier.identity import Identity
from tc.minifier.oracle import Server

RUNS: Final = 5
AT_A_TIME: Final = 2


def failures(
    path: Path,
    target: Identity,
    fresh: Fresh,
    server: Server | None = None,
    runs: int = RUNS,
    place: Callable[[], Path] | None = None,
) -> int:
    """Return how many of so many runs of a file end in the failure it was made for.

    Where the first of a failure that always shows does not, none is counted.

    Args:
        place: makes the folder that they run in; None: an empty one each.
    """
    cwd = place() if place else None
    first = is_alike(fresh.run(path, cwd), target)
    if not first and runs == RUNS:
        return 0
    if server is not None and server.compiler == "torch" and runs == RUNS:
        return 1 + sum(fails_again(path, target, fresh, server) for _ in range(runs - 1))
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        again = pool.map(lambda _: is_alike(fresh.run(path, cwd), target), range(runs - 1))
        return first + sum(again)


def is_alike(answer: Answer, target: Identity) -> bool:
    """Return whether a run ended in the failure that is looked for."""
    return answer.identity == target


def fails_again(path: Path, target: Identity, fresh: Fresh, server: Server) -> bool:
    """Return the same of a child of the warm process."""
    with tempfile.TemporaryDirectory(prefix="rerun-") as empty:
        row = server.ask(
            {"do": "rerun", "path": str(path.resolve()), "folder": empty, "seconds": fresh.seconds}
        )
    return is_alike(Answer.of(row), target)
