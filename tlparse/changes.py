"""A finding and one of its fixes go in; what has to be changed to try it comes out."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tc.tlparse import edits
from tc.tlparse.edits import Edit, NoEdit, Source, Splice
from tc.trace.compiles import FRAMEWORK
from tc.trace.findings import Finding

BY_HAND: Final = "it must be written by hand"
_AT_CALL: Final = "it belongs at the call of the function, which is not in the trace"
_SOURCES: Final = "TORCH_COMPILE_DYNAMIC_SOURCES"
# Where the settings lie that fixes name: the module that makes them, and the way to them in it.
_OWNERS: Final = {
    "tc": ("tc.compiler.options", ["config"]),
    "torch._dynamo": ("torch._dynamo.config", []),
}
_OWNER: Final = r"\b(?P<owner>tc|torch\._dynamo)"
_SETTING: Final = re.compile(_OWNER + r"\.config\.(?P<name>\w+) = (?P<value>True|False|\d+)\b")
_ADDED: Final = re.compile(_OWNER + r"\.config\.(?P<name>\w+)\.add\((?P<what>\w+)\)")
_ALL_DYNAMIC: Final = re.compile(r"\b(?P<owner>tc|torch)\.compile\(\.\.\., dynamic=True\)")
_MARKED: Final = re.compile(_OWNER + r"\.(?:maybe_)?mark_dynamic\b(?:\((?P<name>[\w.]+), \d+\))?")
_EDITS: Final[tuple[tuple[re.Pattern[str], Edit], ...]] = (
    (re.compile(r"^remove the call of graph_break\(\)"), edits.without_call),
    (re.compile(r"\bis_compiling\(\)"), edits.guarded),
    (re.compile(r"^keep the value as a "), edits.without_item),
    (re.compile(r"\btorch\._assert_async\("), edits.asynchronous),
    (re.compile(r"\btorch\.where\(condition\b"), edits.chosen_by_where),
    (re.compile(r"\btorch\.cond\(condition\b"), edits.chosen_by_cond),
    (re.compile(r"^remove the (?:\w+ )?mark\b"), edits.without_mark),
    (re.compile(r"\bself\.register_buffer\("), edits.as_buffer),
)


@dataclass(frozen=True, slots=True)
class Change:
    """What is changed for a run of the program.

    Attributes:
        modules: module → what is set in it once it is loaded: `path`, `value` or `add`, `mark`.
        variables: environment variables.
        files: file → its edits.
    """

    modules: Mapping[str, tuple[dict[str, Any], ...]] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, tuple[Splice, ...]] = field(default_factory=dict)

    @property
    def marks(self) -> set[str]:
        """What the program notes down when the change takes effect."""
        return {row["mark"] for rows in self.modules.values() for row in rows} | set(self.files)

    @property
    def patch(self) -> str:
        """The edits as lines: `- old`, `+ new`."""
        return "\n".join(
            row for file, splices in self.files.items() for row in _lines(Path(file), splices)
        )


def _lines(file: Path, splices: tuple[Splice, ...]) -> Iterable[str]:
    old = file.read_bytes()
    new = edits.apply(old, splices)
    before, after = (one.decode("utf-8", "replace").splitlines() for one in (old, new))
    for row in list(difflib.unified_diff(before, after, n=0, lineterm=""))[2:]:
        if not row.startswith("@@"):
            yield f"{row[0]} {row[1:]}"


def together(changes: Iterable[Change]) -> Change | None:
    """Return all these changes as one; None where two of them edit the same place."""
    modules: dict[str, tuple[dict[str, Any], ...]] = {}
    variables: dict[str, str] = {}
    files: dict[str, tuple[Splice, ...]] = {}
    for change in changes:
        for name, rows in change.modules.items():
            known = modules.get(name, ())
            modules[name] = (*known, *(row for row in rows if row not in known))
        for name, value in change.variables.items():
            variables[name] = ",".join(filter(None, (variables.get(name), value)))
        for file, splices in change.files.items():
            held = files.get(file, ())
            files[file] = (*held, *(one for one in splices if one not in held))
    if any(edits.overlap(splices) for splices in files.values()):
        return None
    return Change(modules, variables, files)


def change_of(finding: Finding, text: str) -> Change:
    """Return what has to be changed to try one fix of a finding.

    Raises:
        NoEdit: a machine cannot do it; the message says why.
    """
    if match := _SETTING.search(text):
        value = {"True": True, "False": False}.get(match["value"])
        return _setting(match["owner"], match["name"],
                        value=int(match["value"]) if value is None else value)  # fmt: skip
    if match := _ADDED.search(text):
        if match["what"] not in finding.title:
            raise NoEdit(f"the call is none of {match['what']}()")
        return _setting(match["owner"], match["name"], add=match["what"])
    if match := _ALL_DYNAMIC.search(text):
        owner = "tc" if match["owner"] == "tc" else "torch._dynamo"
        return _setting(owner, "assume_static_by_default", value=False)
    if marks := list(_MARKED.finditer(text)):
        if any(match["owner"] == "tc" or not match["name"] for match in marks):
            raise NoEdit(_AT_CALL)
        held = os.environ.get(_SOURCES, "")
        named = [match["name"].partition(".") for match in marks]
        sources = [f"L['{first}']{dot}{rest}" for first, dot, rest in named]
        return Change(variables={_SOURCES: ",".join(filter(None, (held, *sources)))})
    for pattern, edit in _EDITS:
        if pattern.search(text):
            return _edited(finding, edit)
    raise NoEdit(BY_HAND)


def _setting(owner: str, name: str, **what: Any) -> Change:
    module, path = _OWNERS[owner]
    row = {"path": [*path, name], **what, "mark": f"{owner}.config.{name} {what}"}
    return Change(modules={module: (row,)})


def _edited(finding: Finding, edit: Edit) -> Change:
    where = finding.where
    if not where.file or not where.line:
        raise NoEdit("its line is not in the trace")
    if FRAMEWORK.search(where.file):
        raise NoEdit("it is in a library")
    file = os.path.realpath(where.file)
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise NoEdit("its file cannot be read") from error
    name = finding.reason.rpartition(".")[2]
    splices = edit(Source(data), edits.Place(where.line, name))
    return Change(files={file: tuple(splices)})
