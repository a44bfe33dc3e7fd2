"""A diagnosis goes in; what the first screen says, as text for a pipe or a file, comes out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tc.trace.findings import Finding, duration
from tc.tui.facts import Model, count, version_of

NOTHING: Final = "nothing needs attention"


def printed(model: Model, goto: str = "") -> str:
    """Return the findings of a trace; of one compile, one function or one finding, if named."""
    return "\n".join((*_head(model), *_body(model, goto))) + "\n"


def _head(model: Model) -> Iterator[str]:
    assert model.diagnosis is not None
    yield " · ".join((
        version_of(model.diagnosis),
        f"{count(model.compiles, 'compile')} of {count(model.functions, 'function')}",
        f"{duration(model.seconds)} compiling",
    ))  # fmt: skip


def _body(model: Model, goto: str) -> Iterator[str]:
    found = model.findings if not goto else named(model, goto)
    if found is None:
        yield absent(goto)
        return
    if not found:
        yield NOTHING
    for one in found:
        yield ""
        yield str(one)


def meant(name: str) -> str:
    """`fn step` -> `step`, `c 0/2` -> `0/2`: names as the command palette lists them."""
    kind, _, rest = name.strip().partition(" ")
    return rest.strip() if kind in ("fn", "c") and rest.strip() else name


def named(model: Model, name: str) -> list[Finding] | None:
    """Return the findings of a name; None if it is the name of nothing in the trace."""
    name = meant(name)
    one = model.diagnosis.finding(name) if model.diagnosis else None
    if one is not None:
        return [one]
    slug = name.strip("[]")
    if slug in model.by_slug:
        slugs = {slug}
    else:
        functions = [each for each in model.functions if each.title == name]
        if not functions:
            return None
        slugs = {compiled.slug for each in functions
                 for compiled in (*each.compiles, *each.refused)}  # fmt: skip
    return [each for each in model.findings
            if any(seen.compile in slugs for seen in each.occurrences)]  # fmt: skip


def absent(name: str) -> str:
    """Return the sentence on a name that is not in the trace."""
    return f"no finding, compile or function {name} in this trace"
