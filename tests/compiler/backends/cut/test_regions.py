"""Equal calls of marked functions share a compiled graph, and compute what they would alone."""

from __future__ import annotations

import os
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tc
from tc import trace

WIDTH = 8


class Block(nn.Module):
    """A layer with a residual, as models have many of."""

    def __init__(self, drop: float = 0.0) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(drop)

    @tc.nested_compile_region
    def forward(self, x):
        return x + self.drop(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def outcome(f, *args):
    """Return what a function of tensors returns, and the gradients of its arguments and itself."""
    args = [a.clone().requires_grad_(a.requires_grad) for a in args]
    torch.manual_seed(0)
    outs = f(*args)
    outs = outs if isinstance(outs, tuple) else (outs,)
    wanted = [out for out in outs if out.requires_grad]
    given = [a for a in args if a.requires_grad]
    given += list(f.parameters()) if isinstance(f, nn.Module) else []
    gradients = []
    if wanted and given:
        total = sum((out * out).sum() for out in wanted)
        gradients = torch.autograd.grad(total, given, allow_unused=True)
    return [*outs, *args, *gradients]


def same(f, *args, times: int = 2, **options) -> str:
    """Check a function against eager, and return what its calls shared."""
    compiled = tc.compile(f, fullgraph=True, **options)
    with trace.capture_events() as events:
        for _ in range(times):
            for got, eagers in zip(outcome(compiled, *args), outcome(f, *args), strict=True):
                torch.testing.assert_close(got, eagers)
                if eagers is not None:
                    assert got.stride() == eagers.stride()
    artifacts = events.of(trace.Artifact)
    return "\n".join(str(one.payload) for one in artifacts if one.name == "tc_compile_regions")


def called(count: int, of: str) -> str:
    return f"{of}: {count} calls share 1 graphs"


@pytest.mark.sample(2)
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_equal_layers_are_compiled_once(gradients, dynamic):
    """The first one's input is no result, and asks for no gradient."""
    model = Model(*(Block() for _ in range(5))).requires_grad_(gradients)
    report = same(model, torch.randn(4, WIDTH), dynamic=dynamic)
    assert called(4 if gradients or dynamic else 5, "Block.forward") in report


def test_random_numbers_are_drawn_by_each_call():
    model = Model(*(Block(0.5) for _ in range(4)))
    assert called(3, "Block.forward") in same(model, torch.randn(64, WIDTH))


@tc.nested_compile_region
def scaled(x, scale):
    return (x * scale).tanh()


@tc.nested_compile_region
def halves(x):
    left, right = x.chunk(2, -1)
    return left.sin() * right, right


@tc.nested_compile_region
def same_memory(x):
    return x.view(-1)


@tc.nested_compile_region
def add_in_place(x, y):
    x.add_(y)
    return y * 2


@tc.nested_compile_region
def into_new(x):
    y = torch.zeros_like(x)
    y[0] = x[1]
    return y.mul_(2)


@tc.nested_compile_region
def rows_of(x):
    return x.reshape(x.shape[0] * 2, -1), x.shape[0] * 2


@tc.nested_compile_region
def outer(x):
    return scaled(scaled(x, 2), 2)


@tc.nested_compile_region
def in_modes(x):
    with torch.no_grad():
        scale = x.abs().max()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x.float() @ x.float().t()
    return x / scale + y.double().sum()


def modes_around(x):
    with torch.no_grad():
        y = scaled(x, 2) + scaled(x + 1, 2)
    return scaled(x, 2) + scaled(x * 2, 2) + y


def modes_between(x):
    y = scaled(x, 2)
    with torch.no_grad():
        z = x.exp()
    return scaled(y * z, 2)


def inference_between(x):
    y = scaled(x, 2)
    with torch.inference_mode():
        z = x.exp().sum().item() if False else 1
    return scaled(y * z, 2)


def views_of_one(x):
    a, b = x[0], x[1]
    return scaled(a, 2) + scaled(b, 2) + scaled(a, 2)


def different_scales(x):
    return scaled(x, 2) + scaled(x, 3) + scaled(x.cos(), 2)


def different_sizes(x):
    return scaled(x, 2).sum(), scaled(x[0], 2), scaled(x + 1, 2)


def detached(x):
    return scaled(x, 2) + scaled(x.detach(), 2)


def memory_of_the_input(x):
    return same_memory(x), same_memory(x + 1), same_memory(x.exp())


def writes_to_inputs(x):
    y, z = x + 1, x + 2
    return add_in_place(y, z), add_in_place(z, y), y, z


def writes_to_views(x):
    y = x.clone()
    return add_in_place(y[0], y[1]), add_in_place(y[1], y[0]), y


def reads_of_sizes(x):
    y, n = rows_of(x)
    z, m = rows_of(y * n)
    return z + m


#: programs, and how many calls share a graph, without gradients and with
PROGRAMS = {
    "scaled by numbers that differ": (different_scales, 2, 2),
    "of sizes that differ": (different_sizes, 2, 2),
    "one asks for no gradient": (lambda x: scaled(x, 2) + scaled(x.detach(), 2), 2, 0),
    "several results": (lambda x: (*halves(x), *halves(x + 1)), 2, 2),
    "one after another": (lambda x: scaled(scaled(scaled(x, 2), 2), 2), 3, 3),
    "one inside another": (lambda x: outer(x) + outer(x + 1), 2, 2),
    "views of one tensor": (views_of_one, 2, 2),
    "a result in the memory of the argument": (memory_of_the_input, 3, 3),
    "writes to what another reads": (writes_to_inputs, 2, 0),
    "writes to views": (writes_to_views, 0, 0),
    "writes to memory of its own": (lambda x: into_new(x) + into_new(x * 2), 2, 2),
    "sizes are passed on": (reads_of_sizes, 0, 0),
    "modes inside": (lambda x: in_modes(x) + in_modes(x + 1), 2, 2),
    "modes between": (modes_between, 2, 2),
    "modes around": (modes_around, 0, 0),
    "an inference mode between": (inference_between, 0, 0),
    "one call": (lambda x: scaled(x, 2), 0, 0),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
def test_programs_do_as_eager_does(name, gradients, dynamic):
    f, *sharing = PROGRAMS[name]
    x = torch.randn(4, WIDTH, dtype=torch.float64, requires_grad=gradients)
    report = same(f, x, dynamic=dynamic)
    count = sharing[gradients]
    if not dynamic:  # symbolic sizes of equal value may be written down in two ways
        assert f"{count} calls share" in report if count else "calls share" not in report, report


# -- drawn programs ----------------------------------------------------------------------------
ROWS = 4
#: statements about two matrices x and y of one size
STATEMENTS = (
    "x = x * {number} + y", "x = torch.relu(x - y)", "y = x.cos() * y", "x, y = y, x",
    "x = x.flip(0)", "y = x.softmax(-1) - y", "x = x + y[0]", "x = torch.cat([x[1:], y[:1]])",
    "x = x.t().reshape(y.shape)", "y = x.detach() * y", "x = x.clone().add_(y)",
    "y = torch.where(x > 0, x, y)", "x = x.view(-1).view(y.shape)", "y = y.clone(); y[1] = x[0]",
    "y = F.dropout(y, {number} / 4)", "x = x.sin().to(torch.float64)", "x = x.contiguous()",
    "x = x.expand_as(x)", "y = y - y.mean(0)", "x = (x @ y.t()) @ y * 0.1",
    "x = x.relu_() if not x.requires_grad else x", "x.mul_(2) if not x.requires_grad else x",
)  # fmt: skip


def drawn(source: random.Random):
    """Return a program of marked functions that call operations, and of calls of them."""
    lines = []
    count = source.randint(1, 3)
    for number in range(count):
        lines += ["@tc.nested_compile_region", f"def region{number}(x, y):"]
        lines += [f"    {line}" for line in _statements(source)]
        lines += [f"    return {source.choice(('x, y', 'y, x', 'x, x + y', 'x + 1, y'))}", ""]
    lines += ["def program(x, y):", "    a, b = x, y"]
    for _ in range(source.randint(2, 7)):
        pair = source.choice(("x, y", "y, x", "x, x", "a, b", "x[:], y", "x.sin(), y + 1"))
        lines.append(f"    x, y = region{source.randrange(count)}({pair})")
        if source.random() < 0.4:
            lines += [f"    {line}" for line in _statements(source)[:1]]
    lines.append("    return x, y, a * 1, b * 1")
    namespace = {"tc": tc, "torch": torch, "F": F}
    text = "\n".join(lines)
    exec(text, namespace)
    return namespace["program"], text


def _statements(source: random.Random) -> list[str]:
    chosen = source.sample(STATEMENTS, source.randint(1, 4))
    return [one.format(number=source.randint(1, 2)) for one in chosen]


@pytest.mark.sample(2)
@pytest.mark.parametrize("number", range(5))
def test_drawn_programs_do_as_eager_does(number):
    source = random.Random(f"{os.environ['TC_TEST_SEED']} {number}")
    program, text = drawn(source)
    options = {"dtype": torch.float64}  # chains amplify what rounding changes
    x, y = (
        torch.randn(ROWS, ROWS, requires_grad=source.random() < 0.5, **options) for _ in range(2)
    )
    try:
        outcome(program, x, y)
    except RuntimeError:
        pytest.skip("eager refuses it")
    try:
        same(program, x, y, dynamic=source.choice([None, True]))
    except Exception as error:
        error.add_note(text)
        raise
