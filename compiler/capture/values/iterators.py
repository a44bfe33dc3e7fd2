"""Lazy iterators that traced code makes, and input iterators; each is rebuilt as its own kind."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from tc.compiler.capture.bytecode.resume_functions import is_passed_on
from tc.compiler.capture.values.base import (
    Args,
    Exhausted,
    IteratorValue,
    Kwargs,
    OpaqueValue,
    Raised,
    Value,
)
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import (
    KnownIterator,
    SequenceIterator,
    SequenceValue,
    TupleValue,
)
from tc.compiler.core.sources import CallSource, Source

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


class LazyIterator(IteratorValue):
    """Base of iterators that compute each item on demand.

    `kind` called on `parts` gives an iterator in the same state.
    """

    kind: type

    def python_type(self) -> type:
        return self.kind

    def describe(self) -> str:
        return f"a {self.kind.__name__}"

    def parts(self) -> list[Value]:
        """Return the arguments that make such an iterator."""
        raise NotImplementedError

    def children(self, t: Interpreter) -> list[Value]:
        return self.parts()

    def rebuild(self, r: ResidualInterface) -> None:
        parts = self.parts()
        r.load_callable(self.kind)
        r.push_slots(list(parts))
        r.e.call(len(parts))


class IndexIterator(KnownIterator):
    """An iterator over an object that has ``__getitem__`` and no ``__iter__``."""

    def __init__(self, owner: Value) -> None:
        self.owner = owner
        self.index = 0

    def python_type(self) -> type:
        return type(iter(_Indexed()))

    def advance(self, t: Interpreter) -> Value:
        if self.has_ended:
            raise Exhausted
        try:
            item = self.owner.item(t, ConstValue(self.index))
        except Raised as raised:
            if issubclass(raised.value.python_type(), IndexError | StopIteration):
                self.has_ended = True
                raise Exhausted from None
            raise
        self.count(t)
        return item

    def children(self, t: Interpreter) -> list[Value]:
        return [] if self.has_ended else [self.owner]

    def rebuild(self, r: ResidualInterface) -> None:
        r.push(TupleValue([]) if self.has_ended else self.owner)
        r.e.get_iter()
        if self.index and not self.has_ended:
            r.e.copy(1)
            self._set_place(r)


class _Indexed:
    def __getitem__(self, index: int) -> Any:
        raise IndexError(index)


class ZipIterator(LazyIterator):
    """``zip(*sources)``."""

    kind = zip

    def __init__(self, sources: list[Value], strict: bool) -> None:
        self.sources = sources
        self.strict = strict

    def parts(self) -> list[Value]:
        return self.sources

    def advance(self, t: Interpreter) -> Value:
        if not self.sources:
            raise Exhausted
        items: list[Any] = []
        for index, source in enumerate(self.sources):
            try:
                items.append(source.advance(t))
            except Exhausted:
                if self.strict and index:
                    t.python.raise_(
                        ValueError,
                        f"zip() argument {index + 1} is shorter than argument 1",
                    )
                if self.strict:
                    self._check_all_done(t)
                raise
        return TupleValue(items)

    def _check_all_done(self, t: Interpreter) -> None:
        for index, source in enumerate(self.sources[1:]):
            try:
                source.advance(t)
            except Exhausted:
                continue
            t.python.raise_(
                ValueError, f"zip() argument {index + 2} is longer than argument 1"
            )

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(zip)
        r.push_slots([*self.sources, ConstValue(self.strict)])
        r.e.call(len(self.sources), ("strict",))


class ReversedIterator(LazyIterator):
    """``reversed(owner)`` of a list, or of an object with a length and items."""

    def __init__(self, owner: Value, index: int) -> None:
        self.kind = type(reversed([])) if isinstance(owner, SequenceValue) else reversed
        self.owner = owner
        self.index = index

    def parts(self) -> list[Value]:
        return [self.owner, ConstValue(self.index)]

    def advance(self, t: Interpreter) -> Value:
        if self.index < 0:
            raise Exhausted
        self.index -= 1
        try:
            return self.owner.item(t, ConstValue(self.index + 1))
        except Raised as raised:
            self.index = -1
            if issubclass(raised.value.python_type(), IndexError | StopIteration):
                raise Exhausted from None
            raise

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(reversed_from)
        r.push_slots(list(self.parts()))
        r.e.call(2)


def reversed_from(owner: Any, index: int) -> Any:
    """Yield the items of a sequence from a place down to the first; for residual code."""
    for place in range(index, -1, -1):
        try:
            yield owner[place]
        except IndexError:
            return


class MapIterator(LazyIterator):
    """``map(function, *sources)``."""

    kind = map

    def __init__(self, function: Value, sources: list[Value]) -> None:
        self.function = function
        self.sources = sources

    def parts(self) -> list[Value]:
        return [self.function, *self.sources]

    def advance(self, t: Interpreter) -> Value:
        items = [source.advance(t) for source in self.sources]
        return self.function.call(t, items, {})


class FilterIterator(LazyIterator):
    """``filter(function, source)``, or ``itertools.filterfalse``."""

    def __init__(self, kind: type, function: Value, source: Value) -> None:
        self.kind = kind
        self.function = function
        self.iterated = source

    def parts(self) -> list[Value]:
        return [self.function, self.iterated]

    def advance(self, t: Interpreter) -> Value:
        while True:
            item = self.iterated.advance(t)
            plain = t.python.is_none(self.function)
            verdict = item if plain else self.function.call(t, [item], {})
            if verdict.truth(t) == (self.kind is filter):
                return item


class EnumerateIterator(LazyIterator):
    """``enumerate(source, count)``."""

    kind = enumerate

    def __init__(self, source: Value, count: int) -> None:
        self.iterated = source
        self.count = count

    def parts(self) -> list[Value]:
        return [self.iterated, ConstValue(self.count)]

    def advance(self, t: Interpreter) -> Value:
        item = self.iterated.advance(t)
        self.count += 1
        return TupleValue([ConstValue(self.count - 1), item])


class SentinelIterator(LazyIterator):
    """``iter(function, sentinel)``."""

    kind = type(iter(int, 1))

    def __init__(self, function: Value, sentinel: Value) -> None:
        self.function = function
        self.sentinel = sentinel
        self.done = False

    def parts(self) -> list[Value]:
        return [self.function, self.sentinel]

    def advance(self, t: Interpreter) -> Value:
        if self.done:
            raise Exhausted
        item = self.function.call(t, [], {})
        self.done = t.python.equal(item, self.sentinel)
        if self.done:
            raise Exhausted
        return item

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(iter)
        r.push_slots([TupleValue([])] if self.done else list(self.parts()))
        r.e.call(1 if self.done else 2)


class ConstIterator(KnownIterator):
    """An iterator over a known range, string, enum class …"""

    def __init__(self, obj: Any, source: Source | None = None) -> None:
        self.iterated = obj
        sequences = range | str | bytes  # a range may have more items than memory holds
        self.items = obj if isinstance(obj, sequences) else list(obj)
        self.index = 0
        self.source = source

    def python_type(self) -> type:
        return type(iter(self.iterated))

    def advance(self, t: Interpreter) -> Value:
        if not self.items[self.index : self.index + 1]:
            raise Exhausted
        return t.values.known(self.items[self.count(t)])

    def rebuild(self, r: ResidualInterface) -> None:
        if self.index == 0:
            r.load_object(self.iterated)
        elif isinstance(self.iterated, range | str | bytes):
            r.load_object(self.iterated[self.index :])
        else:
            r.load_object(self.items[self.index :])
        r.e.get_iter()

    def replay(self, r: ResidualInterface) -> None:
        """Emit code that advances an input iterator."""
        r.load_callable(step_on)
        r.push(self)
        r.e.load_const(self.index)
        r.e.call(2)
        r.e.pop_top()


RANGE_ITERATORS: tuple[type, ...] = (
    type(iter(range(0))),
    type(iter(range(1 << 65))),
)
SEQUENCE_ITERATORS: tuple[type, ...] = (
    type(iter([])),
    type(iter(())),
)


class HandedOnIterator(OpaqueValue):
    """An iterator that was on the stack at a break: modelled if it is used for more than a loop.

    A loop that broke advances its real iterator (`opcodes/jumps.py`): iterations share their code.
    """

    noun = "an iterator"
    _followed: Value | None = None

    def _follow(self, t: Interpreter) -> Value:
        if self._followed is None:
            assert self.source is not None
            self._followed = _at_its_place(t, self.obj, self.source)
        return self._followed

    def iterate(self, t: Interpreter) -> Value:
        return self

    def advance(self, t: Interpreter) -> Value:
        return self._follow(t).advance(t)

    def attr(self, t: Interpreter, name: str) -> Value:
        return self._follow(t).attr(t, name)

    def method(self, t: Interpreter, name: str, args: Args, kwargs: Kwargs) -> Value:
        return self._follow(t).method(t, name, args, kwargs)


def wrap_iterator(t: Interpreter, obj: Any, source: Source) -> Value:
    """Return the value of an existing iterator over a range, list or tuple."""
    if is_passed_on(source):
        return HandedOnIterator(obj, source)
    return _at_its_place(t, obj, source)


def _at_its_place(t: Interpreter, obj: Any, source: Source) -> Value:
    t.guards.add("TYPE", source, type(obj))
    over = CallSource(source, iterated, "{}.__reduce__()[1][0]", "{}'s items")
    text = "({}.__reduce__() + (None,))[2]"
    place = CallSource(source, place_of, text, "{}'s place")
    t.guards.add("EQUALS", place, place_of(obj))
    index = place_of(obj) or 0
    if type(obj) in RANGE_ITERATORS:
        t.guards.add("EQUALS", over, iterated(obj))
        return ConstIterator(iterated(obj)[index:], source)
    sequence = t.values.wrap(iterated(obj), over)
    if not isinstance(sequence, SequenceValue):
        return OpaqueValue(obj, source)
    return SequenceIterator(sequence, index, source)


def iterated(iterator: Any) -> Any:
    """Return the object that an iterator iterates over."""
    return iterator.__reduce__()[1][0]


def place_of(iterator: Any) -> Any:
    """Return the position of an iterator; None if it has none or is exhausted."""
    return (*iterator.__reduce__(), None)[2]


def step_on(iterator: Any, count: int) -> None:
    """Advance an iterator; called from residual code."""
    for _ in itertools.islice(iterator, count):
        pass
