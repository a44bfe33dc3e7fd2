"""The examples of `tutorials.py`, written by the facts of PyTorch's pages, a function each."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

#: name -> (page, what it shows, the example)
EXAMPLES: dict[str, tuple[str, str, Callable[..., Any]]] = {}


def example(page: str, shows: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register an example: it gets `compile` and the names of `torch.compiler`, returns results."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        EXAMPLES[function.__name__] = page, shows, function
        return function

    return register


T = torch.arange(12.0).reshape(3, 4) / 7


class Layer(nn.Module):
    """A layer that models have several of."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.lin(x)) + x


def each_marked(
    f: Callable[..., Any], mark: Callable[..., Any], *shapes: int | tuple[int, ...]
) -> list[Any]:
    """Return a function's results for ones of some shapes, whose first dimension is marked."""
    results = []
    for shape in shapes:
        x = torch.ones(shape)
        mark(x, 0)
        results.append(f(x))
    return results


def raises(function: Callable[..., Any], *args: Any) -> torch.Tensor:
    """Return 1 if a call raises; eager calls of what only compilers refuse count as 1 too."""
    with contextlib.suppress(Exception):
        function(*args)
        return torch.tensor(float(STATE.eager))
    return torch.tensor(1.0)


STATE = SimpleNamespace(eager=False)


# -- introduction to torch.compile -----------------------------------------------------------------
@example("tutorial: introduction", "a function, and a lambda")
def function(compile, api):
    f = compile(lambda x, y: torch.sin(x) + torch.cos(y))
    return f(T, T), compile(torch.nn.functional.silu)(T)


@example("tutorial: introduction", "a module, as a decorator on a method")
def module(compile, api):
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 2)

        @compile
        def forward(self, x):
            return nn.functional.relu(self.lin(x))

    return Net()(T), compile(nn.Sequential(nn.Linear(4, 4), nn.GELU()))(T).shape


@example("tutorial: introduction", "nested modules and functions")
def nested(compile, api):
    torch.manual_seed(0)

    class Inner(nn.Module):
        def forward(self, x):
            return torch.relu(torch.rand_like(x) * 0 + x) - 1

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.lin = Inner(), nn.Linear(4, 2)

        def forward(self, x):
            return self.lin(self.inner(x))

    return compile(Outer())(T)


@example("tutorial: introduction", "control flow on data (graph breaks), both branches")
def data_flow(compile, api):
    @compile
    def f(a, b):
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = -b
        return x * b

    return f(T, T), f(T, -T), f(T, T)


@example("tutorial: introduction", "a branch on a Python value (recompile, no break)")
def python_flow(compile, api):
    @compile
    def f(x, training: bool):
        return x * 2 if training else x + 1

    return f(T, True), f(T, False), f(T, True)


@example("tutorial: introduction", "fullgraph=True on data-dependent control flow is an error")
def fullgraph_error(compile, api):
    @compile(fullgraph=True)
    def f(x):
        return x + 1 if x.sum() > 0 else x

    return raises(f, T)


@example("tutorial: introduction", "training steps with an optimizer")
def training(compile, api):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    step, optimizer = compile(model), torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = step(T).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


@example("tutorial: end to end", "a convolutional network in evaluation")
def convolution(compile, api):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2)).eval()
    with torch.no_grad():
        return compile(model)(torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8))


# -- programming model: core concepts, graph breaks ------------------------------------------------
@example("model: core concepts", "guards: a global, a type, a shape change")
def guards(compile, api):
    scale = {"by": 2}

    @compile
    def f(x):
        return x * scale["by"]

    first = f(T)
    scale["by"] = 3
    return first, f(T), f(T.double()), f(T[:2])


@example("model: common graph breaks", "a call with too many arguments fails as in eager")
def incorrect(compile, api):
    return raises(compile(lambda x: torch.sin(x, x)), T)


@example("model: common graph breaks", "item() in arithmetic")
def item(compile, api):
    @compile
    def f(x):
        y = x.sum()
        return x + y.item() if y > 0 else x - y.item()

    return f(T), f(-T)


@example("model: common graph breaks", "torch.cond in place of a branch on data")
def cond(compile, api):
    @compile(fullgraph=True)
    def f(x):
        return torch.cond(x.sum() > 0, lambda x: x + x.sum(), lambda x: x - x.sum(), (x,))

    return f(T), f(-T)


@example("model: common graph breaks", "torch.where in place of a branch on data")
def where(compile, api):
    f = compile(lambda x: torch.where(x > 1, x.sin(), x.cos()), fullgraph=True)
    return f(T)


@example("model: common graph breaks", "capture_scalar_outputs: item() without a break")
def scalar_outputs(compile, api):
    with api.config.patch(capture_scalar_outputs=True):
        return compile(lambda x: x * x.sum().item(), fullgraph=True)(T)


@example("model: common graph breaks", "print and logging inside")
def printing(compile, api):
    @compile
    def f(x):
        y = x.sin()
        print("a line", end="")
        logging.getLogger("bench").debug("another")
        return y + 1

    return f(T)


@example("model: common graph breaks", "warnings.warn inside")
def warning(compile, api):
    @compile
    def f(x):
        warnings.warn("once", stacklevel=2)
        return x.sin()

    return f(T)


@example("model: common graph breaks", "an unsupported builtin of Python")
def builtin(compile, api):
    @compile
    def f(x):
        y = x.sin()
        name = input if False else id
        return y + (name(x) > 0)

    return f(T)


@example("model: nested graph breaks", "a break two calls below")
def nested_break(compile, api):
    def inner(x):
        x = x + 1
        api.graph_break()
        return x + 2

    def middle(x):
        return inner(x * 2) + 8

    @compile
    def f(x):
        return middle(x + 16) + 32

    return f(T)


@example("model: skipped functions", "a break in a loop")
def break_in_loop(compile, api):
    @compile
    def f(x):
        for number in range(3):
            x = x + number
            api.graph_break()
        return x * 2

    return f(T)


@example("model: skipped functions", "a break inside of a context manager")
def break_in_context(compile, api):
    @contextlib.contextmanager
    def doubled():
        yield 2

    @compile
    def f(x):
        with doubled() as by:
            y = x * by
            api.graph_break()
            return y + 1

    return f(T)


@example("model: skipped functions", "a break in a comprehension")
def break_in_comprehension(compile, api):
    def g(x, number):
        api.graph_break()
        return x + number

    @compile
    def f(x):
        return sum([g(x, number) for number in range(3)]) + 1

    return f(T)


@example("model: skipped functions", "try and except around a break")
def break_in_try(compile, api):
    @compile
    def f(x):
        try:
            y = x + 1
            api.graph_break()
            y = y / 2
        except ValueError:
            y = x
        return y * 3

    return f(T)


@example("model: disabling", "disable on a function that is called")
def disabled(compile, api):
    @api.disable
    def quiet(x):
        return x * 2

    @compile
    def f(x):
        return quiet(x.sin()) + 1

    return f(T)


@example("model: disabling", "disable(recursive=False): what it calls is compiled")
def disabled_once(compile, api):
    def below(x):
        return x.cos() + 1

    @api.disable(recursive=False)
    def quiet(x):
        return below(x) * 2

    @compile
    def f(x):
        return quiet(x.sin()) + 1

    return f(T)


@example("model: fullgraph=False", "error_on_graph_break(True) inside")
def error_on_break(compile, api):
    @api.error_on_graph_break(True)
    def strict(x):
        api.graph_break()
        return x

    @compile
    def f(x):
        return strict(x + 1)

    return raises(f, T)


@example("model: fullgraph=False", "error_on_graph_break(False) under fullgraph-like code")
def allow_break(compile, api):
    @compile
    def f(x):
        with api.error_on_graph_break(False):
            y = x + 1
        api.graph_break()
        return y * 2

    return f(T)


@example("model: custom operators", "torch.library.custom_op with register_fake")
def custom_operator(compile, api):
    def sine(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.sin(x.numpy(force=True)))

    name = f"bench_tutorials::sine_{id(api)}"
    op = torch.library.custom_op(name, sine, mutates_args=())
    op.register_fake(lambda x: torch.empty_like(x))
    return compile(lambda x: op(x) + 1, fullgraph=True)(T)


@example("model: custom operators", "gradients of a custom operator")
def custom_operator_gradient(compile, api):
    def square(x: torch.Tensor) -> torch.Tensor:
        return x * x

    op = torch.library.custom_op(f"bench_tutorials::square_{id(api)}", square, mutates_args=())
    op.register_fake(torch.empty_like)
    op.register_autograd(
        lambda ctx, grad: grad * 2 * ctx.saved_tensors[0],
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    x = T.clone().requires_grad_()
    compile(lambda x: op(x.sin()).sum(), fullgraph=True)(x).backward()
    return x.grad


@example("model: non-strict tracing", "nonstrict_trace over a function that would break")
def nonstrict(compile, api):
    @api.nonstrict_trace
    def number(x):
        api.graph_break()
        return x + 42

    return compile(lambda x: number(x) * 2, fullgraph=True)(T)


@example("model: non-strict tracing", "side effects: a list and an attribute are written")
def side_effects(compile, api):
    seen, holder = [], SimpleNamespace(last=None)

    @compile
    def f(x):
        y = x.sin()
        seen.append(y)
        holder.last = y + 1
        return y * 2

    return f(T), f(T + 1), seen, holder.last


@example("model: non-strict tracing", "writes to inputs, and outputs that alias them")
def writes(compile, api):
    x = T.clone()

    @compile
    def f(x):
        x.add_(1)
        return x[0], x.mul(2)

    row, twice = f(x)
    row.zero_()
    return x, twice


@example("model: recompilation", "automatic dynamic sizes: two compiles for many sizes")
def dynamic_sizes(compile, api):
    f = compile(lambda x: x.sum() * x.shape[0])
    return [f(torch.ones(size, 3)) for size in (3, 4, 5, 6)]


@example("model: recompilation", "mark_dynamic: one compile")
def mark_dynamic(compile, api):
    f = compile(lambda x: x.sum() * x.shape[0])
    return each_marked(f, api.mark_dynamic, (3, 3), (4, 3), (5, 3))


@example("model: recompilation", "dynamic=False: a compile a size")
def static_sizes(compile, api):
    f = compile(lambda x: x.sum() * 2, dynamic=False)
    return [f(torch.ones(size, 3)) for size in (3, 4, 5)]


@example("model: recompilation", "0 and 1 are special sizes")
def zero_one(compile, api):
    f = compile(lambda x: x.sum(0), dynamic=True)
    return [f(torch.ones(size, 3)) for size in (4, 5, 1, 0)]


@example("model: recompilation", "a number that changes becomes dynamic")
def numbers(compile, api):
    f = compile(lambda x, by: x * by)
    return [f(T, by) for by in (2, 3, 4, 5)]


@example("model: recompilation", "a learning rate as a tensor: no recompile")
def tensor_rate(compile, api):
    parameter = nn.Parameter(T.clone())
    optimizer = torch.optim.SGD([parameter], lr=torch.tensor(0.1))
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=3)
    step = compile(lambda: optimizer.step())
    for _ in range(3):
        parameter.grad = torch.ones_like(parameter)
        step()
        scheduler.step()
    return parameter.detach()


@example("model: recompilation", "the limit of recompiles: eager from then on")
def limit(compile, api):
    @compile(dynamic=False)
    def f(x, flag):
        return x + len(flag)

    return [f(T, "a" * size) for size in range(12)]


@example("model: recompilation", "lists of other lengths, dicts of other keys")
def containers(compile, api):
    @compile
    def f(items, by):
        return sum(items) * by["k"]

    return [f([T] * size, {"k": 2, **{str(n): n for n in range(size)}}) for size in (1, 2, 3)]
