"""Examples of PyTorch's torch.compile tutorials and programming-model pages, under three entrances.

    python bench/tutorials.py            # prints the table of docs/tutorials-table.md
    python bench/tutorials.py --write    # and puts it there
    python bench/tutorials.py --only torch:tc --example cond

Each example is written anew after the facts of its page: what it shows, and with which features. It
runs by eager, with `torch.compile` (capture by PyTorch, backend "eager"), `tc.compile` and
``torch.compile(backend="tc")``, an entrance a process. A row says whether results equal eager's,
and how many graphs, graph breaks and compiles beyond the first of a function there were.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "tutorials-table.md"
ENTRANCES: Final = ("torch", "tc", "torch:tc")
BEGIN: Final = "<!-- table of bench/tutorials.py -->\n"

#: name -> (page, what it shows, the example)
EXAMPLES: dict[str, tuple[str, str, Callable[..., Any]]] = {}
Api = SimpleNamespace


def example(page: str, shows: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register an example: it gets `compile` and the names of `torch.compiler`, returns results."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        EXAMPLES[function.__name__] = page, shows, function
        return function

    return register


T = torch.arange(12.0).reshape(3, 4) / 7


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
    results = []
    for size in (3, 4, 5):
        x = torch.ones(size, 3)
        api.mark_dynamic(x, 0)
        results.append(f(x))
    return results


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


# -- recipes ---------------------------------------------------------------------------------------
@example("recipe: set_stance", "force_eager, eager_on_recompile, fail_on_recompile")
def stances(compile, api):
    f = compile(lambda x: x + 1)
    with api.set_stance("force_eager"):
        first = f(T)
    second = f(T)
    with api.set_stance("eager_on_recompile"):
        third = f(T.double())
    with api.set_stance("fail_on_recompile"):
        return first, second, third, raises(f, T.int())


@example("recipe: regional compilation", "each layer compiled by itself")
def regional(compile, api):
    torch.manual_seed(0)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)

        def forward(self, x):
            return torch.relu(self.lin(x)) + x

    layers = nn.ModuleList([Layer() for _ in range(4)])
    for layer in layers:
        api.in_place(layer)
    x = T
    for layer in layers:
        x = layer(x)
    return x


@example("recipe: nested_compile_region", "one region called many times")
def region(compile, api):
    @api.nested_compile_region
    def block(x):
        return x.sin() + 1

    @compile
    def f(x):
        for _ in range(3):
            x = block(x)
        return x

    return f(T)


@example("recipe: compiled optimizers", "Adam.step with a scheduler")
def optimizer(compile, api):
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.ones(3) * n) for n in range(1, 4)]
    adam = torch.optim.Adam(parameters, lr=torch.tensor(0.01))
    step = compile(adam.step)
    for _ in range(3):
        for one in parameters:
            one.grad = torch.ones_like(one)
        step()
    return [one.detach() for one in parameters]


@example("recipe: foreach_map", "operations over lists of tensors")
def foreach(compile, api):
    f = compile(lambda a, b: torch._foreach_add(torch._foreach_mul(a, 2), b), fullgraph=True)
    return f([T, T + 1], [T, T])


@example("recipe: numpy", "NumPy code compiled as tensors")
def numpy(compile, api):
    @compile
    def f(x, y):
        return np.sum(x[:, None, :] * y[None, :, :], axis=(-2, -1))

    return torch.from_numpy(np.asarray(f(T.numpy(), T.numpy())))


@example("recipe: frontend transforms", "torch.func.grad and vmap inside")
def transforms(compile, api):
    @compile(fullgraph=True)
    def f(x):
        return torch.func.vmap(torch.func.grad(lambda row: row.sin().sum()))(x)

    return f(T)


@example("recipe: checkpointing", "activation checkpoints in training")
def checkpoint(compile, api):
    from torch.utils.checkpoint import checkpoint as kept

    x = T.clone().requires_grad_()
    f = compile(lambda x: kept(lambda y: (y.sin() * y).exp(), x, use_reentrant=False).sum())
    f(x).backward()
    return x.grad


@example("recipe: autograd.Function", "a function with its own backward")
def autograd_function(compile, api):
    class Clipped(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clamp(0, 1)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * (x > 0.5)

    x = T.clone().requires_grad_()
    compile(lambda x: Clipped.apply(x).sum())(x).backward()
    return x.grad


@example("recipe: flex attention", "a score function")
def flex(compile, api):
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.linspace(-1, 1, 2 * 2 * 16 * 16).reshape(2, 2, 16, 16)

    def score(value, batch, head, row, column):
        return value + (row - column) * 0.1

    return compile(lambda q: flex_attention(q, q, q, score_mod=score))(q)


@example("recipe: attention", "scaled dot-product attention, causal")
def attention(compile, api):
    q = torch.linspace(-1, 1, 2 * 2 * 8 * 16).reshape(2, 2, 8, 16)
    attend = torch.nn.functional.scaled_dot_product_attention
    return compile(lambda q: attend(q, q, q, is_causal=True), fullgraph=True)(q)


@example("recipe: is_compiling", "code that asks whether it is compiled")
def asks(compile, api):
    @compile
    def f(x):
        return x + 2 if torch.compiler.is_compiling() else x + 1 + 1

    return f(T)


@example("recipe: substitutes", "assume_constant_result, substitute_in_graph")
def substitutes(compile, api):
    @api.assume_constant_result
    def answer():
        return 7

    return compile(lambda x: x * answer(), fullgraph=True)(T)


@example("recipe: custom backend", "a backend that prints the graph")
def own_backend(compile, api):
    graphs = []

    def backend(gm, inputs):
        graphs.append(len(inputs))
        return gm.forward

    return api.plain(lambda x, y: x + y, backend=backend)(T, T), graphs


# -- running them ----------------------------------------------------------------------------------
def raises(function: Callable[..., Any], *args: Any) -> torch.Tensor:
    """Return 1 if a call raises; eager calls of what only compilers refuse count as 1 too."""
    with contextlib.suppress(Exception):
        function(*args)
        return torch.tensor(float(STATE.eager))
    return torch.tensor(1.0)


STATE = SimpleNamespace(eager=False)


def api_of(entrance: str) -> tuple[Callable[..., Any], Api]:
    """Return `compile` and the names beside it, of one entrance."""
    if entrance == "tc":
        import tc
        import tc.compiler.api

        names = {name: getattr(tc, name) for name in dir(tc) if not name.startswith("__")}
        return tc.compile, Api(
            **{**names, "plain": tc.compile, "in_place": tc.compiler.api.compile_in_place}
        )
    torch.compiler.reset()  # loads it
    dynamo = sys.modules["torch._dynamo"]
    if entrance == "torch:tc":
        importlib.import_module("tc.compiler.api")
    names = {name: getattr(dynamo, name) for name in dir(dynamo) if not name.startswith("__")}
    names |= {name: getattr(torch.compiler, name) for name in torch.compiler.__all__}
    names |= {"config": dynamo.config, "counters": dynamo.utils.counters, "plain": torch.compile}
    backend = "tc" if entrance == "torch:tc" else "eager"
    names["in_place"] = lambda layer: layer.compile(backend=backend)

    def compile(target: Any = None, **settings: Any) -> Any:
        return torch.compile(target, backend=backend, **settings)

    return compile, Api(**names)


def by_eager(function: Callable[..., Any], api: Api) -> Any:
    """Return an example's results without a compiler."""

    def compile(target: Any = None, **settings: Any) -> Any:
        return (lambda one: one) if target is None else target

    STATE.eager = True
    try:
        plain = {"plain": compile, "graph_break": lambda *_: None, "in_place": lambda layer: None}
        return function(compile, Api(**{**vars(api), **plain}))
    finally:
        STATE.eager = False


def run(entrance: str, only: str) -> dict[str, dict[str, Any]]:
    """Run the examples under one entrance."""
    compile, api = api_of(entrance)
    found: dict[str, dict[str, Any]] = {}
    for name, (_, _, function) in EXAMPLES.items():
        if only and name != only:
            continue
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = by_eager(function, api)
            api.reset()
            api.counters.clear()
            try:
                got = function(compile, api)
            except Exception as error:
                found[name] = {"result": f"{type(error).__name__}: {str(error)[:200]}"}
                continue
        stats = api.counters["stats"]
        found[name] = {
            "result": _compare(name, got, want),
            "graphs": int(stats.get("unique_graphs", 0)),
            "breaks": sum(api.counters["graph_break"].values()),
        }
    return found


def _compare(name: str, got: Any, want: Any) -> str:
    ours, theirs = tree_leaves(got), tree_leaves(want)
    if name == "own_backend":
        ours, theirs = ours[:1], theirs[:1]
    try:
        torch.testing.assert_close(ours, theirs)
    except AssertionError as error:
        return "differs: " + str(error).replace("\n", " ")[:120]
    return "equal"


def in_process(entrance: str, only: str) -> dict[str, dict[str, Any]]:
    """Run the examples under one entrance, in a process of its own."""
    command = [sys.executable, __file__, "--child", entrance, "--example", only]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{entrance}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    result: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return result


def table(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return the table as Markdown: cells of `tc` that are as those of torch.compile say "same"."""
    rows = [
        '| page | example | `torch.compile` | `tc.compile` | `torch.compile(backend="tc")` |\n',
        "| --- | --- | --- | --- | --- |\n",
    ]
    for name, (page, shows, _) in EXAMPLES.items():
        if not any(name in one for one in found.values()):
            continue
        cells = [_cell(found[entrance].get(name)) for entrance in found]
        shown = [cells[0], *("same" if one == cells[0] else one for one in cells[1:])]
        rows.append(f"| {page} | {shows} (`{name}`) | {' | '.join(shown)} |\n")
    return "".join(rows)


def _cell(one: dict[str, Any] | None) -> str:
    if one is None:
        return ""
    if "graphs" not in one:
        return one["result"].replace("|", "/").replace("\n", " ")
    counts = f"{one['graphs']} graphs, {one['breaks']} breaks"
    return counts if one["result"] == "equal" else f"{one['result']}; {counts}".replace("|", "/")


def main() -> None:
    """Run, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default=",".join(ENTRANCES))
    parser.add_argument("--example", default="")
    parser.add_argument("--child", default="")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(run(options.child, options.example)))
        return
    found = {one: in_process(one, options.example) for one in options.only.split(",")}
    text = table(found)
    print(text)
    if options.write:
        head = PAGE.read_text().partition(BEGIN)[0]
        PAGE.write_text(head + BEGIN + text)


if __name__ == "__main__":
    main()
