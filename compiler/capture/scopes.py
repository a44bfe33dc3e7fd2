"""Graphs under construction: the captured graph, and the bodies of operations inside it."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

Operations = tuple[tuple[str, Any], ...]


class Scope:
    """One graph under construction: the captured one, or that of a body inside it.

    Attributes:
        operations: names and targets of the enclosing operations, outermost first.
        lifted: nodes of the enclosing graphs -> their placeholders in this one.
        bodies: graph modules of the bodies inside it, by attribute name.
    """

    def __init__(
        self, operations: Operations = (), body_names: set[str] | None = None
    ) -> None:
        self.operations = operations
        self.graph = fx.Graph()
        self.lifted: dict[fx.Node, fx.Node] = {}
        self.bodies: dict[str, Any] = {}
        self._last_placeholder: fx.Node | None = None
        self._names: set[str] = set()
        self._body_names = body_names if body_names is not None else set()

    def placeholder(self, name: str) -> fx.Node:
        """Return a new placeholder, after the existing ones and before all calls."""
        base, number = name, 0
        while name in self._names:
            number += 1
            name = f"{base}_{number}"
        self._names.add(name)
        if self._last_placeholder is not None:
            with self.graph.inserting_after(self._last_placeholder):
                node = self.graph.placeholder(name)
        else:
            with self.graph.inserting_before():
                node = self.graph.placeholder(name)
        self._last_placeholder = node
        return node

    def lift(self, outer: fx.Node, example: Any) -> fx.Node:
        """Return the placeholder of a node of the enclosing graph."""
        if outer not in self.lifted:
            node = self.lifted[outer] = self.placeholder(outer.name)
            node.meta["example_value"] = example
        return self.lifted[outer]

    def add_body(self, name: str, module: Any) -> fx.Node:
        """Make a body or function an attribute of this graph; return the node that reads it."""
        number = 0
        while f"{name}_{number}" in self._body_names:
            number += 1
        full = f"{name}_{number}"
        self._body_names.add(full)
        self.bodies[full] = module
        # get_attr checks the owning module, which is made only at the end
        return self.graph.create_node("get_attr", full)

    def inner(self, operation: tuple[str, Any] | None) -> Scope:
        """Return a new graph inside this one, for a body of an operation."""
        operations = (*self.operations, operation) if operation else self.operations
        return Scope(operations, self._body_names)

    def module(self, kind: type[fx.GraphModule] = fx.GraphModule) -> fx.GraphModule:
        """Return the finished graph with its bodies."""
        root = torch.nn.Module()
        for name, body in self.bodies.items():
            setattr(root, name, body)
        return kind(root, self.graph, "GraphModule")
