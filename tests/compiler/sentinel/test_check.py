"""What is right is never called wrong, whatever it does; what is wrong is, wherever it shows."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import tc
from tc import trace
from tc.compiler.capture.guards import rows as guard_rows
from tc.compiler.options import config

Program = Callable[..., Any]


@pytest.fixture(autouse=True)
def every_call() -> Iterator[None]:
    tc.reset()
    tc.counters["sentinel"].clear()
    with config.patch(sentinel=1, sentinel_bisect=False):
        yield


def counts() -> dict[str, int]:
    return dict(tc.counters["sentinel"])


# -- healthy programs --------------------------------------------------------------------------
def writes(x: Any, y: Any) -> Any:
    y.add_(x.sum())
    return x.sin(), y, x[1:]


def shares(x: Any) -> Any:
    return writes(x, x.view(-1)[:2])


class Layers(torch.nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        one, two = torch.nn.Linear(6, 8, dtype=dtype), torch.nn.Linear(8, 6, dtype=dtype)
        self.inner = torch.nn.Sequential(one, torch.nn.GELU(), torch.nn.Dropout(0.3), two)
        self.norm = torch.nn.LayerNorm(6, dtype=dtype)

    def forward(self, x: Any) -> Any:
        return self.norm(x + self.inner(x))


def odd_numbers(x: Any) -> Any:
    return torch.log(x), x / (x - x), (x > 0).sum(), x.argmax(), x.shape[0] * 2, None


def no_order(x: Any) -> Any:
    return x.half().sum(0), x.bfloat16().cumsum(0), (x * 1e4 + 1).mean() - 1


def autocasts(x: Any) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return (x @ x.T).softmax(-1) @ x


X = torch.randn(6, 6, generator=torch.Generator().manual_seed(0))
HEALTHY: dict[str, tuple[Program, list[tuple[Any, ...]]]] = {
    "writes": (writes, [(X.clone(), torch.zeros(3)), (X.clone(), torch.zeros(3))]),
    "shared memory": (lambda x: shares(x), [(X.clone(),), (X.clone(),)]),
    "odd numbers": (odd_numbers, [(X,), (torch.zeros(3),)]),
    "rounding": (no_order, [(torch.randn(n, 5),) for n in (300, 301, 5000)]),
    "random": (lambda x: (torch.rand_like(x), torch.randn(3), torch.randperm(4)), [(X,)]),
    "integers": (lambda x: (x // 3, x**2, x.cumsum(0), x > 4), [(torch.arange(9),)]),
    "autocast": (autocasts, [(X,)]),
    "strides": (lambda x: x.t().relu(), [(X[::2, 1:],), (X.expand(2, 6, 6)[0],)]),
    "sizes": (lambda x: x.softmax(-1), [(torch.randn(n, 4),) for n in (2, 3, 5, 9)]),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_program_is_not_accused(name: str) -> None:
    program, calls = HEALTHY[name]
    compiled = tc.compile(program)
    for arguments in calls:
        compiled(*arguments)
    assert counts() == {"compared": len(calls)}


@pytest.mark.sample(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_is_compared_forward_and_backward(dtype: torch.dtype) -> None:
    model = Layers(dtype)
    compiled = tc.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for size in (4, 4, 5, 7):
        x = torch.randn(size, 6, dtype=dtype, requires_grad=True)
        compiled(x * 2).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert counts() == {"compared": 4, "compared backward": 4}


def test_results_and_random_numbers_are_those_without_the_sentinel() -> None:
    model = Layers()
    found = []
    for rate in (0, 1):
        tc.reset()
        torch.manual_seed(3)
        with config.patch(sentinel=rate):
            compiled = tc.compile(model)
            found.append([compiled(X), torch.rand(3), compiled(X)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


class Seen(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.operations: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations.append(str(func))
        return func(*args, **(kwargs or {}))


def test_modes_of_the_program_do_not_see_the_sentinel() -> None:
    compiled = tc.compile(lambda x: torch.sort(x)[0])
    compiled(X)
    with Seen() as seen:
        compiled(X)
    with config.patch(sentinel=0), Seen() as alone:
        tc.reset()
        tc.compile(lambda x: torch.sort(x)[0])(X)
    assert seen.operations == alone.operations
    assert counts() == {"compared": 2}


def test_gradients_of_an_input_given_twice_and_of_several_outputs() -> None:
    def program(x: Any, y: Any) -> Any:
        return (x * y).sum(), x.sin(), y.detach()

    compiled = tc.compile(program)
    x = torch.randn(4, requires_grad=True)
    for _ in range(2):
        total, waves, _ = compiled(x, x)
        (total + waves.sum()).backward()
        compiled(x, x.clone())[0].backward()
    assert counts() == {"compared": 4, "compared backward": 4}


def test_gradients_of_gradients_are_left_alone() -> None:
    x = torch.randn(4, requires_grad=True)
    y = tc.compile(lambda x: x.sin() * x)(x).sum()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 2 * x.cos() - x * x.sin())
    assert counts() == {"compared": 1, "compared backward": 1}


def test_values_written_past_autograd_are_not_held_against_a_backward() -> None:
    x = torch.ones(4, requires_grad=True)
    y = tc.compile(lambda x: x.exp())(x)
    y.data.zero_()  # eager's gradient is zero as well
    y.sum().backward()
    reason = "skipped: data was written between forward and backward, unseen by autograd"
    assert counts() == {"compared": 1, reason: 1}


@pytest.mark.usefixtures("only_new_garbage")
def test_a_backward_that_never_runs_holds_no_memory() -> None:
    x = torch.randn(64, requires_grad=True)
    y = tc.compile(lambda x: x.sin() * x)(x)
    node = weakref.ref(y.grad_fn)
    del y
    gc.collect()
    assert node() is None


# -- what is not compared ------------------------------------------------------------------------
def test_calls_that_cannot_be_compared_are_counted_with_the_reason() -> None:
    big = tc.compile(lambda x: x + 1)
    with config.patch(sentinel_memory=16):
        assert big(torch.zeros(4)).tolist() == [1.0] * 4
    turn = iter(range(100))

    @torch.library.custom_op("sentinel_test::restless", mutates_args=())
    def op(x: torch.Tensor) -> torch.Tensor:
        return x + next(turn)

    op.register_fake(torch.empty_like)
    tc.compile(lambda x: op(x))(torch.zeros(2))
    assert counts() == {
        "skipped: copies of the inputs would exceed tc.config.sentinel_memory": 1,
        "skipped: eager itself gives other results when it is repeated": 1,
    }


def test_kernels_that_draw_numbers_of_their_own_are_not_compared() -> None:
    with config.patch(fallback_random=False):
        tc.compile(lambda x: torch.nn.functional.dropout(x, 0.5))(torch.ones(64))
    assert counts() == {"skipped: random numbers differ from those of eager": 1}


# -- faults --------------------------------------------------------------------------------------
def at_last(change: Callable[[Any], Any]) -> Callable[[Any], None]:
    def damage(value: Any) -> None:
        flat = value.detach().view(-1)
        flat[-1] = change(flat[-1].clone())

    return damage


LANE = {
    "one lane": at_last(lambda v: v + 0.01),
    "a small lane": at_last(lambda v: v * 1.001 + 1e-3),
    "NaN": at_last(lambda v: v * float("nan")),
    "infinity": at_last(lambda v: v + float("inf")),
    "zero": at_last(lambda v: v * 0),
    "all lanes": lambda value: value.mul_(1.01),
    "rows exchanged": lambda value: value.copy_(value.flip(0).clone()),
}


def faulty(damage: Callable[[Any], None], after: int = 0) -> Any:
    """Return a backend whose results are damaged from some call on."""

    def backend(gm: Any, inputs: Any) -> Any:
        calls = iter(range(10**9))

        def run(*args: Any) -> Any:
            made = [v.clone() if isinstance(v, torch.Tensor) else v for v in gm(*args)]
            if next(calls) >= after:
                with torch.no_grad():
                    damage(made[0])
            return made

        return run

    return backend


PROGRAMS: dict[str, Program] = {
    "pointwise": lambda x: x.sin() + 2,
    "reduction": lambda x: x.softmax(-1),
    "product": lambda x: x @ x.transpose(-1, -2),
}


def findings(events: Any) -> list[trace.SentinelDifference]:
    return list(events.of(trace.SentinelDifference))


@pytest.mark.sample(7)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("fault", LANE)
@pytest.mark.parametrize("after", [0, 1500])
def test_a_wrong_result_is_found_within_5000_calls_at_one_in_1000(
    program: str, fault: str, after: int
) -> None:
    function = PROGRAMS[program]
    with config.patch(sentinel="1/1000"), trace.capture_events() as events:
        compiled = tc.compile(lambda x: function(x), backend=faulty(LANE[fault], after))
        calls = 0
        while calls < 5000 and not findings(events):
            compiled(X)
            calls += 1
    (found,) = findings(events)
    assert found.kind == ("nan" if fault in ("NaN", "infinity") else "wrong")
    assert found.repeats == "3 of 3"
    assert found.call > after


@pytest.mark.parametrize("fault", ["NaN", "zero", "rows exchanged"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_narrow_types(fault: str, dtype: torch.dtype) -> None:
    with trace.capture_events() as events:
        tc.compile(lambda x: x.sin() + 2, backend=faulty(LANE[fault]))(X.to(dtype))
    assert len(findings(events)) == 1


def test_integers_are_exact() -> None:
    with trace.capture_events() as events:
        tc.compile(lambda x: x * 2, backend=faulty(lambda v: v.add_(1)))(torch.arange(4))
    (found,) = findings(events)
    assert found.message == "output 0 at [0]: compiled 1, eager 0 (4 of 4 elements)"


def backend_of(run: Callable[[Any, list[Any]], Any]) -> Any:
    return lambda gm, inputs: lambda *args: run(gm, list(args))


def lost_write(gm: Any, args: list[Any]) -> Any:
    return gm(*[v.clone() for v in args])


def extra_write(gm: Any, args: list[Any]) -> Any:
    made = gm(*args)
    args[0].view(-1)[0] += 1
    return made


def another_dtype(gm: Any, args: list[Any]) -> Any:
    return [v.double() for v in gm(*args)]


def another_shape(gm: Any, args: list[Any]) -> Any:
    return [v[1:] for v in gm(*args)]


def low_precision(gm: Any, args: list[Any]) -> Any:
    return [v.float() for v in gm(*[v.bfloat16() for v in args])]


WHOLE: dict[str, tuple[Program, Any, str]] = {
    "a lost write": (lambda x: x.add_(1).sin(), lost_write, "output 1"),
    "a write to an input": (lambda x: x.sin(), extra_write, "output 1"),
    "another dtype": (lambda x: x.sin(), another_dtype, "float64[6, 6] instead of float32[6, 6]"),
    "another shape": (lambda x: x.sin(), another_shape, "float32[5, 6] instead of float32[6, 6]"),
    "low precision": (lambda x: x.sin().cumsum(0), low_precision, "output 0"),
}


@pytest.mark.parametrize("fault", WHOLE)
def test_what_goes_wrong_besides_values_is_found(fault: str) -> None:
    program, run, message = WHOLE[fault]
    with trace.capture_events() as events:
        tc.compile(program, backend=backend_of(run))(X.clone())
    (found,) = findings(events)
    assert message in found.message


class Scaled(torch.autograd.Function):
    """A function whose gradient is another than that of eager."""

    @staticmethod
    def forward(ctx: Any, x: Any, kind: str) -> Any:
        ctx.kind = kind
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        (x,) = ctx.saved_tensors
        gradient = tangents[0] * x.cos()
        if ctx.kind == "scaled":
            gradient = gradient * 1.01
        elif ctx.kind == "one lane":
            gradient[-1] = 0
        elif ctx.kind == "NaN":
            gradient[0] = float("nan")
        return (None if ctx.kind == "none" else gradient), None


@pytest.mark.parametrize("kind", ["right", "scaled", "one lane", "NaN", "none"])
def test_wrong_gradients_are_found(kind: str) -> None:
    def backend(gm: Any, inputs: Any) -> Any:
        return lambda x: (Scaled.apply(x, kind),)

    x = torch.randn(5, requires_grad=True)
    with trace.capture_events() as events:
        tc.compile(lambda x: x.sin(), backend=backend)(x).sum().backward()
    assert [found.gradients for found in findings(events)] == [True] * (kind != "right")


def test_code_of_another_graph_is_found() -> None:
    """As a wrong entry of a cache would be."""
    kept: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        kept.append(gm.forward)
        return lambda *args: kept[0](*args)

    with trace.capture_events() as events:
        for program in (lambda x: x + 1, lambda x: x + 2):
            tc.compile(program, backend=backend)(X)
    assert len(findings(events)) == 1


def test_a_fault_that_does_not_repeat_is_called_so() -> None:
    calls = iter(range(100))

    def once(value: Any) -> None:
        value.add_(next(calls) == 0)

    with trace.capture_events() as events:
        tc.compile(lambda x: x.sin(), backend=faulty(once))(X)
    (found,) = findings(events)
    assert found.repeats == "0 of 3"


# -- guards --------------------------------------------------------------------------------------
def let_all_pass(monkeypatch: pytest.MonkeyPatch, drop: Callable[[Any], bool]) -> None:
    """Leave some guards out of the C++ tree."""
    for kind, row in list(guard_rows.GUARDS.rows()):

        def install(tree: Any, guard: Any, real: Any = row.install) -> None:
            if not drop(guard):
                real(tree, guard)

        monkeypatch.setitem(guard_rows.GUARDS._rows, kind, replace(row, install=install))


FACTOR = 2.0


def reads_a_global(x: Any) -> Any:
    return x * FACTOR


def test_a_dropped_guard_on_a_value_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    let_all_pass(monkeypatch, lambda guard: "FACTOR" in guard.source.name)
    compiled = tc.compile(reads_a_global)
    with trace.capture_events() as events:
        compiled(X)
        monkeypatch.setitem(globals(), "FACTOR", 3.0)
        compiled(X)
    (found,) = findings(events)
    assert (found.kind, found.call) == ("guard", 2)
    assert "FACTOR" in found.message


def test_a_dropped_guard_on_sizes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    let_all_pass(monkeypatch, lambda guard: guard.kind == "TENSOR")
    compiled = tc.compile(lambda x: x.sum(), dynamic=False)
    with trace.capture_events() as events:
        compiled(torch.ones(8))
        compiled(torch.ones(12))
    assert len(findings(events)) == 1
