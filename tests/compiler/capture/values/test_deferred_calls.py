"""Warnings of PyTorch's functions, where the function decides what becomes of them."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F

import tc


def raised(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return torch.range(0, 3), x
        except UserWarning:
            return "raised", x + 1


def raised_without_a_block(x):
    warnings.simplefilter("error")
    try:
        return F.mse_loss(x, x[:1])
    except UserWarning:
        return x + 1
    finally:
        warnings.filters.pop(0)


def recorded(x):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        y = F.mse_loss(x, x[:1])
    return y, [str(one.message)[:20] for one in shown]


def recorded_by_a_callee(x):
    y, shown = recorded(x * 2)
    return y + x, shown


def recorded_before(x):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
    return x + 1, len(shown)


def ignored(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = F.mse_loss(x, x[:1])
    return y + 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize(
    "program",
    [
        *(raised, raised_without_a_block, ignored),
        *(recorded, recorded_by_a_callee, recorded_before),
    ],
)
def test_a_function_may_filter_and_record_warnings(program, backend):
    x = torch.arange(12.0).view(3, 4)
    compiled = tc.compile(program, backend=backend)
    for _ in range(2):
        assert str(compiled(x)) == str(program(x))
    assert not any(action == "error" for action, *_ in warnings.filters)
