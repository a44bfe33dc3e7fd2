"""Compiles anew, as another process would, and what was told of it: for tests of the cache."""

from __future__ import annotations

from contextlib import contextmanager

import torch

import tc
from tc import trace
from tc.compiler.cache.graph_cache import KIND


class Told(list):
    """The events of a compile."""

    def looks(self):
        return [event.hit for event in self if isinstance(event, trace.Cache)]

    def stages(self):
        return {e.name for e in self if isinstance(e, trace.Span) and e.ph == "B"}

    def why_not(self):
        found = [e.payload for e in self if getattr(e, "name", "") == "tc_graph_cache_bypass"]
        return " ".join(found)


@contextmanager
def telling():
    told = Told()
    with trace.capture_events() as events:
        yield told
    told += events


def compiled(function, *args, **settings):
    """Compile anew, as another process would; returns the result and what was told."""
    tc.reset()
    with telling() as told:
        result = tc.compile(function, **settings)(*args)
    return result, told


def running(x, w):
    """Writes to an input, draws random numbers, returns views and what has no gradient."""
    mean = torch.zeros(5)
    y = torch.nn.functional.batch_norm(x @ w, mean, torch.ones(5), training=True)
    y = torch.nn.functional.dropout(torch.relu(y), 0.5)
    return y.t(), y.argmax(1), 7, None, x, mean


def same_twice(x, w):
    y = torch.tanh(x @ w)
    return y, y[1:], y.sum() + w.sum()


def steps(function):
    """Compile anew and run forward and backward; returns results, gradients and what was told."""
    torch.manual_seed(0)
    x, w = (torch.randn(n, 5, requires_grad=True) for n in (4, 5))
    results = function(x, w)
    results = results if isinstance(results, tuple) else (results,)
    wanting = [r for r in results if isinstance(r, torch.Tensor) and r.grad_fn is not None]
    gradients = torch.autograd.grad(
        wanting, [x, w], [*map(torch.ones_like, wanting)], allow_unused=True, materialize_grads=True
    )
    return results, gradients


def told_steps(function):
    tc.reset()
    with telling() as told:
        return steps(tc.compile(function)), told


def entries(folder):
    return [path for path in (folder / KIND).rglob("*") if path.is_file()]
