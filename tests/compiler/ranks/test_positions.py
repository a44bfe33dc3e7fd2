"""Two ranks are reported to differ only where the job cannot end well."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tc.compiler.ranks.positions import Collective, Position, difference

WORLD = {"0": (0, 1)}


def at(*names: str, rank: int = 0, **facts: object) -> Position:
    issued = [Collective("0", number, name, "a.py", number) for number, name in enumerate(names)]
    return Position(rank, 0, {"0": issued}, **facts)  # type: ignore[arg-type]


def test_ranks_that_are_late_or_ahead_may_still_meet():
    mine = at("all_reduce", "barrier")
    for theirs in ((), ("all_reduce",), ("all_reduce", "barrier", "broadcast")):
        assert difference(mine, at(*theirs, rank=1), WORLD) is None


def test_another_collective_in_the_same_place():
    found = difference(at("all_reduce", "barrier"), at("all_reduce", "gather", rank=1), WORLD)
    assert found is not None and found.other is not None
    assert (found.own.number, found.own.what, found.other.what) == (1, "barrier", "gather")


def test_the_first_difference_is_the_one():
    found = difference(at("a", "b", "c"), at("a", "x", "y", rank=1), WORLD)
    assert found is not None and found.own.what == "b"


def test_a_rank_that_has_ended_comes_no_more():
    mine, theirs = at("a", "b"), at("a", rank=1, ended=True)
    found = difference(mine, theirs, WORLD)
    assert found is not None and (found.own.what, found.other) == ("b", None)
    assert difference(at("a"), theirs, WORLD) is None
    assert difference(at("a"), at("a", "b", rank=1, ended=True), WORLD) is None


def test_groups_of_other_ranks_say_nothing():
    other = {"0": (0, 2)}
    assert difference(at("a"), at("b", rank=1), other) is None


def test_where_the_count_may_be_off_both_have_to_be_stuck():
    mine, theirs = at("a", inexact=("0",)), at("b", rank=1)
    assert difference(mine, theirs, WORLD) is None
    mine = replace(mine, waiting=mine.recent["0"])
    assert difference(mine, theirs, WORLD) is None
    found = difference(mine, replace(theirs, waiting=theirs.recent["0"]), WORLD)
    assert found is not None and found.other is not None
    same = at("a", rank=1)
    assert difference(mine, replace(same, waiting=same.recent["0"]), WORLD) is None


def test_what_is_forgotten_is_no_difference():
    mine = Position(0, 0, {"0": [Collective("0", 90, "a")]})
    theirs = Position(1, 0, {"0": [Collective("0", 10, "b")]})
    assert difference(mine, theirs, WORLD) is None


@pytest.mark.parametrize("position", [at("a"), at(), at("a", waiting=[Collective("0", 0, "a")])])
def test_as_json_and_back(position: Position):
    data = position.to_bytes()
    assert Position.of_bytes(data).to_bytes() == data
