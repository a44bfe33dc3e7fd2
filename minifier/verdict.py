"""What tc-bisect found: a sentence, what supports it, and the same for scripts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tc.trace.delivery import OK

BUG: Final = 1
INCONCLUSIVE: Final = 5


@dataclass
class Verdict:
    """What was found; grows during the search.

    Attributes:
        code: exit code.
        title: the verdict in one sentence.
        rows: what supports it, label and text.
    """

    code: int
    title: str
    rows: list[tuple[str, str]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def add(self, label: str, text: str, **facts: Any) -> None:
        """Add a row, and what scripts are to know of it."""
        self.rows.append((label, text))
        self.facts.update(facts)

    def renamed(self, named: Callable[[str], str]) -> Verdict:
        """Return the verdict with other names of places in all its texts."""

        def of(value: Any) -> Any:
            if isinstance(value, str):
                return named(value)
            if isinstance(value, dict):
                return {key: of(one) for key, one in value.items()}
            return [of(one) for one in value] if isinstance(value, list | tuple) else value

        rows = [(label, named(text)) for label, text in self.rows]
        return Verdict(self.code, named(self.title), rows, of(self.facts))

    def __str__(self) -> str:
        rows = [f"   {label:<11} {text}" for label, text in self.rows]
        return "\n".join([f"VERDICT  {self.title}", *rows])

    def as_json(self) -> str:
        """The verdict for scripts."""
        words = {OK: "no bug", BUG: "bug", INCONCLUSIVE: "inconclusive"}
        return json.dumps(
            {"schema": 1, "verdict": words[self.code], "title": self.title, **self.facts}
        )
