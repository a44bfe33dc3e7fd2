"""Strides and offsets of fake views are eager's, for drawn tensors and arguments."""

from __future__ import annotations

import random

import pytest
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import tc
from tc.compiler.core.fakes import EagerLayouts


def drawn(dice):
    """Return a view with an offset, ones, and dimensions of no elements, in some order."""
    shape = [dice.choice((0, 1, 1, 2, 3, 4)) for _ in range(dice.randint(1, 3))]
    tensor = torch.randn([max(1, size + dice.randint(0, 1)) for size in shape])
    for dim, size in enumerate(shape):
        size = min(size, tensor.shape[dim])
        tensor = tensor.narrow(dim, tensor.shape[dim] - size, size)
    tensor = tensor.permute(dice.sample(range(tensor.dim()), tensor.dim()))
    return tensor.unsqueeze(dice.randint(0, tensor.dim())) if dice.random() < 0.3 else tensor


def arguments(name, dice, tensor):
    """Return arguments of a method, which eager may refuse."""
    number = [dice.randint(-4, 4) for _ in range(3)]
    one, other = (dice.randrange(-tensor.dim(), tensor.dim()) for _ in range(2))
    few, numel = dice.randint(0, 3), tensor.numel()
    grown = [size if size != 1 else few for size in tensor.shape]
    shapes = [(-1,), (numel,), (1, -1), (*tensor.shape, 1), (0, -1), (1, *tensor.shape), (numel, 1)]
    order = dice.sample(range(tensor.dim()), tensor.dim())
    steps = tuple(dice.choice((slice(*number[:2], 2), None)) for _ in range(tensor.dim()))
    return {
        "diagonal": (number[0], one, other), "select": (one, number[0]),
        "narrow": (one, number[0], few), "split": (few, one), "chunk": (few + 1, one),
        "unfold": (one, few, dice.randint(1, 3)), "transpose": (one, other), "squeeze": (one,),
        "unsqueeze": (one,), "unbind": (one,), "permute": (order,), "flatten": (0, -1),
        "expand": ([dice.randint(1, 2), *grown],), "view": (dice.choice(shapes),),
        "reshape": (dice.choice(shapes),), "contiguous": (), "__getitem__": (steps,),
        "as_strided": ([few, 2], [dice.randint(0, 2), 1]), "movedim": (one, other),
    }[name]  # fmt: skip


METHODS = [
    "diagonal", "select", "narrow", "split", "chunk", "unfold", "transpose", "squeeze", "unsqueeze",
    "unbind", "permute", "flatten", "expand", "view", "reshape", "contiguous", "__getitem__",
    "as_strided", "movedim",
]  # fmt: skip


def places(found):
    found = found if isinstance(found, tuple | list) else [found]
    return [([*map(int, x.shape)], [*map(int, x.stride())], int(x.storage_offset())) for x in found]


@pytest.mark.sample(7)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_fake_views_lie_where_eagers_do(name, symbolic):
    seed = random.randrange(10**9)
    dice, seen = random.Random(seed), 0
    while seen < 12:
        tensor = drawn(dice)
        args = arguments(name, dice, tensor)
        mode = EagerLayouts(shape_env=ShapeEnv() if symbolic else None)
        fake = mode.from_tensor(tensor)
        try:
            wanted = places(getattr(tensor, name)(*args))
        except (RuntimeError, IndexError):
            continue
        if places(fake) != places(tensor):
            continue  # torch makes a fake of a view that has no elements without its offset
        seen += 1
        with mode:
            shown = (seed, places(tensor), args)
            assert places(getattr(fake, name)(*args)) == wanted, shown
            with enable_python_dispatcher():
                assert places(getattr(fake, name)(*args)) == wanted, shown


def beyond(x):
    diagonal = x.t()[1:, 1:].diagonal(-x.shape[0])
    return diagonal.contiguous().as_strided((2,), (1,)) + 0, diagonal.storage_offset()


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_diagonal_beyond_the_matrix_begins_where_the_matrix_does(dynamic):
    compiled = tc.compile(beyond, dynamic=dynamic)
    for size in (3, 5):
        x = torch.randn(size, size)
        torch.testing.assert_close(compiled(x), beyond(x))
