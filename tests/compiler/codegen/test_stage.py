"""Kernels that are equal up to names are printed once; those that differ in one fact are not."""

from __future__ import annotations

import pytest
import torch

import tc
from tc import trace
from tc.compiler.codegen import stage
from tc.compiler.codegen.wrapper import python_index
from tc.compiler.schedule.costs import buffers_of, work_of
from tc.trace import capture_events

#: what one of four layers has other than the rest
CHANGES = {
    "nothing": {},
    "a constant": {"scale": 1.5},
    "a shape": {"width": 24},
    "a type": {"dtype": torch.float64},
}


def layer(x, width=16, scale=0.5, dtype=torch.float32):
    x = x[:, :width].to(dtype)
    return torch.softmax(torch.tanh(x) * scale, -1).cumsum(-1)


@pytest.mark.sample(2)
@pytest.mark.parametrize("change", CHANGES)
def test_equal_kernels_are_printed_once(change, monkeypatch):
    def model(*inputs):
        return [layer(x, **(CHANGES[change] if k == 2 else {})) for k, x in enumerate(inputs)]

    printed = []
    real = stage.generate_kernel

    def generate(kernel, *rest):
        printed.append(kernel)
        return real(kernel, *rest)

    monkeypatch.setattr(stage, "generate_kernel", generate)
    inputs = [torch.randn(8, 24) for _ in range(4)]
    with torch.no_grad():
        torch.testing.assert_close(tc.compile(model)(*inputs), model(*inputs))
    assert len(printed) == (1 if change == "nothing" else 2)  # a layer is a kernel
    assert len(set(printed)) == len(printed)
    assert all(kernel.name == "" and not kernel.origins for kernel in printed)


def traced(function, *inputs, dynamic=None):
    tc.reset()
    with torch.no_grad(), capture_events() as events:
        tc.compile(function, dynamic=dynamic)(*inputs)
    (plan,) = [e.payload for e in events.of(trace.Artifact) if e.name == "tc_plan"]
    return plan.splitlines(), events


@pytest.mark.parametrize("change", CHANGES)
def test_the_plan_of_a_trace_writes_out_what_differs(change):
    def model(*inputs):
        return [layer(x, **(CHANGES[change] if k == 2 else {})) for k, x in enumerate(inputs)]

    lines, _ = traced(model, *(torch.randn(8, 24) for _ in range(4)))
    kernels = [line for line in lines if line.startswith("k")]
    first = kernels[0].partition(":")[0]
    assert kernels[0].startswith(f"{first}: for ")
    alike = [line for line in kernels if f" as {first}(l_inputs_0_; " in line]
    assert len(alike) == (3 if change == "nothing" else 2) and len(kernels) == 4
    assert alike[0].split("(")[1].startswith("l_inputs_1_; buf")
    written_out = [line for line in kernels if line not in alike]
    assert all(": for " in line for line in written_out)


@pytest.mark.parametrize("dynamic", [False, True])
def test_work_of_equal_kernels_is_that_of_each(dynamic, monkeypatch):
    def model(*inputs):
        return [layer(x, width=x.shape[1]) for x in inputs]

    sizes = [(8, 24), (8, 24), (6, 24), (8, 10), (6, 10)]
    plans = []
    real = stage.costs_of

    def costs_of(plan, printed):
        plans.append((plan, found := real(plan, printed)))
        return found

    monkeypatch.setattr(stage, "costs_of", costs_of)
    traced(model, *(torch.randn(size) for size in sizes), dynamic=dynamic)
    ((plan, costs),) = plans
    each = [work_of(kernel, buffers_of(plan)) for kernel in plan.kernels()]
    wanted = [(python_index(work.moved), python_index(work.operations)) for work in each]
    found = [(cost.moved, cost.operations) for cost in costs if cost.name.startswith("k")]
    assert found == wanted
    assert len(set(wanted)) >= 3
