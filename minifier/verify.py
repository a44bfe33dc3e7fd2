"""Runs a finished file as a stranger would: in fresh processes, in empty folders.

Two are fresh interpreters, started from nothing; the others are forks of a process that has loaded
the compiler, compiled x + 1 and nothing else. Where a failure does not always show, all of them are
fresh. A run counts if its failure has the identity that is looked for.
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
FRESH: Final = 2  # of these, by an interpreter of their own where a failure always shows
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
    if server is not None and runs == RUNS:
        second = is_alike(fresh.run(path, cwd), target)
        again = (fails_again(path, target, fresh, server, cwd) for _ in range(runs - FRESH))
        return first + second + sum(again)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        others = pool.map(lambda _: is_alike(fresh.run(path, cwd), target), range(runs - 1))
        return first + sum(others)


def is_alike(answer: Answer, target: Identity) -> bool:
    """Return whether a run ended in the failure that is looked for."""
    return answer.identity == target


def fails_again(
    path: Path, target: Identity, fresh: Fresh, server: Server, cwd: Path | None
) -> bool:
    """Return the same of a child of the warm process."""
    with tempfile.TemporaryDirectory(prefix="rerun-") as empty:
        row = server.ask(
            {"do": "rerun", "path": str(path.resolve()), "folder": str(cwd or empty),
             "home": str(fresh.home or path.resolve().parent), "seconds": fresh.seconds,
             "arguments": list(fresh.arguments)}
        )  # fmt: skip
    return is_alike(Answer.of(row), target)
