"""The examples of `tutorials.py` after PyTorch's pages on dynamic sizes, guards and recompiles."""

from __future__ import annotations

import torch
from torch import nn
from tutorials_examples import T, each_marked, example, raises

SIZES = (10, 20, 30, 40)


# -- dynamic shapes: what specializes, and annotations ---------------------------------------------
@example("dynamic shapes", "branches on a size: a graph a branch")
def specialization(compile, api):
    @compile(dynamic=True)
    def f(x):
        if x.size()[0] == 10:
            return x * 10
        return x * 200 if x.size()[0] <= 30 else x * x.size()[0]

    return [f(torch.ones(size)) for size in (*SIZES, 50)]


@example("dynamic shapes", "mark_dynamic with min and max")
def marked_range(compile, api):
    f = compile(lambda x: x * x.size()[0])
    x = torch.ones(10)
    api.mark_dynamic(x, 0, min=2, max=64)
    return f(x), [f(torch.ones(size)) for size in SIZES]


@example("dynamic shapes", "mark_dynamic of a size that the code makes constant is an error")
def marked_constant(compile, api):
    f = compile(lambda x: x * 2 if x.size()[0] == 10 else x)
    x = torch.ones(10)
    api.mark_dynamic(x, 0)
    return raises(f, x)


@example("dynamic shapes", "maybe_mark_dynamic: no error at a size that becomes constant")
def maybe_marked(compile, api):
    f = compile(lambda x: x * 2 if x.size()[0] == 10 else x * 3)
    return each_marked(f, api.maybe_mark_dynamic, *SIZES)


@example("dynamic shapes", "mark_unbacked: one graph for 0, 1 and more rows")
def unbacked(compile, api):
    f = compile(lambda x: x.sin() + x.sum(0), fullgraph=True)
    return each_marked(f, api.mark_unbacked, (4, 3), (1, 3), (0, 3), (7, 3))


@example("dynamic shapes", "mark_unbacked: a branch on the size is an error under fullgraph")
def unbacked_branch(compile, api):
    f = compile(lambda x: x * 2 if x.size()[0] > 4 else x, fullgraph=True)
    x = torch.ones(10)
    api.mark_unbacked(x, 0)
    return raises(f, x)


@example("dynamic shapes", "dynamic_sources: a list of names in a setting")
def dynamic_sources(compile, api):
    f = compile(lambda x: x * x.size()[0])
    with torch.compiler.config.patch(dynamic_sources="L['x']"):
        first = f(torch.ones(10))
    return first, [f(torch.ones(size)) for size in SIZES]


@example("dynamic shapes", "the stance eager_then_compile")
def eager_then_compile(compile, api):
    f = compile(lambda x: x * x.size()[0])
    with api.set_stance("eager_then_compile"):
        return [f(torch.ones(size)) for size in SIZES]


@example("dynamic shapes", "mark_static: a compile a size")
def marked_static(compile, api):
    f = compile(lambda x: x * x.size()[0], dynamic=True)
    return each_marked(f, api.mark_static, 3, 4, 5)


# -- dynamic shapes: errors at numbers out of data -------------------------------------------------
@example("data-dependent errors", "a branch on item() is an error under fullgraph")
def data_branch(compile, api):
    @compile(fullgraph=True)
    def f(x):
        number = x.sum().item()
        return x * 2 if number > 4 else x + 3

    with api.config.patch(capture_scalar_outputs=True):
        return raises(f, T)


@example("data-dependent errors", "torch._check says which branch is taken")
def checked_branch(compile, api):
    @compile(fullgraph=True)
    def f(x):
        number = x.item()
        torch._check(number > 4)
        return x * 2 if number > 4 else x + 3

    with api.config.patch(capture_scalar_outputs=True):
        return f(torch.tensor(7)), f(torch.tensor(9)), failed(f, torch.tensor(3))


@example("data-dependent errors", "torch._check with a message, of a size against an argument")
def checked_size(compile, api):
    @compile(fullgraph=True, dynamic=True)
    def f(x, size):
        torch._check(x.size(0) == size, lambda: "the sizes differ")
        return x + size

    return f(torch.ones(4), 4), f(torch.ones(5), 5), failed(f, torch.ones(5), 6)


@example("data-dependent errors", "a number out of data as a size, checked to be in range")
def checked_number(compile, api):
    @compile(fullgraph=True)
    def f(x, length):
        size = length.item()
        torch._check(size >= 0)
        torch._check(size <= x.size(0))
        return x[:size].sum(), torch.zeros(size) + 1

    with api.config.patch(capture_scalar_outputs=True):
        return [f(T, torch.tensor(size)) for size in (2, 1, 3)]


@example("data-dependent errors", "nonzero with capture_dynamic_output_shape_ops")
def output_shapes(compile, api):
    f = compile(lambda x: x.nonzero().float().sum(0) + x.sum(), fullgraph=True)
    with api.config.patch(capture_dynamic_output_shape_ops=True):
        return f(T), f(T > 1), f(T * 0)


@example("data-dependent errors", "statically_known_true, guard_or_false, hint_int in the program")
def mindful_branches(compile, api):
    from torch.fx.experimental.symbolic_shapes import guard_or_false, statically_known_true

    @compile(fullgraph=True)
    def f(x, length):
        size = length.item()
        y = x * 2 if statically_known_true(size == 2) else x.add(x)
        return y + 1 if guard_or_false(size == 5) else y - 1

    with api.config.patch(capture_scalar_outputs=True):
        return [f(T, torch.tensor(size)) for size in (2, 3)]


@example("data-dependent errors", "tolist() as sizes of a split")
def split_sizes(compile, api):
    @compile(fullgraph=True)
    def f(x, sizes):
        first, second = torch.split(x, sizes.tolist())
        return first.sum() * 2 + second.sum()

    with api.config.patch(capture_scalar_outputs=True):
        return f(T, torch.tensor([1, 2])), f(T, torch.tensor([2, 1]))


# -- model: recompiles and guards ------------------------------------------------------------------
@example("model: recompilation", "a counter on a module: a compile a call, up to the limit")
def counter(compile, api):
    return counted(compile)


@example("model: recompilation", "a counter on a module, allow_unspec_int_on_nn_module")
def free_counter(compile, api):
    with api.config.patch(allow_unspec_int_on_nn_module=True):
        return counted(compile)


@example("model: recompilation", "cache_size_limit raised")
def raised_limit(compile, api):
    f = compile(lambda x: x + 1, dynamic=False)
    with api.config.patch(cache_size_limit=16):
        return [f(torch.ones(size)) for size in range(1, 11)]


@example("model: recompilation", "a break keeps a large part from being compiled again")
def break_saves(compile, api):
    @compile(dynamic=False)
    def f(x, number):
        y = x + 1
        api.graph_break()
        return y + number

    return [f(T, number) for number in range(1, 5)]


@example("model: reducing guard overhead", "guard_filter_fn: guards on modules left out")
def guard_filter(compile, api):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    keep = api.skip_guard_on_all_nn_modules_unsafe
    f = compile(model, options={"guard_filter_fn": keep})
    return f(T), f(T[:2])


@example("model: reducing guard overhead", "install_free_tensors, and dict tags for guards")
def free_tensors(compile, api):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    settings = {"install_free_tensors": True, "use_recursive_dict_tags_for_guards": False}
    with api.config.patch(settings):
        return compile(model)(T), compile(model)(T + 1)


@example("model: reducing guard overhead", "skip_guard_eval_unsafe after a warm-up")
def skipped_guards(compile, api):
    f = compile(lambda x: x.sin() + 1)
    first = f(T)
    with api.set_stance(skip_guard_eval_unsafe=True):
        return first, f(T + 1), f(T + 2)


def counted(compile):
    """Return what a module gives that counts its calls."""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    model = Counting()
    f = compile(model)
    return [f(T) for _ in range(5)], model.calls


def failed(function, *args):
    """Return 1 if a call raises RuntimeError, by eager as when compiled; else 0."""
    try:
        function(*args)
    except RuntimeError:
        return torch.tensor(1.0)
    return torch.tensor(0.0)
