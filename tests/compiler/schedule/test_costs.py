"""What steps move and compute, against torch's own counter and against loops run by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loop_harness import lowered, planned
from torch.utils.flop_counter import FlopCounterMode

from tc.compiler.loops import index as ix
from tc.compiler.loops.ir import Extern
from tc.compiler.schedule.costs import buffers_of, only_copies, work_of
from tc.compiler.schedule.plan import Kernel

PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "mm": (torch.mm, ((3, 5), (5, 7))),
    "bmm": (torch.bmm, ((2, 3, 5), (2, 5, 7))),
    "addmm": (torch.addmm, ((7,), (3, 5), (5, 7))),
    "baddbmm": (torch.baddbmm, ((2, 3, 7), (2, 3, 5), (2, 5, 7))),
    "linear": (F.linear, ((4, 3, 5), (7, 5), (7,))),
    "conv1d": (lambda x, w: F.conv1d(x, w, padding=1), ((2, 4, 9), (6, 4, 3))),
    "conv2d groups": (lambda x, w: F.conv2d(x, w, groups=2), ((2, 4, 9, 8), (6, 2, 3, 3))),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_operations_of_products_are_those_that_torch_counts(name: str) -> None:
    function, shapes = PRODUCTS[name]
    args = [torch.randn(shape) for shape in shapes]
    plan = planned(lowered(function, args))
    works = [work_of(step, buffers_of(plan)) for step in plan.steps if isinstance(step, Extern)]
    with FlopCounterMode(display=False) as counter:
        function(*args)
    counted = sum(work.operations.constant or 0 for work in works if work is not None)
    assert counted == counter.get_total_flops() > 0


def kernels(function: Callable[..., Any], *args: Any) -> list[tuple[int, int]]:
    """Bytes and operations of each kernel of a function."""
    plan = planned(lowered(function, list(args)))
    works = [work_of(step, buffers_of(plan)) for step in plan.steps if isinstance(step, Kernel)]
    assert works
    return [(w.moved.constant or 0, w.operations.constant or 0) for w in works if w is not None]


def test_a_chain_moves_its_inputs_and_its_result_once() -> None:
    x, y = torch.randn(6, 8), torch.randn(8)
    ((moved, operations),) = kernels(lambda x, y: (x + y) * x - 1, x, y)
    assert moved == 4 * (48 + 8 + 48)
    assert operations == 3 * 48


def test_what_is_read_again_is_moved_once() -> None:
    x = torch.randn(16, 32)
    ((moved, _),) = kernels(lambda x: x.softmax(-1), x)
    assert moved == 4 * 2 * 16 * 32


def test_taking_into_a_sum_is_an_operation() -> None:
    x = torch.randn(16, 32)
    ((_, operations),) = kernels(lambda x: (x * x).sum(-1), x)
    assert operations == 2 * 16 * 32


def test_types_count_by_their_width() -> None:
    x = torch.randn(64, dtype=torch.bfloat16)
    ((moved, _),) = kernels(lambda x: x.float() * 2, x)
    assert moved == 64 * 2 + 64 * 4


def test_computed_places_count_once_a_turn() -> None:
    table, places = torch.randn(10_000, 4), torch.randint(0, 10_000, (5,))
    ((moved, _),) = kernels(lambda table, places: table[places] * 2, table, places)
    assert moved == 8 * 5 + 4 * (5 * 4) + 4 * (5 * 4)


def test_more_reads_than_elements_move_the_buffer_once() -> None:
    table, places = torch.randn(3, 2), torch.randint(0, 3, (1000,))
    ((moved, _),) = kernels(lambda table, places: table[places].sum(0), table, places)
    assert moved == 4 * 6 + 8 * 1000 + 4 * 2


def test_sizes_stay_formulas() -> None:
    plan = planned(lowered(lambda x: x * 2 + 1, [torch.randn(5, 7)], "symbolic"))
    (work,) = [work_of(step, buffers_of(plan)) for step in plan.steps if isinstance(step, Kernel)]
    assert work is not None
    assert work.moved.constant is None
    sizes = {atom.name: 5 for atom in work.moved.atoms()}
    assert ix.evaluate(work.moved, sizes) == 8 * 5 ** len(sizes)


COPIES: dict[str, Callable[..., Any]] = {
    "repeat": lambda x: x.repeat(2, 3),
    "tile": lambda x: x.tile(2),
    "repeat_interleave": lambda x: x.repeat_interleave(3, 0),
    "cat": lambda x: torch.cat([x, x.flip(0)]),
    "stack": lambda x: torch.stack([x, x]),
    "roll": lambda x: x.roll(1, 0),
    "contiguous": lambda x: x.t().contiguous(),
}


@pytest.mark.parametrize("name", COPIES)
def test_what_only_moves_values_is_known_as_a_copy(name: str) -> None:
    plan = planned(lowered(COPIES[name], [torch.randn(6, 8)]))
    steps = [step for step in plan.steps if isinstance(step, Kernel | Extern)]
    assert steps and all(map(only_copies, steps))
