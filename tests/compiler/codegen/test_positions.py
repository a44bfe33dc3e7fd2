"""Loops whose reads are at computed positions: offsets in arrays, branches, and lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loop_harness import check, compare, copied, lowered, program
from loop_programs import T, r

from tc.compiler.errors import IndexOutOfRange
from tc.compiler.runtime.load import load


def some(bound: int, *shape: int) -> T:
    torch.manual_seed(bound)
    return torch.randint(0, bound, shape)


Case = tuple[Callable[..., Any], tuple[T, ...]]
#: name -> a program, and its tensors, of which the last one holds positions
CASES: dict[str, Case] = {
    "rows": (lambda x, i: x.gather(1, i), (r(5, 70), some(70, 5, 90))),
    "computed rows": (lambda x, i: x.gather(1, i).exp() * 2, (r(5, 70), some(70, 5, 90))),
    "long rows": (lambda x, i: x.gather(1, i).sigmoid().exp(), (r(3, 5000), some(5000, 3, 5000))),
    "one row": (lambda x, i: x[i].sigmoid().exp(), (r(900), some(900, 1000))),
    "one plain row": (lambda x, i: x[i] * 2, (r(900), some(900, 1001))),
    "two positions": (lambda x, i: x[i, i.flip(0)].exp(), (r(90, 90), some(90, 700))),
    "the same in all rows": (lambda x, i: x[:, i] * 2 + 1, (r(40, 33), some(33, 50))),
    "in some of the loops": (lambda x, i: x[:, i].exp(), (r(6, 33), some(33, 8, 50))),
    "of two tensors": (lambda x, i: (x[i].exp() - (x * 2)[i]).sin(), (r(900), some(900, 300))),
    "sum": (lambda x, i: x.gather(1, i).sum(1), (r(5, 700), some(700, 5, 300))),
    "long sum": (lambda x, i: x.gather(1, i).exp().sum(1), (r(3, 9000), some(9000, 3, 9000))),
    "maximum": (lambda x, i: x.gather(1, i).max(1).values, (r(5, 70), some(70, 5, 90))),
    "place of it": (lambda x, i: x.gather(1, i).argmax(1), (r(5, 70), some(70, 5, 90))),
    "softmax": (lambda x, i: x[:, i].softmax(1), (r(5, 700), some(700, 300))),
    "bag": (lambda x, i: F.embedding(i, x).sum(1), (r(50, 64), some(50, 9, 20))),
    "bag of means": (lambda x, i: (F.embedding(i, x) * 2).mean(1), (r(50, 17), some(50, 9, 20))),
    "float64": (lambda x, i: x.gather(1, i).exp(), (r(5, 70).double(), some(70, 5, 90))),
    "bfloat16": (lambda x, i: x.gather(1, i) * 2, (r(5, 70).bfloat16(), some(70, 5, 90))),
    "32 bits": (lambda x, i: x[i].exp(), (r(900), some(900, 1000).int())),
    "position of a position": (lambda x, i: x[i[i].abs()].exp(), (r(900), some(900, 900))),
    "chosen": (
        lambda x, i: torch.where(i > 3, x[i], x[i.flip(0)] * 2).exp(),
        (r(99), some(99, 600)),
    ),
    "from the end": (lambda x, i: x[-1 - i].exp(), (r(900), some(900, 600))),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("name", CASES)
def test_reads_agree_with_eager(name: str, mode: str) -> None:
    fn, args = CASES[name]
    compare(fn, args, mode, rtol=2e-5, atol=2e-5)


@pytest.mark.sample(3)
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("name", CASES)
def test_a_position_out_of_range_is_an_error_wherever_it_is(name: str, mode: str) -> None:
    fn, (*tensors, positions) = CASES[name]
    call = load(program(lowered(fn, (*tensors, positions), mode)))
    for where in (0, positions.numel() // 2, -1):
        bad = positions.clone()
        bad.view(-1)[where] = 100_000
        with pytest.raises(IndexOutOfRange):
            call([*copied(tensors), bad])
    check(call([*copied(tensors), positions]), fn(*tensors, positions), rtol=2e-5, atol=2e-5)


def kernels(name: str) -> str:
    fn, args = CASES[name]
    return program(lowered(fn, args), threads=1).c_source


def test_offsets_that_rows_share_are_computed_once() -> None:
    text = kernels("in some of the loops")
    assert text.index("int q1[400]") < text.index("for (long long")


def test_offsets_of_several_positions_are_one() -> None:
    text = kernels("two positions")
    assert "int q1[256];" in text and "q2" not in text


def test_loops_that_only_read_have_branches() -> None:
    assert "continue;" in kernels("rows") and "omp simd" not in kernels("rows")
    assert "continue;" not in kernels("computed rows")


def test_rows_are_added_along_memory() -> None:
    """A bag adds whole rows, rather than one element of each at a time."""
    assert "lanes" in kernels("bag")
