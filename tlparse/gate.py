"""A diagnosis and what is allowed go in; a verdict for CI comes out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tc.tlparse.cli import GATE_FAILED, say, write
from tc.tlparse.usage import Usage
from tc.tlparse.verbs import codes
from tc.trace.commands import quoted
from tc.trace.delivery import OK, complain
from tc.trace.findings import Diagnosis, Finding, is_timed
from tc.trace.findings.codes import OF_THE_TRACE
from tc.trace.findings.matching import Matched, Row, match
from tc.trace.fixes import NO_FIX
from tc.trace.words import count

_SCHEMA: Final = 1
_NOTHING: Final = "TC910"  # a log without any compile: whatever is counted in it is 0
#: a code, an id, or what one of these begins with
_NAME: Final = re.compile(
    r"TC(?:\d{1,3}|\d{3}-(?:[0-9a-f]{0,4}|[0-9a-f]{4}\.[0-9a-f.]*))", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may hold; None allows any number."""

    graph_breaks: int | None = None
    recompiles: int | None = None
    failures: int | None = None


@dataclass(frozen=True, slots=True)
class Baseline:
    """The findings that are known and accepted: id -> its description."""

    path: str
    known: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, path: str, option: str = "--write-baseline") -> Baseline:
        """Read a baseline, or the output of `summary --json`.

        Args:
            option: what writes one.

        Raises:
            Usage: there is no such file, or it is something else.
        """
        try:
            data = json.loads(Path(path).read_text("utf-8"))
            rows = {str(row["id"]): row for row in data["findings"]}
            return cls(path, {name: row for name, row in rows.items() if not is_timed(name)})
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            writes = f"; {option} {quoted(path)} writes one"
            raise Usage(
                f"cannot read {path}: {why}{writes * isinstance(error, FileNotFoundError)}"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise Usage(f"{path} is no baseline; {option} writes one") from error

    def match(self, found: Sequence[Finding]) -> Matched:
        """Pair what is known with what is found now."""
        return match([Row.read(row) for row in self.known.values()], [Row.of(one) for one in found])


def refuse_unknown(names: Sequence[str]) -> None:
    """Refuse what no finding can be called: it would be absent from every trace.

    Raises:
        Usage: one of them is neither a code nor an id, nor the start of one.
    """
    known = codes()
    for name in names:
        if not _NAME.fullmatch(name):
            raise Usage(f"--absent takes a code (TC104) or an id (TC104-7f3a), not {name!r}")
        code = name.partition("-")[0]
        if not any(one.startswith(code) for one in known):
            raise Usage(f"--absent {name}: there is no code {code}; tc-report explain lists them")


def causes(diagnosis: Diagnosis) -> list[Finding]:
    """Return the findings about the program: not damage of its trace, nor how long things took."""
    return [
        one for one in diagnosis.findings if one.kind.order not in OF_THE_TRACE and not one.timed
    ]


def write_baseline(diagnosis: Diagnosis, path: str) -> None:
    """Write what is found now as the findings that are accepted; a line each, sorted by id."""
    found = sorted(causes(diagnosis), key=lambda one: one.id)
    write_rows([Row.of(one).to_json() for one in found], path)


def write_rows(rows: Sequence[dict[str, Any]], path: str, option: str = "--write-baseline") -> None:
    """Write findings as a baseline."""
    lines = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in rows)
    text = f'{{"schema": {_SCHEMA}, "tool": "tc-report", "findings": [\n{lines}\n]}}\n'
    write(Path(path), [text.encode("utf-8", "replace")], option)


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What was counted and compared, and what of it fails.

    Attributes:
        rows: what is counted, how often it happened, and how often it may; None: any number.
        new: findings that the baseline does not know.
        present: findings that should be gone.
        codes: the codes of the findings that each row counts.
        empty: why there was nothing to count; empty if there was.
    """

    rows: tuple[tuple[str, int, int | None], ...]
    codes: Mapping[str, Set[str]]
    found: Sequence[Finding]
    matched: Matched | None
    new: Sequence[Finding]
    present: Sequence[Finding]
    empty: str = ""

    @property
    def over(self) -> list[tuple[str, int, int | None]]:
        """The counts above what is allowed."""
        return [row for row in self.rows if row[2] is not None and row[1] > row[2]]

    def behind(self, name: str) -> list[Finding]:
        """Return the findings that make up a count which is above what is allowed."""
        over = any(row[0] == name for row in self.over)
        return [one for one in self.found if over and one.code in self.codes[name]]

    @property
    def ok(self) -> bool:
        """Whether the run may pass."""
        return not (self.over or self.new or self.present or self.empty)


def check(
    diagnosis: Diagnosis,
    limits: Limits,
    baseline: Baseline | None,
    absent: Sequence[str] = (),
    *,
    form: str = "text",
) -> int:
    """Print the verdict and return the exit code.

    Args:
        absent: codes and ids of findings that should be gone, or what these begin with.
        form: text, json or junit.
    """
    found = causes(diagnosis)
    matched = baseline.match(found) if baseline else None
    fresh = {one.id for one in matched.new} if matched else set()
    still = list({one.id: one for name in absent for one in diagnosis.matching(name)}.values())
    verdict = _Verdict(
        (
            ("graph breaks", len(diagnosis.breaks), limits.graph_breaks),
            ("recompiles", diagnosis.recompile_count, limits.recompiles),
            ("failed compiles", len(diagnosis.failures), limits.failures),
        ),
        {
            "graph breaks": {event.code for event in diagnosis.breaks},
            "recompiles": {"TC201"},
            "failed compiles": {event.code for event in diagnosis.failures},
        },
        found,
        matched,
        [one for one in found if one.id in fresh],
        still,
        next((one.title for one in diagnosis.findings if one.code == _NOTHING), ""),
    )
    if form == "json":
        print(json.dumps(_as_json(verdict, absent), indent=1))
    elif form == "junit":
        from tc.tlparse.junit import junit

        unwanted = {one.id: one for one in (*verdict.new, *verdict.present)}
        asked = baseline is not None or bool(absent)
        behind = {name: verdict.behind(name) for name, _, _ in verdict.rows}
        print(junit(verdict.rows, behind, list(unwanted.values()), asked, verdict.empty))
    else:
        say("\n".join(_as_text(verdict, absent)))
    if verdict.empty:
        complain(f"tc-report: check failed: {verdict.empty}")
    for name, number, most in verdict.over:
        complain(
            f"tc-report: check failed: {count(number, name.removesuffix('s'))}, allowed {most}"
        )
    for word, ones in (("new", verdict.new), ("still there", still)):
        if ones:
            ids = " ".join(one.id for one in ones[:5]) + (" …" if len(ones) > 5 else "")
            complain(f"tc-report: check failed: {len(ones)} {word}: {ids}")
    return OK if verdict.ok else GATE_FAILED


def _as_json(verdict: _Verdict, absent: Sequence[str]) -> dict[str, Any]:
    result: dict[str, Any] = {
        name.replace(" ", "_"): {"count": n, "max": most} for name, n, most in verdict.rows
    }
    if verdict.matched is not None:
        matched = verdict.matched
        result["new_findings"] = [one.to_json() for one in verdict.new]
        result["gone_findings"] = sorted(one.id for one in matched.gone)
        result["moved_findings"] = [
            {"id": b.id, "was": a.id, "line": [a.line, b.line]} for a, b in matched.moved
        ]
    if absent:
        result["present_findings"] = [one.to_json() for one in verdict.present]
    if verdict.empty:
        result["nothing_to_check"] = verdict.empty
    return {"schema": _SCHEMA, "ok": verdict.ok, **result}


def _as_text(verdict: _Verdict, absent: Sequence[str]) -> list[str]:
    lines = [f"FAILED {verdict.empty}"] if verdict.empty else []
    for name, number, most in verdict.rows:
        if most is not None:
            word = "ok" if number <= most else "FAILED"
            lines.append(f"{word:<7}{name}: {number} (allowed: {most})")
            lines += _named(verdict.behind(name))
    if verdict.matched is not None:
        lines += _against(verdict.matched, verdict.found, verdict.new)
    if absent:
        word = "FAILED" if verdict.present else "ok"
        number = len(verdict.present)
        are = "is" if number == 1 else "are"
        lines.append(f"{word:<7}findings that should be gone: {number} {are} there")
        lines += [f"       {one.id} ×{one.count}  {one.title}" for one in verdict.present]
    return lines


def _named(found: Sequence[Finding]) -> list[str]:
    """Return two lines for each finding: what and where, and what to do."""
    lines = []
    for one in found:
        where = f"  {one.where.short}" if one.where.file else ""
        lines.append(f"       {one.id} ×{one.count}  {one.title}{where}")
        lines += [f"          {one.failure}"] if one.failure else []
        lines.append(f"          fix: {one.fix[0] if one.fix else NO_FIX}")
    return lines


def _against(matched: Matched, found: Sequence[Finding], new: Sequence[Finding]) -> list[str]:
    """Compare with the baseline: a line for each finding that is new, moved, gone or more often."""
    word = "FAILED" if new else "ok"
    lines = [f"{word:<7}new findings: {len(new)} (known: {len(found) - len(new)})"]
    lines += _named(new)
    for before, now in matched.same:
        if now.count > before.count:
            lines.append(
                f"       {now.id} occurs {now.count} times, {before.count} in the baseline"
            )
    for before, now in matched.moved:
        places = f"from line {before.line} to line {now.line}"
        if before.file and now.file and before.file != now.file:
            places = (
                f"{before.id} before, from {before.file}:{before.line} to {now.file}:{now.line}"
            )
        lines.append(f"       moved: {now.id}, {places}")
    if matched.gone:
        names = " ".join(sorted(one.id for one in matched.gone))
        lines.append(f"       gone: {names}; --write-baseline takes them out")
    return lines
