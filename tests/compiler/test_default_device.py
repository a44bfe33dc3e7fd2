"""Programs on the CPU while another default device is set: nothing that compiling makes goes there.

The other device is ``meta``, whose tensors have no values: what ends up there by mistake is seen.
"""

from contextlib import ExitStack, suppress

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tc

CPU = torch.device("cpu")
PROGRAMS = {
    "pointwise": lambda x: (x * 2).sin(),
    "constant": lambda x: x + torch.tensor(2.0, device=CPU) * 3,
    "filled": lambda x: torch.ones(3, device=CPU) + x[0],
    "counted": lambda x: torch.arange(3, device=CPU) + x,
    "random": lambda x: x + torch.rand(3, device=CPU) * 0,
    "product": lambda x: x @ x.t(),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "resampled": lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
    "sorted": lambda x: x.sort()[0],
    "indexed": lambda x: x[:, [0, 2]],
    "scanned": lambda x: x.cumsum(0),
    "power": lambda x: (x + 2) ** 3.5,
    "clamped": lambda x: x.clamp(0, 1).max(),
    "read": lambda x: x * x.sum().item(),
    "windows": lambda x: F.unfold(x[None, None], 2),
    "pooled": lambda x: F.avg_pool2d(x[None, None], 2),
    "views": lambda x: ((x * 2).t(), (x * 2)[0]),
    "left to the device": lambda x: (torch.ones(3), x * 2),
    "array": lambda x: torch.from_numpy(x.detach().numpy() * 2) + x,
    "numpy scalar": lambda x: x * np.float32(2),
}


def outcome(fn, gradients):
    x = torch.linspace(-1, 1, 9, device=CPU).reshape(3, 3).requires_grad_(gradients)
    found = fn(x)
    results = found if isinstance(found, tuple) else (found,)
    here = [value for value in results if value.device == CPU]
    if gradients:
        torch.autograd.backward([value.sum() for value in here])
    return [value.device for value in results], [value.detach() for value in here], x.grad


@pytest.mark.sample(3)
@pytest.mark.parametrize(("gradients", "dynamic"), [(False, False), (True, True)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_tensors_of_the_compiler_are_not_on_the_default_device(name, gradients, dynamic):
    fn = PROGRAMS[name]
    with torch.device("meta"):
        want = outcome(fn, gradients)
        got = outcome(tc.compile(fn, dynamic=dynamic), gradients)
    assert got[0] == want[0]
    assert (got[2] is None) == (want[2] is None)
    for mine, theirs in zip([*got[1], got[2]], [*want[1], want[2]], strict=True):
        if theirs is not None:
            torch.testing.assert_close(mine, theirs)


def test_a_scalar_of_numpy_has_a_type_under_another_default_device():
    def fn(x, scalar):
        return x * 2, isinstance(scalar, int), hasattr(scalar, "dtype")

    x = torch.ones(3)
    with torch.device("meta"):
        got = tc.compile(fn, backend="eager")(x, np.float32(2))
    torch.testing.assert_close(got[0], x * 2)
    assert got[1:] == (False, True)


def block(x):
    with torch.device("meta"):
        made = torch.ones(3), torch.arange(2), str(torch.get_default_device())
        with x.device:
            inner = torch.zeros(2), str(torch.get_default_device())
        return *made, *inner, torch.rand(2), x + 1


def block_with_a_break(x):
    with torch.device("meta"), torch.no_grad():
        first = torch.ones(3)
        print(end="")
        second = torch.ones(3)
    return first, second, torch.ones(2)


def block_that_is_left_by_an_error(x):
    with suppress(ValueError), torch.device("meta"):
        first = torch.ones(3)
        raise ValueError
    return first, torch.ones(2)


def block_that_raises(x):
    with torch.device("meta"):
        print(end="")
        raise ValueError


def block_of_a_stack(x):
    with ExitStack() as stack:
        stack.enter_context(torch.device("meta"))
        first = torch.ones(3)
    return first, torch.ones(2)


def block_of_a_generator(x):
    def make():
        with torch.device("meta"):
            yield torch.ones(2)
            yield torch.ones(3)

    return *make(), torch.ones(4)


def devices(function, outer):
    with torch.device(outer):
        try:
            results = function(torch.ones(2, device=CPU))
        except ValueError:
            results = ()
        return [getattr(one, "device", one) for one in results], torch.get_default_device()


@pytest.mark.sample(8)
@pytest.mark.parametrize("outer", ["cpu", "meta"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize(
    "program",
    [
        block, block_with_a_break, block_that_is_left_by_an_error, block_that_raises,
        block_of_a_stack, block_of_a_generator,
    ],
)  # fmt: skip
def test_a_block_in_the_program_sets_the_device(program, backend, outer):
    tc.reset()
    compiled = tc.compile(program, backend=backend)
    for _ in range(2):
        assert devices(compiled, outer) == devices(program, outer)
