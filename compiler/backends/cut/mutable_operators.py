"""A graph cut around operators that write to arguments and have no functional form.

In: a captured graph. Out: its parts, where calls of such an operator are parts that run as they
are. PyTorch's functionalisation knows no operator outside of ATen that writes to its arguments
(``torch.library.custom_op(..., mutates_args=...)``): a graph with one would run uncompiled as a
whole. What lies between two of them is compiled; parts that are equal, as in a model of equal
layers, are compiled once (decision 178).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from tc import trace
from tc.compiler.backends.cut.parts import Part, key_of_part, needs_gradients, parts_of, report_cut
from tc.compiler.cache.graph_key import Uncached
from tc.compiler.core.frozen import NotPlain

#: dispatch keys at which an operator's own kernel gives it a functional form, or takes it apart
FORMS = ("Functionalize", "CompositeImplicitAutograd")


def at_mutable_operators(gm: fx.GraphModule) -> tuple[Part, ...]:
    """Return a graph as parts in order; empty if it has no such operator, or asks for gradients."""
    writers = set(filter(has_no_functional_form, gm.graph.nodes))
    if not writers or needs_gradients(gm.graph):
        return ()
    numbers = _numbered(gm.graph, writers)
    opaque = {numbers[node] for node in writers}
    parts = tuple(
        replace(part, opaque=True) if number in opaque else _shared(part)
        for number, part in enumerate(parts_of(gm, numbers, set(numbers.values())))
    )
    if parts and trace.enabled():
        compiled = len({part.digest or part for part in parts if not part.opaque})
        names = ", ".join(dict.fromkeys(str(n.target) for n in numbers if n in writers))
        report_cut(f"cut around {names}: {len(parts)} parts, {compiled} graphs are compiled")
    return parts


def has_no_functional_form(node: fx.Node) -> bool:
    """Return whether a node calls an operator that writes to arguments, as nothing but itself."""
    called: Any = node.target
    if isinstance(called, torch._ops.OpOverloadPacket) and len(names := _overloads(called)) == 1:
        called = getattr(called, names[0])
    if not isinstance(called, torch._ops.OpOverload) or called.namespace in ("aten", "prims"):
        return False
    name: str = called._schema.name + (f".{o}" if (o := called._schema.overload_name) else "")
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return called._schema.is_mutable and not any(has_kernel(name, form) for form in FORMS)


def _overloads(packet: Any) -> list[str]:
    return list(packet.overloads())


def _numbered(graph: fx.Graph, writers: Iterable[fx.Node]) -> Mapping[fx.Node, int]:
    """Return the part of each operation, in the order of the graph."""
    numbers: dict[fx.Node, int] = {}
    opaque = set(writers)
    last: bool | None = None
    number = -1
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if node.target is operator.getitem and node.args[0] in opaque:
            numbers[node] = numbers[node.args[0]]  # a result of several is no value of the whole
            opaque.add(node)
            continue
        if (node in opaque) is not last:
            number, last = number + 1, node in opaque
        numbers[node] = number
    return numbers


def _shared(part: Part) -> Part:
    """Return a part with a digest, if it has one: equal ones are compiled once."""
    try:
        return replace(part, digest=key_of_part(part).portable)
    except (Uncached, NotPlain):
        return part
