"""The codes of findings: what each means, what to do about it, and how viewers mark it.

A code is declared where it is found, in the `finding` decorator of `trace/findings/rows.py`, and
nowhere else: the table of `docs/tc-report.md`, `tc-report explain`, the report, the terminal
explorer and the CI gate read `CODES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Order(IntEnum):
    """The parts of the list of findings, first to last."""

    WRONG = 0
    """Results that differ from eager's."""
    FAILURES = 1
    LIMITS = 2
    CAUSES = 3
    TIME = 4
    """Reported because something took long: another run of the same program may not report it.
    They are listed among the causes, by what each cost."""
    RUN = 5
    """As `TIME`, about a run as a whole: what it cost is part of what the others cost."""
    DAMAGE = 6
    """About the trace itself, not about the program."""
    UNREAD = 7
    """Part of the trace that no reader understands."""


TIMED: Final = (Order.TIME, Order.RUN)
OF_THE_TRACE: Final = (Order.DAMAGE, Order.UNREAD)


@dataclass(frozen=True, slots=True)
class Code:
    """A code of a finding.

    Attributes:
        name: ``TC402``; it never changes its meaning.
        cause: what it means, for the documents; Markdown.
        remedy: what to do, for the documents; Markdown.
        mark: the sign that viewers put beside it: ``error``, ``refused``, ``break``,
            ``recompile``, ``skipped``, ``cached`` or ``damage``.
        eager: what it is about runs in Python, or operation by operation.
        page: the document that describes it, in ``docs/``.
        order: the part of the list where it stands; its finding sets it.
    """

    name: str
    cause: str
    remedy: str
    mark: str = "damage"
    eager: bool = False
    page: str = "tc-report.md"
    order: Order = Order.CAUSES


CODES: Final[dict[str, Code]] = {}
"""Name -> code; `finding` fills it."""

OTHER_BREAK: Final = "TC199"
"""A graph break of no kind that has a code of its own."""


def code_of(name: str) -> Code:
    """Return the row of a code, or of the id of a finding (`TC402-7f3a`).

    Only graph breaks take their code from the log, so a code without a row is that of a break
    which a newer compiler knows.
    """
    return CODES.get(name.partition("-")[0]) or CODES[OTHER_BREAK]


def is_timed(name: str) -> bool:
    """Whether a code, or an id, is of a finding that is reported because something took long."""
    return code_of(name).order in TIMED
