"""Inference mode: read by frames that take no tensor, and switched off by traced code."""

import pytest
import torch

import tc

READS = [torch.is_inference_mode_enabled, lambda: torch.ones(1).is_inference()]


@pytest.mark.parametrize("calls", [1, 40])
@pytest.mark.parametrize("read", READS)
def test_what_a_frame_without_tensors_reads_is_guarded(read, calls):
    def fn():
        return [read()]

    compiled = tc.compile(fn, backend="eager")
    for mode, expected in ((torch.inference_mode(), True), (torch.no_grad(), False)):
        with mode:
            for _ in range(calls):
                assert compiled() == [expected]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("outside", [torch.enable_grad, torch.no_grad])
def test_leaving_inference_mode_switches_gradients_on(outside, backend):
    weight = torch.ones(3, 3, requires_grad=True)

    def fn(x):
        with torch.inference_mode(False):
            y = x @ weight
            inside = torch.is_grad_enabled()
        return y, inside, torch.is_grad_enabled(), x @ weight

    def seen():
        y, *modes, z = run(torch.ones(2, 3))
        return y.requires_grad, modes, z.requires_grad

    with outside():
        run = fn
        expected = seen()
        run = tc.compile(fn, backend=backend)
        assert [seen(), seen()] == [expected] * 2
    assert expected[0]
