"""What ranks leave for each other: a board in the store of `torch.distributed`.

An all-gather would not do: only a rank that has compiled has a question, and the others, which do
not know that, would not come. So a rank writes where it is under a key of its own, and a counter
says that somebody asks; each rank looks at the counter from time to time.
"""

from __future__ import annotations

from typing import Any

from torch.distributed.distributed_c10d import PrefixStore

from tc.compiler.ranks.positions import Position

_PREFIX = "tc_ranks"


class Board:
    """The board of one job, as one of its ranks reads and writes it.

    Raises:
        RuntimeError: (of all methods) the store is gone.
    """

    def __init__(self, store: Any, rank: int) -> None:
        # A connection of its own: another thread may wait for a key, which holds a connection.
        self._store: Any = PrefixStore(_PREFIX, store.clone())
        self._rank = rank

    def ask(self) -> int:
        """Ask all ranks where they are; returns the number of the question."""
        return int(self._store.add("question", 1))

    def question(self) -> int:
        """Return the number of the last question."""
        return int(self._store.add("question", 0))

    def write(self, position: Position) -> None:
        """Leave where this rank is."""
        self._store.set(f"position {self._rank}", position.to_bytes())

    def read(self, rank: int) -> Position | None:
        """Return where another rank was when it wrote last; None: it has not."""
        data = self._get(f"position {rank}")
        return None if data is None else Position.of_bytes(data)

    def write_decisions(self, data: bytes) -> None:
        """Leave what this rank decided when it compiled."""
        self._store.set(f"decisions {self._rank}", data)

    def read_decisions(self, rank: int) -> bytes:
        """Return what another rank decided."""
        return self._get(f"decisions {rank}") or b"[]"

    def _get(self, key: str) -> bytes | None:
        return bytes(self._store.get(key)) if self._store.check([key]) else None
