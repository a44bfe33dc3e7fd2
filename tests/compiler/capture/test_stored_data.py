"""A store to ``.data`` of a tensor is replayed after the graph, and a later use ends the graph."""

from __future__ import annotations

import pytest
import torch

import tc


def store_last(p, x):
    y = x * p
    p.data = y.detach() + 1
    return y + 1


def use_after(p, x):
    y = x * p
    p.data = y.detach() + 1
    return y + p


def two_swapped(p, x):
    y = x + p
    kept = p.data
    p.data = x.data
    x.data = kept
    return y


def other_shape(p, x):
    y = x * p
    p.data = torch.cat([y.detach(), y.detach()])
    return y * 2, p.numel()


def returned(p, x):
    y = x * p
    p.data = y.detach()
    return p, y


PROGRAMS = {store_last: 1, use_after: 1, two_swapped: 1, other_shape: 1, returned: 1}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_stores_to_data_are_those_of_eager(program):
    tc.reset()
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    found, expected = [], []
    for function, results in ((tc.compile(program, backend=backend), found), (program, expected)):
        for start in (1.0, 2.0):
            p, x = torch.full((3,), start), torch.arange(3.0)
            out = function(p, x)
            out = out if isinstance(out, tuple) else (out,)
            results.append([*out, p, x])
    torch.testing.assert_close(found, expected)
    assert len(graphs) == PROGRAMS[program]
