"""The gate: every optional step asks it for leave, by kind and running number.

A bisector needs nothing else of the compiler: refusing all steps from number N on, for falling N,
finds the first step that breaks a program.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, field

from torch import fx

from tc.compiler.core.notes import Notes


@dataclass
class Gate:
    """Counts optional steps and refuses some.

    Attributes:
        refuse_from: kind -> first running number (1-based) that is refused. Kind ``*`` counts
            all steps together.
        taken: kind -> steps asked for so far; ``*`` holds the total.
        notes: who writes the steps down, if anybody.
    """

    refuse_from: dict[str, int] = field(default_factory=dict)
    taken: Counter[str] = field(default_factory=Counter)
    notes: Notes | None = None

    @classmethod
    def from_environment(cls) -> Gate:
        """Read ``TC_BISECT``: comma-separated ``N`` (all kinds together) or ``kind:N``."""
        refuse: dict[str, int] = {}
        for part in os.environ.get("TC_BISECT", "").split(","):
            kind, _, number = part.strip().rpartition(":")
            if number.isdigit():
                refuse[kind or "*"] = int(number)
        return cls(refuse)

    def noted(self, notes: Notes | None) -> Gate:
        """Return this gate, with the same counts, for steps that are written down there."""
        if notes is None:
            return self
        same = copy(self)
        same.notes = notes
        return same

    def watching(self, name: str, graph: fx.Graph, kind: str = "") -> AbstractContextManager[None]:
        """Write down what happens inside to a graph, where somebody takes notes.

        Args:
            name: of the pass.
            kind: of the graph, where the notes are about several.
        """
        return nullcontext() if self.notes is None else self.notes.graph_pass(name, graph, kind)

    def counting(self, name: str, parts: int) -> AbstractContextManager[list[int]]:
        """Write down a pass over something else than a graph of operations.

        Args:
            name: of the pass.
            parts: how many there are before it; a list is yielded for their number after it.
        """
        return nullcontext([]) if self.notes is None else self.notes.other_pass(name, parts)

    def allow(
        self,
        kind: str,
        at: str | Callable[[], str] = "",
        lines: Callable[[], Iterable[str]] = tuple,
    ) -> bool:
        """Count one step of this kind, and return whether it may be done.

        Args:
            kind: dotted name of the step, e.g. ``loops.fuse`` or ``aot.decompose.aten.gelu``.
                A refusal of a prefix (``loops``) holds for all kinds below it.
            at: what the step is about, for the notes: a node, a buffer, a user line.
            lines: the user's lines (``file:line``) it works for, where it joins several; for gates
                of tools that want them.
        """
        self.taken["*"] += 1
        allowed = not self.refuse_from or self._allowed(kind)
        if self.notes is not None:
            self.notes.step(self.taken["*"], kind, allowed, at)
        return allowed

    def _allowed(self, kind: str) -> bool:
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
