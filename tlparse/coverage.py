"""Compiles with their code maps and findings go in; per source file, what became of each line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tc.trace.compiles import FRAMEWORK, Compile
from tc.trace.findings import Diagnosis, Finding
from tc.trace.provenance import CodeMap

_MOST_COMPILES: Final = 3


@dataclass(slots=True)
class Line:
    """One line of the user's source.

    Attributes:
        nodes: operations it became in the captured graph, at most in one compile.
        kernels: kernels that compute part of it, at most in one compile.
        shares: for each compile, by its number, its time by the share of operations it became.
        coded: it holds code, and the trace shows whether capture went through it: `traced`.
        seconds: compile time of the functions that begin here, which `starts` names.
    """

    text: str = ""
    nodes: int = 0
    kernels: int = 0
    seconds: float = 0.0
    compiles: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    starts: list[str] = field(default_factory=list)
    shares: dict[int, float] = field(default_factory=dict)
    coded: bool = False
    traced: bool = False

    @property
    def state(self) -> str:
        """`error`, `break`, `recompile`, `skipped` (runs in Python), `ok` (in a graph),
        `traced` (worked out while compiling), `never` (no compile went through it) or ""."""
        marks = {one.kind.mark for one in self.findings}
        if "error" in marks:
            return "error"
        if "break" in marks:
            return "break"
        if any(one.kind.eager for one in self.findings):
            return "skipped"
        if self.nodes:
            return "ok"
        if "recompile" in marks:
            return "recompile"
        return ("traced" if self.traced else "never") if self.coded else ""


Lines = dict[str, dict[int, Line]]


def coverage(
    diagnosis: Diagnosis, compiles: Sequence[Compile], codes: Sequence[CodeMap]
) -> list[dict[str, Any]]:
    """Return the files of the user as plain values, the one that cost most first."""
    lines: Lines = {}
    for number, (compiled, code) in enumerate(zip(compiles, codes, strict=True)):
        _add_compile(lines, number, compiled, code)
    for finding in diagnosis.findings:
        if finding.where.file and finding.where.line and not FRAMEWORK.search(finding.where.file):
            line = _at(lines, finding.where.file, finding.where.line)
            line.text = line.text or finding.where.source
            line.findings.append(finding)
    names = short_names(lines)
    files = [_file(names[file], file, rows) for file, rows in lines.items()]
    return sorted(files, key=lambda one: (-one["seconds"], one["file"]))


def short_names(files: Iterable[str]) -> dict[str, str]:
    """Name each file by as much of the end of its path as distinguishes it from the others."""
    parts = {file: file.replace("\\", "/").split("/") for file in files}
    depth = dict.fromkeys(parts, 1)
    while True:
        names = {file: "/".join(parts[file][-depth[file] :]) for file in parts}
        taken = Counter(names.values())
        alike = [f for f, name in names.items() if taken[name] > 1 and depth[f] < len(parts[f])]
        if not alike:
            return names
        for file in alike:
            depth[file] += 1


def _at(lines: Lines, file: str, number: int) -> Line:
    return lines.setdefault(file, {}).setdefault(number, Line())


def _add_compile(lines: Lines, number: int, compiled: Compile, code: CodeMap) -> None:
    for (file, row), (text, _) in code.quoted.items():
        if not FRAMEWORK.search(file):
            line = _at(lines, file, row)
            line.text = line.text or text
    for known in code.coded:
        line = _at(lines, *known)
        line.coded, line.traced = True, line.traced or known in code.traced
    nodes = Counter(node.place for node in code.captured)
    kernels = Counter(place for view in code.views for one in view.kernels for place in one.places)
    placed = sum(n for place, n in nodes.items() if place is not None)
    for place in dict.fromkeys((*nodes, *kernels)):
        if place is None or FRAMEWORK.search(place[0]):
            continue
        line = _at(lines, *place)
        line.nodes = max(line.nodes, nodes[place])
        if nodes[place]:
            line.shares[number] = compiled.seconds * nodes[place] / placed
        line.kernels = max(line.kernels, kernels[place])
        if nodes[place] and compiled.slug not in line.compiles:
            line.compiles.append(compiled.slug)
    file, row = compiled.home
    if compiled.started and file and row and not FRAMEWORK.search(file):
        line = _at(lines, file, row)
        line.seconds += compiled.seconds
        if compiled.title not in line.starts:
            line.starts.append(compiled.title)


def _file(name: str, file: str, rows: dict[int, Line]) -> dict[str, Any]:
    states = Counter(line.state for line in rows.values())
    return {
        "name": name,
        "file": file,
        "seconds": sum(line.seconds for line in rows.values()),
        "graph": sum(bool(line.nodes) for line in rows.values()),
        "breaks": sum(
            one.count for line in rows.values() for one in line.findings if one.kind.mark == "break"
        ),
        "recompiles": sum(
            one.count for line in rows.values() for one in line.findings if one.code == "TC201"
        ),
        "eager": states["skipped"],
        "traced": states["traced"],
        "never": states["never"],
        "coded": sum(line.coded for line in rows.values()),
        "lines": [
            [
                number,
                line.text,
                line.state,
                line.nodes,
                line.kernels,
                line.seconds,
                line.compiles[-_MOST_COMPILES:],
                [[one.id, one.count] for one in line.findings],
                line.starts[:2],
                [[one, round(seconds, 6)] for one, seconds in line.shares.items()],
            ]
            for number, line in sorted(rows.items())
        ],
    }
