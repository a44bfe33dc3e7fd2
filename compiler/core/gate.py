"""The gate: every optional step asks it for leave, by kind and running number.

A bisector needs nothing else of the compiler: refusing all steps from number N on, for falling N,
finds the first step that breaks a program.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Gate:
    """Counts optional steps and refuses some.

    Attributes:
        refuse_from: kind -> first running number (1-based) that is refused. Kind ``*`` counts
            all steps together.
        taken: kind -> steps asked for so far; ``*`` holds the total.
    """

    refuse_from: dict[str, int] = field(default_factory=dict)
    taken: Counter[str] = field(default_factory=Counter)

    @classmethod
    def from_environment(cls) -> Gate:
        """Read ``TC_BISECT``: comma-separated ``N`` (all kinds together) or ``kind:N``."""
        refuse: dict[str, int] = {}
        for part in os.environ.get("TC_BISECT", "").split(","):
            kind, _, number = part.strip().rpartition(":")
            if number.isdigit():
                refuse[kind or "*"] = int(number)
        return cls(refuse)

    def allow(self, kind: str) -> bool:
        """Count one step of this kind, and say whether it may be done.

        Args:
            kind: dotted name of the step, e.g. ``loops.fuse`` or ``aot.decompose.aten.gelu``.
                A refusal of a prefix (``loops``) holds for all kinds below it.
        """
        self.taken["*"] += 1
        if not self.refuse_from:
            return True
        refused = self._refused("*", self.taken["*"])
        prefix = ""
        for piece in kind.split("."):
            prefix = f"{prefix}.{piece}" if prefix else piece
            self.taken[prefix] += 1
            refused |= self._refused(prefix, self.taken[prefix])
        return not refused

    def _refused(self, kind: str, number: int) -> bool:
        first = self.refuse_from.get(kind)
        return first is not None and number >= first
