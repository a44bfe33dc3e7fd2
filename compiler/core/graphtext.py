"""A captured graph as Python, in the form that `fx.GraphModule.print_readable` has, made quickly.

In: a graph of torch calls. Out: code with each value's type and the user's lines. What fx prints
about the life of values (``x = None``) is left out; that makes it a tenth of the work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.graph import inplace_methods, magic_methods
from torch.fx.node import _get_qualified_name

from tc.compiler.core.nodetext import SHORT_DTYPES
from tc.trace import StackFrame

INDENT = " " * 8
#: types whose repr is how they are written
PRINTED = (int, float, bool, str, type(None))
#: name of a node -> sizes of its tensor; those that are symbolic as text
Sizes = Mapping[str, Sequence[int | str]]


def node_sizes(graph: fx.Graph) -> Sizes:
    """Return the sizes of the nodes that are tensors."""
    found: dict[str, list[int | str]] = {}
    for node in graph.nodes:
        meta = node.meta
        value = meta["example_value"] if "example_value" in meta else meta.get("val")
        if isinstance(value, torch.Tensor):
            found[node.name] = [s if type(s) is int else str(s) for s in value.shape]
    return found


def python_text(module: fx.GraphModule, sizes: Sizes | None = None) -> str:
    """Return a captured graph as Python code; one with graphs inside is printed by fx.

    Args:
        sizes: those of its nodes, if known.
    """
    if any(isinstance(child, fx.GraphModule) for child in module.children()):
        return module.print_readable(print_output=False)
    names = _Names(node_sizes(module.graph) if sizes is None else sizes)
    inputs: list[str] = []
    lines: list[str] = []
    place: StackFrame | None = None
    for node in module.graph.nodes:
        if node.op == "placeholder":
            target = str(node.target)
            inputs.append(f"{target}{names.type(node)}")
            if target != node.name:
                lines.append(f"{INDENT}{node.name} = {target}")
            continue
        if node.op == "output":
            lines.append(f"{INDENT}return {_text(node.args[0])}")
            continue
        origin = node.meta.get("tc_origin")
        if origin and origin[-1] is not place and origin[-1] != place:
            place = origin[-1]
            code = f", code: {place.loc.strip()}" if place.loc else ""
            lines += ["", f"{INDENT}# File: {place.file}:{place.line} in {place.name}{code}"]
        lines.append(f"{INDENT}{names.line(node)}")
    head = f"class {type(module).__name__}(torch.nn.Module):\n    def forward(self"
    return "\n".join((f"{head}{''.join(f', {name}' for name in inputs)}):", *lines, ""))


class _Names:
    """How calls of each target are written: asked once a target."""

    def __init__(self, sizes: Sizes) -> None:
        self.forms: dict[Any, tuple[str, str]] = {}
        self.sizes = sizes

    def type(self, node: fx.Node) -> str:
        """Return what is written behind the name of a tensor."""
        value = node.meta.get("example_value")
        if not isinstance(value, torch.Tensor):
            return ""
        sizes = self.sizes[node.name]
        text = str(sizes)
        if "'" in text:
            text = f"[{', '.join(map(str, sizes))}]"
        return f': "{SHORT_DTYPES.get(value.dtype) or str(value.dtype)[6:]}{text}"'

    def line(self, node: fx.Node) -> str:
        """Return what computes a node."""
        typed = f"{node.name}{self.type(node)}"
        if node.op == "get_attr":
            return f"{typed} = self.{node.target}"
        args = list(map(_text, node.args))
        if node.op == "call_method":
            return f"{typed} = {args[0]}.{node.target}({', '.join(args[1:] + _named(node))})"
        if node.op == "call_module":
            return f"{typed} = self.{node.target}({', '.join(args + _named(node))})"
        form = self.forms.get(node.target)
        if form is None:
            form = self.forms[node.target] = _form(node.target)
        kind, name = form
        if kind == "value":
            return f"{typed} = {name.format(*args)}"
        if kind == "statement":
            return f"{name.format(*args)};  {typed} = {args[0]}"
        if kind == "attribute" and len(args) == 2:
            return f"{typed} = {args[0]}.{node.args[1]}"
        return f"{typed} = {name}({', '.join(args + _named(node))})"


def _form(target: Any) -> tuple[str, str]:
    """Return how calls are written (an operator, a statement, a call), and the text for that."""
    name = getattr(target, "__name__", "")
    if getattr(target, "__module__", "") == "_operator":
        if name in inplace_methods:
            return "statement", inplace_methods[name]
        if name in magic_methods:
            return "value", magic_methods[name]
    return "attribute" if target is getattr else "call", _get_qualified_name(target)


def _named(node: fx.Node) -> list[str]:
    named = node.kwargs
    return [f"{name}={_text(value)}" for name, value in named.items()] if named else []


def _text(value: Any) -> str:
    """Return an argument as Python."""
    if isinstance(value, fx.Node):
        return value.name
    if type(value) in PRINTED:
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(_text, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, slice):
        return f"slice({_text(value.start)}, {_text(value.stop)}, {_text(value.step)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_text(item)}' for key, item in value.items())}}}"
    if isinstance(value, torch._ops.OpOverload):
        return _get_qualified_name(value)
    return repr(value)
