"""Short rows, unrolled while the loop over rows is vectorised: gcc's lanes are those of the row."""

from __future__ import annotations

import random

import pytest
import torch

import tc

READS = {
    "backwards": lambda x: x.flip(1),
    "forwards": lambda x: x.clone(),
    "every other": lambda x: x.repeat_interleave(2, 1)[:, 1::2],
}


@pytest.mark.sample(12)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.bool, torch.int16, torch.float32])
@pytest.mark.parametrize("width", [2, 3, 4, 8, 16])
@pytest.mark.parametrize("read", READS)
def test_rows_of_which_some_are_cleared(read, width, dtype):
    def clear(x):
        y = READS[read](x)
        y[y.size(0) // 2 :].zero_()
        return y

    compiled = tc.compile(clear, dynamic=True)
    for rows in (4, random.randrange(2, 99)):
        x = torch.randint(0, 5, (rows, width)).to(dtype)
        tc.mark_static(x, 1)
        assert torch.equal(compiled(x), clear(x))
