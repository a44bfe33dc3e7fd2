"""Values taken in at computed places, by atomic operations: interpreters of loops and of the plan,
and Triton under its interpreter, agree with eager.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from loop_harness import check, copied, externs, lowered, trace
from scatter_samples import CASES, aten, i, r
from triton_harness import gpu_program, machine_code

from tc.compiler.core.gate import Gate
from tc.compiler.core.gpu import GpuProgram
from tc.compiler.loops.interpret import interpret
from tc.compiler.loops.ir import LoopGraph, Scatter
from tc.compiler.loops.lower.graph import lower
from tc.compiler.loops.lower.registry import SCATTERS
from tc.compiler.runtime.triton import load
from tc.compiler.schedule import gpu
from tc.compiler.schedule.interpret import interpret as interpret_plan
from tc.compiler.schedule.plan import Allocate

T = torch.Tensor
pytestmark = [
    pytest.mark.usefixtures("as_on_a_gpu"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


def scatters(graph: LoopGraph) -> list[Scatter]:
    return [node for node in graph.nodes if isinstance(node, Scatter)]


def compare(
    fn: Callable[..., Any], args: Any, mode: str = "fake", run_args: Any = None, **tolerance: float
) -> GpuProgram:
    graph = lowered(fn, args, mode)
    assert scatters(graph) and not externs(graph), str(graph)
    used = args if run_args is None else run_args
    want = fn(*copied(used))
    check(interpret(graph, copied(used)), want, **tolerance)
    plan = gpu.plan(graph, Gate())
    plan.verify()
    check(interpret_plan(plan, copied(used)), want, **tolerance)
    program = gpu_program(graph)
    check(load(program)(copied(used)), want, **tolerance)
    return program


@pytest.mark.sample(4)
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_eager(name: str, mode: str, interpreter: None) -> None:
    fn, args = CASES[name]
    compare(fn, args, mode, rtol=1e-5, atol=1e-4)


def test_every_row_of_the_table_is_among_them() -> None:
    graphs = (lowered(fn, args) for fn, args in CASES.values())
    ops = {origin.op for graph in graphs for node in scatters(graph) for origin in node.origins}
    assert {str(op) for op in SCATTERS} <= ops


DTYPES = (torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.int16, torch.uint8)


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["sum", "amax", "amin", "set"])
def test_types(dtype: torch.dtype, kind: str, interpreter: None) -> None:
    def fn(x: T, n: T, y: T) -> T:
        return x.scatter(0, n, y) if kind == "set" else x.scatter_reduce(0, n, y, kind)

    n = torch.stack([torch.randperm(20) for _ in range(3)], 1) if kind == "set" else i(20, 20, 3)
    wide = dtype in (torch.bfloat16, torch.float16)
    compare(fn, (r(20, 3).abs().to(dtype), n, r(20, 3).abs().to(dtype)),
            **({"rtol": 2e-2, "atol": 5e-2} if wide else {}))  # fmt: skip


def test_bools_are_set_and_compared(interpreter: None) -> None:
    x, n, y = r(6) > 0, torch.tensor([3, 0]), torch.tensor([True, False])
    compare(lambda x, n, y: x.scatter(0, n, y), (x, n, y))
    compare(lambda x, n, y: x.scatter_reduce(0, n, y, "amax"), (x, n, y))


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", ["amax", "amin"])
@pytest.mark.parametrize("include", [True, False])
def test_extremes_of_special_numbers(
    kind: str, dtype: torch.dtype, include: bool, interpreter: None
) -> None:
    special = [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1e-30, -1e-30, -5.0, 7.0]
    values = torch.tensor(special, dtype=dtype)
    x, y = (t.reshape(-1) for t in torch.meshgrid(values, values, indexing="ij"))
    n = torch.arange(len(x)) // 2 * 2  # two values, and what is there; nothing comes to odd places
    compare(lambda x, n, y: x.scatter_reduce(0, n, y, kind, include_self=include), (x, n, y))


def test_sizes_may_differ_from_call_to_call(interpreter: None) -> None:
    def fn(x: T, n: T, y: T) -> T:
        return x.index_add(0, n, y * 2)

    compare(fn, (r(5, 7), i(5, 20), r(20, 7)), "symbolic", (r(50, 3), i(50, 700), r(700, 3)),
            rtol=1e-4, atol=1e-3)  # fmt: skip


def test_what_lies_outside_goes_nowhere(interpreter: None) -> None:
    fn = lambda x, n, y: x.index_add(0, n, y)  # noqa: E731
    args = (torch.zeros(4), torch.tensor([0, 9, -3, 3]), torch.ones(4))
    graph = lowered(fn, (torch.zeros(4), i(4, 4), torch.ones(4)))
    assert load(gpu_program(graph))(copied(args))[0].tolist() == [1, 0, 0, 1]
    with pytest.raises(IndexError, match="outside"):
        interpret(graph, args)


# ---------------------------------------------------------------- kernels and memory


def test_a_gradient_is_computed_where_it_is_added_up() -> None:
    def fn(g: T, n: T, x: T) -> T:
        return aten.embedding_dense_backward(g * x.cos(), n, 11, -1, False)

    plan = gpu.plan(lowered(fn, (r(4, 6, 8), i(11, 4, 6), r(4, 6, 8))), Gate())
    zeros, sums = plan.kernels()
    assert [len(k.loaded) for k in (zeros, sums)] == [0, 3]
    base = zeros.stored[0]
    taken = [s for s in plan.steps if isinstance(s, Allocate) and s.reuse]
    assert [(s.buffer.name, s.reuse) for s in taken] == [(sums.stored[0], base)]
    assert str(sums).count(f"{sums.stored[0]} over {base}[") == 1


def test_narrow_types_are_added_up_in_wider_ones() -> None:
    graph = lowered(lambda x, n, y: x.index_add(0, n, y),
                    (r(5, dtype=torch.bfloat16), i(5, 9), r(9, dtype=torch.bfloat16)))  # fmt: skip
    assert [node.buffer.dtype for node in scatters(graph)] == [torch.float32]
    assert graph.nodes[-1].buffer.dtype is torch.bfloat16  # type: ignore[union-attr]


def test_a_kernel_does_not_read_what_it_adds_up(interpreter: None) -> None:
    def fn(x: T, n: T, y: T) -> tuple[T, ...]:
        added = x.index_add(0, n, y)
        return added, added * y, x * y

    args = (r(20, 7), i(20, 20), r(20, 7))
    compare(fn, args, rtol=1e-5, atol=1e-4)
    plan = gpu.plan(lowered(fn, args), Gate())
    (summing,) = (k for k in plan.kernels() if k.bases())
    assert not {*summing.bases(), *summing.bases().values()} & set(summing.loaded)


def test_dead_memory_that_is_added_to_is_not_given_away(interpreter: None) -> None:
    def fn(n: T, y: T) -> tuple[T, ...]:
        first = torch.zeros(8, 8).index_add(0, n, y)
        second = (y.sin() + 1).cumsum(0)
        return first + second.t(), second

    compare(fn, (i(8, 8), r(8, 8)), rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- where ATen does it


def refusals(fn: Callable[..., Any], args: Any) -> list[str]:
    graph = lower(trace(fn, args), Gate())
    assert not scatters(graph)
    check(interpret(graph, copied(args)), fn(*copied(args)))
    return [decision.reason for decision in graph.decisions]


def test_deterministic_algorithms() -> None:
    def fn(x: T, n: T, y: T) -> T:
        return x.index_add(0, n, y)

    torch.use_deterministic_algorithms(True)
    try:
        (reason,) = refusals(fn, (r(5), i(5, 9), r(9)))
        assert "any order" in reason
        (reason,) = refusals(
            lambda x, n, y: aten.index_put(x, [n], y), (r(5), torch.tensor([2]), r(1))
        )
        assert "twice" in reason
        ints = (i(9, 5), i(5, 9), i(9, 9))
        assert scatters(lowered(fn, ints))  # their order does not matter
        assert scatters(lowered(lambda x, n: x.scatter(0, n, 1.0), (r(5), i(5, 3))))
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(("fn", "args"), [
    (lambda x, n, y: x.scatter_reduce(0, n, y, "mean"), (r(5), i(5, 9), r(9))),
    (lambda x, n, y: x.scatter_reduce(0, n, y, "prod"), (r(5), i(5, 3), r(9))),
    (lambda x, m, y: aten.index_put(x, [m], y), (r(5), torch.arange(5) > 1, r())),
    (lambda x, n, y: x.index_add(0, n, y), (r(5) > 0, i(5, 3), r(3) > 0)),
    (lambda x, n, y: x.index_add(0, n, y), (r(), i(1, 1), r())),
    (lambda g, n: aten.embedding_dense_backward(g, n, 11, -1, True), (r(6, 8), i(11, 6))),
])  # fmt: skip
def test_others_are_atens(fn: Callable[..., Any], args: Any) -> None:
    assert refusals(fn, args)


# ---------------------------------------------------------------- machine code


@pytest.mark.slow
def test_machine_code(tmp_path: Path) -> None:
    def fn(x: T, n: T, y: T, w: T, k: T) -> tuple[T, ...]:
        half = x.bfloat16().index_add(0, n, (y * 2).bfloat16())
        doubles = x.double().index_add(0, n, y.double())
        most = x.scatter_reduce(0, w, y, "amax")
        least = k.scatter_reduce(0, w, w, "amin", include_self=False)
        return half, doubles, most, least, x.index_put([n], y), k.scatter_add(0, w, w)

    args = (r(5, 7), i(5, 20), r(20, 7), i(5, 20, 7), i(9, 5, 7))
    programs = {mode: gpu_program(lowered(fn, args, mode)) for mode in ("fake", "symbolic")}
    for function in ("add", "max", "min"):
        assert f"tl.atomic_{function}(" in programs["fake"].triton_source
    machine_code(tmp_path, programs)
