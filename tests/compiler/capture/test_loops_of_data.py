"""Breaks in loops and in callees: how many graphs a function that has them is compiled into."""

from __future__ import annotations

import warnings

import torch

import tc


def counted(function, calls):
    """Compare compiled calls with eager, and return the graphs made up to each call."""
    tc.reset()
    made = []
    counts = []

    def backend(graph, inputs):
        made.append(graph)
        return graph.forward

    compiled = tc.compile(function, backend=backend)
    for args in calls:
        torch.testing.assert_close(compiled(*args), function(*args))
        counts.append(len(made))
    return counts


def suppress(boxes, scores):
    keep = []
    order = scores.argsort()
    while order.numel() > 0:
        last = order[-1]
        keep.append(last)
        order = order[:-1]
        order = order[(boxes[order] - boxes[last]).abs().sum(-1) > 0.5]
    return torch.stack(keep)


def through_a_callee(boxes, scores):
    return suppress(boxes * 2, scores) + 1


def draw(sizes):
    generator = torch.Generator().manual_seed(0)
    for size in sizes:
        yield torch.rand(size, 2, generator=generator), torch.rand(size, generator=generator)


def test_python_runs_a_loop_that_makes_sizes_out_of_data():
    counts = counted(suppress, draw((6, 9, 5, 12, 7, 8)))
    assert counts[-1] <= 2  # what comes before the loop is compiled for one size and for any size


def test_the_caller_of_such_a_loop_is_compiled():
    counts = counted(through_a_callee, draw((6, 9, 5, 12, 7, 8)))
    assert counts[0] >= 1
    assert counts[-1] <= 4  # two parts, each for one size and for any size


def several_breaks(x):
    for _ in range(1):
        x = x + 1
    print(end="")
    x = x * 2
    print(end="")
    x = x + 3
    print(end="")
    x = x * 2
    print(end="")
    x = x + 1
    print(end="")
    x = x * 2
    print(end="")
    x = x + 3
    print(end="")
    x = x * 2
    print(end="")
    x = x + 5
    print(end="")
    return x * 7


def test_a_callee_of_many_breaks_does_not_use_up_the_limit_of_its_caller():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        counts = counted(lambda x: several_breaks(x) * 2, [(torch.ones(n),) for n in (2, 3, 4, 5)])
    assert counts[0] == 10  # each part, also those past ``config.recompile_limit``
    assert counts[-1] == counts[1]
