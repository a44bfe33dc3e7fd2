"""How a candidate fared, as the process that asks knows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tc.minifier.identity import Identity


@dataclass(frozen=True)
class Answer:
    """How a case fared; see `tc.minifier.judge.Outcome`."""

    kind: str
    identity: Identity | None = None
    message: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Return whether something went wrong that is to be looked at."""
        return self.identity is not None

    def is_akin(self, other: Identity | None) -> bool:
        """Return whether a graph alone may be what a whole script fails with."""
        return self.identity is not None and other is not None and self.identity.is_akin(other)

    def is_like(self, other: Identity | None) -> bool:
        """Return whether a part of a compiler may fail as the whole does."""
        return self.identity is not None and other is not None and self.identity.is_like(other)

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Answer:
        """Return the answer in a line of the server's."""
        return cls(
            row["kind"],
            Identity.of_json(row["identity"]) if row.get("identity") else None,
            row.get("message") or "",
            row.get("detail") or {},
        )

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "kind": self.kind, "message": self.message, "detail": dict(self.detail),
            "identity": self.identity.as_json() if self.identity else None,
        }  # fmt: skip
