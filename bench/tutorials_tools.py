"""The examples of `tutorials.py` after PyTorch's pages on backward, caches, logs and profiles."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import torch
from torch import nn
from tutorials_examples import STATE, Layer, T, example, raises


# -- compiled autograd -----------------------------------------------------------------------------
@example("tutorial: compiled autograd", "a training step with backward() inside")
def compiled_step(compile, api):
    torch.manual_seed(0)
    model = nn.Linear(4, 4)

    @compile
    def step(x):
        loss = model(x).sum()
        loss.backward()
        return loss.detach()

    with api.config.patch(compiled_autograd=True):
        return step(T), [one.grad for one in model.parameters()]


@example("tutorial: compiled autograd", "forward with breaks, backward as one graph")
def backward_of_breaks(compile, api):
    @compile
    def f(x):
        y = x.sin() + 10
        api.graph_break()
        y = y * y
        api.graph_break()
        return y.sum()

    x = T.clone().requires_grad_()
    loss = f(x)
    with api.config.patch(compiled_autograd=True):
        compile(lambda: loss.backward())()
    return x.grad


@example("tutorial: compiled autograd", "the context manager, with a compiler of its own")
def backward_compiler(compile, api):
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    loss = compile(model)(T).square().sum()
    with api.compiled_backward(compile(fullgraph=True)):
        loss.backward()
    return [one.grad for one in model.parameters()]


@example("tutorial: compiled autograd", "a hook on a tensor is part of the backward graph")
def backward_hook(compile, api):
    x = T.clone().requires_grad_()
    x.register_hook(lambda grad: grad + 10)
    loss = compile(lambda x: x.sin().sum())(x)
    with api.compiled_backward(compile()):
        loss.backward()
    return x.grad


@example("tutorial: compiled autograd", "losses of other operators, tensors of other sizes")
def backward_recompiles(compile, api):
    results = []
    for operator in (torch.add, torch.sub, torch.mul, torch.div):
        for size in (3, 5):
            x = torch.linspace(1, 2, size).requires_grad_()
            loss = operator(x, x * x).sum()
            with api.config.patch(compiled_autograd=True):
                compile(lambda loss=loss: loss.backward())()
            results.append(x.grad)
    return results


# -- backward of compiled functions ----------------------------------------------------------------
@example("autograd semantics", "an output that the loss does not use")
def unused_output(compile, api):
    x, y = (T.clone().requires_grad_() for _ in range(2))
    first, _ = compile(lambda x, y: (x.sin(), y.cos()))(x, y)
    first.sum().backward()
    return x.grad, torch.zeros(3, 4) if y.grad is None else y.grad


@example("autograd semantics", "forward under autocast, backward outside of it")
def autocast_backward(compile, api):
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    f = compile(model)
    with torch.autocast("cpu", torch.bfloat16):
        loss = f(T).float().square().sum()
    loss.backward()
    return [one.grad for one in model.parameters()]


# -- modes -----------------------------------------------------------------------------------------
@example("torch.compile: modes", 'mode="reduce-overhead"')
def reduce_overhead(compile, api):
    f = by_mode(compile, "reduce-overhead")
    return f(T), f(T + 1)


@example("torch.compile: modes", 'mode="reduce-overhead", cudagraph_mark_step_begin, clone')
def mark_step(compile, api):
    f = by_mode(compile, "reduce-overhead")
    api.cudagraph_mark_step_begin()
    first = f(T).clone()
    api.cudagraph_mark_step_begin()
    return first, f(T + 1)


@example("torch.compile: modes", 'mode="max-autotune"')
def max_autotune(compile, api):
    f = by_mode(compile, "max-autotune")
    return f(T), f(T + 1)


@example("torch.compile: modes", 'mode="max-autotune-no-cudagraphs", training')
def max_autotune_training(compile, api):
    x = T.clone().requires_grad_()
    by_mode(compile, "max-autotune-no-cudagraphs")(x).sum().backward()
    return x.grad


@example("torch.compile: modes", "options of tutorials: epilogue_fusion, shape_padding")
def options(compile, api):
    settings = {"epilogue_fusion": True, "max_autotune": True, "shape_padding": True}
    return compile(lambda x: (x @ x.t()).relu(), options=settings)(T)


def by_mode(compile, mode):
    """Return a product and what follows it, compiled in a mode."""
    return compile(lambda x: (x @ x.t()).relu() + 1, mode=mode)


# -- stances, regions ------------------------------------------------------------------------------
@example("recipe: set_stance", "as a decorator and as a function")
def stance_forms(compile, api):
    @compile
    def f(x):
        return x + 1 if torch.compiler.is_compiling() else x + 0 + 1

    decorated = api.set_stance("force_eager")(lambda x: f(x))
    first = decorated(T)
    api.set_stance("force_eager")
    second = f(T)
    api.set_stance("default")
    return first, second, f(T)


@example("recipe: set_stance", "eager_on_recompile takes what is compiled")
def stance_kept(compile, api):
    f = compile(lambda x: x * 2)
    first = f(T)
    with api.set_stance("eager_on_recompile"):
        second = f(T), f(T.double())
    with api.set_stance("fail_on_recompile"):
        return first, second, f(T), raises(f, T.double())


@example("recipe: set_stance", "force_backend")
def stance_backend(compile, api):
    f = compile(lambda x: x * 2)
    with api.set_stance("default", force_backend="eager"):
        return f(T)


@example("recipe: set_stance", "in a compiled function it is an error")
def stance_inside(compile, api):
    @compile(fullgraph=True)
    def f(x):
        with api.set_stance("force_eager"):
            return x + 1

    return raises(f, T)


@example("recipe: regional compilation", "a module compiled whole, and its layer again by itself")
def layer_class(compile, api):
    torch.manual_seed(0)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = Layer()
            self.layers = nn.ModuleList([compile(Layer()) for _ in range(8)])

        def forward(self, x):
            x = self.first(x)
            for layer in self.layers:
                x = layer(x)
            return x

    model = Model()
    return model(T), compile(model)(T), len(model.state_dict())


@example("recipe: nested_compile_region", "a region with parameters, in training")
def region_training(compile, api):
    torch.manual_seed(0)

    class Region(Layer):
        forward = api.nested_compile_region(Layer.forward)

    layers = nn.ModuleList([Region() for _ in range(3)])

    @compile(fullgraph=True)
    def f(x):
        for layer in layers:
            x = layer(x)
        return x.sum()

    f(T).backward()
    return [one.grad for one in layers.parameters()]


# -- caches, logs, profiles ------------------------------------------------------------------------
@example("recipe: compile time caching", "save_cache_artifacts, load_cache_artifacts")
def cache_artifacts(compile, api):
    f = compile(lambda x, y: x.sin() @ y)
    first = f(T, T.t())
    saved = api.save_cache_artifacts()
    api.reset()
    if saved is not None:
        api.load_cache_artifacts(saved[0])
    return first, f(T, T.t())


@example("recipe: TORCH_LOGS", "set_logs: traced graph, guards")
def logs(compile, api):
    printed = []
    for setting in ({"graph_code": True}, {"guards": True}):
        f = compile(lambda x, y: (x + y) + 2)
        with listening() as text:
            api.set_logs(**setting)
            f(T, T)
            api.set_logs()
        api.reset()
        printed.append(STATE.eager or len(text.getvalue()) > 0)
    return printed


@contextlib.contextmanager
def listening():
    """Collect what loggers of PyTorch and tc write to standard error."""
    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        yield text


@example("profiling", "a profile of a compiled function, with a region of the program")
def profile(compile, api):
    f = compile(lambda x: x.sin() + 1)
    f(T)
    cpu, region = [torch.profiler.ProfilerActivity.CPU], torch.profiler.record_function("region")
    with torch.profiler.profile(activities=cpu) as prof, region:
        result = f(T)
    names = {event.key for event in prof.key_averages()}
    compiled = STATE.eager or any("Compiled" in name or name.startswith("tc ") for name in names)
    return result, torch.tensor(float("region" in names)), torch.tensor(float(compiled))


@example("profiling", "record_function inside of a compiled function")
def profiled_inside(compile, api):
    @compile
    def f(x):
        with torch.profiler.record_function("inside"):
            y = x.sin()
        return y + 1

    f(T)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        return f(T)


# -- frequently asked questions, fine-grained APIs -------------------------------------------------
@example("questions", "torch.func.grad of a compiled function")
def grad_of_compiled(compile, api):
    f = compile(lambda x: x.sin().sum())
    return torch.func.grad(f)(T), torch.func.vmap(compile(torch.sin))(T)


@example("questions", "allow_in_graph of a transformed function")
def allowed_transform(compile, api):
    summed = api.allow_in_graph(torch.vmap(lambda row: row.sum()))
    return compile(lambda x: summed(x) * 2, fullgraph=True)(T)


@example("questions", "run: what is compiled already, no new compiles")
def run_only(compile, api):
    f = compile(lambda x: x * 2 + 1)
    f(T)
    frozen = api.run(f)
    return frozen(T), frozen(T.double())


@example("questions", "explain counts graphs and breaks")
def explained(compile, api):
    def f(a, b):
        x = a / (torch.abs(a) + 1)
        print("woo")
        return x * (b * -1 if b.sum() < 0 else b)

    if STATE.eager:
        return 3, 2
    found = api.explain(f)(T, T)
    return found.graph_count, found.graph_break_count


@example("questions", "NumPy code on a device, and wrap_numpy")
def numpy_wrapped(compile, api):
    @compile(fullgraph=True)
    @api.wrap_numpy
    def f(x):
        return np.maximum(x, 1.0) * 2

    return f(T) if not STATE.eager else torch.from_numpy(np.maximum(T.numpy(), 1.0) * 2)


@example("fine-grained APIs", "disallow_in_graph breaks at a function")
def disallowed(compile, api):
    api.disallow_in_graph(torch.sub)
    try:
        return compile(lambda a: torch.sub(a + 1, 1) * 2)(T)
    finally:
        api.allow_in_graph(torch.sub)


@example("fine-grained APIs", "disable on a module that is called, with a reason")
def disabled_module(compile, api):
    torch.manual_seed(0)
    inner = nn.Linear(4, 4)
    hidden = api.disable(inner, reason="not this one")
    return compile(lambda x: hidden(x.sin()) + 1)(T)
