"""Takes a graph that PyTorch captured and returns it as the graphs of tc's own capture are.

In: the arguments of a backend of `torch.compile`. Out: a copy of the graph whose placeholders carry
fresh fake tensors of PyTorch's `ShapeEnv`, so that what later stages decide about sizes becomes a
guard of PyTorch's, and whose nodes carry the user's lines.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext, detect_fake_mode
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx._lazy_graph_module import _LazyGraphModule

from tc.trace import StackFrame

#: one frame of a printed stack: file, line, function and the line's text
_FRAME = re.compile(r'^  File "(.*)", line (\d+), in (.*)$(?:\n    (?!  )(.*)$)?', re.M)
#: what PyTorch keeps with a placeholder for its own use; it holds the real input
_HOLDS_INPUT = "grapharg"


def as_captured(
    gm: fx.GraphModule, example_inputs: Sequence[Any]
) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """Return a copy of a graph of PyTorch's in the form of tc's captured graphs, and more inputs.

    Tensors that the graph holds become inputs behind the others: a graph may write to them, as that
    of an optimizer's step does to parameters and to its state.

    PyTorch's own fake inputs are not used: running the graph once has changed those that it writes
    to. The new ones have the same symbols, because symbols belong to the source of an input.

    Args:
        gm: the graph that a backend of `torch.compile` is given.
        example_inputs: one real or fake tensor, or symbolic number, a placeholder.
    """
    module = copied(gm)
    graph = module.graph
    held = _held_as_inputs(module)
    _decompose_fma(graph)
    fakes = fake_inputs([*example_inputs, *held])
    for node, fake in zip(graph.find_nodes(op="placeholder"), fakes, strict=True):
        node.meta.pop(_HOLDS_INPUT, None)
        node.meta["example_value"] = fake
    if is_levelled(graph) and torch.is_grad_enabled():
        _set_grad_mode_first(graph)
    _note_lines(module, {})
    return module, held


def _held_as_inputs(module: fx.GraphModule) -> list[torch.Tensor]:
    """Make placeholders of the tensors that a graph holds, and return the tensors."""
    graph = module.graph
    inputs: dict[int, fx.Node] = {}
    tensors: list[torch.Tensor] = []
    first = next(node for node in graph.nodes if node.op not in ("placeholder", "get_attr"))
    for node in graph.find_nodes(op="get_attr"):
        value = operator.attrgetter(node.target)(module)
        if not isinstance(value, torch.Tensor):
            continue
        if id(value) not in inputs:
            with graph.inserting_before(first):
                made = inputs[id(value)] = graph.placeholder(node.name)
            made.meta = dict(node.meta)
            tensors.append(value)
        node.replace_all_uses_with(inputs[id(value)])
        graph.erase_node(node)
    module.recompile()
    return tensors


def _decompose_fma(graph: fx.Graph) -> None:
    """Decompose `prims.fma`, which PyTorch's compiler defines and eager runs in Python.

    PyTorch captures it in the steps of optimizers.
    """
    for node in list(graph.nodes):
        if node.op == "call_function" and str(node.target) == "prims.fma.default":
            a, b, c = node.args
            with graph.inserting_before(node):
                product = graph.call_function(torch.mul, (a, b))
            product.meta = dict(node.meta)
            node.target, node.args = torch.add, (product, c)


def with_effects(
    captured: fx.GraphModule, compiled: Callable[..., Any], held: Sequence[torch.Tensor]
) -> Callable[..., Any]:
    """Return a compiled graph of PyTorch's inputs that also leaves the grad mode that it sets.

    Args:
        held: the inputs that are behind PyTorch's.

    PyTorch's residual code does not set it: that is for the backend to do. Any other mode that a
    graph leaves set is lost, as with PyTorch's own compiler.
    """
    found = captured.graph.find_nodes(op="call_function", target=torch._C._set_grad_enabled)
    left = found[-1].args[0] if found else None
    if held:
        compiled = _with_inputs(compiled, held)
    if left is None or left == torch.is_grad_enabled():
        return compiled

    def call(*args: Any) -> Any:
        results = compiled(*args)
        torch._C._set_grad_enabled(left)
        return results

    return call


def _with_inputs(compiled: Callable[..., Any], more: Sequence[Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        return compiled(*args, *more)

    return call


def is_from_torch(gm: fx.GraphModule) -> bool:
    """Return whether PyTorch captured a graph: its placeholders hold the real inputs."""
    return any(_HOLDS_INPUT in node.meta for node in gm.graph.find_nodes(op="placeholder"))


# -- copies ----------------------------------------------------------------------------------
def copied(gm: fx.GraphModule) -> fx.GraphModule:
    """Return a copy of a graph with the bodies of compiled regions in place of their calls.

    PyTorch keeps a region of `torch.compiler.nested_compile_region` apart, so that its compiler
    sees it once; only a compiler can run the gradients of such a call.
    """
    graph = fx.Graph()
    graph.output(_copy_into(graph, gm, {}))
    for node in graph.find_nodes(op="get_attr"):
        if not node.users:
            graph.erase_node(node)
    module = _LazyGraphModule(gm, graph, "GraphModule")
    for name, body in list(module.named_children()):
        if isinstance(body, fx.GraphModule) and any(map(_calls_region, body.modules())):
            module.add_module(name, copied(body))
    module.meta = dict(gm.meta)
    return module


def _calls_region(module: torch.nn.Module) -> bool:
    if not isinstance(module, fx.GraphModule):
        return False
    return bool(module.graph.find_nodes(op="call_function", target=invoke_subgraph))


def _copy_into(
    graph: fx.Graph, module: fx.GraphModule, found: dict[fx.Node, Any], path: str = ""
) -> Any:
    """Copy all nodes of a graph but the output, and return the copies of its outputs.

    Args:
        found: nodes -> their copies; may hold those of placeholders already.
        path: of the module inside the one whose graph is made.
    """
    for node in module.graph.nodes:
        if node.op == "output" or node in found:
            continue
        if node.op == "call_function" and node.target is invoke_subgraph:
            name = str(node.args[0].target)
            body: Any = module.get_submodule(name)
            operands = fx.node.map_arg(node.args[2:], found.__getitem__)
            inner = dict(zip(body.graph.find_nodes(op="placeholder"), operands, strict=True))
            found[node] = _copy_into(graph, body, inner, f"{path}{name}.")
        elif _takes_item_of_region(node, found):
            found[node] = found[node.args[0]][node.args[1]]
        else:
            copy = found[node] = graph.node_copy(node, found.__getitem__)
            if path and node.op in ("get_attr", "call_module"):
                copy.target = f"{path}{node.target}"
    return fx.node.map_arg(module.graph.output_node().args[0], found.__getitem__)


def _takes_item_of_region(node: fx.Node, found: dict[fx.Node, Any]) -> bool:
    """Return whether a node takes one result of a region that is inlined."""
    return (
        node.op == "call_function"
        and node.target is operator.getitem
        and isinstance(found.get(node.args[0]), list | tuple)  # type: ignore[arg-type]
    )


def is_levelled(graph: fx.Graph) -> bool:
    """Return whether a graph pushes levels of `torch.func`, which it leaves behind if it raises."""
    homes = (getattr(node.target, "__module__", None) or "" for node in graph.nodes)
    return any(home.startswith(("torch._functorch", "torch._C._functorch")) for home in homes)


def _set_grad_mode_first(graph: fx.Graph) -> None:
    """Make a graph say that gradients are on, where `torch.func.grad` inside needs it.

    PyTorch leaves out calls that set a mode to what it is, and graphs whose inputs want no
    gradients are traced with gradients off.
    """
    first = next(node for node in graph.nodes if node.op != "placeholder")
    with graph.inserting_before(first):
        graph.call_function(torch._C._set_grad_enabled, (True,))


def fake_inputs(example_inputs: Sequence[Any]) -> list[Any]:
    """Return a fake tensor for each real one, with the symbols that PyTorch gave its sizes."""
    mode = detect_fake_mode(list(example_inputs)) or FakeTensorMode()
    context = TracingContext.try_get()
    known = {} if context is None else context.tensor_to_context
    return [
        _fake(value, mode, known) if isinstance(value, torch.Tensor) else value
        for value in example_inputs
    ]


def _fake(value: torch.Tensor, mode: FakeTensorMode, known: Any) -> torch.Tensor:
    if isinstance(value, FakeTensor):
        return value if value.fake_mode is mode else mode.from_tensor(value)
    if value not in known:
        return mode.from_tensor(value, static_shapes=True)
    symbols = known[value]
    return mode.from_tensor(
        value, symbolic_context=symbols, source=symbols.tensor_source, trace=False
    )


def refused_input(values: Sequence[Any]) -> str | None:
    """Return why inputs cannot be compiled, or None: all are tensors or symbolic numbers.

    Any other input would become a constant of the compiled graph.
    """
    for value in values:
        if not isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool):
            return f"an input is a {type(value).__name__}"
    return None


# -- the user's lines ------------------------------------------------------------------------
def _note_lines(module: fx.GraphModule, known: dict[str, tuple[StackFrame, ...]]) -> None:
    """Note on each node the user's lines that its printed stack shows, in bodies too."""
    for node in module.graph.nodes:
        printed = node.meta.get("stack_trace")
        if not printed:
            continue
        if printed not in known:
            known[printed] = frames_of(printed)
        node.meta["tc_origin"] = known[printed]
    for child in module.children():
        if isinstance(child, fx.GraphModule):
            _note_lines(child, known)


def frames_of(printed: str) -> tuple[StackFrame, ...]:
    """Return the frames of a stack as `traceback` prints it, outermost first."""
    return tuple(
        StackFrame(file, int(line), name, text or None)
        for file, line, name, text in _FRAME.findall(printed)
    )
