"""What runs the parts of a graph in order holds a value as long as a later part takes it."""

from __future__ import annotations

import weakref

import torch
from torch import fx

from tc.compiler.backends.cut.parts import compile_parts, parts_of


def chain(x):
    first = x.sin()
    second = first.cos()
    return (second + first).exp(), second


def test_values_that_no_part_takes_any_more_are_freed():
    gm = fx.symbolic_trace(chain)
    for node in gm.graph.nodes:
        node.meta["example_value"] = torch.ones(3)
    operations = [node for node in gm.graph.nodes if node.op not in ("placeholder", "output")]
    parts = parts_of(gm, {node: number for number, node in enumerate(operations)})
    made: list[weakref.ref[torch.Tensor]] = []
    alive: list[list[int]] = []

    def compile_part(part):
        def run(*args):
            alive.append([number for number, one in enumerate(made) if one() is not None])
            results = part.module(*args)
            made.extend(map(weakref.ref, results))
            return results

        return run

    run = compile_parts(gm, parts, compile_part)
    x = torch.rand(3)
    torch.testing.assert_close(run(x), chain(x))
    assert alive == [[], [0], [0, 1], [1, 2]]
