"""Where the time of generated programs goes, as measured while a trace is open."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import tc
from tc import trace
from tc.compiler.runtime.tuned import machine_limits
from tc.compiler.telemetry import profile
from tc.compiler.telemetry.counters import emit_counts
from tc.trace import capture_events


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    tc.reset()
    yield
    tc.reset()


def reported(events: Any) -> trace.Profile:
    """The last record."""
    emit_counts()
    found: trace.Profile = events.of(trace.Profile)[-1]
    return found


def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    h = torch.relu(x @ w + 1)
    return h.softmax(-1)


def test_sampled_calls_are_powers_of_two_and_then_one_in_so_many() -> None:
    sampled = [n for n in range(1, 1025) if profile.is_sampled(n)]
    assert sampled == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]


def test_each_call_counts_and_steps_name_kernels_calls_and_lines() -> None:
    x, w = torch.randn(320, 300), torch.randn(300, 300)
    with capture_events() as events:
        compiled = tc.compile(chain)
        for _ in range(9):
            torch.testing.assert_close(compiled(x, w), chain(x, w), rtol=1e-4, atol=1e-4)
        (program,) = reported(events).programs
    assert (program.graph, program.calls, program.sampled) == ("inference", 9, 3)
    assert (program.function, program.file) == ("chain", __file__)
    names = [step.name for step in program.steps]
    product, kernel, rest = program.steps
    # what computes the product depends on the machine: ATen, oneDNN or a built-in kernel
    assert (len(set(names)), names[-1]) == (3, "wrapper")
    first = chain.__code__.co_firstlineno
    assert product.places == (f"{__file__}:{first + 1}",)
    assert set(kernel.places) == {f"{__file__}:{first + 1}", f"{__file__}:{first + 2}"}
    assert product.operations == 2 * 320 * 300 * 300
    assert kernel.moved == 4 * 2 * 320 * 300
    assert (rest.line, rest.moved) == (0, -1)
    assert 0 < sum(step.seconds for step in program.steps) < program.seconds


def test_formulas_take_the_sizes_of_the_call() -> None:
    with capture_events() as events:
        compiled = tc.compile(lambda x: torch.sin(x) * 2, dynamic=True)
        compiled(torch.randn(10))
        for size in (20, 30, 40):
            compiled(torch.randn(size))
        (program,) = reported(events).programs
    assert program.sampled == 2
    assert program.steps[0].moved == 8 * 40


def test_training_has_a_program_for_each_direction() -> None:
    x = torch.randn(8, 8, requires_grad=True)
    with capture_events() as events:
        compiled = tc.compile(lambda x: (x @ x).exp().sum())
        for _ in range(5):
            x.grad = None
            compiled(x).backward()
        rows = {row.graph: row for row in reported(events).programs}
    assert rows.keys() == {"forward", "backward"}
    assert rows["backward"].calls == 5
    after = {(gap.graph, gap.times) for gap in rows["backward"].gaps}
    assert after == {("forward", 5)}


def test_python_between_two_graphs_is_a_gap() -> None:
    def slow(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        time.sleep(0.01)
        return x * 2

    with capture_events() as events:
        compiled = tc.compile(slow)
        for _ in range(4):
            compiled(torch.randn(4))
        rows = reported(events).programs
    assert len(rows) == 2
    times = [
        (gap.times, gap.seconds) for row in rows for gap in row.gaps if gap.after != row.compile
    ]
    assert any(count == 4 and seconds >= 0.04 for count, seconds in times)


def test_a_call_that_raises_raises_when_it_is_measured() -> None:
    def pick(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[i] * 2

    with capture_events() as events:
        compiled = tc.compile(pick)
        x = torch.randn(4)
        compiled(x, torch.tensor([1]))
        with pytest.raises(IndexError):
            compiled(x, torch.tensor([7]))
        torch.testing.assert_close(compiled(x, torch.tensor([3])), x[3:] * 2)
        (program,) = reported(events).programs
    assert (program.calls, program.sampled) == (3, 0)


def test_writes_to_inputs_happen_once() -> None:
    def add(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2

    x = torch.zeros(4)
    with capture_events():
        compiled = tc.compile(add)
        for turn in range(1, 6):
            assert compiled(x).tolist() == [2.0 * turn] * 4


def test_no_call_of_many_threads_is_lost() -> None:
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    with capture_events() as events:
        compiled = tc.compile(chain)
        want = compiled(x, w)

        def work() -> None:
            for _ in range(300):
                torch.testing.assert_close(compiled(x, w), want)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (program,) = reported(events).programs
    assert program.calls == 1201
    assert program.sampled == sum(map(profile.is_sampled, range(1, 1202)))
    # Extrapolated from those timed; none is before a thread's first.
    assert 1201 - 5 <= sum(gap.times for gap in program.gaps) <= 1201 - 1


def test_calls_that_are_not_timed_count_for_those_that_are() -> None:
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    with capture_events() as events:
        compiled = tc.compile(chain)
        for _ in range(3 * profile.WINDOW):
            compiled(x, w)
        (program,) = reported(events).programs
        (one,) = profile.programs.all
    timed = profile.WINDOW + 2 * profile.TIMED
    assert (program.calls, one._now.timed) == (3 * profile.WINDOW, timed)
    assert program.seconds == pytest.approx(one._now.seconds * program.calls / timed)
    assert 0 < program.usual <= program.seconds / program.calls
    (gap,) = program.gaps
    assert gap.times == program.calls - 1 and gap.usual > 0


def test_compiling_is_not_part_of_a_gap_and_guards_are_measured() -> None:
    def first(x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        if x.sum() > 0:
            x = x + 1
        return x.relu()

    with capture_events() as events:
        tc.compile(first)(torch.ones(8))
        spent = trace.staged_seconds()
        programs = reported(events).programs
    (gap,) = (gap for one in programs for gap in one.gaps)
    assert 0 < gap.seconds < spent / 2  # the second graph was compiled in between
    assert all(one.guards > 0 and one.checked > 3 for one in programs)


def test_a_program_is_itself_where_nobody_listens() -> None:
    before = len(profile.programs.all)
    compiled = tc.compile(lambda x: x.cos() + 1)
    compiled(torch.randn(3))
    assert len(profile.programs.all) == before


def test_a_reset_reports_and_starts_over() -> None:
    with capture_events() as events:
        tc.compile(lambda x: x.tan())(torch.randn(3))
        tc.reset()
        assert [row.calls for row in events.of(trace.Profile)[-1].programs] == [1]
        tc.compile(lambda x: x.tan())(torch.randn(3))
        assert [row.calls for row in reported(events).programs] == [1]


def test_the_machine_is_not_measured_where_nobody_listens_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def measured() -> tuple[float, float]:
        raise AssertionError

    with capture_events():
        tc.compile(lambda x: x.tan())(torch.randn(3))
    monkeypatch.setattr(profile, "machine_limits", measured)
    tc.reset()


def test_a_graph_found_on_disk_has_its_costs() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        return x.sin().cos()

    for _ in range(2):
        tc.reset()
        with capture_events() as events:
            compiled = tc.compile(run)
            compiled(torch.randn(7))
            compiled(torch.randn(7))
            (program,) = reported(events).programs
    assert program.steps[0].moved == 8 * 7


def test_measuring_the_machine_leaves_random_numbers_and_modes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TC_CACHE_DIR", str(tmp_path))  # nothing is known of the machine there
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    torch.manual_seed(3)
    want = torch.rand(3)
    torch.manual_seed(3)
    with Mode():
        bandwidth, arithmetic = machine_limits()
    assert not seen and min(bandwidth, arithmetic) > 1e8
    assert torch.equal(torch.rand(3), want)
    assert machine_limits() == (bandwidth, arithmetic)  # kept


def test_programs_under_torch_compile_are_measured_too() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).relu()

    with capture_events() as events:
        compiled = torch.compile(step, backend="tc")
        for _ in range(3):
            compiled(torch.ones(8, 8))
        (program,) = reported(events).programs
    assert (program.calls, program.sampled, program.file) == (3, 1, __file__)
    assert program.steps[0].operations == 2 * 8**3 + 8**2  # products, their sums, and relu
