"""Results of the ATen ops that the wrapper trusts lie in memory as shape functions say."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tc.compiler.codegen.wrapper import EXACT

T = torch.Tensor
attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
TRUSTED: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "aten.topk.default": (lambda x: (*torch.topk(x, 2), *torch.topk(x, 1, 0)), [(3, 4, 5)]),
    "aten.sort.default": (lambda x: (*torch.sort(x), *torch.sort(x, 0)), [(3, 4, 5)]),
    "aten.cumsum.default": (lambda x: (x.cumsum(0), x.cumsum(-1)), [(3, 4, 5)]),
    "aten.cumprod.default": (lambda x: (x.cumprod(0), x.cumprod(-1)), [(3, 4, 5)]),
    "aten._scaled_dot_product_flash_attention_for_cpu.default": (
        lambda q, k, v: attention(q, k, v, 0.0, True),
        [(2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8)],
    ),
    "aten.mm.": (torch.mm, [(3, 4), (4, 5)]),
    "aten.bmm.": (torch.bmm, [(2, 3, 4), (2, 4, 5)]),
    "aten.addmm.": (torch.addmm, [(3, 5), (3, 4), (4, 5)]),
    "aten.baddbmm.": (torch.baddbmm, [(2, 3, 5), (2, 3, 4), (2, 4, 5)]),
    "aten.mv.": (torch.mv, [(3, 4), (4,)]),
    "aten.addmv.": (torch.addmv, [(3,), (3, 4), (4,)]),
}


def layouts(name: str, shapes: list[tuple[int, ...]]) -> Iterator[tuple[T, ...]]:
    """Inputs whose dimensions lie in every order, all of them or the first, and with gaps."""
    last_stays = "attention" in name
    ranks = [range(len(shape)) for shape in shapes]
    for order in itertools.permutations(ranks[0]):
        if last_stays and order[-1] != len(order) - 1:
            continue
        yield tuple(transposed(s, order if len(s) == len(order) else range(len(s))) for s in shapes)
        yield (transposed(shapes[0], order), *(torch.randn(s) for s in shapes[1:]))
    yield tuple(torch.randn(*s[:-1], 2 * s[-1])[..., : s[-1]] for s in shapes)
    if not last_stays:
        yield tuple(torch.randn(*s[:-1], 2 * s[-1])[..., ::2] for s in shapes)


def transposed(shape: tuple[int, ...], order: Any) -> T:
    """A tensor of a shape whose dimensions lie in memory in an order."""
    made = torch.randn([shape[i] for i in order])
    return made.permute([list(order).index(i) for i in range(len(shape))])


def strides(results: Any) -> list[tuple[int, ...]]:
    found = results if isinstance(results, tuple | list) else (results,)
    return [t.stride() for t in found]


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", TRUSTED)
def test_results_lie_where_their_shapes_say(name: str) -> None:
    fn, shapes = TRUSTED[name]
    assert name in EXACT
    for args in layouts(name, shapes):
        with FakeTensorMode() as mode:
            promised = strides(fn(*map(mode.from_tensor, args)))
        assert strides(fn(*args)) == promised, [a.stride() for a in args]
