"""What a reduction has asked and found, on disk as it goes: it can be continued and walked back.

The search is deterministic: given the same first failure and the same answers it takes the same
steps. So all that continuing needs is the answers; those that are known cost nothing, and the
result is the one that an uninterrupted run gives.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

from tc.minifier.answer import Answer

PROBLEM: Final = "problem.json"  # the first failure of a script that calls a compiler
UNPRINTABLE: Final = "backslashreplace"  # bytes of arguments that are no text in the locale


class Journal:
    """The answers of one search, by a digest of what was asked.

    Attributes:
        folder: where they are kept; None: nowhere.
        steps: improvements so far.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.steps = 0
        self.known: dict[str, dict[str, Any]] = {}
        if folder is not None:
            folder.mkdir(exist_ok=True)
            if not (folder / "subject.json").exists():
                self.save("subject.json", None)  # says whose the folder is
            rows = read_lines(folder / "answers.jsonl")
            self.known.update((row["asked"], row["answer"]) for row in rows)
            # a line that its writer could not finish must not join the next
            text = "".join(f"{json.dumps(row)}\n" for row in rows)
            write_whole(folder / "answers.jsonl", text, folder)

    @property
    def is_empty(self) -> bool:
        """Return whether no failure is kept, so that there is nothing to continue."""
        known = any(Answer.of(row).failed for row in self.known.values())
        return not known and self.load(PROBLEM) is None

    def get(self, question: str) -> Answer | None:
        """Return the answer to a question that was asked before."""
        row = self.known.get(digest(question))
        return Answer.of(row) if row is not None else None

    def put(self, question: str, answer: Answer) -> None:
        """Keep an answer."""
        key, row = digest(question), answer.as_json()
        self.known[key] = row
        if self.folder is not None:
            with (self.folder / "answers.jsonl").open("a") as file:
                file.write(json.dumps({"asked": key, "answer": row}) + "\n")

    def improved(self, text: str, name: str) -> None:
        """Keep a result on the way: a program of its own, in the order of the steps."""
        self.steps += 1
        if self.folder is not None:
            path = self.folder / f"{self.steps:04}-{name}.py"
            if not path.exists():
                write_whole(path, text, self.folder)

    def save(self, name: str, row: Any) -> None:
        """Keep plain data under a name."""
        if self.folder is not None:
            write_whole(self.folder / name, json.dumps(row), self.folder)

    def load(self, name: str) -> Any:
        """Return the data of a name; None: there is none."""
        path = self.folder / name if self.folder is not None else None
        try:
            return json.loads(path.read_text()) if path is not None else None
        except (OSError, ValueError):
            return None

    def remove(self) -> None:
        """Leave nothing behind."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def digest(question: str) -> str:
    """Return what a question is known by."""
    return hashlib.sha256(question.encode(errors=UNPRINTABLE)).hexdigest()[:24]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file; the last may be cut off, where its writer was killed."""
    rows = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def write_whole(path: Path, text: str, drafts: Path | None = None) -> None:
    """Write a file whole or not at all; a link stays, and what it names is replaced.

    Args:
        drafts: a folder for what is not finished, if it is on the same file system; else that is
            beside the file.
    """
    path = Path(os.path.realpath(path))
    if drafts is not None and drafts.stat().st_dev != path.parent.stat().st_dev:
        drafts = None
    draft = (drafts or path.parent) / f".{path.name}.part"
    draft.write_text(text, encoding="utf-8", errors=UNPRINTABLE)
    draft.replace(path)
