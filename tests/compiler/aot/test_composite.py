"""Composite ops where they reach the dispatcher whole: inside of inference mode."""

import pytest
import torch
import torch.nn.functional as F

import tc

WRITES = {
    "a new tensor": lambda x, y: torch.vander(x.flatten()),
    "a new tensor, and powers that rise": lambda x, y: torch.vander(x[0], 3, increasing=True),
    "its argument": lambda x, y: x.ldexp_(y),
    "its argument, by another name": lambda x, y: x.multiply_(y).absolute_(),
    "a view of its argument": lambda x, y: x[0].true_divide_(2.0),
    "out": lambda x, y: torch.ldexp(x, y, out=y),
    "running statistics": lambda x, y: F.batch_norm(x, y[0], y[1], training=True),
    "running statistics of instances": lambda x, y: F.instance_norm(x[None], y[0, :2], y[1, :2]),
    "rows of a table": lambda x, y: F.embedding(torch.tensor([0, 1]), x, max_norm=0.5),
    "nothing": lambda x, y: (torch.cov(x), torch.trapezoid(x), x.tensor_split(2)),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("program", WRITES.values(), ids=WRITES)
def test_composite_op_in_inference_mode(program, backend):
    def run(x, y):
        with torch.inference_mode():
            return program(x, y)

    torch.manual_seed(0)
    x, y = torch.randn(2, 3), torch.rand(2, 3)
    pairs = [(run, x.clone(), y.clone()), (tc.compile(run, backend=backend), x, y)]
    want, got = ((function(a, b), a, b) for function, a, b in pairs)
    torch.testing.assert_close(got, want)
