"""Numbers beside tensors of float16 and bfloat16 are rounded where eager's kernels round them."""

from __future__ import annotations

import random

import pytest
import torch

import tc

CALLS = {
    "add": lambda x, k: x + k,
    "subtract": lambda x, k: x - k,
    "subtract from": lambda x, k: k - x,
    "add and take away": lambda x, k: x * 0 + k - k,
    "multiply": lambda x, k: x * k,
    "divide": lambda x, k: x / k,
    "scale": lambda x, k: torch.add(x, x, alpha=k),
    "compare": lambda x, k: x > k,
    "remainder": lambda x, k: x % k,
    "clamp": lambda x, k: x.clamp_max(k),
    "where": lambda x, k: torch.where(x > 0, x, k),
}
VALUES = (0.0, 1.0, -2.0, float("inf"), -float("inf"), 65504.0, 0.3333, 1000.5)


@pytest.mark.sample(10)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", CALLS)
def test_numbers_are_rounded_as_eager_rounds_them(name, dtype, dynamic):
    tc.reset()  # an entry for float16 holds fewer numbers
    dice = random.Random(name)
    call = CALLS[name]
    compiled = tc.compile(call, dynamic=dynamic)
    x = torch.tensor(VALUES, dtype=dtype)
    for k in (70000, -100001.5, 0.1, 1e-9, 3.39e38, *(dice.uniform(-3, 3) for _ in range(2))):
        try:
            wanted = call(x, k)
        except RuntimeError:  # the type cannot hold the number
            with pytest.raises(RuntimeError, match="without overflow"):
                compiled(x, k)
            continue
        # Eager's vectors and the elements left over round a scaled operand differently.
        rtol = torch.finfo(dtype).eps if name == "scale" else 0
        torch.testing.assert_close(
            compiled(x, k), wanted, equal_nan=True, rtol=rtol, atol=0, msg=f"{k}"
        )
