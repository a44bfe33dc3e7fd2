"""Compiles again, as another process would, and records the events: for tests of the cache."""

from __future__ import annotations

from contextlib import contextmanager

import torch

import tc
from tc import trace
from tc.compiler.cache.graph_cache import KIND


class Recorded(list):
    """The events of a compile."""

    def looks(self):
        return [event.hit for event in self if isinstance(event, trace.Cache)]

    def stages(self):
        return {e.name for e in self if isinstance(e, trace.Span) and e.ph == "B"}

    def why_not(self):
        found = [e.payload for e in self if getattr(e, "name", "") == "tc_graph_cache_bypass"]
        return " ".join(found)


@contextmanager
def recording():
    emitted = Recorded()
    with trace.capture_events() as events:
        yield emitted
    emitted += events


def compiled(function, *args, **settings):
    """Compile again, as another process would; returns the result and the events."""
    tc.reset()
    with recording() as events:
        result = tc.compile(function, **settings)(*args)
    return result, events


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
    """Compile again and run forward and backward; returns results, gradients and events."""
    torch.manual_seed(0)
    x, w = (torch.randn(n, 5, requires_grad=True) for n in (4, 5))
    results = function(x, w)
    results = results if isinstance(results, tuple) else (results,)
    wanting = [r for r in results if isinstance(r, torch.Tensor) and r.grad_fn is not None]
    gradients = torch.autograd.grad(
        wanting, [x, w], [*map(torch.ones_like, wanting)], allow_unused=True, materialize_grads=True
    )
    return results, gradients


def recorded_steps(function):
    tc.reset()
    with recording() as events:
        return steps(tc.compile(function)), events


def entries(folder):
    return [path for path in (folder / KIND).rglob("*") if path.is_file()]
