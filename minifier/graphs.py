"""Turns a captured graph (fx) and its inputs into a `Case` and the recorded tensors."""

from __future__ import annotations

import enum
import functools
import linecache
import math
import operator
import re
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import fx

from tc.minifier.case import Call, Case, Fact, Input, Step
from tc.trace.words import spelled

BINARY = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%",
    "pow": "**", "matmul": "@", "and_": "&", "or_": "|", "xor": "^", "lshift": "<<",
    "rshift": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
UNARY = {"neg": "-", "invert": "~", "pos": "+"}
IN_PLACE = ("setitem", "iadd", "isub", "imul", "itruediv", "ipow", "iand", "ior", "imatmul")


class Unprintable(Exception):
    """A graph holds something that has no Python text."""


def copied(gm: fx.GraphModule) -> fx.GraphModule:
    """Return a graph of its own, with those it holds: a backend may rewrite the one it is given."""
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    copy = fx.GraphModule(gm, graph)
    for node in graph.find_nodes(op="get_attr"):
        home, _, name = str(node.target).rpartition(".")
        held = getattr(gm.get_submodule(home), name)
        if isinstance(held, fx.GraphModule):
            setattr(copy.get_submodule(home), name, copied(held))
    return copy


def case_of(
    gm: fx.GraphModule, inputs: Sequence[Any], call: Call, setup: str, backward: bool
) -> tuple[Case, dict[str, torch.Tensor]]:
    """Return a graph as a case, and its input tensors by name.

    Raises:
        Unprintable: a call cannot be written as Python text.
    """
    printer = _Printer(gm)
    recorded: dict[str, torch.Tensor] = {}
    rows: list[Input] = []
    symbols: dict[str, tuple[str, int]] = {}
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True):
        if not isinstance(value, torch.Tensor):
            continue
        for dim, size in enumerate(_fake_sizes(node)):
            symbols.setdefault(size, (node.name, dim))
    for node, value in zip(gm.graph.find_nodes(op="placeholder"), inputs, strict=True):
        if isinstance(value, torch.Tensor):
            recorded[node.name] = value
            rows.append(Input.of(node.name, fact_of(value)))
            continue
        symbol = str(_fake(node))
        if isinstance(value, torch.SymInt) and symbol in symbols:
            source, dim = symbols[symbol]
            printer.steps.append(Step(node.name, f"$0.shape[{dim}]", (source,)))
        else:
            rows.append(Input.of(node.name, fact_of(plain(value))))
    printer.run()
    for name, value in printer.constants.items():
        recorded[name] = value
        rows.append(Input.of(name, fact_of(value)))
    outputs = tuple(n.name for n in printer.returned if n.op not in ("placeholder", "get_attr"))
    steps = tuple(printer.steps)
    used = {ref for step in steps for ref in step.refs}
    case = Case(
        inputs=tuple(row for row in rows if row.name in used),
        steps=steps,
        outputs=tuple(dict.fromkeys(outputs)),
        call=call,
        setup=setup,
        backward=backward,
    )
    return case, recorded


def plain(value: Any) -> Any:
    """A symbolic number as the number it was."""
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return value.node.hint
    return value


def fact_of(value: Any) -> Fact:
    """Return what is to be known of a value."""
    value = plain(value)
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_quantized or value.is_nested:
            return Fact("other")
        return Fact(
            "tensor", tuple(value.shape), tuple(value.stride()), str(value.dtype),
            value.requires_grad, device="" if value.device.type == "cpu" else str(value.device),
        )  # fmt: skip
    if value is None:
        return Fact("none")
    if type(value) in (bool, int, float):
        return Fact(type(value).__name__, text=_number(value))
    return Fact("other")


def _fake(node: fx.Node) -> Any:
    return node.meta.get("example_value", node.meta.get("val"))


def _fake_sizes(node: fx.Node) -> Iterator[str]:
    fake = _fake(node)
    if isinstance(fake, torch.Tensor):
        yield from (str(size) for size in fake.shape)


class _Printer:
    """Writes the calls of a graph as steps.

    Attributes:
        returned: the nodes the graph returns.
        constants: tensors that the graph holds.
    """

    def __init__(self, gm: fx.GraphModule) -> None:
        self.gm = gm
        self.steps: list[Step] = []
        self.returned: list[fx.Node] = []
        self.constants: dict[str, torch.Tensor] = {}
        self.branches: dict[str, tuple[str, str]] = {}

    def run(self) -> None:
        for node in self.gm.graph.nodes:
            if node.op == "get_attr":
                self._attribute(node)
            elif node.op == "output":
                found: list[fx.Node] = []
                fx.map_arg(node.args, found.append)
                self.returned = found
            elif node.op in ("call_function", "call_method", "call_module"):
                self._call(node)

    def _attribute(self, node: fx.Node) -> None:
        held: Any = self.gm
        for part in str(node.target).split("."):
            held = getattr(held, part)
        if isinstance(held, torch.Tensor):
            self.constants[node.name] = held.detach()
        elif isinstance(held, fx.GraphModule):
            name = f"branch_{node.name}"
            self.branches[node.name] = (name, function_text(name, held))
        else:
            raise Unprintable(f"the graph holds a {type(held).__name__} ({node.target})")

    def _call(self, node: fx.Node) -> None:
        refs: list[str] = []
        helpers: list[str] = []

        def ref(used: fx.Node) -> str:
            if used.name in self.branches:
                name, text = self.branches[used.name]
                helpers.append(text)
                return name
            if used.name not in refs:
                refs.append(used.name)
            return f"${refs.index(used.name)}"

        form = form_of(node, ref)
        self.steps.append(
            Step(node.name, form, tuple(refs), mutates(node), user_line(node), tuple(helpers),
                 node.target is operator.setitem)
        )  # fmt: skip


def function_text(name: str, gm: fx.GraphModule) -> str:
    """Return a graph as a Python function (a branch of `torch.cond`)."""
    printer = _Printer(gm)
    printer.run()
    if printer.constants:
        raise Unprintable(f"the branch {name} holds tensors")
    arguments = [node.name for node in gm.graph.find_nodes(op="placeholder")]
    names = {n: n for n in (*arguments, *(step.name for step in printer.steps))}
    helpers = [text for step in printer.steps for text in step.helpers]
    output = gm.graph.output_node().args[0]
    returned = text_of(output, lambda node: node.name)
    lines = [f"    {step.line(names)}" for step in printer.steps]
    return "\n".join([*helpers, f"def {name}({', '.join(arguments)}):", *lines,
                      f"    return {returned}"])  # fmt: skip


def mutates(node: fx.Node) -> bool:
    """Whether a call writes to one of its arguments."""
    if node.op == "call_method":
        name = str(node.target)
        return name.endswith("_") and not name.endswith("__")
    name = getattr(node.target, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__") and name not in BINARY
    return (
        in_place or name in IN_PLACE or "out" in node.kwargs or node.kwargs.get("inplace") is True
    )


def user_line(node: fx.Node) -> str:
    """Return ``file:line`` and the line's text, after a tab, of the user's code."""
    found = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    own = [(file, line) for file, line in found if "/torch/" not in file] or found
    if not own:
        return ""
    file, line = own[-1]
    return f"{file}:{line}\t{linecache.getline(file, int(line)).strip()}"


# -- text --------------------------------------------------------------------------------------
def form_of(node: fx.Node, ref: Callable[[fx.Node], str]) -> str:
    """Return a call as Python text."""
    args = [text_of(arg, ref) for arg in node.args]
    options = [f"{name}={text_of(value, ref)}" for name, value in node.kwargs.items()]
    if node.op == "call_method":
        return f"{args[0]}.{node.target}({', '.join([*args[1:], *options])})"
    if node.op == "call_module":
        raise Unprintable(f"the graph calls the module {node.target}")
    target: Any = node.target
    name = getattr(target, "__name__", "")
    if getattr(target, "__module__", "") in ("_operator", "operator"):
        if name in BINARY and len(args) == 2:
            return f"{_closed(args[0])} {BINARY[name]} {_closed(args[1])}"
        if name in UNARY and len(args) == 1:
            return f"{UNARY[name]}{_closed(args[0])}"
        if name == "getitem":
            return f"{args[0]}[{index_text(node.args[1], ref)}]"
        if name == "setitem":
            return f"{args[0]}[{index_text(node.args[1], ref)}] = {args[2]}"
    if target is getattr and isinstance(node.args[1], str):
        return f"{args[0]}.{node.args[1]}"
    return f"{name_of(target)}({', '.join([*args, *options])})"


def _closed(text: str) -> str:
    return f"({text})" if text.startswith("-") else text


def index_text(index: Any, ref: Callable[[fx.Node], str]) -> str:
    """Return what stands in the brackets of an index."""
    if isinstance(index, tuple):
        inner = ", ".join(index_text(item, ref) for item in index)
        return f"{inner}," if len(index) == 1 else inner or "()"
    if isinstance(index, slice):
        start, stop, step = (
            "" if part is None else text_of(part, ref)
            for part in (index.start, index.stop, index.step)
        )
        return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"
    return text_of(index, ref)


def text_of(value: Any, ref: Callable[[fx.Node], str]) -> str:
    """Return an argument as Python text.

    Raises:
        Unprintable: there is none.
    """
    if isinstance(value, fx.Node):
        return ref(value)
    if isinstance(value, tuple | list):
        inner = ", ".join(text_of(item, ref) for item in value)
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict):
        rows = (f"{text_of(k, ref)}: {text_of(v, ref)}" for k, v in value.items())
        return "{" + ", ".join(rows) + "}"
    if isinstance(value, slice):
        parts = (text_of(part, ref) for part in (value.start, value.stop, value.step))
        return f"slice({', '.join(parts)})"
    if isinstance(value, torch.SymInt):
        value = plain(value)
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return str(value)
    if value is None or value is Ellipsis or isinstance(value, str | bool | complex):
        return "..." if value is Ellipsis else repr(value)
    if isinstance(value, enum.Enum):
        return f"{type(value).__module__}.{type(value).__qualname__}.{value.name}"
    if isinstance(value, int | float):
        return _number(value)
    if callable(value):
        return name_of(value)
    raise Unprintable(f"an argument is a {type(value).__name__}")


def _number(value: int | float) -> str:
    return repr(value)  # inf and nan are imported by the program that prints them


#: what `torch._C` keeps functions in that torch's own Python code calls
OF_TORCH: Final = (
    "_VariableFunctions", "_nn", "_fft", "_linalg", "_special", "_nested", "_sparse",
)  # fmt: skip


@functools.cache
def _known_names() -> dict[int, str]:
    """Where users find a function: id -> dotted name; the first home counts, private names last."""
    users: tuple[tuple[str, Any], ...] = (
        ("torch", torch),
        ("torch.nn.functional", torch.nn.functional),
        ("torch.special", torch.special),
        ("torch.linalg", torch.linalg),
        ("torch.fft", torch.fft),
        ("operator", operator),
        ("math", math),
    )
    own = tuple((f"torch._C.{name}", getattr(torch._C, name, None)) for name in OF_TORCH)
    names: dict[int, str] = {}
    for homes, is_private in ((users, False), (own, False), (users, True), (own, True)):
        for home, module in homes:
            for name in dir(module):
                held = getattr(module, name, None)
                hidden = name.startswith("__")
                if callable(held) and not hidden and name.startswith("_") == is_private:
                    names.setdefault(id(held), f"{home}.{name}")
    for name in dir(torch.Tensor):  # some are wrapped, and have the name of what they wrap
        held = getattr(torch.Tensor, name)
        if isinstance(held, types.FunctionType):
            names.setdefault(id(held), f"torch.Tensor.{name}")
    return names


def name_of(function: Any) -> str:
    """Return the dotted name under which Python finds a function.

    Raises:
        Unprintable: there is none.
    """
    known = _known_names().get(id(function))
    if known:
        return known
    if isinstance(function, torch._ops.OpOverload):
        return spelled(f"torch.ops.{function}".removesuffix(".default"))
    if isinstance(function, torch._ops.OpOverloadPacket):
        return f"torch.ops.{str(function).replace('::', '.')}"
    if isinstance(function, torch._ops.HigherOrderOperator):
        name = str(function.__name__)
        return "torch.cond" if name == "cond" else f"torch.ops.higher_order.{name}"
    module = getattr(function, "__module__", None) or ""
    name = getattr(function, "__qualname__", getattr(function, "__name__", ""))
    if module.startswith("torch") and _reachable(module, name, function):
        return f"{module}.{name}"
    if module == "builtins" and name.isidentifier():
        return str(name)
    owner = getattr(function, "__objclass__", None)
    if owner is torch.Tensor or owner is getattr(torch._C, "TensorBase", None):
        return f"torch.Tensor.{name}"
    raise Unprintable(f"{function} has no name that Python finds")


def _reachable(module: str, name: str, function: Any) -> bool:
    held: Any = torch
    for part in [*module.split(".")[1:], *name.split(".")]:
        held = getattr(held, part, None)
    return held is function
