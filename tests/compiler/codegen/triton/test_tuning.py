"""max_autotune on a GPU: what is chosen between, that each choice is right, and what is kept.

Matrix products have tests of their own: `test_products.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loop_harness import lowered
from triton_harness import Memory, favouring, tuned

from tc.compiler.codegen.triton import Tuning, generate
from tc.compiler.codegen.triton.blocks import candidates
from tc.compiler.codegen.triton.tuning import that_run
from tc.compiler.core.gate import Gate
from tc.compiler.runtime.triton import open_kernels
from tc.compiler.schedule import gpu
from tc.trace import Autotune
from tc.trace.emit import capture_events

T = torch.Tensor
CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def r(*shape: int) -> T:
    torch.manual_seed(1)
    return torch.randn(shape)


KERNELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "pointwise": (lambda x: x.sin() * 2, (r(600),)),
    "held rows": (lambda x: F.softmax(x, -1), (r(6, 600),)),
    "long rows": (lambda x: x.exp().sum(1), (r(2, 5000),)),
    "columns": (lambda x: x.sum(0), (r(90, 17),)),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("which", [0, 1, -1])
def test_each_choice_computes_the_same(name: str, which: int, interpreter: None) -> None:
    fn, args = KERNELS[name]
    offered: list[list[str]] = []

    def choose(names: list[str]) -> str:
        offered.append(names)
        return names[which]

    _, program = tuned(fn, args, favouring(choose))
    assert len(offered[0]) >= 3
    warps = offered[0][which].rpartition(", ")[2].split()[0]
    assert f"num_warps={warps})" in program.triton_source


def test_what_was_measured_is_reported_and_kept(interpreter: None) -> None:
    fn, args = KERNELS["pointwise"]
    memory = Memory()
    with capture_events() as events:
        _, first = tuned(fn, args, favouring(lambda names: names[2], memory))
        _, again = tuned(fn, args, favouring(lambda names: names[0], memory))
    assert first.triton_source == again.triton_source
    reported = events.of(Autotune)
    assert [event.known for event in reported] == [False, True]
    assert reported[0].chosen == reported[1].chosen != next(iter(reported[0].seconds))


def test_equal_kernels_are_asked_about_once(interpreter: None) -> None:
    memory = Memory()
    fn = lambda x, y: (x.flip(0).sin(), y.flip(0).sin())  # noqa: E731
    with capture_events() as events:
        tuned(fn, (r(300), r(300)), favouring(lambda names: names[1], memory))
    assert len(memory) == len({event.question for event in events.of(Autotune)})


def test_kernels_of_symbolic_sizes_are_left_as_they_are(interpreter: None) -> None:
    tuning = Tuning(favouring(lambda names: pytest.fail("asked")), open_kernels, CPU)
    plan = gpu.plan(lowered(lambda x: x + 1, (r(7),), "symbolic"), Gate(), tuning.product)
    assert "1024" in generate(plan, CPU, tuning=tuning).triton_source


def test_a_way_that_does_not_run_is_left_out(interpreter: None) -> None:
    def fail() -> None:
        raise RuntimeError("out of resources")

    ways = that_run({"usual": lambda: None, "large": fail})
    assert list(ways) == ["usual"]
    with pytest.raises(RuntimeError, match="resources"):
        that_run({"usual": fail})


def test_candidates_are_all_different_and_the_usual_is_first() -> None:
    for fn, args in KERNELS.values():
        for kernel in gpu.plan(lowered(fn, args), Gate()).kernels():
            found = candidates(kernel)
            assert len(found) == len(set(found)) >= 3
            assert all(blocks.rows >= 1 and 1 <= blocks.warps <= 16 for blocks in found)
