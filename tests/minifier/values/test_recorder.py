"""What the recorder writes down of a program, and that it leaves the program alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tc.minifier.values import log as logs
from tc.minifier.values.log import GRADIENT, INPUT, VALUE, VJP, Event
from tc.minifier.values.recorder import Log, Places, Recorder, operation, signs, summary


def recorded(
    folder: Path, program: Callable[[], Any], moved: int | None = None, limit: int = 1000
) -> list[Event]:
    """Run a program under a recorder, and read its log again."""
    log = Log(folder / "log", {}, limit)
    with Recorder(log, Places(__file__, str(folder)), moved):
        program()
    log.close("")
    return logs.Log.read(folder / "log").events


def test_each_call_is_an_event_with_its_line_and_its_gradient(tmp_path: Path) -> None:
    w = torch.randn(4, 3, requires_grad=True)

    def program() -> None:
        h = torch.tanh(torch.ones(2, 4) @ w)
        (h * 2).sum().backward()

    events = recorded(tmp_path, program)
    values = [event.operation for event in events if event.kind == VALUE]
    assert values == ["ones", "matmul", "tanh", "mul", "sum"]
    tanh = next(event for event in events if event.operation == "tanh")
    assert tanh.line.text == "h = torch.tanh(torch.ones(2, 4) @ w)"
    assert tanh.line.file == "" and tanh.line.function == "program"
    assert [events[number].operation for number in tanh.enters] == ["matmul"]
    gradients = [event for event in events if event.kind == GRADIENT]
    names = [events[event.enters[0]].operation for event in gradients]
    assert names == ["sum", "mul", "tanh", "matmul", "matmul, argument 1"]
    assert [e.operation for e in events if e.kind == INPUT] == ["matmul, argument 1"]


def passed(events: list[Event]) -> dict[tuple[str, int], list[tuple[float, ...]]]:
    """What calls pass back, by operation and argument."""
    found: dict[tuple[str, int], list[tuple[float, ...]]] = {}
    for event in events:
        if event.kind == VJP:
            found.setdefault((event.operation, event.part), []).append(event.first)
    return found


def backward(loss: torch.Tensor, w: torch.Tensor) -> None:
    loss.backward()


def grad_of_one(loss: torch.Tensor, w: torch.Tensor) -> None:
    torch.autograd.grad(loss, w)


def twice(loss: torch.Tensor, w: torch.Tensor) -> None:
    torch.autograd.grad(loss, w, create_graph=True)


@pytest.mark.parametrize("asks", [backward, grad_of_one, twice])
def test_what_a_call_passes_back_belongs_to_it(asks: Any, tmp_path: Path) -> None:
    w = torch.tensor([3.0], requires_grad=True)

    def program() -> None:
        h = w * 2
        asks((h * h + F.linear(h[None], w[None]).view(1)).sum(), w)

    found = passed(recorded(tmp_path, program))
    assert found["mul", 0] == [(6.0,), (2 * (6.0 + 6.0 + 3.0),)]  # h * h, w * 2
    assert found["mul", 1] == [(6.0,)]  # h, the second factor
    assert found["linear", 0] == [(3.0,)] and found["linear", 1] == [(6.0,)]
    assert ("view", 0) not in found  # views pass on what they get


def test_a_leaf_that_was_made_here_has_its_gradient(tmp_path: Path) -> None:
    def program() -> None:
        layer = torch.nn.Linear(2, 2)
        torch.autograd.grad(layer(torch.ones(1, 2)).sum(), [*layer.parameters()])

    events = recorded(tmp_path, program)
    leaves = [e for e in events if e.kind == GRADIENT and ", argument" in e.operation]
    assert [event.operation for event in leaves] == ["linear, argument 2", "linear, argument 1"]


def test_what_is_not_set_yet_is_no_event(tmp_path: Path) -> None:
    events = recorded(tmp_path, lambda: torch.nn.init.ones_(torch.empty(3)))
    assert [event.operation for event in events] == ["fill_"]


def test_a_log_has_an_end(tmp_path: Path) -> None:
    def program() -> None:
        for number in range(30):
            torch.full((2,), number)

    assert len(recorded(tmp_path, program, limit=10)) == 10


def test_one_function_has_one_name() -> None:
    x = torch.ones(2, 2)
    seen: list[str] = []

    class Names(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(operation(func))
            return func(*args, **(kwargs or {}))

    with Names():
        x + 1, 1 + x, x.add(1), torch.add(x, 1)
        x / 2, x.div(2), x @ x, torch.matmul(x, x)
        x += 1
        x.add_(1)
        x.mT  # noqa: B018
    assert seen == ["add"] * 4 + ["div"] * 2 + ["matmul"] * 2 + ["add_"] * 2 + ["mT"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool,
                                   torch.complex64])  # fmt: skip
def test_projections_measure_distances(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    x = (torch.randn(40, 50, generator=generator) * 9).to(dtype)
    y = x.clone()
    y[7, 3] = 0
    one, other = summary(x), summary(y)
    assert one is not None and other is not None
    apart = float(np.sqrt(sum((a - b) ** 2 for a, b in zip(one[4], other[4], strict=True))))
    wide = torch.complex128 if dtype.is_complex else torch.float64
    exact = float((x.to(wide) - y.to(wide)).abs().square().sum().sqrt())
    assert apart == pytest.approx(exact, rel=1e-6)
    assert (one[2] == other[2]) == (exact == 0)


def test_projections_of_many_differences_are_unbiased() -> None:
    generator = torch.Generator().manual_seed(5)
    ratios = []
    for _ in range(40):
        x, y = torch.randn(2, 1000, generator=generator)
        sums = [summary(value)[4] for value in (x, y)]  # type: ignore[index]
        apart = sum((a - b) ** 2 for a, b in zip(*sums, strict=True))
        ratios.append(apart / float((x - y).double().square().sum()))
    assert 0.8 < np.mean(ratios) < 1.2


def test_signs_never_change() -> None:
    assert signs(12).tolist() == signs(4096)[:12].tolist()
    assert signs(12).tolist() == [1, 1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1]
    assert abs(signs(100_000).sum()) < 1000


@pytest.mark.parametrize("value", [
    torch.zeros(0), torch.tensor(3.0), torch.zeros(2, 3).t(), torch.full((3,), torch.nan),
    torch.zeros(2, device="meta"), torch.zeros(4).to_sparse(),
])  # fmt: skip
def test_odd_tensors_have_a_summary_or_none(value: torch.Tensor) -> None:
    found = summary(value)
    assert found is None or found[1] == list(value.shape)


def test_moved_runs_are_a_unit_apart_and_keep_random_numbers(tmp_path: Path) -> None:
    found = []

    def program() -> None:
        torch.manual_seed(0)
        w = torch.ones(300, requires_grad=True)
        found.append(F.dropout(torch.exp(w), 0.5))

    recorded(tmp_path, program)
    recorded(tmp_path, program, moved=1)
    assert torch.equal(found[0] == 0, found[1] == 0)
    assert not torch.equal(*found)
    torch.testing.assert_close(*found)
