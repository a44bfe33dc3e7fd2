"""A diagnosis and what is allowed go in; a verdict for CI comes out."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tc.tlparse.cli import GATE_FAILED, OK, say, write
from tc.tlparse.usage import Usage
from tc.trace.findings import Diagnosis, Finding
from tc.trace.findings.model import is_timed

_SCHEMA: Final = 1
_TRACE_ITSELF: Final = "TC90"  # damage of the trace; TC900, a failed compile, is none
_FAILED_COMPILE: Final = "TC900"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may hold; None allows any number."""

    graph_breaks: int | None = None
    recompiles: int | None = None
    failures: int | None = None


@dataclass(frozen=True, slots=True)
class Baseline:
    """The findings that are known and let pass: id -> what was said of it."""

    path: str
    known: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, path: str) -> Baseline:
        """Read a baseline, or the output of `summary --json`.

        Raises:
            Usage: there is no such file, or it is something else.
        """
        try:
            data = json.loads(Path(path).read_text("utf-8"))
            rows = {str(row["id"]): row for row in data["findings"]}
            return cls(path, {name: row for name, row in rows.items() if not is_timed(name)})
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise Usage(f"cannot read {path}: {why}; --write-baseline {path} writes one") from error
        except (ValueError, KeyError, TypeError) as error:
            raise Usage(f"{path} is no baseline; --write-baseline writes one") from error


def causes(diagnosis: Diagnosis) -> list[Finding]:
    """Return the findings about the program: not damage of its trace, nor how long things took."""
    return [
        one
        for one in diagnosis.findings
        if (one.code == _FAILED_COMPILE or not one.code.startswith(_TRACE_ITSELF)) and not one.timed
    ]


def write_baseline(diagnosis: Diagnosis, path: str) -> None:
    """Write what is found now as the findings that are let pass; a line each, sorted by id."""
    rows = [
        {
            "id": one.id,
            "title": one.title,
            "where": one.where.short if one.where.file else "",
            "count": one.count,
        }
        for one in sorted(causes(diagnosis), key=lambda one: one.id)
    ]
    lines = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in rows)
    text = f'{{"schema": {_SCHEMA}, "tool": "tc-report", "findings": [\n{lines}\n]}}\n'
    write(Path(path), [text.encode("utf-8", "replace")])


def check(diagnosis: Diagnosis, limits: Limits, baseline: Baseline | None, *, as_json: bool) -> int:
    """Print the verdict and return the exit code."""
    rows = (
        ("graph breaks", len(diagnosis.breaks), limits.graph_breaks),
        ("recompiles", diagnosis.recompile_count, limits.recompiles),
        ("failed compiles", len(diagnosis.failures), limits.failures),
    )
    failed = [row for row in rows if row[2] is not None and row[1] > row[2]]
    found = causes(diagnosis)
    new = [one for one in found if baseline and one.id not in baseline.known]
    if as_json:
        told: dict[str, Any] = {
            name.replace(" ", "_"): {"count": n, "max": most} for name, n, most in rows
        }
        if baseline:
            told["new_findings"] = [one.to_json() for one in new]
            told["gone_findings"] = _gone(baseline, found)
        print(json.dumps({"schema": _SCHEMA, "ok": not (failed or new), **told}, indent=1))
    else:
        for name, number, most in rows:
            if most is not None:
                word = "ok" if number <= most else "FAILED"
                print(f"{word:<7}{name}: {number} (allowed: {most})")
        if baseline:
            say("\n".join(_against(baseline, found, new)))
    for name, number, most in failed:
        print(f"tc-report: check failed: {number} {name}, allowed {most}", file=sys.stderr)
    if new:
        ids = " ".join(one.id for one in new[:5]) + (" …" if len(new) > 5 else "")
        sys.stderr.write(f"tc-report: check failed: {len(new)} new: {ids}\n")
    return GATE_FAILED if failed or new else OK


def _gone(baseline: Baseline, found: Sequence[Finding]) -> list[str]:
    return sorted(baseline.known.keys() - {one.id for one in found})


def _against(baseline: Baseline, found: Sequence[Finding], new: Sequence[Finding]) -> list[str]:
    """Compare with the baseline, a line a finding that is new, gone or met more often."""
    word = "FAILED" if new else "ok"
    lines = [f"{word:<7}new findings: {len(new)} (known: {len(found) - len(new)})"]
    for one in new:
        where = f"  {one.where.short}" if one.where.file else ""
        lines.append(f"       {one.id} ×{one.count}  {one.title}{where}")
        lines.append(f"          fix: {one.fix[0] if one.fix else 'no known fix'}")
    for one in found:
        before = baseline.known.get(one.id, {}).get("count")
        if isinstance(before, int) and one.count > before:
            lines.append(f"       {one.id} is met {one.count} times, {before} in the baseline")
    gone = _gone(baseline, found)
    if gone:
        lines.append(f"       gone: {' '.join(gone)}; --write-baseline takes them out")
    return lines
