"""Objects that traced code makes: the constructors of one type of elements each."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tc

KINDS = [
    torch.Tensor,
    torch.FloatTensor, torch.DoubleTensor, torch.HalfTensor, torch.BFloat16Tensor, torch.LongTensor,
    torch.IntTensor, torch.ShortTensor, torch.CharTensor, torch.ByteTensor, torch.BoolTensor,
]  # fmt: skip
MADE = {
    "numbers": lambda kind, x: kind([1, 0, 1]),
    "rows": lambda kind, x: kind([[1, 0], [0, 1]]),
    "sizes": lambda kind, x: kind(2, 3).zero_(),
    "a shape": lambda kind, x: kind(x.shape).fill_(1),
    "a number of the shape": lambda kind, x: kind([x.shape[0], 1]),
    "numbers of an array": lambda kind, x: kind([*np.arange(3)]),
    "numbers of tensors": lambda kind, x: kind([x.sum().long(), x[0].bool(), 2]),
    "nothing": lambda kind, x: kind(),
    "the shape of a number": lambda kind, x: kind(x.sum().shape).fill_(1),
    "sizes of a shape": lambda kind, x: kind(torch.Size([2, 2])).fill_(1),
}


@pytest.mark.sample(10)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("made", MADE)
def test_constructors_of_one_type_are_captured(kind, made):
    def program(x):
        return MADE[made](kind, x), x + 1

    tc.reset()
    compiled = tc.compile(program, fullgraph=True)
    for size in (3, 4, 5):
        found, wanted = compiled(torch.ones(size)), program(torch.ones(size))
        assert found[0].dtype == wanted[0].dtype
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.float32], ids=str)
def test_whole_numbers_are_not_made_of_fractions(kind):
    def program(x):
        return torch.tensor([x.sum(), 1], dtype=kind)

    x = torch.tensor([1.5, 2])
    if kind is torch.float32:
        torch.testing.assert_close(tc.compile(program)(x), program(x))
        return
    for function in (program, tc.compile(program)):
        with pytest.raises(TypeError):
            function(x)
