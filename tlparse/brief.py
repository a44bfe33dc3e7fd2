"""A diagnosis goes in; a brief comes out: short, complete, to be acted on without the trace.

It is for language-model agents and for anybody who pastes it into a request: each finding with its
evidence, the edit that is known, and the command that shows whether the edit helped.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Final

from tc.tlparse.summary import headline
from tc.trace.commands import command
from tc.trace.findings import Diagnosis, Finding
from tc.trace.fixes import NO_FIX
from tc.trace.ids import plain_function
from tc.trace.words import count

_MOST: Final = 20
_CAUSES: Final = 5
_EVIDENCE: Final = 600
_STACK: Final = 4


def brief(diagnosis: Diagnosis, trace: str) -> str:
    """Return the brief as Markdown.

    Args:
        trace: where the trace is, as the user named it.
    """
    found = diagnosis.findings
    lines = [
        f"# tc-report brief of {trace}",
        headline(diagnosis),
        f"{count(len(diagnosis.breaks), 'graph break')}, "
        f"{count(diagnosis.recompile_count, 'recompile')}, "
        f"{count(len(diagnosis.failures), 'failed compile')}, {count(len(found), 'finding')}",
    ]
    for one in found[:_MOST]:
        lines += ["", *_finding(one)]
    if len(found) > _MOST:
        lines += [
            "",
            f"{len(found) - _MOST} more: {command('tc-report', 'summary', trace, '--json')}",
        ]
    if found:
        gone = [word for one in found[:_MOST] if not one.timed for word in ("--absent", one.id)]
        lines += [
            "",
            "## Verify",
            "After an edit, run the program again and ask for what should be gone (exit code 0):",
            "    tc-report run --trace tc_after -- COMMAND",
            f"    {command('tc-report', 'check', 'tc_after', *gone)}",
        ]
    else:
        lines += ["", "Nothing needs attention."]
    return "\n".join(lines)


def _finding(finding: Finding) -> Iterator[str]:
    yield f"## {finding.id}: {finding.title} (×{finding.count})"
    where = finding.where
    if where.file:
        yield f"at {where.file}:{where.line}" + (f" in {where.function}" if where.function else "")
    if where.source:
        yield f"    {where.source.strip()}"
    for frame in finding.stack[-_STACK:]:
        if (frame.file, frame.line) != (where.file, where.line) and frame.file:
            yield f"called through {frame.file}:{frame.line} in {plain_function(frame.function)}"
    yield f"why: {finding.why}"
    for cause in finding.causes[:_CAUSES]:
        yield f"changed: {cause}"
    if finding.cost:
        yield f"cost: {finding.cost}"
    for label, way in zip(("fix", *["or"] * len(finding.fixes)), finding.fixes, strict=False):
        yield f"{label} ({way.mark}): {way.text}"
        yield from textwrap.indent(way.patch, "    ").splitlines()
    if not finding.fixes:
        yield f"fix: {NO_FIX}"
    if finding.evidence:
        evidence = finding.evidence.strip()
        yield "evidence:"
        yield from textwrap.indent(evidence[:_EVIDENCE], "    ").splitlines()
        if len(evidence) > _EVIDENCE:
            yield f"    … {len(evidence) - _EVIDENCE} more characters: {finding.next}"
