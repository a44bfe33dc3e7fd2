"""Iterators of `itertools` that traced code makes; each is rebuilt as its own kind."""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING, Any

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Exhausted, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import SequenceIterator, TupleValue
from tc.compiler.capture.values.iterators import LazyIterator

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface

#: each read makes a new object, so it is read once
FROM_ITERABLE = itertools.chain.from_iterable


class ZipLongestIterator(LazyIterator):
    """``itertools.zip_longest(*sources, fillvalue=fill)``."""

    kind = itertools.zip_longest

    def __init__(self, sources: list[Value], fill: Value) -> None:
        self.sources = sources
        self.fill = fill
        self.running = [True] * len(sources)

    def parts(self) -> list[Value]:
        return [*self.sources, self.fill]

    def advance(self, t: Interpreter) -> Value:
        items: list[Any] = []
        for index, source in enumerate(self.sources):
            item = self.fill
            if self.running[index]:
                try:
                    item = source.advance(t)
                except Exhausted:
                    self.running[index] = False
                    if not any(self.running):
                        raise
            items.append(item)
        if not any(self.running):
            raise Exhausted
        return TupleValue(items)

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(itertools.zip_longest)
        r.push_slots(list(self.parts()))
        r.e.call(len(self.sources), ("fillvalue",))


class PairwiseIterator(LazyIterator):
    """``itertools.pairwise(source)``."""

    kind = itertools.pairwise

    def __init__(self, source: Value) -> None:
        self.iterated = source
        self.last: Value | None = None

    def parts(self) -> list[Value]:
        if self.last is None:
            return [self.iterated]
        ahead = TupleValue([TupleValue([self.last]), self.iterated])
        return [ChainIterator(SequenceIterator(ahead))]

    def advance(self, t: Interpreter) -> Value:
        if self.last is None:
            self.last = self.iterated.advance(t)
        self.last, before = self.iterated.advance(t), self.last
        return TupleValue([before, self.last])


class TeeSource(Value):
    """What the iterators of one ``itertools.tee`` share: items that the first of them has read."""

    noun = "an iterator under itertools.tee"

    def __init__(self, source: Value) -> None:
        self.iterated = source
        self.read: list[Value] = []

    def at(self, t: Interpreter, index: int) -> Value:
        """Return an item; the source is asked for those that nothing has read before."""
        while len(self.read) <= index:
            self.read.append(self.iterated.advance(t))
        return self.read[index]

    def children(self, t: Interpreter) -> list[Value]:
        return [*self.read, self.iterated]

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(tee_after)
        r.push(self.iterated)
        r.push_slots(list(self.read))
        r.e.call(1 + len(self.read))


class TeeIterator(LazyIterator):
    """One of the iterators that ``itertools.tee`` returns."""

    kind: type = type(itertools.tee(())[0])

    def __init__(self, shared: TeeSource, index: int = 0) -> None:
        self.shared = shared
        self.index = index

    def parts(self) -> list[Value]:
        return [self.shared, ConstValue(self.index)]

    def advance(self, t: Interpreter) -> Value:
        item = self.shared.at(t, self.index)
        self.index += 1
        return item

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(tee_at)
        r.push_slots(list(self.parts()))
        r.e.call(2)


def tee_after(source: Any, *read: Any) -> Any:
    """Return an iterator of `itertools.tee` over items that were read, and the rest of a source."""
    return itertools.tee(itertools.chain(read, source), 1)[0]


def tee_at(shared: Any, index: int) -> Any:
    """Return a copy of an iterator of `itertools.tee` that has gone past some items."""
    made = copy.copy(shared)
    for _ in range(index):
        next(made)
    return made


class AccumulateIterator(LazyIterator):
    """``itertools.accumulate(source, function, initial=initial)``; `total` is what it gave last."""

    kind = itertools.accumulate

    def __init__(
        self, source: Value, function: Value | None, initial: Value | None
    ) -> None:
        self.iterated = source
        self.function = function
        self.initial = initial
        self.total: Value | None = None

    def parts(self) -> list[Value]:
        none = ConstValue(None)
        start = self.initial if self.total is None else self.total
        return [self.iterated, self.function or none, start or none]

    def advance(self, t: Interpreter) -> Value:
        if self.total is None:
            self.total = self.initial or self.iterated.advance(t)
            return self.total
        item = self.iterated.advance(t)
        if self.function is None:
            self.total = t.python.binary("add", self.total, item)
        else:
            self.total = self.function.call(t, [self.total, item], {})
        return self.total

    def rebuild(self, r: ResidualInterface) -> None:
        if self.total is not None:  # which would come again
            r.load_callable(itertools.islice)
        r.load_callable(itertools.accumulate)
        r.push_slots(list(self.parts()))
        r.e.call(2, ("initial",))
        if self.total is not None:
            r.push_slots([ConstValue(1), ConstValue(None)])
            r.e.call(3)


class CountIterator(LazyIterator):
    """``itertools.count(number, step)``."""

    kind = itertools.count

    def __init__(self, number: Value, step: Value) -> None:
        self.number = number
        self.step = step

    def parts(self) -> list[Value]:
        return [self.number, self.step]

    def advance(self, t: Interpreter) -> Value:
        number = self.number
        self.number = t.python.binary("add", number, self.step)
        return number


class RepeatIterator(LazyIterator):
    """``itertools.repeat(item)``, or ``repeat(item, times)`` with the remaining number of times."""

    kind = itertools.repeat

    def __init__(self, item: Value, times: int | None) -> None:
        self.repeated = item
        self.times = times

    def parts(self) -> list[Value]:
        return (
            [self.repeated]
            if self.times is None
            else [self.repeated, ConstValue(self.times)]
        )

    def advance(self, t: Interpreter) -> Value:
        if self.times is not None:
            if self.times <= 0:
                raise Exhausted
            self.times -= 1
        return self.repeated


class CycleIterator(LazyIterator):
    """``itertools.cycle(source)``."""

    kind = itertools.cycle

    def __init__(self, source: Value) -> None:
        self.iterated: Value | None = source
        self.saved: list[Value] = []
        self.place = 0

    def parts(self) -> list[Value]:
        if self.iterated is None:
            ahead, behind = self.saved[self.place :], self.saved[: self.place]
            return [TupleValue([*ahead, *behind])]
        if self.saved:
            self.cannot(
                breaks.UNSUPPORTED_VALUE, "an itertools.cycle on its first round"
            )
        return [self.iterated]

    def children(self, t: Interpreter) -> list[Value]:
        parts = self.parts()
        return parts if self.iterated is not None else list(self.saved)

    def advance(self, t: Interpreter) -> Value:
        if self.iterated is not None:
            try:
                item = self.iterated.advance(t)
            except Exhausted:
                self.iterated = None
            else:
                self.saved.append(item)
                return item
        if not self.saved:
            raise Exhausted
        item = self.saved[self.place]
        self.place = (self.place + 1) % len(self.saved)
        return item


class ChainIterator(LazyIterator):
    """``itertools.chain.from_iterable(sources)``, inside of a source or between two."""

    kind = itertools.chain

    def __init__(self, sources: Value) -> None:
        self.sources = sources
        self.current: Value | None = None

    def advance(self, t: Interpreter) -> Value:
        while True:
            if self.current is None:
                self.current = self.sources.advance(t).iterate(t)
            try:
                return self.current.advance(t)
            except Exhausted:
                self.current = None

    def children(self, t: Interpreter) -> list[Value]:
        return [self.sources] if self.current is None else [self.current, self.sources]

    def rebuild(self, r: ResidualInterface) -> None:
        if self.current is not None:
            r.load_callable(itertools.chain)
            r.push(self.current)
        r.load_callable(FROM_ITERABLE)
        r.push(self.sources)
        r.e.call(1)
        if self.current is not None:
            r.e.call(2)


class SliceIterator(LazyIterator):
    """``itertools.islice(source, start, stop, step)``; bounds are relative to the current item."""

    kind = itertools.islice

    def __init__(self, source: Value, start: int, stop: int | None, step: int) -> None:
        self.iterated = source
        self.start = start
        self.stop = stop
        self.step = step

    def parts(self) -> list[Value]:
        bounds = (self.start, self.stop, self.step)
        return [self.iterated, *(ConstValue(bound) for bound in bounds)]

    def advance(self, t: Interpreter) -> Value:
        for _ in range(self.start):
            self.iterated.advance(t)
        if self.stop is not None and self.start >= self.stop:
            self.start = self.stop = 0
            raise Exhausted
        item = self.iterated.advance(t)
        if self.stop is not None:
            self.stop -= self.start + 1
            self.start = min(self.step - 1, self.stop)
        else:
            self.start = self.step - 1
        return item


class CompressIterator(LazyIterator):
    """``itertools.compress(data, selectors)``."""

    kind = itertools.compress

    def __init__(self, data: Value, selectors: Value) -> None:
        self.data = data
        self.selectors = selectors

    def parts(self) -> list[Value]:
        return [self.data, self.selectors]

    def advance(self, t: Interpreter) -> Value:
        while True:
            item = self.data.advance(t)
            if self.selectors.advance(t).truth(t):
                return item


class WhileIterator(LazyIterator):
    """``itertools.takewhile(test, source)``, or ``dropwhile``."""

    def __init__(self, kind: type, test: Value, source: Value) -> None:
        self.kind = kind
        self.test = test
        self.iterated = source
        self.failed = False

    def parts(self) -> list[Value]:
        return [self.test, self.iterated]

    def children(self, t: Interpreter) -> list[Value]:
        return [self.iterated] if self.failed else self.parts()

    def rebuild(self, r: ResidualInterface) -> None:
        if not self.failed:
            super().rebuild(r)
        # a dropwhile whose test has failed passes all items; such a takewhile is exhausted
        else:
            r.load_callable(itertools.chain if self._drops() else iter)
            r.push(self.iterated if self._drops() else TupleValue([]))
            r.e.call(1)

    def _drops(self) -> bool:
        return self.kind is itertools.dropwhile

    def advance(self, t: Interpreter) -> Value:
        if self._drops():
            return self._dropped(t)
        if self.failed:
            raise Exhausted
        item = self.iterated.advance(t)
        if not self.test.call(t, [item], {}).truth(t):
            self.failed = True
            raise Exhausted
        return item

    def _dropped(self, t: Interpreter) -> Value:
        item = self.iterated.advance(t)
        while not self.failed and self.test.call(t, [item], {}).truth(t):
            item = self.iterated.advance(t)
        self.failed = True
        return item


class StarMapIterator(LazyIterator):
    """``itertools.starmap(function, source)``."""

    kind = itertools.starmap

    def __init__(self, function: Value, source: Value) -> None:
        self.function = function
        self.iterated = source

    def parts(self) -> list[Value]:
        return [self.function, self.iterated]

    def advance(self, t: Interpreter) -> Value:
        return self.function.call(t, self.iterated.advance(t).unpack(t), {})
