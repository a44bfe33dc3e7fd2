"""A session goes in; what a draft export of PyTorch could not do soundly comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tc.trace.compiles import FRAMEWORK, Compile, Note
from tc.trace.findings.codes import Code
from tc.trace.findings.hints import library_name
from tc.trace.findings.model import Event, Where
from tc.trace.findings.rows import Facts, finding
from tc.trace.guardtext import readable
from tc.trace.session import all_compiles
from tc.trace.unframed import SPECIALIZED, frames_in

Words = tuple[str, str, str, tuple[str, ...]]  # code, title, why, fixes


@finding(
    Code(
        "TC801",
        "export: an operator has no fake kernel",
        "register one: `torch.library.register_fake`",
    ),
    Code(
        "TC802",
        "export: a fake kernel disagrees with the real one",
        "correct what it returns: shape, stride, dtype, device",
    ),
    Code(
        "TC803",
        "export: a value depends on tensor data, and one was taken for all",
        "`torch.where`, `torch.cond`, or `torch._check` if it always holds",
    ),
    Code(
        "TC804",
        "export: it holds only under a condition on sizes",
        "`torch.export.Dim.AUTO`, or take the test out of the function",
    ),
)
def exports(facts: Facts) -> list[Event]:
    """Return each issue of an export; PyTorch records them where TORCH_DTRACE is set."""
    return [
        _event(compiled, note)
        for compiled in all_compiles(facts.session)
        for note in compiled.noted(*_ISSUES)
    ]


def _missing(data: dict[str, Any]) -> Words:
    op = data.get("op")
    return (
        "TC801",
        f"{op} has no fake kernel",
        "export must know the shape of its result without running it; it was run on real data "
        "instead, and its result taken for all inputs",
        (f"register one: @torch.library.register_fake({library_name(str(op))!r})",),
    )


def _mismatched(data: dict[str, Any]) -> Words:
    op = data.get("op")
    return (
        "TC802",
        f"the fake kernel of {op} disagrees with the real one",
        str(data.get("reason") or ""),
        ("correct what its register_fake function returns: shape, stride, dtype, device",),
    )


def _guessed(data: dict[str, Any]) -> Words:
    expr, result = data.get("expr"), data.get("result")
    return (
        "TC803",
        f"{expr} depends on tensor data",
        f"its value is known only at run time; export took {result} for all inputs",
        (
            "compute both sides: torch.where(condition, a, b), or torch.cond",
            f"if it always holds: torch._check({expr}), written with your variables",
        ),
    )


def _guarded(data: dict[str, Any]) -> Words:
    sources = data.get("symbol_to_sources")
    named = ", ".join(f"{k} = {v}" for k, v in sources.items()) if isinstance(sources, dict) else ""
    return (
        "TC804",
        f"export holds only where {data.get('expr')}",
        f"a condition on sizes was added while tracing{f': {named}' if named else ''}",
        (
            "let export find out what is dynamic: torch.export.Dim.AUTO",
            "take the test on sizes out of the exported function",
        ),
    )


def _specialized(data: dict[str, Any]) -> Words:
    sources = data.get("sources")
    named = str(sources[0]) if isinstance(sources, list) and sources else str(data.get("symbol"))
    size, value = readable(named), data.get("value")
    return (
        "TC804",
        f"export holds only where {size} == {value}",
        f"{size} was to be dynamic, and the program needs one value of it: export fails where it "
        "is a Dim of a name or Dim.DYNAMIC, and exports for this value alone where it is Dim.AUTO",
        (
            f"take what needs {size} == {value} out of the exported function",
            "say that it is constant: torch.export.Dim.STATIC",
        ),
    )


_ISSUES: Final[dict[str, Callable[[dict[str, Any]], Words]]] = {
    "missing_fake_kernel": _missing,
    "mismatched_fake_kernel": _mismatched,
    "propagate_real_tensors_provenance": _guessed,
    "guard_added": _guarded,
    SPECIALIZED: _specialized,
}


def _event(compiled: Compile, note: Note) -> Event:
    code, title, why, fix = _ISSUES[note.name](note.data)
    stack = _stack(note.data)
    mine = [one for one in stack if not FRAMEWORK.search(one.file)]
    return Event(
        code=code,
        title=title,
        why=why,
        fix=fix,
        where=mine[-1] if mine else Where(*compiled.home, function=compiled.function),
        reason=title,
        compiled=compiled,
        place=note.place,
        time=note.time,
        artifact=note.artifact,
        stack=tuple(stack if note.data.get("user_stack") else mine),
    )


def _stack(data: dict[str, Any]) -> list[Where]:
    rows = frames_in(data)
    return [
        Where(
            file=str(row.get("filename") or ""),
            line=row["line"] if isinstance(row.get("line"), int) else 0,
            function=str(row.get("name") or ""),
            source=str(row.get("loc") or ""),
        )
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, dict)
    ]
