"""A diagnosis goes in; a log in the Static Analysis Results Interchange Format comes out.

SARIF 2.1.0 (OASIS, 2020) is what code hosts take to annotate the lines of a pull request, and what
editors show beside the source. Each finding is one result, each code one rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final

from tc import __version__
from tc.tlparse.verbs import codes
from tc.trace.findings import Diagnosis, Finding
from tc.trace.findings.codes import OF_THE_TRACE, TIMED, Order
from tc.trace.findings.model import Where
from tc.trace.fixes import NO_FIX
from tc.trace.places import of_windows

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT: Final = "SRCROOT"
FINGERPRINT: Final = "tcFinding/v1"
_ERRORS: Final = (Order.WRONG, Order.FAILURES)
_NOTES: Final = (*TIMED, *OF_THE_TRACE)


def sarif(diagnosis: Diagnosis, root: Path | None = None) -> dict[str, Any]:
    """Return the log as plain values.

    Args:
        root: what paths are relative to, as code hosts want them; the current folder if None.
    """
    at = (root or Path.cwd()).resolve()
    found = diagnosis.findings
    used = sorted({one.code for one in found})
    run = {
        "tool": {
            "driver": {
                "name": "tc-report",
                "version": __version__,
                "rules": [_rule(code) for code in used],
            }
        },
        "originalUriBaseIds": {ROOT: {"uri": (at / "_").as_uri().removesuffix("_")}},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True}],
        "results": [_result(one, used, at) for one in found],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: str) -> dict[str, Any]:
    known = codes().get(code, {})
    title = str(known.get("title") or code)
    text = str(known.get("text") or known.get("why") or title)
    fixes = "\n".join(f"- {fix}" for fix in known.get("fix", ()))
    return {
        "id": code,
        "shortDescription": {"text": title},
        "fullDescription": {"text": text},
        "help": {"text": fixes or NO_FIX},
    }


def _level(finding: Finding) -> str:
    order = finding.kind.order
    return "error" if order in _ERRORS else "note" if order in _NOTES else "warning"


def _result(finding: Finding, rules: Sequence[str], root: Path) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rules.index(finding.code),
        "level": _level(finding),
        "message": {"text": _message(finding)},
        "locations": [_location(finding.where, root)] if finding.where.file else [],
        "occurrenceCount": finding.count,
        "partialFingerprints": {FINGERPRINT: finding.id},
        "properties": {"id": finding.id, "seconds": round(finding.seconds, 6)},
    }
    if finding.stack:
        frames = [{"location": _location(one, root)} for one in reversed(finding.stack) if one.file]
        result["stacks"] = [{"message": {"text": "the calls that led there"}, "frames": frames}]
    return result


def _message(finding: Finding) -> str:
    """What it is, why, and what to do: one text, as annotations show nothing else."""
    lines = [f"{finding.id}: {finding.title} (×{finding.count})", finding.why]
    lines += [str(cause) for cause in finding.causes]
    lines += [f"fix: {way.text} ({way.mark})" for way in finding.fixes] or [f"fix: {NO_FIX}"]
    lines += [f"cost: {finding.cost}"] if finding.cost else []
    return "\n".join(line for line in lines if line)


def _location(where: Where, root: Path) -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": max(where.line, 1)}
    if where.col is not None:
        region["startColumn"] = where.col + 1
        if where.end_col is not None and where.end_col > where.col:
            region["endColumn"] = where.end_col + 1
    if where.source:
        region["snippet"] = {"text": where.source}
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": _artifact(where.file, root), "region": region}
    }
    if where.function:
        location["logicalLocations"] = [{"fullyQualifiedName": where.function, "kind": "function"}]
    return location


def _artifact(file: str, root: Path) -> dict[str, Any]:
    """Return a file's path relative to the root if it is below it, else as an absolute URI."""
    path = PureWindowsPath(file) if of_windows(file) else PurePosixPath(file)
    if not path.is_absolute():
        from urllib.parse import quote

        return {"uri": quote(path.as_posix())}
    if path.is_relative_to(root):
        relative = path.relative_to(root).as_posix()
        return {
            "uri": PurePosixPath("/", relative).as_uri().removeprefix("file:///"),
            "uriBaseId": ROOT,
        }
    return {"uri": path.as_uri()}
