"""Layouts: images channels last inside, eager's strides and values outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loop_harness import check, trace
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import tc
from tc.compiler import library
from tc.compiler.aot.training import Training, training
from tc.compiler.core.gate import Gate

aten = torch.ops.aten
T = torch.Tensor


def images(*shape: int) -> T:
    return torch.randn(shape)


def args(side: int = 24) -> tuple[T, T, T]:
    return images(2, 3, side, side), images(8, 3, 3, 3), images(8, 8, 3, 3)


def chain(x: T, w: T, u: T) -> T:
    return F.conv2d(F.relu(F.conv2d(x, w, padding=1)), u, padding=1).tanh()


def pooled(x: T, w: T, u: T) -> T:
    y = F.max_pool2d(F.conv2d(x, w, padding=1).relu(), 2, 1)
    return F.conv2d(y, u).relu().mean((2, 3))


def joined(x: T, w: T, u: T) -> Any:
    y = F.relu(F.conv2d(x, w, padding=1))
    z = F.relu(F.conv2d(y, u, padding=1))
    return y, torch.cat([y, z], 1).flatten(2), z + y


def scaled(x: T, w: T, u: T) -> T:
    y = F.conv2d(x, w, padding=1) * w[:, 0, 0, 0].view(1, -1, 1, 1)
    return F.conv2d(F.relu(y), u).sigmoid() + 1


def channels_last(module: torch.fx.GraphModule) -> list[bool]:
    calls = module.graph.find_nodes(op="call_function", target=aten.convolution.default)
    return [c.meta["val"].is_contiguous(memory_format=torch.channels_last) for c in calls]


def moments(x: T, groups: int) -> T:
    """A group norm as it is decomposed."""
    n, c, h, w = x.shape
    parts = x.view(n, groups, c // groups, h * w)
    found = torch.var_mean(parts, (2, 3), correction=0, keepdim=True)
    each = [t.expand(n, groups, c // groups, 1).reshape(n, c, 1, 1) for t in found]
    return (x - each[1]) / (each[0] + 1e-5).sqrt()


def grouped(x: T, w: T, u: T) -> T:
    y = moments(F.conv2d(x, w, padding=1), 4)
    return moments(F.conv2d(y, u, padding=1), 2) + y


def grown(x: T, w: T, u: T) -> T:
    y = F.interpolate(F.relu(F.conv2d(x, w, padding=1)), scale_factor=2.0)
    return F.conv2d(y, u).relu() * 2


@pytest.mark.parametrize("fn", [chain, pooled, joined, scaled, grouped, grown])
def test_a_chain_of_convolutions_runs_channels_last(fn: Callable[..., Any]) -> None:
    module = trace(fn, args())
    library.arrange(module, Gate())
    module.recompile()
    assert all(channels_last(module))
    got, want = module(*args()), fn(*args())
    wanted = want if isinstance(want, tuple) else (want,)
    for mine, theirs in zip(got if isinstance(got, tuple) else (got,), wanted, strict=True):
        assert mine.stride() == theirs.stride()


@pytest.mark.sample(2)
@pytest.mark.parametrize("fn", [chain, pooled, joined, scaled, grouped, grown])
def test_compiled_chains_give_eagers_values_and_strides(fn: Callable[..., Any]) -> None:
    given = args()
    with torch.no_grad():
        got, want = tc.compile(fn)(*given), fn(*given)
    check(got if isinstance(got, tuple) else (got,), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("fn", "side"),
    [
        (lambda x, w, u: F.conv2d(x, w), 24),  # one alone
        (lambda x, w, u: F.conv2d(F.conv2d(x, w), u), 8),  # few pixels
        (lambda x, w, u: F.conv2d(F.conv2d(x, w).flatten(2).view(2, 8, 22, 22), u).view(2, -1), 24),
    ],
)  # fmt: skip
def test_layouts_stay_where_nothing_is_gained(fn: Callable[..., Any], side: int) -> None:
    module = trace(fn, args(side))
    before = str(module.graph)
    library.arrange(module, Gate())
    module.recompile()
    assert str(module.graph) == before


# -- with gradients ------------------------------------------------------------------------------
def normed(x: T, w: T, u: T) -> T:
    scale, shift = u[0, :, 0, 0], u[1, :, 0, 0]
    mean, spread = torch.zeros_like(scale.detach()), torch.ones_like(scale.detach())
    y = F.batch_norm(F.conv2d(x, w, padding=1), mean, spread, scale, shift, training=True)
    y = F.max_pool2d(y.relu(), 3, 2, 1)
    z = F.batch_norm(F.conv2d(y, u, padding=1), mean, spread, shift, scale, training=True)
    return (z + y).relu().mean((2, 3))


def exits(x: T, w: T, u: T) -> tuple[T, T]:
    """A result in the middle, and one that needs eager's layout."""
    y = F.conv2d(x, w, padding=1)
    z = F.conv2d(y.relu(), u, padding=1)
    return y.relu() * 2, z.relu().flatten(1).cumsum(1)


def kernels_of_kernels(x: T, w: T, u: T) -> T:
    """A kernel that is computed, and a bias."""
    y = F.conv2d(x, w, u[0, :, 0, 0], padding=1).relu()
    return F.conv2d(y, u * 2, padding=1).relu()


TRAINED = [chain, pooled, normed, exits, kernels_of_kernels]


def leaves() -> list[T]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(t.shape, generator=generator).requires_grad_() for t in args()]


def joint(fn: Callable[..., Any], arrange: Any = library.arrange_joint) -> Training:
    graph = torch.fx.symbolic_trace(fn)
    mode = FakeTensorMode()
    fakes = [mode.from_tensor(leaf, static_shapes=True) for leaf in leaves()]
    return training(graph, fakes, Gate(), arrange=arrange)


@pytest.mark.sample(3)
@pytest.mark.parametrize("fn", TRAINED)
def test_gradients_of_a_chain_are_computed_channels_last(fn: Callable[..., Any]) -> None:
    found = joint(fn)
    assert found.backward is not None
    graph = found.backward.module.graph
    calls = graph.find_nodes(op="call_function", target=aten.convolution_backward.default)
    assert len(calls) == 2 and all(channels_last(found.forward.module))
    for call in calls:
        for operand in call.args[:3]:
            assert operand.meta["val"].is_contiguous(memory_format=torch.channels_last)


@pytest.mark.sample(3)
@pytest.mark.parametrize("fn", TRAINED)
def test_trained_chains_give_eagers_values_gradients_and_strides(fn: Callable[..., Any]) -> None:
    results = []
    for run in (fn, tc.compile(fn, fullgraph=True)):
        given = leaves()
        found = run(*given)
        outputs = found if isinstance(found, tuple) else (found,)
        gradients = torch.autograd.grad([(t * t).sum() for t in outputs], given)
        results.append((*outputs, *gradients))
    for found, wanted in zip(*reversed(results), strict=True):
        near = 1e-4 * wanted.abs().max().item()  # sums of many large terms may cancel
        check((found,), (wanted,), rtol=1e-3, atol=near)
    assert [t.stride() for t in results[1]] == [t.stride() for t in results[0]]


def test_the_gate_refuses_layouts_of_a_joint_graph() -> None:
    def refused(module: torch.fx.GraphModule, gate: Gate) -> None:
        library.arrange_joint(module, Gate(refuse_from={"library.channels_last": 0}))

    assert not any(channels_last(joint(chain, refused).forward.module))


def test_large_kernels_over_few_pixels_keep_their_layout() -> None:
    def small(x: T, w: T, u: T) -> T:
        y = F.conv2d(x[:, :, :4, :4], w)
        return F.conv2d(y, u.repeat(16, 1, 1, 1), padding=1).relu()

    assert not any(channels_last(joint(small).forward.module))


def on_gpu(dtype: torch.dtype) -> torch.fx.GraphModule:
    """The ATen graph of `chain` on a GPU, of which none is needed for it."""
    shapes = [x.shape for x in args()]
    with FakeTensorMode():
        return make_fx(chain)(*(torch.empty(s, dtype=dtype, device="cuda") for s in shapes))


class Measured:
    """A tuner that has measured already."""

    thorough, events = True, ()

    def __init__(self, best: str) -> None:
        self.best, self.asked = best, list[str]()

    def fastest(self, question: str, ways: Any) -> str:
        self.asked.append(question)
        return self.best


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("best", ["channels_last", "contiguous"])
def test_on_a_gpu_it_is_measured_there(best: str, dtype: torch.dtype) -> None:
    module = on_gpu(dtype)
    here, there = Measured(best), Measured(best)
    library.arrange(module, Gate(), None, here, there)  # type: ignore[arg-type]
    # torch's shape function knows of cuDNN, and so the layout of results, only where there is one.
    calls = module.graph.find_nodes(op="call_function", target=aten.convolution.default)
    given = [call.args[0].meta["val"] for call in calls]
    last = [image.is_contiguous(memory_format=torch.channels_last) for image in given]
    assert last == [best == "channels_last"] * 2
    assert not here.asked
    assert len(there.asked) == 2
    assert all(str(dtype).removeprefix("torch.") in question for question in there.asked)


def test_on_a_gpu_nothing_moves_unmeasured() -> None:
    module = on_gpu(torch.float32)
    library.arrange(module, Gate(), None, Measured("channels_last"))  # type: ignore[arg-type]
    assert channels_last(module) == [False] * 2
