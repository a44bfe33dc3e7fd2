"""Fixes that were tried on the program itself: the file beside a trace that says what they gave."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tc.trace.files import replace_file

FILE: Final = "fix_trials.json"
HELPED: Final = "helped"
NO_HELP: Final = "no help"
OTHERWISE: Final = "other results"
FAILED: Final = "failed"
UNTRIED: Final = "untried"
_STATES: Final = (HELPED, NO_HELP, OTHERWISE, FAILED, UNTRIED)
_SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one fix, or of several together.

    Attributes:
        findings: ids of the findings that it is meant to fix.
        text: the fix, as the finding has it; of several together empty.
        state: `helped`: the program ended as before, with fewer breaks or recompiles; `no help`:
            it ended as before, with as many; `other results`: it ended as before, and printed
            something else; `failed`: it ended otherwise; `untried`.
        outcome: `breaks 4 → 2`, or the reason.
        patch: lines of the user's source that were tried: `- old`, `+ new`.
    """

    findings: tuple[str, ...]
    text: str
    state: str
    outcome: str
    patch: str = ""

    @property
    def mark(self) -> str:
        """`ran with the edit: breaks 4 → 2`: what a reader has to know of it."""
        checked = "ran with the edit" if self.state in (HELPED, NO_HELP, OTHERWISE) else "unchecked"
        return f"{checked}: {self.outcome}"

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            **asdict(self),
            "findings": list(self.findings),
            "told": self.outcome,  # the name that it had before
        }


def write_trials(folder: str | Path, trials: Sequence[Trial]) -> None:
    """Write what was tried beside the logs of a trace, in one step.

    Raises:
        OSError: the folder cannot be written.
    """
    text = json.dumps({"schema": _SCHEMA, "trials": [one.to_json() for one in trials]}, indent=1)
    replace_file(Path(folder) / FILE, [text.encode()])


def read_trials(folder: str | Path) -> tuple[Trial, ...]:
    """Return what was tried on a trace; nothing where the file is missing or not one of tc's."""
    try:
        stored = json.loads((Path(folder) / FILE).read_text("utf-8"))
        return tuple(map(_trial, stored["trials"])) if stored["schema"] == _SCHEMA else ()
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def _trial(row: dict[str, Any]) -> Trial:
    outcome = row["outcome"] if "outcome" in row else row["told"]  # as it was called before
    texts = [row["text"], row["state"], outcome, row["patch"]]
    if row["state"] not in _STATES or not all(isinstance(one, str) for one in texts):
        raise ValueError("not a trial")
    return Trial(tuple(map(str, row["findings"])), *texts)
