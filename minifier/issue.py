"""The text of an issue for a tracker: what fails, a repro, versions, what was tried."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Sequence
from typing import Final

from tc import __version__
from tc.minifier.answer import Answer
from tc.minifier.verdict import Verdict

TITLES: Final = {
    "wrong": "Wrong result",
    "nan": "Wrong NaN or infinity",
    "accepts": "Compiled code accepts what eager refuses",
    "died": "The process dies",
    "timeout": "The compiler hangs",
}


def text(answer: Answer, program: str, verdict: str, tried: Sequence[str]) -> str:
    """Return an issue as Markdown."""
    title = f"{TITLES.get(answer.kind, 'The compiler fails')}: {answer.message}"
    if answer.kind == "check":
        title = answer.message
    steps = "\n".join(f"- {line}" for line in tried)
    return (
        f"# {title}\n\nThe program below {verdict}, each in a process of its own.\n\n"
        f"```python\n{program.rstrip()}\n```\n\n"
        f"Identity of the failure: `{answer.identity}`\n\n"
        f"## Versions\n\n{versions()}\n\n## What was tried\n\n{steps}\n"
    )


def of_verdict(verdict: Verdict, label: str, program: str) -> str:
    """Return what tc-bisect found as Markdown."""
    rows = "\n".join(f"| {name} | {_cell(value)} |" for name, value in verdict.rows)
    return (
        f"# {verdict.title}\n\n`{label}`:\n\n```python\n{program.rstrip()}\n```\n\n"
        f"## Verdict of tc-bisect\n\n| | |\n| --- | --- |\n{rows}\n\n"
        f"## Versions\n\n{versions()}\n"
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def versions() -> str:
    """Return what the failure was seen with."""
    rows = [
        f"- tc {__version__}",
        *(f"- {name} {found}" for name in ("torch", "triton", "numpy") if (found := version(name))),
        f"- Python {platform.python_version()} on {platform.platform()}",
    ]
    return "\n".join(rows)


def version(name: str) -> str:
    """Return the version of an installed package, or nothing."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
