"""Strides of dimensions of size 1 or 0 are eager's: in fakes, and in what compiled code returns."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import tc
from tc.compiler.core.fakes import EagerLayouts

#: name -> a call on tensors of one shape, or of shapes that broadcast
CALLS = {
    "add a number": lambda x, y: x + 1,
    "subtract from a number": lambda x, y: 2 - x,
    "add": lambda x, y: x + y,
    "integers and floats": lambda x, y: x.int() * y + y.double(),
    "repeated integers": lambda x, y: x.long()[:1].expand_as(x) + y,
    "compare": lambda x, y: x > y,
    "compare with a number": lambda x, y: x.ne(0),
    "power": lambda x, y: x.abs() ** 2,
    "relu": lambda x, y: x.relu(),
    "leaky relu": lambda x, y: F.leaky_relu(x, 0.1),
    "hardtanh": lambda x, y: F.hardtanh(x),
    "gelu": lambda x, y: F.gelu(x),
    "hardswish": lambda x, y: F.hardswish(x),
    "clamp": lambda x, y: x.clamp(-1, 1),
    "clamp by a tensor": lambda x, y: x.clamp_min(y),
    "where": lambda x, y: torch.where(x > y, x, y),
    "where a number": lambda x, y: torch.where(x > 0, y, 0.0),
    "lerp": lambda x, y: torch.lerp(x, x, 0.5),
    "addcmul": lambda x, y: torch.addcmul(x, x, x),
    "floor": lambda x, y: torch.div(x, y.abs() + 1, rounding_mode="floor"),
    "remainder": lambda x, y: x % 3,
    "copysign": lambda x, y: torch.copysign(x, y),
    "logical": lambda x, y: torch.logical_and(x, y),
    "masked fill": lambda x, y: x.masked_fill(x > 0, 2.0),
    "complex": lambda x, y: torch.complex(x, y),
    "degrees": lambda x, y: torch.deg2rad(x),
    "nan to num": lambda x, y: torch.nan_to_num(x),
    "frexp": lambda x, y: torch.frexp(x)[1],
    "clone": lambda x, y: x.clone(),
    "cast": lambda x, y: x.to(torch.float64),
    "zeros like": lambda x, y: torch.zeros_like(x),
    "full like": lambda x, y: torch.full_like(x, 3.0),
    "flip": lambda x, y: x.flip(0),
    "roll": lambda x, y: x.roll(1, 0),
    "sort": lambda x, y: x.sort(0)[0],
    "layer norm": lambda x, y: F.layer_norm(x, x.shape[-1:]),
    "chain": lambda x, y: ((x + 1).relu() * 2).transpose(0, 1) + 1,
}


def draw(dice):
    """Return a tensor of two to four dimensions, some of size 1 or 0, in some layout."""
    rank = dice.choice([2, 2, 3, 4])
    shape = [
        dice.choice([1, 1, 3, 4, 5, 0] if dice.random() < 0.3 else [1, 3, 4, 1])
        for _ in range(rank)
    ]
    x = torch.randn(shape)
    for _ in range(dice.choice([1, 2, 3])):
        kind = dice.choice(["transpose", "cut", "gaps", "repeat", "channels last", "permute copy"])
        dim = dice.randrange(rank)
        if kind == "transpose":
            x = x.transpose(dim, dice.randrange(rank))
        elif kind == "cut":
            x = x.narrow(dim, 0, min(1, x.shape[dim]))
        elif kind == "gaps":
            x = torch.stack([x, x], -1)[..., 0]
        elif kind == "repeat" and x.shape[dim] == 1:
            x = x.expand([3 if d == dim else -1 for d in range(rank)])
        elif kind == "channels last" and rank == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        elif kind == "permute copy":
            order = dice.sample(range(rank), rank)
            x = x.permute(order).contiguous().permute([order.index(d) for d in range(rank)])
    return x


def pairs(seed, count=12):
    """Yield an operand, and another of its shape or of one that broadcasts."""
    dice = random.Random(seed)
    torch.manual_seed(0)
    for _ in range(count):
        x = draw(dice)
        y = dice.choice(
            [
                x,
                torch.randn(x.shape),
                torch.randn(x.shape[::-1]).permute(*reversed(range(x.dim()))),
                torch.randn(x.shape[-1:]),
                x.narrow(0, 0, min(1, x.shape[0])),
            ]
        )
        yield x, y


@pytest.mark.sample(3)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_strides_of_fakes_are_eagers(name, symbolic):
    call = CALLS[name]
    for x, y in pairs(name, count=40):
        wanted = call(x, y)
        mode = EagerLayouts(shape_env=ShapeEnv() if symbolic else None)
        with mode:
            found = call(mode.from_tensor(x), mode.from_tensor(y))
        assert tuple(found.shape) == wanted.shape
        assert tuple(map(int, found.stride())) == wanted.stride(), (x.shape, x.stride(), y.stride())


@pytest.mark.sample(1)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_strides_of_results_are_eagers(seed, dynamic):
    def program(x, y):
        made = [call(x, y) for call in CALLS.values()]
        return made, [(one.stride(), one.is_contiguous()) for one in made]

    compiled = tc.compile(program, dynamic=dynamic)
    for x, y in pairs(seed, count=2):
        wanted, found = program(x, y), compiled(x, y)
        assert wanted[1] == found[1]
        for name, one, other in zip(CALLS, wanted[0], found[0], strict=True):
            assert one.stride() == other.stride(), (name, x.shape, x.stride(), y.stride())


def test_gradients_of_narrow_tensors_have_eagers_strides():
    def strides(program, x):
        x = x.detach().requires_grad_()
        result = program(x)
        result.sum().backward()
        return result.stride(), x.grad.stride()

    def program(x):
        return F.hardtanh((x.t() + 1).exp()).double()

    for x in (torch.randn(3, 1), torch.randn(1, 3), torch.randn(1, 3).t(), torch.randn(0, 3)):
        assert strides(tc.compile(program), x) == strides(program, x)
