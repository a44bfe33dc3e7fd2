"""A graph cut around operators that write to arguments and have no functional form.

In: a captured graph. Out: its parts, where calls of such an operator are parts that run as they
are. PyTorch's functionalisation knows no operator outside of ATen that writes to its arguments
(``torch.library.custom_op(..., mutates_args=...)``): a graph with one would run uncompiled as a
whole. What lies between two of them is compiled; parts that are equal, as in a model of equal
layers, are compiled once (decision 178).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from tc import trace
from tc.compiler.backends.cut.parts import Part, key_of_part, needs_gradients, parts_of
from tc.compiler.cache.graph_key import Uncached
from tc.compiler.core.frozen import NotPlain

#: dispatch keys at which an operator's own kernel gives it a functional form, or takes it apart
FORMS = ("Functionalize", "CompositeImplicitAutograd")


def at_mutable_operators(gm: fx.GraphModule) -> tuple[Part, ...]:
    """Return a graph as parts in order; empty if it has no such operator, or asks for gradients."""
    if not any(map(has_no_functional_form, gm.graph.nodes)) or needs_gradients(gm.graph):
        return ()
    numbers, as_they_are = _numbered(gm.graph)
    found = parts_of(gm, numbers, set(numbers.values()))
    parts = tuple(
        replace(part, opaque=True) if number in as_they_are else _shared(part)
        for number, part in enumerate(found)
    )
    if parts:
        compiled = len({part.digest or part for part in parts if not part.opaque})
        names = dict.fromkeys(str(n.target) for n in gm.graph.nodes if has_no_functional_form(n))
        text = f"cut around {', '.join(names)}: {len(parts)} parts, {compiled} graphs are compiled"
        trace.emit(trace.Artifact("tc_compile_regions", text))
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


def _numbered(graph: fx.Graph) -> tuple[Mapping[fx.Node, int], set[int]]:
    """Return the part of each operation, and the parts that run as they are."""
    numbers: dict[fx.Node, int] = {}
    as_they_are: set[int] = set()
    last: bool | None = None
    number = -1
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if node.target is operator.getitem and numbers.get(node.args[0]) in as_they_are:
            numbers[node] = numbers[node.args[0]]  # a result of several is no value of the whole
            continue
        opaque = has_no_functional_form(node)
        if opaque is not last:
            number, last = number + 1, opaque
            if opaque:
                as_they_are.add(number)
        numbers[node] = number
    return numbers, as_they_are


def _shared(part: Part) -> Part:
    """Return a part with a digest, if it has one: equal ones are compiled once."""
    try:
        return replace(part, digest=key_of_part(part).portable)
    except (Uncached, NotPlain):
        return part
