"""Results without elements: their strides are eager's all the same."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import tc

PROGRAMS = {
    "stack": (lambda x: torch.stack([x, x], 1), (0, 3)),
    "stack first": (lambda x: torch.stack([x, x]), (3, 0)),
    "stack of columns": (lambda x: torch.stack([x.T, x.T], 1), (0, 3)),
    "stack of chunks": (lambda x: torch.stack(x.chunk(3, -1)), (2, 0, 3)),
    "cat": (lambda x: torch.cat([x, x], -1), (2, 0, 3)),
    "group norm": (lambda x: F.group_norm(x, 3), (0, 3, 4)),
    "instance norm": (lambda x: F.instance_norm(x), (0, 3, 4)),
    "layer norm": (lambda x: F.layer_norm(x, (3,)), (2, 0, 3)),
    "softmax": (lambda x: x.T.softmax(-1), (3, 0)),
    "sum": (lambda x: x.sum(-1, keepdim=True), (2, 0, 3)),
    "pad": (lambda x: F.pad(x, (1, 1)), (3, 0)),
    "picked": (lambda x: x[torch.zeros(0, dtype=torch.long)], (2, 0, 3)),
    "product": (lambda x: x.transpose(1, 2) @ x, (2, 0, 3)),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", PROGRAMS)
def test_strides_are_eagers(name):
    program, sizes = PROGRAMS[name]
    expected, found = program(torch.ones(sizes)), tc.compile(program)(torch.ones(sizes))
    assert (found.shape, found.stride()) == (expected.shape, expected.stride())
