"""On a GPU: launches replayed as CUDA graphs agree with eager. `make test-gpu` runs these."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch

import tc
from tc.trace import CudaGraph
from tc.trace.emit import capture_events

pytestmark = pytest.mark.gpu
T = torch.Tensor


@pytest.fixture(autouse=True)
def fresh() -> None:
    tc.reset()


def actions(events: Any) -> list[str]:
    return [event.action for event in events.of(CudaGraph)]


def test_inference_is_replayed() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64))
    net = net.cuda()
    compiled = tc.compile(net, mode="reduce-overhead")
    with torch.no_grad(), capture_events() as events:
        for _ in range(6):
            x = torch.randn(32, 64, device="cuda")
            torch.testing.assert_close(compiled(x), net(x), rtol=1e-4, atol=1e-4)
    assert actions(events)[0] == "recorded"


def test_training_steps_are_replayed() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))
    twin = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))
    twin.load_state_dict(net.state_dict())
    net, twin = net.cuda(), twin.cuda()
    compiled = tc.compile(net, mode="reduce-overhead")
    both = [(compiled, net), (twin, twin)]
    optimizers = [torch.optim.SGD(module.parameters(), 0.05) for _, module in both]
    for _ in range(8):
        x = torch.randn(32, 16, device="cuda")
        losses = []
        for (call, _), optimizer in zip(both, optimizers, strict=True):
            optimizer.zero_grad()
            loss = call(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
        assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_results_that_are_held_keep_their_values() -> None:
    compiled = tc.compile(lambda x: x.sin() + 1, mode="reduce-overhead")
    with torch.no_grad(), capture_events() as events:
        inputs = [torch.randn(100, device="cuda") for _ in range(8)]
        results = [compiled(x) for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        torch.testing.assert_close(result, x.sin() + 1)
    assert "recorded anew" in actions(events)


def test_several_sizes_and_streams() -> None:
    compiled = tc.compile(lambda x: (x * 2).softmax(-1), mode="reduce-overhead", dynamic=True)
    side = torch.cuda.Stream()
    with torch.no_grad():
        for _ in range(4):
            for size in (5, 9, 64):
                x = torch.randn(7, size, device="cuda")
                torch.testing.assert_close(compiled(x), (x * 2).softmax(-1))
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    torch.testing.assert_close(compiled(x), (x * 2).softmax(-1))
                torch.cuda.current_stream().wait_stream(side)


def test_buffers_that_are_written_to() -> None:
    net = torch.nn.BatchNorm1d(8).cuda()
    twin = torch.nn.BatchNorm1d(8).cuda()
    compiled = tc.compile(net, mode="reduce-overhead")
    for _ in range(6):
        x = torch.randn(16, 8, device="cuda")
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), twin(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(net.running_mean, twin.running_mean)


def test_random_numbers_continue() -> None:
    compiled = tc.compile(lambda x: torch.nn.functional.dropout(x, 0.5), mode="reduce-overhead")
    x = torch.ones(4096, device="cuda")
    with torch.no_grad():
        drawn = [compiled(x).clone() for _ in range(5)]
    assert all(not torch.equal(a, b) for a, b in pairwise(drawn))


def test_an_input_on_the_cpu_is_refused() -> None:
    compiled = tc.compile(lambda x, y: x * y, mode="reduce-overhead")
    x = torch.randn(9, device="cuda")
    with torch.no_grad(), capture_events() as events:
        for value in (1.0, 2.0, 3.0, 4.0):
            torch.testing.assert_close(compiled(x, torch.tensor(value)), x * value)
    assert actions(events) == ["refused"]
