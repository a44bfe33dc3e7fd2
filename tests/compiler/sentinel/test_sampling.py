"""Which calls are compared, and what a difference leads to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from support import python

import tc
from tc import trace
from tc.compiler.errors import SentinelError
from tc.compiler.options import config
from tc.compiler.sentinel.sampling import period_of

X = torch.arange(4.0)


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    tc.reset()
    tc.counters["sentinel"].clear()
    with config.patch(sentinel_bisect=False):
        yield


def wrong(gm: Any, inputs: Any) -> Any:
    return lambda *args: [value + 1 for value in gm(*args)]


@pytest.mark.parametrize(
    ("rate", "period"), [("1/1000", 1000), ("0.01", 100), (1, 1), (0, 0), ("0", 0), (1 / 3, 3)]
)
def test_a_rate_is_a_share_of_calls(rate: float | str, period: int) -> None:
    assert period_of(rate) == period


def test_nothing_is_in_the_place_of_a_graph_where_it_is_off() -> None:
    names: dict[str, Any] = {"torch": torch}
    exec("def f(x): return x.sin() + 1", names)
    tc.compile(names["f"])(X)
    (graph,) = [value for name, value in names.items() if name.startswith("__compiled_fn")]
    assert "sentinel" not in graph.__code__.co_filename
    assert not tc.counters["sentinel"]


def test_one_call_in_so_many_is_compared_and_the_first_always() -> None:
    compiled = tc.compile(lambda x: x + 1)
    with config.patch(sentinel="1/50"):
        compiled(X)
        assert tc.counters["sentinel"]["compared"] == 1
        for _ in range(9999):
            compiled(X)
    # gaps are uniform in 1 … 99: 200 of them on average, with a deviation of 8.2
    assert 150 < tc.counters["sentinel"]["compared"] < 250


def test_calls_are_not_compared_at_a_fixed_distance() -> None:
    seen: list[int] = []
    for _ in range(2):
        tc.reset()
        compiled = tc.compile(lambda x: x + 1)
        with config.patch(sentinel="1/20"):
            for call in range(400):
                before = tc.counters["sentinel"]["compared"]
                compiled(X)
                seen += [call] * (tc.counters["sentinel"]["compared"] - before)
    assert len(set(seen)) > len(seen) / 2 + 1


def test_threads_share_the_counts_and_lose_none() -> None:
    compiled = tc.compile(lambda x: x * 2 + 1)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(200):
                assert torch.equal(compiled(X), X * 2 + 1)
        except BaseException as error:
            failed.append(error)

    with config.patch(sentinel=1):
        compiled(X)
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed
    assert dict(tc.counters["sentinel"]) == {"compared": 1601}


def test_a_graph_is_reported_once() -> None:
    with config.patch(sentinel=1), trace.capture_events() as events:
        compiled = tc.compile(lambda x: x.sin(), backend=wrong)
        for _ in range(5):
            compiled(X)
    assert len(events.of(trace.SentinelDifference)) == 1
    assert torch.equal(compiled(X), X.sin() + 1)


def test_eager_takes_the_place_of_a_graph_that_differs_if_asked() -> None:
    with config.patch(sentinel=1, sentinel_action="eager"), trace.capture_events() as events:
        compiled = tc.compile(lambda x: x.sin(), backend=wrong)
        compiled(X)
        for _ in range(3):
            assert torch.equal(compiled(X), X.sin())
    assert [event.action for event in events.of(trace.SentinelDifference)] == ["eager"]


def test_a_difference_raises_if_asked() -> None:
    with config.patch(sentinel=1, sentinel_action="raise"):
        compiled = tc.compile(lambda x: x.sin(), backend=wrong)
        for _ in range(2):
            with pytest.raises(SentinelError, match=r"output 0 at .*: compiled "):
                compiled(X)


def test_an_error_of_compiled_code_stays_what_it_is() -> None:
    def failing(gm: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            raise KeyError("mine")

        return run

    with config.patch(sentinel=1), pytest.raises(KeyError, match="mine"):
        tc.compile(lambda x: x.sin(), backend=failing)(X)


def test_an_error_of_the_sentinel_does_not_end_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    from tc.compiler.sentinel import sampling

    def broken(*args: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(sampling, "require_comparable", broken)
    with config.patch(sentinel=1):
        assert torch.equal(tc.compile(lambda x: x * 2)(X), X * 2)
    reason = "skipped: internal error of the sentinel: ZeroDivisionError"
    assert dict(tc.counters["sentinel"]) == {reason: 1}


PROGRAM = """
import torch, tc
f = tc.compile(lambda x: x.tanh() + 1)
for _ in range(4):
    f(torch.ones(3))
print(dict(tc.counters["sentinel"]))
"""


def test_the_environment_switches_it_on() -> None:
    done = python("-c", PROGRAM, variables={"TC_SENTINEL": "1/2"}, warm=True)
    assert "'compared': " in done.stdout, done.stderr
    done = python("-c", PROGRAM, variables={"TC_SENTINEL": "often"}, warm=True)
    assert (
        "TC_SENTINEL takes a share of calls such as 1/1000, from 0 to 1, not 'often'" in done.stderr
    )


def test_the_counts_are_in_the_trace() -> None:
    from tc.compiler.sentinel.counts import COUNTS

    with config.patch(sentinel=1), trace.capture_events() as events:
        tc.compile(lambda x: x.sin())(X)
        COUNTS.report()
        COUNTS.report()
    (ran,) = events.of(trace.SentinelRan)
    assert (ran.compared, ran.differences, ran.skipped) == (1, 0, {})
