"""Failures that come out of the user's own compiler cache, where a wrong entry was found again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tc.minifier.job import Setting
from tc.minifier.problem import NotReproduced, Problem, Run, record
from tc.minifier.workplace import Workplace

DEFAULT: Final = {"TC_CACHE_DIR": "~/.cache/tc"}  # where caches are, if nothing says so
MOST: Final = 512 << 20  # bytes of a cache that is copied


def own_caches(variables: Mapping[Any, str]) -> dict[str, Path]:
    """Return the folders of the user's caches that hold something, by variable."""
    found: dict[str, Path] = {name: Path(value) for name, value in variables.items()}
    for name, value in DEFAULT.items():
        found.setdefault(name, Path(value).expanduser())
    return {name: path for name, path in found.items() if path.is_dir() and any(path.iterdir())}


def fails_with_caches(place: Workplace, run: Run, setting: Setting) -> None:
    """See whether a script that is right by itself fails with the user's caches.

    Copies are used: the caches themselves stay as they are.

    Raises:
        NotReproduced: it fails with them; the text names the entry.
    """
    for variable, path in own_caches(place.own_caches).items():
        files = [file for file in sorted(path.rglob("*")) if file.is_file()]
        if sum(file.stat().st_size for file in files) > MOST:
            setting.note(f"{path} is too large to be copied, and was not tried")
            continue
        setting.progress.now(f"running with a copy of {path} …")

        def run_with(kept: Sequence[Path], variable: str = variable, path: Path = path) -> Problem:
            copy = place.folder / "copied"
            shutil.rmtree(copy, ignore_errors=True)
            for file in kept:
                target = copy / file.relative_to(path)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(file, target)
            copy.mkdir(exist_ok=True)
            return record(run, place.folder, {variable: str(copy)})

        problem = run_with(files)
        if problem.kind == "ok":
            continue

        def still(
            kept: Sequence[Path],
            ask: Callable[[Sequence[Path]], Problem] = run_with,
            target: Problem = problem,
        ) -> bool:
            return ask(kept).identity == target.identity

        entries = needed(files, still)
        names = ", ".join(str(entry.relative_to(path)) for entry in entries[:4])
        raise NotReproduced(
            f"it fails only with your cache ({problem.message}): the wrong entry is {names} in "
            f"{path}; remove it, or set {variable} to another folder"
        )


def needed(files: Sequence[Path], fails: Callable[[Sequence[Path]], bool]) -> list[Path]:
    """Return a smallest set of files with which it still fails (delta debugging)."""
    kept, size = list(files), max(len(files) // 2, 1)
    while size:
        start = 0
        while start < len(kept):
            fewer = kept[:start] + kept[start + size :]
            if fails(fewer):
                kept = fewer
            else:
                start += size
        size //= 2
    return kept
