"""Wall time shared out among nested and parallel steps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tc.trace.timing import Interval, phase_of, share_out


def test_an_instant_belongs_to_the_step_that_began_last() -> None:
    shares = share_out(
        [Interval(0, 10e6, "outer", "0/0"), Interval(2e6, 5e6, "inner", "0/0")]
    )  # fmt: skip
    assert shares == {("0/0", "outer"): 7.0, ("0/0", "inner"): 3.0}


def test_a_helper_thread_works_for_whoever_waits() -> None:
    shares = share_out([Interval(0, 4e6, "wait", "0/1"), Interval(1e6, 3e6, "compile_file", "")])
    assert shares == {("0/1", "wait"): 2.0, ("0/1", "compile_file"): 2.0}


def test_parallel_steps_count_once() -> None:
    rows = [Interval(0, 4e6, "a", "0/0"), Interval(0, 4e6, "b", "0/0")]
    assert sum(share_out(rows).values()) == 4.0


SPANS = st.tuples(st.integers(0, 30), st.integers(1, 30))


@given(st.lists(SPANS, max_size=12))
def test_shares_add_up_to_the_time_anything_ran(spans: list[tuple[int, int]]) -> None:
    rows = [Interval(a * 1e6, (a + n) * 1e6, f"s{a}", "0/0") for a, n in spans]
    covered = {second for a, n in spans for second in range(a, a + n)}
    assert round(sum(share_out(rows).values()), 6) == len(covered)


def test_phases() -> None:
    known = {
        "compile_file": "build",
        "build_guards": "capture",
        "bytecode_tracing": "capture",
        "Scheduler.codegen": "lowering",
        "_recursive_joint_graph_passes": "graph passes",
        "inductor_codecache_torch_key": "cache",
        "never heard of it": "other",
    }
    assert {name: phase_of(name) for name in known} == known
