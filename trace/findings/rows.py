"""A finding is one decorated function: facts of a run go in, events or findings come out.

To add one, write the function in any file of this folder::

    @finding(Code("TC305", "what it means", "what to do"), order=Order.TIME)
    def cold(facts: Facts) -> list[Event]: ...

`diagnose` calls it, and all that reads codes knows its code. ``python tests/make_codes.py`` writes
the code into the documents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from tc.trace.cachekeys import Miss
from tc.trace.findings.codes import CODES, Code, Order
from tc.trace.findings.model import Event, Finding, Recompile
from tc.trace.ranks import Ranks
from tc.trace.session import Session


@dataclass(frozen=True, slots=True)
class Facts:
    """What findings are made of.

    Attributes:
        recompiles: each recompile with its causes, refusals included.
        misses: each cache miss, compared with the nearest earlier entry.
        ranks: which ranks did the same, and where the others first did otherwise.
    """

    session: Session
    recompiles: Sequence[Recompile]
    misses: Sequence[Miss]
    ranks: Ranks


Find = Callable[[Facts], Sequence[Event | Finding]]
F = TypeVar("F", bound=Find)


@dataclass(frozen=True, slots=True)
class Row:
    """A kind of finding: the function that finds it, its codes, and where it is listed."""

    find: Find
    codes: tuple[Code, ...]
    order: Order


FINDINGS: Final[dict[str, Row]] = {}
"""Name of the function -> row."""


def finding(*codes: Code, order: Order = Order.CAUSES) -> Callable[[F], F]:
    """Register a function as a finding.

    Args:
        codes: those that it introduces. It may return events with other codes as well.
        order: the part of the list of findings where its findings stand.

    Raises:
        ValueError: a code, or a function of that name, is registered already.
    """

    def register(find: F) -> F:
        listed = tuple(replace(code, order=order) for code in codes)
        name = find.__name__
        taken = [code.name for code in listed if code.name in CODES]
        if taken or name in FINDINGS:
            raise ValueError(f"findings: {', '.join(taken) or name} has a row already")
        CODES.update((code.name, code) for code in listed)
        FINDINGS[name] = Row(find, listed, order)
        return find

    return register
