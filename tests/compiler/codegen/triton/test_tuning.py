"""max_autotune on a GPU: what is chosen between, that each choice is right, and what is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loop_harness import check, copied, lowered

from tc.compiler.codegen.triton import Tuning, generate
from tc.compiler.codegen.triton.blocks import candidates
from tc.compiler.core.gate import Gate
from tc.compiler.core.tune import Tuner, Way
from tc.compiler.loops.ir import Extern
from tc.compiler.runtime.triton import load, open_kernels
from tc.compiler.schedule import gpu
from tc.compiler.schedule.plan import Product
from tc.trace import Autotune
from tc.trace.emit import capture_events

T = torch.Tensor
CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


class Memory(dict[tuple[str, str], bytes]):
    """Keeps answers for a test."""

    def read(self, kind: str, key: str) -> bytes | None:
        return self.get((kind, key))

    def write(self, kind: str, key: str, content: bytes) -> bool:
        self[kind, key] = content
        return True


def favouring(choose: Callable[[list[str]], str], store: Memory | None = None) -> Tuner:
    """A tuner in whose measurements one way is quickest; the others are run all the same."""

    def measure(ways: Mapping[str, Way], rounds: int) -> dict[str, float]:
        best = choose(list(ways))
        return {name: 1.0 if name == best else 2.0 for name in ways}

    return Tuner(store if store is not None else Memory(), "a machine", True, measure)


def tuned(fn: Callable[..., Any], args: Any, tuner: Tuner) -> Any:
    tuning = Tuning(tuner, open_kernels, CPU)
    plan = gpu.plan(lowered(fn, args), Gate(), tuning.product)
    plan.verify()
    program = generate(plan, CPU, tuning=tuning)
    program.verify()
    with torch.no_grad():
        want = fn(*copied(args))
    check(load(program)(copied(args)), want, rtol=2e-2 if args[0].dtype.itemsize == 2 else 1e-4,
          atol=2e-2 if args[0].dtype.itemsize == 2 else 1e-4)  # fmt: skip
    return plan, program


def r(*shape: int) -> T:
    torch.manual_seed(1)
    return torch.randn(shape)


KERNELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "pointwise": (lambda x: x.sin() * 2, (r(600),)),
    "held rows": (lambda x: F.softmax(x, -1), (r(6, 600),)),
    "long rows": (lambda x: x.exp().sum(1), (r(2, 5000),)),
    "columns": (lambda x: x.sum(0), (r(90, 17),)),
}


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


def test_what_was_measured_is_told_and_kept(interpreter: None) -> None:
    fn, args = KERNELS["pointwise"]
    memory = Memory()
    with capture_events() as events:
        _, first = tuned(fn, args, favouring(lambda names: names[2], memory))
        _, again = tuned(fn, args, favouring(lambda names: names[0], memory))
    assert first.triton_source == again.triton_source
    told = events.of(Autotune)
    assert [event.known for event in told] == [False, True]
    assert told[0].chosen == told[1].chosen != next(iter(told[0].seconds))


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
    tuning = Tuning(favouring(lambda names: names[-1]), open_kernels, CPU)

    def fail() -> None:
        raise RuntimeError("out of resources")

    ways = tuning._that_run({"usual": lambda: None, "large": fail})
    assert list(ways) == ["usual"]
    with pytest.raises(RuntimeError, match="resources"):
        tuning._that_run({"usual": fail})


def test_candidates_are_all_different_and_the_usual_is_first() -> None:
    for fn, args in KERNELS.values():
        for kernel in gpu.plan(lowered(fn, args), Gate()).kernels():
            found = candidates(kernel)
            assert len(found) == len(set(found)) >= 3
            assert all(blocks.rows >= 1 and 1 <= blocks.warps <= 16 for blocks in found)


# ---------------------------------------------------------------- matrix products

PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "alone": (lambda x, w: x @ w, (r(33, 20), r(20, 17))),
    "bias and gelu": (
        lambda x, w, b: F.gelu(x @ w + b),
        (r(33, 20), r(20, 17), r(17)),
    ),
    "residual and result": (
        lambda x, w, y: (lambda p: ((p + y).relu(), p))(x @ w),
        (r(33, 20), r(20, 17), r(33, 17)),
    ),
    "transposed": (lambda x, w: (x.t() @ w.t()) * 2, (r(20, 33), r(17, 20))),
    "two": (lambda x, w, v: ((x @ w).relu() @ v) + 1, (r(33, 20), r(20, 17), r(17, 40))),
    "parts of matrices": (lambda x, w: x[:, 4:] @ w[1:17] + 1, (r(33, 20), r(20, 17))),
}


def second(names: list[str]) -> str:
    return names[1]


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_with_what_follows(name: str, interpreter: None) -> None:
    fn, args = PRODUCTS[name]
    plan, program = tuned(fn, args, favouring(second))
    assert any(isinstance(kernel, Product) for kernel in plan.kernels())
    assert "tl.dot(" in program.triton_source
    assert not any(isinstance(step, Extern) for step in plan.steps)
    if name == "bias and gelu":
        assert len(plan.kernels()) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_products_in_low_precision(dtype: torch.dtype, interpreter: None) -> None:
    args = tuple(t.to(dtype) for t in (r(33, 20), r(20, 17), r(17)))
    plan, _ = tuned(lambda x, w, b: F.relu(x @ w + b), args, favouring(second))
    assert isinstance(plan.kernels()[0], Product)


def test_every_tile_computes_the_same(interpreter: None) -> None:
    fn, args = PRODUCTS["bias and gelu"]
    offered: list[str] = []
    tuned(fn, args, favouring(lambda names: offered.extend(names) or names[1]))  # type: ignore[func-returns-value]
    for tile in [name for name in offered if name.startswith("triton")]:
        plan, _ = tuned(fn, args, favouring(lambda names, tile=tile: tile))
        assert plan.kernels()[0].tile_name == tile


def test_where_the_library_is_quicker_it_is_called(interpreter: None) -> None:
    fn, args = PRODUCTS["bias and gelu"]
    plan, program = tuned(fn, args, favouring(lambda names: names[0]))
    assert "mm(" in program.wrapper_source
    refused = [d for d in plan.decisions if d.kind == "product"]
    assert [d.taken for d in refused] == [False]


def test_products_whose_reader_looks_elsewhere_stand_alone(interpreter: None) -> None:
    fn = lambda x, w: (x @ w).flip(0) + 1  # noqa: E731
    plan, _ = tuned(fn, (r(33, 20), r(20, 17)), favouring(second))
    assert [isinstance(kernel, Product) for kernel in plan.kernels()] == [True, False]
