"""A comparison of two runs goes in; sentences for a terminal and JSON for machines come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tc.tlparse.compare import DIFFERS, IDENTICAL, Comparison, CompileDiff, FunctionDiff, StageDiff
from tc.tlparse.summary import SCHEMA, headline
from tc.trace.findings import Finding, duration
from tc.trace.findings.caches import readable
from tc.trace.words import count

_WIDTH: Final = 100
_MOST_SETTINGS: Final = 12
_MOST_ROWS: Final = 12
_MOST_FUNCTIONS: Final = 20
_MOST_KEYS: Final = 4
STAGES: Final = "by stage; comments, paths and addresses are left out of account"
#: printed where only what two compilers share is compared
ACROSS: Final = "compared across compilers: operations of captured graphs, and the lines of kernels"


def verdict(comparison: Comparison) -> str:
    """Return in one sentence what differs."""
    changed = sum(one.state != IDENTICAL for one in comparison.functions)
    parts = []
    if changed:
        verb = "differs" if changed == 1 else "differ"
        parts.append(f"{changed} of {count(len(comparison.functions), 'function')} {verb}")
    else:
        what = (
            "captured graphs and the lines of kernels"
            if comparison.across
            else "graphs and kernels"
        )
        parts.append(f"all {what} are identical")
    if comparison.new or comparison.gone:
        parts.append(f"{count(len(comparison.new), 'new finding')}, {len(comparison.gone)} gone")
    if comparison.settings:
        verb = "differs" if len(comparison.settings) == 1 else "differ"
        parts.append(f"{count(len(comparison.settings), 'setting')} {verb}")
    before, after = seconds(comparison)
    parts.append(f"compiling took {duration(before)} → {duration(after)}")
    return "; ".join(parts)


def unpaired(comparison: Comparison) -> str:
    """Return how many settings only one run's compiler has."""
    has = "has" if comparison.unpaired == 1 else "have"
    settings = count(comparison.unpaired, "setting")
    return f"{settings} of one compiler alone {has} nothing to compare with"


def seconds(comparison: Comparison) -> tuple[float, float]:
    """Seconds of compiling, in A and in B."""
    return sum(row[1] for row in comparison.phases), sum(row[2] for row in comparison.phases)


def sentence(one: CompileDiff) -> str:
    """`captured graph, ATen graph identical; kernels differ at line 41`."""
    if one.a is None or one.b is None:
        return f"compiled {one.state}"
    states = [stage.state for stage in one.stages]
    if not states:
        return "nothing was recorded to compare"
    if len(states) > 2 and set(states) == {IDENTICAL}:
        return f"all {len(states)} stages identical, from captured graph to kernels"
    if len(states) > 2 and set(states) == {DIFFERS}:
        return f"{one.stages[0]}, and so does every later stage"
    same = [stage.stage for stage in one.stages if stage.state == IDENTICAL]
    parts = [f"{', '.join(same)} identical"] if same else []
    parts += [str(stage) for stage in one.stages if stage.state != IDENTICAL]
    return "; ".join(parts)


def first_difference(one: CompileDiff) -> StageDiff | None:
    """The earliest stage that differs: the later ones follow from it."""
    return next((stage for stage in one.stages if stage.state == DIFFERS), None)


def bracket(one: CompileDiff) -> str:
    """`[0/1]`, or `[0/1 → 0/2]` where the runs number it differently."""
    a, b = one.a.slug if one.a else "", one.b.slug if one.b else ""
    return f"[{a or b}]" if not a or not b or a == b else f"[{a} → {b}]"


def keys_sentence(one: CompileDiff) -> list[str]:
    """For each cache miss of B with a graph that A had: the parts of its key that differ."""
    rows: dict[str, None] = {}
    for miss in one.misses:
        if not miss.same_graph:
            continue
        names = [readable(change) for change in miss.changes[:_MOST_KEYS]]
        rest = miss.differing - len(names)
        what = ", ".join(names) + (f" and {rest} more" if rest > 0 else "")
        reason = f": {what}" if what else ", so A's entry could have served"
        rows[f"{miss.entry.cache} cache missed in B: {miss} from A{reason}"] = None
    return list(rows)


def text(comparison: Comparison, a: str, b: str) -> str:
    """Return the comparison as a person reads it."""
    lines = [verdict(comparison), "", f"A  {a}", f"   {headline(comparison.a)}"]
    lines += [f"B  {b}", f"   {headline(comparison.b)}"]
    if comparison.settings or comparison.unpaired:
        lines += ["", "versions, environment, configuration"]
        lines += [f"   {name}  {old or 'absent'} → {new or 'absent'}"
                  for name, old, new in comparison.settings[:_MOST_SETTINGS]]  # fmt: skip
        lines += _rest(len(comparison.settings) - _MOST_SETTINGS)
        lines += [f"   {unpaired(comparison)}"] if comparison.unpaired else []
    lines += ["", "functions" + (f"   {ACROSS}" if comparison.across else "")]
    order = sorted(comparison.functions, key=lambda one: one.state == IDENTICAL)
    for one in order[:_MOST_FUNCTIONS]:
        lines += _function(one)
    lines += _rest(len(order) - _MOST_FUNCTIONS)
    lines += _findings(comparison)
    before, after = seconds(comparison)
    lines += ["", f"time   {duration(before)} → {duration(after)}"]
    lines += [f"   {name:<13} {duration(x):>8} → {duration(y)}" for name, x, y in comparison.phases]
    return "\n".join(line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…" for line in lines)


def _rest(number: int) -> list[str]:
    return [f"   … and {number} more"] if number > 0 else []


def _function(one: FunctionDiff) -> list[str]:
    if one.state == IDENTICAL:
        slugs = " ".join(bracket(compiled) for compiled in one.compiles[:6])
        keys = {row: None for compiled in one.compiles for row in keys_sentence(compiled)}
        head = f" = {one.name} {slugs}: {sentence(one.compiles[0])}"
        return [head, *(f"     {row}" for row in keys)]
    lines = []
    for compiled in one.compiles:
        mark = "=" if compiled.state == IDENTICAL else "≠"
        lines += _wrapped(f" {mark} {one.name} {bracket(compiled)}: ", sentence(compiled))
        if mark == "=":
            continue
        lines += [f"     {row}" for row in keys_sentence(compiled)]
        stage = first_difference(compiled)
        if stage is not None:
            rows = stage.hunks[0].rows
            lines += [f"     {row}" for row in _around(rows)]
            more = len(rows) - _MOST_ROWS
            hunks = len(stage.hunks) - 1
            words = [count(more, "more line")] if more > 0 else []
            words += [f"{count(hunks, 'more place')} in the {stage.stage}"] if hunks else []
            lines += [f"     … {', '.join(words)}"] if words else []
    return lines


def _around(rows: Sequence[str]) -> list[str]:
    """The rows to show: those about the first change."""
    first = next((n for n, row in enumerate(rows) if not row.startswith("  ")), 0)
    start = max(first - 1, 0)
    return list(rows[start : start + _MOST_ROWS])


def _wrapped(head: str, words: str) -> list[str]:
    lines, line = [], head
    for part in words.split("; "):
        if line != head and len(line) + len(part) > _WIDTH - 2:
            lines.append(line.rstrip())
            line = " " * 5
        line += part + "; "
    return [*lines, line.rstrip("; ")]


def _findings(comparison: Comparison) -> list[str]:
    if not (comparison.new or comparison.gone or comparison.changed):
        return (
            ["", f"findings   the same {len(comparison.b.findings)} in both"]
            if comparison.b.findings
            else []
        )
    lines = ["", "findings"]
    lines += [f" + {_finding(one)}" for one in comparison.new]
    lines += [f" - {_finding(one)}" for one in comparison.gone]
    lines += [f"   {_finding(old)} → ×{new.count}" for old, new in comparison.changed]
    return lines


def _finding(one: Finding) -> str:
    place = f"  {one.where.short}" if one.where.file else ""
    return f"{one.id} ×{one.count}  {one.title}{place}"


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as plain values."""
    before, after = seconds(comparison)
    return {
        "schema": SCHEMA,
        "tool": "tc-report",
        "differs": comparison.differs,
        "verdict": verdict(comparison),
        "unpaired_settings": comparison.unpaired,
        "settings": [{"name": n, "a": a, "b": b} for n, a, b in comparison.settings],
        "functions": [
            {
                "name": one.name,
                "state": one.state,
                "seconds": [round(value, 6) for value in one.seconds],
                "compiles": [_compile_json(compiled) for compiled in one.compiles],
            }
            for one in comparison.functions
        ],
        "new": [one.to_json() for one in comparison.new],
        "gone": [one.to_json() for one in comparison.gone],
        "changed": [{"id": x.id, "a": x.count, "b": y.count} for x, y in comparison.changed],
        "seconds": [round(before, 6), round(after, 6)],
        "phases": [
            {"name": n, "a": round(a, 6), "b": round(b, 6)} for n, a, b in comparison.phases
        ],
    }


def _compile_json(one: CompileDiff) -> dict[str, Any]:
    return {
        "a": one.a.slug if one.a else None,
        "b": one.b.slug if one.b else None,
        "state": one.state,
        "sentence": sentence(one),
        "stages": [
            {
                "stage": stage.stage,
                "state": stage.state,
                "line": stage.line,
                "hunks": [list(hunk.rows) for hunk in stage.hunks],
            }
            for stage in one.stages
        ],
        "cache": [
            {
                "cache": miss.entry.cache,
                "differing": miss.differing,
                "parts": miss.parts,
                "changes": [{"name": c.name, "a": c.old, "b": c.new} for c in miss.changes],
            }
            for miss in one.misses
        ],
    }
