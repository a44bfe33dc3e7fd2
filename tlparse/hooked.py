"""Runs in a program on which fixes are tried, before its own code: switches and edits take effect.

`tc.tlparse.tries` copies this file to a folder of its own, as `tc_trial_hook`, with the plan
beside it. It knows only the standard library: the program's Python may not have `tc`.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import json
import linecache
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
APPLIED = "applied"


class _Then:
    """A module's loader; what was to be set in the module is set once it has been loaded."""

    def __init__(self, loader: Any, rows: Sequence[dict[str, Any]]) -> None:
        self._loader, self._rows = loader, rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        for row in self._rows:
            _set(module, row)


def _set(module: ModuleType, row: dict[str, Any]) -> None:
    owner: Any = module
    for name in row["path"][:-1]:
        owner = getattr(owner, name)
    last = row["path"][-1]
    if "add" in row:
        getattr(owner, last).add(getattr(builtins, row["add"]))
    else:
        setattr(owner, last, row["value"])
    _note(row["mark"])


class _Edited(importlib.machinery.SourceFileLoader):
    """Loads a module of the user's from the edited source."""

    def get_code(self, fullname: str) -> Any:
        return code(self.path)

    def get_source(self, fullname: str) -> str:
        return str(PLAN["files"][os.path.realpath(self.path)])


class _Finder:
    """Finds modules as others do, and gives those of the plan another loader."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        spec = None
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    break
        if spec is None or spec.loader is None:
            return spec
        if name in PLAN["modules"]:
            then: Any = _Then(spec.loader, PLAN["modules"][name])
            spec.loader = then
        if spec.origin and os.path.realpath(spec.origin) in PLAN["files"]:
            spec.loader = _Edited(name, spec.origin)
        return spec


def code(path: str) -> Any:
    """Compile the edited source of a file; tracebacks and `inspect` see it as the file's own."""
    text = PLAN["files"][os.path.realpath(path)]
    linecache.cache[path] = (len(text), None, text.splitlines(True), path)
    _note(os.path.realpath(path))
    return compile(text, path, "exec", dont_inherit=True)


def become(names: dict[str, Any], path: str) -> dict[str, Any]:
    """Make the globals of the script that stands in for the user's those of the user's."""
    sys.argv[0] = PLAN["script"]
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    names["__file__"] = path
    del names["_hook"]
    return names


def _note(what: str) -> None:
    with open(os.path.join(HERE, APPLIED), "a", encoding="utf-8") as file:
        file.write(what + "\n")


def _run_hidden() -> None:
    """Run the `sitecustomize` that this one hides, if there is one."""
    rest = [one for one in sys.path if os.path.abspath(one or ".") != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"]
        module.__file__, module.__spec__ = spec.origin, spec
        spec.loader.exec_module(module)


def _plan() -> dict[str, Any]:
    with open(os.path.join(HERE, "plan.json"), encoding="utf-8") as file:
        plan: dict[str, Any] = json.load(file)
    return plan


def install() -> None:
    """Let the plan take effect on what is imported from now on."""
    sys.meta_path.insert(0, _Finder())
    _run_hidden()


PLAN: dict[str, Any] = {}
if os.path.exists(os.path.join(HERE, "plan.json")):
    PLAN = _plan()
