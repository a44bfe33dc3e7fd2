"""Recording and replaying of launches: what is copied, what is refused, what is reported.

The recorder here is for CPU tensors: a replay computes again into the memory of the recording, as a
CUDA graph does. Real ones are the matter of `tests/gpu`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tc
from tc.compiler import pipeline
from tc.compiler.runtime import cudagraphs
from tc.compiler.runtime.cudagraphs import MOST_MOVES, MOST_RECORDINGS, Replayed
from tc.trace import CudaGraph
from tc.trace.emit import capture_events

T = torch.Tensor
CPU = torch.device("cpu")


class Memory:
    """Records launches on a CPU."""

    device = CPU

    def __init__(self, *_: Any) -> None:
        self.recorded = self.replayed = 0
        self.pools: list[Any] = []

    def pool(self) -> Any:
        self.pools.append(object())
        return self.pools[-1]

    def join(self) -> None:
        self.joined = True

    def record(self, launch: Callable[[], tuple[Any, ...]], pool: Any) -> Any:
        assert pool is self.pools[-1]
        results = launch()
        self.recorded += 1

        def replay() -> None:
            self.replayed += 1
            for mine, new in zip(results, launch(), strict=True):
                if isinstance(mine, T):
                    mine.copy_(new)

        return replay, results


def plus_one(args: list[Any]) -> tuple[Any, ...]:
    (x,) = args
    args.clear()
    return (x + 1,)


def check(run: Replayed, *args: Any) -> T:
    want = run.launch([a.clone() if isinstance(a, T) else a for a in args])
    got = run(list(args))
    torch.testing.assert_close(got, want)
    return got[0]


def reported(events: Any) -> list[tuple[str, str]]:
    return [(event.action, event.cause) for event in events.of(CudaGraph)]


def test_the_second_call_records_and_later_ones_replay() -> None:
    memory = Memory()
    run, x = Replayed(plus_one, memory), torch.randn(5)
    with capture_events() as events:
        counts = []
        for _ in range(4):
            x.mul_(2)
            check(run, x)
            counts.append((memory.recorded, memory.replayed))
    assert counts == [(0, 0), (1, 1), (1, 2), (1, 3)]
    assert reported(events) == [("recorded", "")]


def test_a_run_that_asks_for_another_is_not_recorded() -> None:
    tc.cudagraph_mark_warmup_incomplete()  # outside of a graph it asks for nothing
    memory, calls, x = Memory(), [], torch.randn(5)

    def measured(args: list[Any]) -> tuple[Any, ...]:
        calls.append(len(calls))
        if len(calls) in (1, 2):
            tc.cudagraph_mark_warmup_incomplete()
        return plus_one(args)

    run, recorded = Replayed(measured, memory), []
    for _ in range(4):
        torch.testing.assert_close(run([x])[0], x + 1)
        recorded.append(memory.recorded)
    assert recorded == [0, 0, 0, 1]


def test_inputs_that_move_are_copied() -> None:
    memory = Memory()
    run = Replayed(plus_one, memory)
    kept = [torch.randn(5) for _ in range(9)]
    for x in kept:
        check(run, x)
    assert (memory.recorded, memory.replayed) == (1, 8)


def test_an_input_that_moves_later_is_copied_from_then_on() -> None:
    memory = Memory()

    def add(args: list[Any]) -> tuple[Any, ...]:
        x, y = args
        args.clear()
        return (x * y,)

    run, x, y = Replayed(add, memory), torch.randn(5), torch.randn(5)
    others = [torch.randn(5) for _ in range(3)]
    for a, b in [(x, y), (x, y), (x, y), (x, others[0]), (x, others[1]), (others[2], y)]:
        check(run, a, b)
    assert memory.recorded == 3
    assert MOST_MOVES >= 2


def test_each_set_of_sizes_has_its_recording() -> None:
    memory = Memory()
    run = Replayed(plus_one, memory)
    for _ in range(3):
        for size in (2, 3, 4):
            check(run, torch.randn(size))
    assert memory.recorded == 3
    assert len(memory.pools) == 1


def test_too_many_sizes_run_one_by_one_and_it_is_reported() -> None:
    memory = Memory()
    run = Replayed(plus_one, memory)
    with capture_events() as events:
        for size in range(MOST_RECORDINGS + 3):
            for _ in range(2):
                check(run, torch.randn(size + 1))
    assert memory.recorded == MOST_RECORDINGS
    assert reported(events).count(("refused", "dynamic")) == 1


def test_numbers_are_part_of_a_recording() -> None:
    def times(args: list[Any]) -> tuple[Any, ...]:
        x, n = args
        args.clear()
        return x * n, n + 1

    run, x = Replayed(times, Memory()), torch.randn(3)
    for n in (2, 2, 3, 3, 2):
        assert torch.equal(run([x, n])[0], x * n)
        assert run([x, n])[1] == n + 1


def test_results_that_are_held_are_never_written_over() -> None:
    memory = Memory()
    run, x = Replayed(plus_one, memory), torch.zeros(3)
    kept, wanted = [], []
    with capture_events() as events:
        for _ in range(6):
            x.add_(1)
            kept.append(run([x])[0])
            wanted.append(x + 1)
            torch.testing.assert_close(kept, wanted)
    assert reported(events) == [("recorded", ""), ("recorded anew", "held"), ("recorded", "")]
    assert (memory.recorded, len(memory.pools)) == (2, 2)


def test_a_held_view_of_a_result_counts() -> None:
    run, x = Replayed(plus_one, Memory()), torch.zeros(4)
    check(run, x)
    view = check(run, x)[1:]
    x.add_(5)
    check(run, x)
    assert view.tolist() == [1, 1, 1]


def test_a_result_of_other_sizes_that_is_held_survives() -> None:
    memory = Memory()
    run = Replayed(plus_one, memory)
    for _ in range(2):
        small, large = check(run, torch.zeros(2)), check(run, torch.zeros(3))
    x = torch.ones(3)
    check(run, x)
    assert (small.tolist(), large.tolist()) == ([1, 1], [1, 1, 1])
    assert len(memory.pools) > 1


def test_results_that_share_memory_share_their_copy() -> None:
    def halves(args: list[Any]) -> tuple[Any, ...]:
        (x,) = args
        args.clear()
        y = x + 1
        return y[:2], y[1:], None

    run, x = Replayed(halves, Memory()), torch.zeros(3)
    held = [run([x]) for _ in range(4)]
    a, b, nothing = run([x])
    a[1] = 7
    assert b.tolist() == [7, 1]
    assert nothing is None
    assert all(one[1].tolist() == [1, 1] for one in held)


def test_an_input_that_is_written_to_stays_where_it_is() -> None:
    def count(args: list[Any]) -> tuple[Any, ...]:
        (x,) = args
        args.clear()
        x.add_(1)
        return (x * 2,)

    memory = Memory()
    run, x = Replayed(count, memory, written=[0]), torch.zeros(2)
    for _ in range(5):
        run([x])
    assert x.tolist()[0] > 4  # this recorder computes while it records
    assert x._version >= 5
    assert memory.replayed == 4


def test_an_input_that_is_written_to_and_moves_is_refused() -> None:
    def count(args: list[Any]) -> tuple[Any, ...]:
        (x,) = args
        args.clear()
        x.add_(1)
        return (x * 2,)

    memory = Memory()
    run = Replayed(count, memory, written=[0])
    kept = [torch.zeros(2) for _ in range(4)]
    with capture_events() as events:
        for x in kept:
            assert run([x])[0].tolist() == [2, 2]
    assert reported(events) == [("refused", "mutation")]
    assert all(x.tolist() == [1, 1] for x in kept)
    assert memory.recorded == 0


@pytest.mark.parametrize(
    ("launch", "args", "cause"),
    [
        (lambda args: (args[0][1:],), [torch.ones(3)], "alias"),
        (lambda args: ([args[0] + 1],), [torch.ones(3)], "unrecordable"),
        (lambda args: torch.ones(2).nonexistent(), [torch.ones(3)], None),
    ],
)
def test_what_cannot_be_replayed(launch: Any, args: list[Any], cause: str | None) -> None:
    run = Replayed(launch, Memory())
    if cause is None:
        with pytest.raises(AttributeError):
            run(list(args))
        return
    with capture_events() as events:
        for _ in range(4):
            assert str(run(list(args))) == str(launch(list(args)))
    assert reported(events) == [("refused", cause)]


def test_tensors_elsewhere_and_repeated_elements_are_refused() -> None:
    memory = Memory()
    memory.device = torch.device("meta")
    with capture_events() as events:
        check(Replayed(plus_one, memory), torch.ones(2))
        run = Replayed(plus_one, Memory())
        for _ in range(3):
            check(run, torch.ones(1).expand(3))
            keep = [torch.ones(1) for _ in range(5)]  # so that the next one lies elsewhere
        del keep
    assert ("refused", "elsewhere") in reported(events)
    assert set(reported(events)) <= {
        ("refused", "elsewhere"),
        ("refused", "overlap"),
        ("recorded", ""),
    }


def test_a_device_that_fails_to_record_launches_one_by_one() -> None:
    class Broken(Memory):
        def record(self, *_: Any) -> Any:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")

    run = Replayed(plus_one, Broken())
    with capture_events() as events:
        for _ in range(3):
            check(run, torch.ones(2))
    (event,) = events.of(CudaGraph)
    assert (event.action, event.cause) == ("refused", "unrecordable")
    assert event.why == "operation not permitted when stream is capturing"


# ---------------------------------------------------------------- the whole pipeline


@pytest.fixture
def on_gpu(monkeypatch):
    """Kernels are made for a GPU, which is the CPU here, and its launches are recorded."""
    triton = pytest.importorskip("triton", reason="triton is not installed")
    if not triton.knobs.runtime.interpret:
        pytest.skip("triton compiles in this process (TRITON_INTERPRET=0)")
    from triton_harness import complete_interpreter

    complete_interpreter()
    tc.reset()
    made: list[Memory] = []

    def recorder(device: torch.device) -> Memory:
        made.append(Memory())
        return made[-1]

    monkeypatch.setattr(pipeline, "gpu_of", lambda module: CPU)
    monkeypatch.setattr(cudagraphs, "RECORDERS", {"cpu": recorder})
    with tc.config.patch(fx_graph_cache=False):
        yield made


def test_reduce_overhead_replays_forward_and_backward(on_gpu: list[Memory]) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
    compiled = tc.compile(net, mode="reduce-overhead")
    for _ in range(4):
        x = torch.randn(3, 4)
        loss = compiled(x).square().sum()
        found = torch.autograd.grad(loss, net.parameters())
        wanted = torch.autograd.grad(net(x).square().sum(), net.parameters())
        torch.testing.assert_close(found, wanted)
        del loss, found
    assert [memory.recorded > 0 for memory in on_gpu] == [True, True]


def test_modes_without_replay_record_nothing(on_gpu: list[Memory]) -> None:
    tc.compile(lambda x: x.sin() + 1, mode="default")(torch.randn(3))
    assert on_gpu == []
