"""Random functions that are given their generator by name, ``None`` among them."""

from __future__ import annotations

import pytest
import torch

import tc

DRAWS = {
    "randn": lambda n: torch.randn((n, 3), generator=None, dtype=torch.float64),
    "rand": lambda n: torch.rand(n, 3, generator=None),
    "randint": lambda n: torch.randint(0, 9, (n, 2), generator=None),
    "randint with one bound": lambda n: torch.randint(n, (4,), generator=None),
    "randperm": lambda n: torch.randperm(n, generator=None),
    "normal": lambda n: torch.normal(0.0, 1.0, (n, 2), generator=None),
    "normal of tensors": lambda n: torch.normal(torch.zeros(n), torch.ones(n), generator=None),
    "bernoulli": lambda n: torch.bernoulli(torch.full((n,), 0.5), generator=None),
    "multinomial": lambda n: torch.multinomial(torch.ones(n), 2, generator=None),
    "in place": lambda n: torch.zeros(n, 2).uniform_(1, 2, generator=None),
    "whole numbers in place": lambda n: torch.zeros(n, 2).random_(3, 2**20, generator=None),
    "whole numbers up to a bound": lambda n: torch.zeros(n, 2).random_(9),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", DRAWS)
def test_no_generator_is_the_default_one(name, dynamic):
    """With ``generator=None`` torch picks overloads that know no symbolic sizes."""

    def program(x):
        return x.sum() + DRAWS[name](x.shape[0]).double().cumsum(0)

    tc.reset()
    compiled = tc.compile(program, fullgraph=True, dynamic=dynamic)
    for size in (4, 5, 7):
        x = torch.ones(size)
        torch.manual_seed(size)
        wanted = program(x), torch.rand(2)
        torch.manual_seed(size)
        torch.testing.assert_close((compiled(x), torch.rand(2)), wanted)
