"""Tokens of keys: what the tracer's tables hold for the keys of dicts and the items of sets.

Equal keys have equal tokens, so that Python's own dicts and sets find what the program's find.
A key whose class defines ``__eq__`` is compared by calling it, as often as Python calls it. The
tracer's own look-ups, which the program does not see, are made in ``OWN_LOOKUP``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from tc.compiler.capture.breaks import SkipFrame
from tc.compiler.capture.values.lookup import MISSING


class _OwnLookup:
    """Within this, a key with an ``__eq__`` of its class equals no other object: none is called."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


OWN_LOOKUP = _OwnLookup()


class IdentityKey:
    """A key compared by identity."""

    def __init__(self, obj: Any) -> None:
        self.obj = obj

    def __hash__(self) -> int:
        return id(self.obj)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and other.obj is self.obj


@dataclass(frozen=True)
class MethodKey:
    """A bound method as a key: each read makes another one, which is equal."""

    owner: IdentityKey
    function: Any


@dataclass(frozen=True)
class ReferenceKey:
    """A weak reference as a key: it is compared as its referent is."""

    target: Any


class HashedKey:
    """A key whose class defines the hash and equality, which the tracer calls.

    Attributes:
        match: the token that it was found equal to at last.
    """

    match: Any = MISSING

    def __init__(
        self, value: Any, hashed: int, equal: Callable[[Any, object], bool]
    ) -> None:
        self.value = value
        self._hash = hashed
        self._equal = equal

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if OWN_LOOKUP.depth:
            return isinstance(other, HashedKey) and other.value is self.value
        same = self._equal(self.value, other)
        if same:
            self.match = other
            if isinstance(other, HashedKey):
                other.match = self
        return same


def find(table: Collection[Any], token: Any) -> Any:
    """Return the token in a table that equals another, or MISSING, asking as Python asks."""
    _forget(token)
    if token not in table:
        return MISSING
    matched = _matched(token)
    with OWN_LOOKUP:
        if matched in table:
            return matched
    return next(one for one in table if one == token)  # of another kind


def _forget(token: Any) -> None:
    for one in token if isinstance(token, tuple) else (token,):
        if isinstance(one, HashedKey):
            one.match = MISSING


def _matched(token: Any) -> Any:
    """Return the token that another one was found equal to."""
    if isinstance(token, tuple):
        return tuple(map(_matched, token))
    if isinstance(token, HashedKey) and token.match is not MISSING:
        return token.match
    return token


def refuse_comparisons(tokens: Iterable[Any]) -> None:
    """Leave a frame to Python whose residual code would compare keys of its own accord.

    Making a container of keys with equal hashes calls their ``__eq__``, which the program did not.
    """
    hashes = [hash(token) for token in tokens if isinstance(token, HashedKey)]
    if len(hashes) != len(set(hashes)):
        raise SkipFrame("keys of equal hashes, whose class compares them, outlive it")
