"""Counts calls from any thread, at the price of one call of a C function."""

from __future__ import annotations

import itertools


class CallCount:
    """How often something was called.

    A lock around ``+= 1`` costs as much as all the rest of a call that is only counted, and
    `itertools.count` needs none: it is advanced in C, in one piece under the interpreter's lock.
    """

    __slots__ = ("numbers",)

    def __init__(self) -> None:
        self.start_over()

    def start_over(self) -> None:
        """Forget the calls so far."""
        #: ``next(numbers)`` counts a call and returns its number, from 1
        self.numbers = itertools.count(1)

    def __int__(self) -> int:
        """Return the number of calls so far."""
        # What comes next can be read off without taking it by the repr alone: copies and pickles of
        # these iterators are deprecated.
        return int(repr(self.numbers)[len("count(") : -1]) - 1
