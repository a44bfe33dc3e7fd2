"""Values survive the way to JSON and back; nothing else is made of what is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from tc.compiler.core.frozen import NotPlain, dumps, loads


@dataclass(frozen=True)
class Pair:
    left: Any
    right: Any = None


@dataclass(frozen=True)
class Other:
    left: Any


@pytest.mark.parametrize(
    "value",
    [
        None,
        [True, 1, -3, 2**70, "text \ud800 ü"],
        (1, (2, [3, ()])),
        {"a": 1, 2: ("x",), None: {}},
        [0.1, -0.0, 1e-320, math.inf],
        Pair((Pair(1, [2]),), {"class": "Pair", "tuple": [1]}),
    ],
)
def test_there_and_back(value: object) -> None:
    found = loads(dumps(value), [Pair])
    assert found == value
    assert repr(found) == repr(value)


def test_not_a_number() -> None:
    assert math.isnan(loads(dumps(math.nan), []))


@pytest.mark.parametrize("value", [object(), {1}, Pair, 1j, b"x", [lambda: 0]])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(NotPlain):
        dumps(value)


def test_only_known_classes_are_made() -> None:
    with pytest.raises(KeyError):
        loads(dumps(Other(1)), [Pair])


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b'{"no": 1}', b'{"class": "Pair", "fields": {"up": 1}}']
)
def test_other_content_is_an_error(content: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        loads(content, [Pair])
