"""Tiles that are transposed: loads that run along another loop than the stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from triton_harness import Choosing, compare_gpu, tuned

T = torch.Tensor
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def r(*shape: int) -> T:
    torch.manual_seed(1)
    return torch.randn(shape)


TRANSPOSED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "matrix": (lambda x: (x.t() * 2).contiguous(), (r(70, 40),)),
    "even": (lambda x: x.t().contiguous(), (r(128, 64),)),
    "in a batch": (lambda x: (x.transpose(1, 2) + 1).contiguous(), (r(3, 33, 70),)),
    "beside another": (lambda x, y: x.t() + y, (r(40, 70), r(70, 40))),
    "of a row": (lambda x, b: (x.t() + b).contiguous(), (r(40, 70), r(40))),
    "in low precision": (lambda x: x.t().contiguous(), (r(40, 70).bfloat16(),)),
    "chosen": (lambda x, y: torch.where(x.t() > 0, y, x.t()), (r(40, 70), r(70, 40))),
    "of four": (lambda x: x.permute(0, 3, 1, 2).contiguous(), (r(2, 20, 18, 40),)),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("name", TRANSPOSED)
def test_tiles_are_transposed(name: str, mode: str, interpreter: None) -> None:
    fn, args = TRANSPOSED[name]
    program = compare_gpu(fn, args, mode)
    assert "YBLOCK" in program.triton_source


@pytest.mark.sample(2)
@pytest.mark.parametrize("which", [0, 1, 2, -1])
def test_every_tile_is_transposed_alike(which: int, interpreter: None) -> None:
    fn, args = TRANSPOSED["beside another"]
    _, program = tuned(fn, args, Choosing(lambda names: names[which]))
    assert "YBLOCK" in program.triton_source
