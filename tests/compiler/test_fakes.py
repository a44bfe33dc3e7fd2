"""Fake tensors, and what compiled code returns, lie in memory as eager's results do."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import tc
from tc.compiler.core.fakes import EagerLayouts

CALLS = {
    "roll": lambda x: x.roll(1, 1),
    "roll two": lambda x: x.roll((1, 2), (0, -1)),
    "roll all": lambda x: x.roll(3),
    "floor_divide": lambda x: x // 2,
    "floor_divide row": lambda x: x // x[(0,) * (x.dim() - 1)].abs().add(1),
    "floor_divide copy": lambda x: x // (x.contiguous() + 9),
    "div floor": lambda x: torch.div(x, x.contiguous() + 9, rounding_mode="floor"),
    "copysign": lambda x: torch.copysign(x, x.contiguous()),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2) if x.dim() == 4 else x + 1,
    "max_unpool2d": lambda x: (
        F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2) if x.dim() == 4 else x + 1
    ),
}
INPUTS = {
    "transposed": lambda: torch.randn(6, 4).t(),
    "permuted": lambda: torch.randn(5, 6, 4).permute(2, 0, 1),
    "reversed": lambda: torch.randn(5, 4, 6).transpose(0, 2),
    "channels last": lambda: torch.randn(2, 4, 6, 8).to(memory_format=torch.channels_last),
    "last first": lambda: torch.randn(8, 4, 6, 2).transpose(0, 3),
    "with gaps": lambda: torch.randn(2, 4, 6, 8, 2)[..., 0],
}


def steps(tensor):
    return [s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1]


@pytest.mark.parametrize("layout", INPUTS)
@pytest.mark.parametrize("name", CALLS)
def test_fakes_are_laid_out_as_results(name, layout):
    torch.manual_seed(0)
    call, x = CALLS[name], INPUTS[layout]()
    mode = EagerLayouts()
    with mode:
        fake = call(mode.from_tensor(x))
    assert steps(fake) == steps(call(x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_results_of_compiled_code_are_laid_out_as_eagers(dynamic):
    torch.manual_seed(0)

    def all_calls(*inputs):
        return [call(x) for x in inputs for call in CALLS.values()]

    inputs = [make() for make in INPUTS.values()]
    wanted, found = all_calls(*inputs), tc.compile(all_calls, dynamic=dynamic)(*inputs)
    for want, got in zip(wanted, found, strict=True):
        assert steps(got) == steps(want)
        torch.testing.assert_close(got, want)


def test_a_program_without_tensors_is_laid_out_as_eagers():
    def fn():
        made = torch.ones(2, 4, 6, 8).to(memory_format=torch.channels_last)
        return [made.roll(1, 1), made // made.contiguous()]

    for want, got in zip(fn(), tc.compile(fn)(), strict=True):
        assert got.stride() == want.stride()
