"""Logs of runs that differ: what is paired, and what counts as more than rounding."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tc.minifier.values.command import labels, verdict_on, worst_part
from tc.minifier.values.compare import Comparison, Pair, aligned, distance
from tc.minifier.values.log import GRADIENT, INPUT, VALUE, Event, Line, Log, NoLog


def line(text: str, number: int = 1) -> Line:
    return Line("", "f", text, 0, f"train.py:{number}")


def event(
    value: float, number: int = 0, text: str = "y = sin(x)", kind: int = VALUE,
    enters: tuple[int, ...] = (), dtype: str = "float32", norm: float = 10.0,
) -> Event:  # fmt: skip
    """A value of ten elements whose first block is off by `value`."""
    return Event(number, kind, line(text), "sin", 0, enters, dtype, (10,), hash(value), norm,
                 (value, 1.0), 0, (value,))  # fmt: skip


def log(*events: Event, **facts: str) -> Log:
    made = Log(Path("run.values"), dict(facts), list(events))
    made.end = {"error": ""}
    return made


@pytest.mark.parametrize("before, after", [(0, 2), (2, 0), (1, 2), (0, 0)])
def test_surplus_iterations_shift_nothing(before: int, after: int) -> None:
    ones = [event(n, n) for n in range(5)]
    more = [event(100 + n) for n in range(before)]
    others = more + ones + [event(200 + n) for n in range(after)]
    pairs = aligned(ones, others[: len(others)])
    if not (before and after):
        assert all(mine.first == theirs.first for mine, theirs in pairs)
    assert len(pairs) == 5
    assert [(b.first, a.first) for a, b in aligned(others, ones)] == [
        (a.first, b.first) for a, b in pairs
    ]


def test_surplus_in_the_middle() -> None:
    ones = [event(n) for n in range(6)]
    pairs = aligned(ones, [*ones[:2], event(9), event(8), *ones[2:]])
    assert all(mine.first == theirs.first for mine, theirs in pairs)


def test_the_first_difference_is_where_what_enters_is_equal() -> None:
    one = log(event(1, 0, "a"), event(2, 1, "b", enters=(0,)), event(3, 2, "c", enters=(1,)))
    other = log(event(1, 0, "a"), event(2.5, 1, "b", enters=(0,)), event(4, 2, "c", enters=(1,)))
    first = Comparison(one, other).first
    assert first is not None and first.one.line.text == "b"


def test_rounding_that_grows_is_rounding() -> None:
    """Each step is ten times as far off as the one before; a jump is more than that."""
    steps = [10.0 ** (number - 7) for number in range(6)]
    one = log(*(event(0, n, f"{n}", enters=(n - 1,) if n else ()) for n in range(6)))
    other = log(*(event(size, n, f"{n}") for n, size in enumerate(steps)))
    assert Comparison(one, other).first is None
    other.events[4] = event(1.0, 4, "4")
    first = Comparison(one, other).first
    assert first is not None and first.one.line.text == "4"


def test_a_third_run_says_what_rounding_does() -> None:
    one, other = log(event(0, 0)), log(event(0.1, 0))
    assert Comparison(one, other).first is not None
    assert Comparison(one, other, log(event(0.05, 0))).first is None
    assert Comparison(one, other, log(event(1e-5, 0))).first is not None


def test_decisions_near_a_tie_are_no_difference_of_their_own() -> None:
    one = log(event(0, 0, "x"), event(1, 1, "m", enters=(0,), dtype="bool"))
    near = log(event(1e-7, 0, "x"), event(2, 1, "m", enters=(0,), dtype="bool"))
    comparison = Comparison(one, near)
    assert comparison.first is None and len(comparison.flipped) == 1
    same = log(event(0, 0, "x"), event(2, 1, "m", enters=(0,), dtype="bool"))
    assert Comparison(one, same).first is not None


def test_gradients_go_with_their_values_in_any_order() -> None:
    def run(order: tuple[int, int]) -> Log:
        values = [event(n, n, "p", INPUT) for n in range(2)]
        return log(
            *values, *(event(10 + n, 2 + k, "p", GRADIENT, (n,)) for k, n in enumerate(order))
        )

    comparison = Comparison(run((0, 1)), run((1, 0)))
    assert comparison.first is None and len(comparison.pairs) == 4


def test_shapes_types_and_odd_elements_are_infinitely_far() -> None:
    one = event(1)
    assert distance(one, event(2, dtype="float64")) == math.inf
    assert distance(one, event(1)) == 0


def test_verdicts() -> None:
    one, other = log(event(1, 0), how="eager"), log(event(5, 0), how="compiled")
    assert labels(one, other) == ("eager", "compiled")
    verdict = verdict_on(Comparison(one, other))
    assert (verdict.code, verdict.facts["verdict"], verdict.facts["line"]) == (
        1,
        "differs",
        "train.py:1",
    )
    assert "elements 0 to 4 of 10" in str(verdict)
    assert verdict_on(Comparison(one, one)).facts["verdict"] == "equal"
    assert verdict_on(Comparison(one, log())).code == 5
    other = log(event(1, 0), how="compiled")
    other.end = {"error": "RuntimeError: no"}
    ended = verdict_on(Comparison(one, other))
    assert (ended.code, ended.facts["verdict"]) == (1, "ended")


def test_where_most_of_a_difference_is() -> None:
    assert worst_part(Pair(event(1), event(2), 1.0)).startswith("elements 0 to 4")
    assert worst_part(Pair(event(1), event(1), 0.0)) == ""


def test_other_files_are_no_logs(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no\n")
    with pytest.raises(NoLog, match="no log of values"):
        Log.read(tmp_path / "x")


def test_calls_that_cannot_be_seen_count() -> None:
    """Graphs as they are return the second of two sums of a line."""
    one = log(*(event(n, n) for n in range(6)))
    unseen = [event(99, n, dtype="") for n in range(0, 6, 2)]
    seen = [event(n, n) for n in range(1, 6, 2)]
    other = log(*(each for pair in zip(unseen, seen, strict=True) for each in pair))
    comparison = Comparison(one, other)
    assert comparison.first is None and sorted(comparison.pairs) == [1, 3, 5]


def mask(changed: float, number: int = 1, size: int = 10) -> Event:
    """A mask of which so many elements differ from that of no change."""
    return Event(number, VALUE, line("m = x > 0"), "gt", 0, (0,), "bool", (size,), hash(changed),
                 3.0, (changed**0.5, 1.0), 0, (1.0,))  # fmt: skip


@pytest.mark.parametrize(
    "size, moved, wrong",
    [(10, 0, True), (10, 1, False), (10_000, 0, False)],
    ids=["nothing near a tie", "rounding decides as well", "one of many"],
)
def test_a_mask_may_change_near_a_tie_alone(size: int, moved: int, wrong: bool) -> None:
    one, other = log(event(0), mask(0, size=size)), log(event(1e-6), mask(1, size=size))
    third = log(event(1e-6), mask(moved, size=size))
    first = Comparison(one, other, third).first
    assert (first is not None) == wrong and (first is None or first.one.operation == "gt")
