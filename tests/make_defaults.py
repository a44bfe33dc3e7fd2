"""Traces of programs that set nothing go in; tlparse/static/defaults.json comes out.

Run it for a new version of torch: a program that compiles one function, in an empty environment
(``env -i PATH=$PATH HOME=... TORCH_TRACE=folder python program.py``), leaves a folder behind; then
``python tests/make_defaults.py FOLDER...``, a folder for each version, the oldest first. What a
program changed would be taken for a default.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tc.tlparse.settings import LOCAL, configured
from tc.trace.session import load

TARGET = Path(__file__).resolve().parents[1] / "tlparse" / "static" / "defaults.json"


def reported_by(folder: str) -> tuple[str, dict[str, Any]]:
    """Return the version that wrote a trace, `2.13`, and the settings of its first compile."""
    session = load(folder)
    version = ".".join(session.environment["pytorch_version"].split(".")[:2])
    found = configured(session.compiles[0].metrics)
    return version, {name: value for name, value in found.items() if name not in LOCAL}


def changes(versions: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return, for each version, what it changed against the one before."""
    made: dict[str, dict[str, Any]] = {}
    before: dict[str, Any] = {}
    for version, settings in versions.items():
        fresh = {
            name: value
            for name, value in sorted(settings.items())
            if name not in before or before[name] != value
        }
        made[version] = {"set": fresh, "gone": sorted(before.keys() - settings.keys())}
        before = settings
    return made


if __name__ == "__main__":
    made = changes(dict(map(reported_by, sys.argv[1:])))
    TARGET.write_text(json.dumps(made, indent=1) + "\n", "utf-8")
