"""Of a computed tensor that is read at few computed positions, only what is read is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loop_harness import compare, copied, lowered, program, trace
from loop_programs import T, r

from tc.compiler.core.gate import Gate
from tc.compiler.errors import IndexOutOfRange
from tc.compiler.loops import lower
from tc.compiler.runtime.load import load

PICKS: dict[str, Callable[[T, T], Any]] = {
    "gather": lambda x, i: (x * 2 + 1).gather(1, i[:, None]),
    "index": lambda x, i: (x.exp() - x.t()[:, :1].t())[i],
    "index of two": lambda x, i: (x * x)[i, i + 2],
    "index_select": lambda x, i: torch.index_select(x + 1, 1, i),
    "embedding": lambda x, i: F.embedding(i, x * 3),
    "log_softmax": lambda x, i: x.log_softmax(1).gather(1, i[:, None]).sum(),
    "cross_entropy": lambda x, i: F.cross_entropy(x, i, ignore_index=2),
    "picked of picked": lambda x, i: (x[i.repeat(20)] + 1)[i.flip(0) * 7],
    "transposed": lambda x, i: (x + 1).t()[i],
}


def rows(count: int = 3) -> tuple[T, T]:
    return r(40, 40), torch.tensor([4, 0, 2])[:count]


@pytest.mark.sample(2)
@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("name", PICKS)
def test_picked_elements_agree_with_eager(name: str, mode: str) -> None:
    x, i = rows()
    compare(PICKS[name], (x[:3] if "cross" in name or "log" in name else x, i), mode)


def kernels(fn: Callable[[T, T], Any], *args: T) -> int:
    return len(program(lowered(fn, args, "fake")).kernels)


def test_a_source_of_few_picks_is_not_written_to_memory() -> None:
    assert kernels(lambda x, i: (x * 2 + 1)[i], *rows()) == 1
    assert kernels(lambda x, i: (x * 2 + 1)[i], r(6, 40), rows()[1]) == 2  # half of it is read


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, i: F.pad(x, (1, 1, 1, 1))[i],
        lambda x, i: (x + torch.arange(40)[:, None])[i],
        lambda x, i: (x[i.expand(14, -1).flatten()[:40]] + 1)[i],
    ],
)
def test_a_source_that_knows_its_positions_is(fn: Callable[[T, T], Any]) -> None:
    args = rows()
    assert kernels(fn, *args) == 2
    compare(fn, args)


def test_a_position_out_of_range_is_an_error() -> None:
    call = load(program(lowered(lambda x, i: (x * 2 + 1)[i], rows(), "fake")))
    x, _ = rows()
    with pytest.raises(IndexOutOfRange, match="index out of range"):
        call(copied((x, torch.tensor([4, 40, 2]))))


def test_the_choice_can_be_refused() -> None:
    traced = trace(lambda x, i: (x * 2 + 1)[i], rows(), "fake")
    made = program(lower(traced, Gate(refuse_from={"loops.inline_picked": 1})))
    assert len(made.kernels) == 2
