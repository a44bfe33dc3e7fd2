"""A captured graph as Python, in the form that `fx.GraphModule.print_readable` has, but faster.

In: a graph of torch calls. Out: code with each value's type and the user's lines. What fx prints
about the life of values (``x = None``) is left out; that makes it a tenth of the work.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import fx
from torch.fx.graph import inplace_methods, magic_methods
from torch.fx.node import _get_qualified_name

from tc import trace
from tc.compiler.core.nodetext import describe
from tc.trace import StackFrame

INDENT = " " * 8
#: key of a captured graph's `meta`: its text is not in the trace yet
UNREPORTED = "tc_unreported"
#: key of a captured graph's `meta`: the function it is of
PLACE = "tc_place"
#: types whose repr is how they are written
PRINTED = frozenset((int, float, bool, str, type(None)))


class Tensors(NamedTuple):
    """The nodes of a graph that are tensors, by name.

    Attributes:
        sizes: of each; those that are symbolic as text.
        types: what is written behind the name.
    """

    sizes: dict[str, list[int | str]]
    types: dict[str, str]


def with_code(module: fx.GraphModule) -> fx.GraphModule:
    """Return a graph with its Python code written, in the class that others expect."""
    made = fx.GraphModule(module, module.graph, "GraphModule")
    made.meta = module.meta
    return made


def tensors_of(graph: fx.Graph) -> Tensors:
    """Return what the tensors of a graph are."""
    sizes: dict[str, list[int | str]] = {}
    types: dict[str, str] = {}
    for node in graph.nodes:
        meta = node.meta
        value = meta["example_value"] if "example_value" in meta else meta.get("val")
        if isinstance(value, torch.Tensor):
            sizes[node.name] = [s if type(s) is int else str(s) for s in value.shape]
            types[node.name] = f': "{describe(value)}"'
    return Tensors(sizes, types)


@trace.reports(tuple)
def emit_captured(module: fx.GraphModule) -> tuple[trace.Event, ...]:
    """Emit a captured graph, unless that has been done, and return the events."""
    if not module.meta.pop(UNREPORTED, False):
        return ()
    tensors = tensors_of(module.graph)
    event = trace.OutputGraph(python_text(module, tensors), tensors.sizes)
    trace.emit(event)
    return (event,)


def python_text(module: fx.GraphModule, tensors: Tensors | None = None) -> str:
    """Return a captured graph as Python code; one with graphs inside is printed by fx.

    Args:
        tensors: those of its nodes, if known.
    """
    if any(isinstance(child, fx.GraphModule) for child in module.children()):
        return module.print_readable(print_output=False)
    types = (tensors or tensors_of(module.graph)).types
    forms: dict[Any, tuple[str, str]] = {}  # how calls of each target are written
    inputs: list[str] = []
    lines: list[str] = []
    place: StackFrame | None = None
    for node in module.graph.nodes:
        name, op = node.name, node.op
        if op == "placeholder":
            target = str(node.target)
            inputs.append(f", {target}{types.get(name, '')}")
            if target != name:
                lines.append(f"{INDENT}{name} = {target}")
            continue
        if op == "output":
            lines.append(f"{INDENT}return {_text(node.args[0])}")
            continue
        origin = node.meta.get("tc_origin")
        if origin and origin[-1] is not place and origin[-1] != place:
            place = origin[-1]
            code = f", code: {place.loc.strip()}" if place.loc else ""
            lines += ["", f"{INDENT}# File: {place.file}:{place.line} in {place.name}{code}"]
        lines.append(_line(node, f"{name}{types.get(name, '')}", forms))
    head = f"class {type(module).__name__}(torch.nn.Module):\n    def forward(self"
    return "\n".join((f"{head}{''.join(inputs)}):", *lines, ""))


def _line(node: fx.Node, typed: str, forms: dict[Any, tuple[str, str]]) -> str:
    """Return what computes a node."""
    op, target = node.op, node.target
    if op == "get_attr":
        return f"{INDENT}{typed} = self.{target}"
    args = [arg.name if type(arg) is fx.Node else _text(arg) for arg in node.args]
    if op == "call_method":
        return f"{INDENT}{typed} = {args[0]}.{target}({', '.join(args[1:] + _named(node))})"
    if op == "call_module":
        return f"{INDENT}{typed} = self.{target}({', '.join(args + _named(node))})"
    form = forms.get(target)
    if form is None:
        form = forms[target] = _form(target)
    kind, name = form
    if kind == "call":
        return f"{INDENT}{typed} = {name}({', '.join(args + _named(node))})"
    if kind == "value":
        return f"{INDENT}{typed} = {name.format(*args)}"
    if kind == "statement":
        return f"{INDENT}{name.format(*args)};  {typed} = {args[0]}"
    if len(args) == 2:
        return f"{INDENT}{typed} = {args[0]}.{node.args[1]}"
    return f"{INDENT}{typed} = {name}({', '.join(args + _named(node))})"


def statement(node: fx.Node, forms: dict[Any, tuple[str, str]]) -> str:
    """Return what computes a node as Python, without the name of its value.

    Args:
        forms: how calls of each target are written, as far as that has been looked up.
    """
    return _line(node, node.name, forms).strip().removeprefix(f"{node.name} = ")


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
    kind = type(value)
    if kind in PRINTED:
        return repr(value)
    if isinstance(value, fx.Node):
        return value.name
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if kind is tuple:
        return f"({', '.join(map(_text, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, slice):
        return f"slice({_text(value.start)}, {_text(value.stop)}, {_text(value.step)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_text(item)}' for key, item in value.items())}}}"
    if isinstance(value, torch._ops.OpOverload):
        return _get_qualified_name(value)
    return repr(value)
