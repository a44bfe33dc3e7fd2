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


@pytest.mark.sample(3)
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


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("limit", [0.5, 0.3, 0.0])
def test_softshrink_rounds_its_result_alone(dtype, limit):
    x = torch.cat((torch.tensor([float("nan"), float("inf"), limit, -limit]), torch.randn(60)))
    x = x.to(dtype)
    wanted = torch.nn.functional.softshrink(x, limit)
    got = tc.compile(torch.nn.functional.softshrink, fullgraph=True)(x, limit)
    torch.testing.assert_close(got, wanted, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("order", [1, 2, float("inf")])
def test_the_norm_of_one_number_is_its_size(order, dynamic):
    def norms(x):
        return x[:1].norm(order), x[:, None].norm(order, dim=1), (-x).amax().norm(order)

    x = torch.tensor([1e30, -1e-30, 3.0])  # squares are no floats
    torch.testing.assert_close(tc.compile(norms, dynamic=dynamic)(x), norms(x), rtol=0, atol=0)
