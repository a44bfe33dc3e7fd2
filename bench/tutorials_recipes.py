"""The examples of `tutorials.py` after PyTorch's recipes."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from tutorials_examples import Layer, T, example, raises


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
