"""Forward-mode derivatives of constants: torch's zeros without memory, which no kernel can read."""

import pytest
import torch
from torch.func import hessian, jacfwd, jacrev, jvp

import tc

WEIGHT = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))


def layer(y):
    return (y @ WEIGHT).tanh()


TRANSFORMS = {
    "jvp": lambda x: jvp(layer, (x,), (x,))[1],
    "jacfwd": lambda x: jacfwd(layer)(x[0]),
    "jacfwd after jacrev": lambda x: jacrev(layer)(x[0]) + jacfwd(layer)(x[0]),
    "hessian": lambda x: hessian(lambda y: layer(y).sum())(x[0]),
    "returned": lambda x: jvp(lambda y: (layer(y), WEIGHT * 1.0), (x,), (x,))[1],
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_gradients_of_forward_mode_derivatives(name):
    call = TRANSFORMS[name]
    found = []
    for function in (call, tc.compile(call)):
        x = torch.ones(4, 3).cumsum(0).div_(7).requires_grad_()
        result = function(x)
        results = result if isinstance(result, tuple) else (result,)
        (gradient,) = torch.autograd.grad(results[0].square().sum(), x)
        found.append([*results, gradient])
    for eager, compiled in zip(*found, strict=True):
        torch.testing.assert_close(compiled, eager)
