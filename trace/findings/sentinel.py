"""A session goes in; calls of compiled graphs that gave other results than eager come out."""

from __future__ import annotations

from typing import Any

from tc.trace.commands import command
from tc.trace.compiles import Compile, Note
from tc.trace.findings.codes import Code, Order
from tc.trace.findings.model import Event, Where
from tc.trace.findings.rows import Facts, finding
from tc.trace.parsed import line_number
from tc.trace.session import all_compiles


@finding(
    Code(
        "TC501",
        "a compiled graph gave other results or gradients than eager ([sentinel.md](sentinel.md))",
        "the verdict of `tc-bisect` names step, line and the setting that helps; "
        '`tc.config.sentinel_action = "eager"` meanwhile',
        "error",
    ),
    Code(
        "TC502",
        "a compiled graph was called with what it was not compiled for: a guard let it pass",
        "report it with the repro that is named",
        "error",
    ),
    order=Order.WRONG,
)
def differences(facts: Facts) -> list[Event]:
    """Return each difference that the sentinel found, with the step that `tc-bisect` blames."""
    found = []
    for compiled in all_compiles(facts.session):
        verdicts = {
            str(note.data.get("repro")): note.data for note in compiled.noted("tc_sentinel_verdict")
        }
        for note in compiled.noted("tc_sentinel"):
            verdict = verdicts.get(str(note.data.get("repro")), {})
            found.append(_event(compiled, note, verdict))
    return found


def _event(compiled: Compile, note: Note, verdict: dict[str, Any]) -> Event:
    data = note.data
    kind, function = str(data.get("kind") or "wrong"), str(data.get("function") or "")
    is_guard = kind == "guard"
    what = "is used where it must not be" if is_guard else "gives other results than eager"
    if data.get("gradients"):
        what = "gives other gradients than eager"
    lines = verdict.get("lines") or data.get("lines") or ()
    file, line = _place(str(lines[0])) if verdict.get("lines") and lines else ("", 0)
    return Event(
        code="TC502" if is_guard else "TC501",
        title=f"the compiled graph of {function} {what}",
        why=_why(data, verdict),
        fix=tuple(_fixes(data, verdict)),
        where=Where(
            file or str(data.get("file") or ""), line or line_number(data.get("line")),
            function=function,
        ),
        reason=f"{kind} {'gradients' if data.get('gradients') else ''}".strip(),
        compiled=compiled,
        place=note.place,
        time=note.time,
        artifact=note.artifact,
        detail=f"call {data.get('call')}",
        evidence=str(data.get("message") or ""),
    )  # fmt: skip


def _why(data: dict[str, Any], verdict: dict[str, Any]) -> str:
    text = f"call {data.get('call')}: {data.get('message')}"
    if data.get("repeats"):
        text += f"; {data['repeats']} more calls on the same inputs differ as well"
    if data.get("step"):
        text += f"; first wrong: {data['step']}"
    if verdict.get("title"):
        text += f"; tc-bisect: {verdict['title']}"
    return text


def _fixes(data: dict[str, Any], verdict: dict[str, Any]) -> list[str]:
    fixes = []
    if verdict.get("works_if"):
        fixes.append(f"until it is fixed, run with {verdict['works_if']} (tried: it is right)")
    if data.get("action") != "eager":
        fixes.append("run the graph by eager meanwhile: tc.config.sentinel_action = 'eager'")
    if data.get("command") and not verdict.get("title"):
        fixes.append(f"name the guilty step: {data['command']}")
    if data.get("repro"):
        again = command("tc-minify", "--issue", data["repro"])
        fixes.append(f"report it, with what this prints: {again}")
    return fixes


def _place(text: str) -> tuple[str, int]:
    file, _, line = text.rpartition(":")
    return file, int(line) if line.isdigit() else 0
