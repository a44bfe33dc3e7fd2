"""What ranks decided: what is kept of a compile, and what is said of two."""

from __future__ import annotations

import copy

import pytest
import torch

import tc
from tc import trace
from tc.compiler.ranks.decisions import (
    Decision,
    Decisions,
    digest,
    first_difference,
    of_bytes,
    to_bytes,
)


def program(x, flag=False):
    y = x.sin() + 1
    if flag:
        y = y * 2
    print(end="")
    return y.sum()


def decided(*calls):
    """Return the rows of a process that makes these calls."""
    tc.reset()
    sink = Decisions()
    trace.add_sink(sink)
    try:
        step = tc.compile(program, backend="eager")
        for args in calls:
            step(*args)
    finally:
        trace.remove_sink(sink)
    return sink


def test_the_rows_of_a_program():
    sink = decided((torch.ones(3),), (torch.ones(4),))
    first, resumed, again, _ = sink.rows()
    assert [one.split(" at ")[0] for one in first.operations] == ["sin", "+"]
    assert first.breaks == [f"test_decisions.py:{program.__code__.co_firstlineno + 4} TC104"]
    assert (first.number, again.number, again.dynamic) == (0, 1, 1)
    assert again.why == "x.shape[0]: 3 -> 4"
    assert "TENSOR" in first.guards and "SHAPE" in again.guards
    assert again.title == (
        f"program (test_decisions.py:{program.__code__.co_firstlineno}) for the 2nd time"
    )
    assert "after line" in resumed.title
    assert sink.count == 4 and not sink.compiling


def test_ranks_with_other_data_decide_the_same():
    rows = [decided((torch.ones(size),), (torch.ones(size + 1),)).rows() for size in (3, 30)]
    assert [one.operations for one in rows[0]] == [one.operations for one in rows[1]]
    assert digest(rows[0][:2]) == digest(rows[1][:2])
    assert of_bytes(to_bytes(rows[0])) == rows[0]


def test_the_operation_that_differs_is_named_with_its_line():
    got, theirs = (decided((torch.ones(3), flag)).rows() for flag in (False, True))
    line = program.__code__.co_firstlineno + 3
    assert f"rank 1 * at test_decisions.py:{line}" in first_difference(got, theirs, 0, 1)
    assert first_difference(got, copy.deepcopy(got), 0, 1) == ""


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"failure": "KeyError"}, "step (a.py:1): rank 0 failed with none, rank 1 KeyError"),
        ({"breaks": ["a.py:3 TC104"]}, "rank 0 broke the graph at no more, rank 1 a.py:3 TC104"),
        ({"dynamic": 2}, "rank 0 has dynamic sizes: none, rank 1 2"),
        ({"failure": "KeyError", "dynamic": 2, "operations": ["x"]}, "failed with"),
    ],
)
def test_the_most_informative_difference_is_reported(change, sentence):
    mine = Decision("step", "a.py", 1, 0)
    assert sentence in first_difference([mine], [Decision("step", "a.py", 1, 0, **change)], 0, 1)


def test_functions_in_which_ranks_parted_come_first():
    log = Decision("log", "a.py", 9, 0)
    mine, theirs = Decision("f.step", "a.py", 1, 0), Decision("f.step", "a.py", 1, 0, dynamic=1)
    reported = first_difference([log, mine], [theirs], 0, 1, ["Model.f.step", "main"])
    assert reported.startswith("f.step (a.py:1): rank 0 has dynamic sizes")
    assert first_difference([log, mine], [theirs], 0, 1).startswith("rank 0 compiled log (a.py:9)")


def test_a_compile_of_only_one_rank_is_reported_with_its_cause():
    again = Decision("step", "a.py", 1, 1, "x.shape[0]: 4 -> 5")
    assert first_difference([again], [], 0, 1) == (
        "rank 0 compiled step (a.py:1) for the 2nd time because x.shape[0]: 4 -> 5; rank 1 did not"
    )
