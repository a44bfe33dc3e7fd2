"""Iterators over dictionaries, their views and sets: they refuse to go on once the size changes."""

from __future__ import annotations

import collections
import itertools
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import ListValue, SequenceIterator

if TYPE_CHECKING:
    from tc.compiler.capture.values.dicts import DictView
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


class SizedIterator(SequenceIterator):
    """An iterator over a dict, a view, or a set; Python refuses to go past a change of size."""

    def __init__(
        self,
        t: Interpreter,
        items: list[Value],
        owner: Value,
        view: DictView | None = None,
    ) -> None:
        super().__init__(ListValue(list(items)))
        self.owner = owner
        self.view = view
        self.writes = t.effects.writes

    def advance(self, t: Interpreter) -> Value:
        self._refresh(t)
        return super().advance(t)

    def _refresh(self, t: Interpreter) -> None:
        """Look at the items again if something was written: values may have been replaced."""
        if self.view is None or self.writes == t.effects.writes or self.is_invalid(t):
            return
        if self.sequence.slots:
            self.sequence.slots[:] = self.view.contents(t)
        self.writes = t.effects.writes

    def is_invalid(self, t: Interpreter) -> bool:
        if (
            self.index >= self.size
            and self.owner.python_type() is collections.OrderedDict
        ):
            return False  # its iterator looks for the end first
        return bool(self.owner.length(t).constant() != self.size)

    def children(self, t: Interpreter) -> list[Value]:
        if self.sequence.slots and self.is_invalid(t):
            raise breaks.SkipFrame(
                "a container changes its size while it is iterated over"
            )
        if self.is_of_the_owner():
            return [self.view or self.owner]
        return super().children(t)

    def is_of_the_owner(self) -> bool:
        """Return whether residual code may iterate over the container itself, as Python does."""
        return self.index <= self.size and bool(self.sequence.slots)

    def rebuild(self, r: ResidualInterface) -> None:
        if not self.is_of_the_owner():
            super().rebuild(r)
            return
        is_late = self.owner.is_filled_late
        r.load_callable(later_iterator_at if is_late else iterator_at)
        r.push_slots([self.view or self.owner, ConstValue(self.index)])
        r.e.call(2)


def later_iterator_at(container: Any, index: int) -> Any:
    """Return what `iterator_at` does, of a container that the residual code has yet to fill."""
    yield from itertools.islice(container, index, None)


def iterator_at(container: Any, index: int) -> Any:
    """Return an iterator over a container that has gone past some items; for residual code."""
    iterator = iter(container)
    for _ in range(index):
        next(iterator)
    return iterator
