"""Processes beside a script's first one: they record their graphs, too, and say so to it.

What a script forks has the recorder already. What `multiprocessing` starts as a new interpreter
(``spawn``, ``forkserver``) is begun with a line that installs one. The first process that finds a
problem ends the script, whose first process might else wait for it forever.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing.util
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

#: how the program of such a process begins, which is the text behind ``-c``
BEGINNINGS: Final = (
    "from multiprocessing.spawn import spawn_main",
    "from multiprocessing.forkserver import main",
)
ELSEWHERE: Final = "elsewhere"  # marks a problem that another process than the first has found
COUNTS: Final = "counts-{}.json"  # of the process with this number
COUNTED: Final = ("graphs", "calls", "compiles", "random", "rounding", "refused")


@dataclass(frozen=True)
class Origin:
    """What a process has to know of the recording that it belongs to.

    Attributes:
        folder: where the problem is written.
        script: the file that runs.
        home: where the script finds its neighbours.
        first: number of the first process.
        sequence: whether calls of graphs are kept in order.
    """

    folder: str
    script: str
    home: str
    first: int
    sequence: bool = False

    @property
    def is_here(self) -> bool:
        """Whether this is the first process."""
        return os.getpid() == self.first

    def end_first(self) -> None:
        """End the first process, which would not know of a problem that is found here."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.first, signal.SIGKILL)


def watch(origin: Origin, head: str) -> None:
    """Let the interpreters that `multiprocessing` starts record, too.

    Args:
        head: lines that let a program find the tool.
    """
    util: Any = multiprocessing.util
    real: Callable[..., int] = util.spawnv_passfds
    join = f"{head}from tc.minifier.runner import join; join(**{asdict(origin)!r})\n"

    def start(path: Any, arguments: Sequence[Any], descriptors: Any) -> int:
        return real(path, recording(arguments, join), descriptors)

    util.spawnv_passfds = start


def recording(arguments: Sequence[Any], join: str) -> list[Any]:
    """Return the arguments of an interpreter with a line before the program that it runs."""
    made = list(arguments)
    for place, word in enumerate(made[:-1]):
        if word == "-c" and str(made[place + 1]).startswith(BEGINNINGS):
            made[place + 1] = f"{join}{made[place + 1]}"
    return made


# -- what they count -----------------------------------------------------------------------------
def leave_counts(origin: Origin, facts: Mapping[str, Any]) -> None:
    """Leave behind what a process has counted so far."""
    path = Path(origin.folder) / COUNTS.format(os.getpid())
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps({name: facts[name] for name in (*COUNTED, "refusal", "compiler")}))
    draft.replace(path)


def with_counts(row: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return what the first process has said, with what all others counted."""
    total = dict(row)
    for path in () if row.get(ELSEWHERE) else sorted(left_by_others(folder)):
        other = json.loads(path.read_text())
        for name in COUNTED:
            total[name] = total.get(name, 0) + other[name]
        for name in ("refusal", "compiler"):
            total[name] = total.get(name) or other[name]
    return total


def left_by_others(folder: Path) -> Iterable[Path]:
    """Return the files in which processes have counted."""
    return folder.glob(COUNTS.format("*"))
