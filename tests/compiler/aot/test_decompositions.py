"""The table of decompositions, against eager."""

import random

import pytest
import torch

import tc

DTYPES = (torch.uint8, torch.int16, torch.int64, torch.float16, torch.float32, torch.float64)
#: factories over two numbers and a count
FACTORIES = {
    "linspace": lambda low, high, count, dtype: torch.linspace(low, high, count, dtype=dtype),
    "logspace": lambda low, high, count, dtype: torch.logspace(
        low / 20, high / 20, count, base=3.5, dtype=dtype
    ),
    "alternating": lambda low, high, count, dtype: torch.logspace(
        0, count, count + 1, base=-2.0, dtype=torch.float64
    ).to(dtype),
    "arange": lambda low, high, count, dtype: torch.arange(low, high, 2.5, dtype=dtype),
    "full": lambda low, high, count, dtype: torch.full((count, 2), low, dtype=dtype),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FACTORIES)
def test_factories_over_fractions_are_eagers(name: str, dtype: torch.dtype) -> None:
    tc.reset()
    draw = random.Random(f"{name} {dtype}")
    function = FACTORIES[name]
    compiled = tc.compile(lambda x, low, high: function(low, high, x.numel(), dtype) + x.to(dtype))
    for _ in range(3):
        low, high = draw.uniform(0, 20), draw.uniform(30, 60)
        x = torch.zeros(1 if name in ("arange", "full") else draw.randint(5, 40), device="cpu")
        if name == "alternating":
            x = torch.zeros((), device="cpu")
        wanted = function(low, high, x.numel(), dtype) + x.to(dtype)
        torch.testing.assert_close(compiled(x, low, high), wanted, rtol=1e-6, atol=0)


def test_a_window_of_integers_is_refused_as_in_eager() -> None:
    with pytest.raises(RuntimeError, match="floating point"):
        tc.compile(lambda x: torch.hann_window(5, dtype=torch.int32) + x)(torch.ones(5))
