"""A table maps names to rows and refuses duplicates: how the compiler is extended."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Table(Generic[K, V]):
    """Name -> row, iterated in definition order."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._rows: dict[K, V] = {}

    def add(self, name: K, row: V) -> V:
        """Add a row.

        Raises:
            ValueError: the name already has a row.
        """
        if name in self._rows:
            raise ValueError(f"{self.title}: {name!r} has a row already")
        self._rows[name] = row
        return row

    def get(self, name: K) -> V | None:
        """Return the row of that name, or None."""
        return self._rows.get(name)

    def __getitem__(self, name: K) -> V:
        return self._rows[name]

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[K]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> Iterator[tuple[K, V]]:
        """Iterate over (name, row) in definition order."""
        return iter(self._rows.items())
