"""A captured graph goes in; what a notebook shows of it comes out."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from torch import fx

from tc.compiler.core.graphtext import python_text, statement, tensors_of
from tc.trace.cells import place
from tc.trace.notebook import View, bundle_of
from tc.trace.words import count

MOST_ROWS: Final = 300
_PLACES: Final = re.compile(r"(?m)^(\s*# File: )(.+):(\d+)(?= in )")


def shown(module: fx.GraphModule) -> fx.GraphModule:
    """Return a graph that shows itself in notebooks, which is the one given.

    Each graph module has a class of its own, which takes the method: the graph's attributes, what
    is pickled of it, and graphs of other makers stay as they are.
    """
    type.__setattr__(type(module), "_repr_mimebundle_", _bundle)
    return module


def _bundle(
    module: fx.GraphModule,
    include: Collection[str] | None = None,
    exclude: Collection[str] | None = None,
) -> dict[str, str]:
    return bundle_of(view_of(module), include, exclude)


def view_of(module: fx.GraphModule) -> View:
    """Return a graph as a table of its operations, and as Python with the cells that it is of."""
    nodes = [node for node in module.graph.nodes if node.op.startswith("call_")]
    tensors = tensors_of(module.graph)
    code = _PLACES.sub(_in_cell, python_text(module, tensors))
    forms: dict[Any, tuple[str, str]] = {}
    rows = [
        (node.name, tensors.types.get(node.name, "")[3:-1], statement(node, forms), *_origin(node))
        for node in nodes[:MOST_ROWS]
    ]
    inputs = sum(node.op == "placeholder" for node in module.graph.nodes)
    values = {
        "title": f"{count(len(nodes), 'operation')} over {count(inputs, 'input')}",
        "columns": ("value", "type", "operation", "where", "source"),
        "rows": rows,
        "left_out": max(len(nodes) - MOST_ROWS, 0),
        "code": code,
    }
    return View("graph", code, values)


def _in_cell(found: re.Match[str]) -> str:
    return f"{found[1]}{place(found[2], int(found[3]))}"


def _origin(node: fx.Node) -> tuple[str, str]:
    """Return place and text of the user's line that a node comes from."""
    origin = node.meta.get("tc_origin")
    if not origin:
        return "", ""
    return place(origin[-1].file, origin[-1].line), (origin[-1].loc or "").strip()
