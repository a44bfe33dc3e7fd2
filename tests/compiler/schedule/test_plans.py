"""Text of plans: what is fused, in which order loops run, and what is refused with which reason."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loop_harness import check, copied, lowered, planned, program, trace

from tc.compiler import codegen, loops, schedule
from tc.compiler.core.gate import Gate
from tc.compiler.errors import VerifyError
from tc.compiler.loops.lower.registry import LOWERINGS
from tc.compiler.runtime.load import load
from tc.compiler.schedule.plan import Free, Kernel, Plan

T = torch.Tensor


def r(*shape: int) -> T:
    return torch.randn(shape)


def text(fn: Callable[..., Any], *args: T, mode: str = "fake") -> str:
    """The kernels of a function's plan."""
    return "\n".join(str(kernel) for kernel in planned(lowered(fn, args, mode)).kernels())


def dedent(wanted: str) -> str:
    return textwrap.dedent(wanted).strip("\n")


def test_softmax_is_one_kernel_with_a_row_of_scratch() -> None:
    assert text(lambda x: F.softmax(x, -1), r(5, 3, 9)) == dedent("""
        k0_softmax: for p1 < 15
            scratch row_buf1: float32[9]
            for r0 < 9
                v_buf0 = max(x_1[9*p1 + r0])
            for r0 < 9
                v_buf1 = exp(sub(x_1[9*p1 + r0], v_buf0))
                row_buf1[r0] = v_buf1
                v_buf2 = sum(v_buf1)
            v_buf3 = div(1.0, v_buf2)
            for r0 < 9
                v_buf4 = mul(row_buf1[r0], v_buf3)
                buf4[9*p1 + r0] = v_buf4
    """)


def test_layer_norm_keeps_symbolic_rows() -> None:
    fn = lambda x, w: F.layer_norm(x, (x.shape[-1],), w)  # noqa: E731
    lines = text(fn, r(5, 9), r(9), mode="symbolic").splitlines()
    assert len([line for line in lines if not line.startswith(" ")]) == 1
    assert sum("for r0 < s" in line for line in lines) == 3


def test_a_reduction_across_rows_gets_a_lane() -> None:
    assert text(lambda x: x.sum(0), r(70, 300)) == dedent("""
        k0_sum: for p0 < 300 lane p0
            for r0 < 70
                v_buf0 = sum(x_1[p0 + 300*r0])
            buf0[p0] = v_buf0
    """)


def test_a_reduction_of_elements_apart_gets_the_lane_of_the_nearer_ones() -> None:
    assert "p0 < 300 lane p0" in text(lambda x: x[..., 2].sum(0), r(70, 300, 4))
    assert "lane" not in text(lambda x: x[..., 2].sum(1), r(70, 300, 4))
    short = text(lambda x: x[..., 1:3].amax(1), r(9, 64, 50, 4))  # adjacent, and only two of them
    assert "lane p1" in short and "p1 < 50" in short


def test_a_product_of_matrices_that_lie_row_by_row_gets_a_lane() -> None:
    fn = lambda a, b: (a.unsqueeze(2) * b.unsqueeze(0)).sum(1)  # noqa: E731
    assert text(fn, r(8, 10), r(10, 64)) == dedent("""
        k0_mul_sum: for p0 < 8, p1 < 64 lane p1
            for r0 < 10
                v_buf0 = sum(mul(a_1[10*p0 + r0], b_1[p1 + 64*r0]))
            buf0[64*p0 + p1] = v_buf0
    """)
    transposed = lambda a, b: (a.unsqueeze(1) * b.unsqueeze(0)).sum(2)  # noqa: E731
    assert "lane" not in text(transposed, r(8, 10), r(64, 10))  # both lie along the sum


def test_members_of_a_kernel_read_the_same_element_at_a_time() -> None:
    def fn(x: T, g: T) -> tuple[T, T, T]:
        y = g * x.exp()
        return x.tanh(), y, y.sum(0)

    plan = planned(lowered(fn, (r(64, 512), r(64, 512)), "fake"))
    [kernel] = plan.kernels()
    indices = {str(use.data[1]) for s in kernel.statements() for use in s.value.loads()}
    assert indices == {"p0 + 512*r0"}
    assert kernel.lane is not None


def test_a_chain_shared_by_two_readers_is_computed_once() -> None:
    def fn(x: T) -> tuple[T, T]:
        y = x.exp().tanh()
        return y + 1, y * 2

    assert text(fn, r(64)) == dedent("""
        k0_tanh_exp_add_mul: for p0 < 64
            v_buf0 = tanh(exp(x_1[p0]))
            v_buf1 = add(v_buf0, 1.0)
            buf1[p0] = v_buf1
            v_buf2 = mul(v_buf0, 2.0)
            buf2[p0] = v_buf2
    """).replace("k0_tanh_exp_add_mul", text(fn, r(64)).split(":")[0])


def test_a_transposed_read_is_tiled() -> None:
    (kernel,) = planned(lowered(lambda x: x.t().contiguous() + 1, (r(64, 32),))).kernels()
    assert kernel.tile is not None
    assert kernel.outer[-2:] == kernel.tile


def test_a_concatenation_is_split_into_ranges() -> None:
    assert text(lambda x, y: torch.cat([x, y], 1), r(4, 3), r(4, 5)) == dedent("""
        k0_cat: for p0 < 4, p1 < 8
            for 0 <= p1 < 3
                v_buf0 = x_1[3*p0 + p1]
                buf0[8*p0 + p1] = v_buf0
            for 3 <= p1 < 8
                v_buf0 = y_1[5*p0 + p1 - 3]
                buf0[8*p0 + p1] = v_buf0
    """)


def test_a_stack_of_many_is_split_into_ranges() -> None:
    lines = text(lambda *parts: torch.stack(parts), *(r(3) for _ in range(40))).splitlines()
    assert sum("<= p0 <" in line for line in lines) == 40
    assert not any("select" in line for line in lines)


def test_loops_are_merged_where_memory_runs_through() -> None:
    assert "for p2 < 24" in text(lambda x: x + 1, r(2, 3, 4))
    assert "for p0 < 2, p2 < 12" in text(lambda x, y: x + y, r(2, 3, 4), r(3, 4))


def test_transposed_inputs_run_along_memory() -> None:
    first = text(lambda x: x.exp(), r(4, 5).t()).splitlines()
    assert first[0].endswith("for p0 < 20") or first[0].endswith("for p1 < 20")


@pytest.mark.parametrize(
    "fn, reason",
    [
        (lambda x: (x.exp().sum(0), x.exp().sum(1)), "they run over different spaces"),
        (lambda x: x.flip(0) + (x * 2).sum(), "they run over different spaces"),
    ],
)
def test_refusals_report_why(fn: Callable[..., Any], reason: str) -> None:
    decisions = planned(lowered(fn, (r(8, 9),))).decisions
    assert all(d.reason for d in decisions)
    refused = [d for d in decisions if not d.taken]
    assert not refused or reason in {d.reason for d in refused}


def test_few_long_rows_are_not_fused() -> None:
    decisions = planned(lowered(lambda x: x / x.sum(), (r(1 << 16),))).decisions
    assert [(d.taken, d.reason) for d in decisions] == [
        (False, "too few rows to share among threads")
    ]


@pytest.mark.parametrize("size", [1 << 10, 1 << 18])
def test_what_one_pass_over_a_long_row_computes_is_one_kernel(size: int) -> None:
    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        sign = y.sign()
        return torch.where(sign == 1, x, 0).add(torch.where(sign == -1, 1 - x, 0)).mean()

    assert len(planned(lowered(loss, (r(size), r(size)))).kernels()) == 1


LAST = torch.channels_last
TRANSPOSING = {
    "copy": lambda x: (x.contiguous(memory_format=LAST), x.sum((2, 3))),
    "tokens": lambda x: F.layer_norm(x.flatten(2).transpose(1, 2), (32,)).clone(
        memory_format=torch.contiguous_format
    ),
}


@pytest.mark.parametrize("fn", TRANSPOSING.values(), ids=TRANSPOSING)
def test_what_transposes_its_input_is_a_kernel_in_tiles_beside_rows(fn: Callable[..., Any]) -> None:
    x = r(2, 32, 20, 24)
    graph = lowered(fn, (x,))
    plan = planned(graph)
    assert any("in tiles" in d.reason for d in plan.decisions if not d.taken)
    assert any(kernel.tile for kernel in plan.kernels())
    check(load(program(graph))(copied([x])), fn(x))


def test_short_loops_are_not_worth_tiles() -> None:
    decisions = planned(lowered(TRANSPOSING["copy"], (r(2, 5, 3, 3),))).decisions
    assert [d.taken for d in decisions if d.kind == "fuse"] == [True]


def test_the_gate_refuses_fusion_and_results_stay_right() -> None:
    x = r(6, 9)
    graph = lowered(lambda x: F.softmax(x, -1), (x,))
    plan = planned(graph, Gate(refuse_from={"schedule.fuse": 2}))
    assert len(plan.kernels()) > len(planned(graph).kernels())
    assert "refused by the gate" in {d.reason for d in plan.decisions}


@pytest.mark.sample(2)
@pytest.mark.parametrize("first", range(1, 8))
def test_any_number_of_refusals_gives_the_same_values(first: int) -> None:
    def fn(x: T) -> tuple[T, T]:
        y = F.layer_norm(x, (9,)).exp()
        return F.softmax(y, -1) * y.sum(0), torch.cat([x, y]).relu()

    x, gate = r(6, 9), Gate(refuse_from={"*": first * 3})
    graph = loops.lower(trace(fn, (x,)), gate)
    call = load(codegen.generate(schedule.plan(graph, gate), threads=1))
    check(call(copied([x])), fn(x))


def test_dead_memory_is_taken_over() -> None:
    def fn(x: T, w: T) -> T:
        for _ in range(3):
            x = (x.exp() @ w).tanh()
        return x

    for refused, kind in ({}, "over_dead"), ({"schedule.over_dead": 1}, "reuse"):
        plan = planned(lowered(fn, (r(8, 8), r(8, 8))), Gate(refuse_from=refused))
        assert [d.kind for d in plan.decisions] == 3 * [kind]
        freed = [name for step in plan.steps if isinstance(step, Free) for name in step.names]
        assert len(freed) == len(set(freed))


def test_memory_of_in_place_calls_is_not_taken_over() -> None:
    def fn(x: T, i: T, y: T) -> T:
        put = x.clone().index_put((i,), y)
        return (x * 2).exp() + put

    args = (r(6, 4), torch.tensor([0, 2]), r(2, 4))
    check(load(program(lowered(fn, args)))(copied(args)), fn(*args))


def test_memory_seen_through_a_refused_view_is_not_taken_over() -> None:
    def fn(x: T) -> T:
        y = x.exp()
        window = torch.ops.aten.slice.Tensor(y, 0, 1, 4)
        z = torch.cumsum(y, 0) * 1
        return torch.cumsum(z + 1, 0).tanh().relu() + torch.cumsum(window, 0).sum()

    op = torch.ops.aten.slice.Tensor
    row = LOWERINGS._rows.pop(op)
    try:
        graph = loops.lower(trace(fn, (r(6, 4),)), Gate())
    finally:
        LOWERINGS._rows[op] = row
    x = r(6, 4)
    check(load(program(graph))([x]), fn(x))


def test_verify_finds_a_kernel_without_memory() -> None:
    plan = planned(lowered(lambda x: x + 1, (r(4),)))
    steps = tuple(step for step in plan.steps if isinstance(step, Kernel))
    broken = Plan(plan.inputs, steps, plan.outputs, plan.constants, plan.buffers)
    with pytest.raises(VerifyError, match="has no memory"):
        broken.verify()


def test_a_slice_that_is_laid_flat_is_copied_before_rows_read_it() -> None:
    """Within a row its elements would be found by divisions, in each pass."""
    graph = lowered(lambda x: x[..., 1:-2].flatten(1).softmax(-1), [r(8, 30, 35)])
    assert "//" not in str(planned(graph)) and "%" not in str(planned(graph))
