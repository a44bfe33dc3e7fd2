"""Inference mode read by frames that take no tensor: no tensor's guard holds it there."""

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
