"""A graph under DistributedDataParallel becomes several, so that gradients are sent while others
are computed.

In: a captured graph, and which of its inputs are parameters. Out: the same graph as parts in order,
cut where the parameters used so far in backward fill one of DDP's buckets. One graph would be one
node of autograd, which gives all gradients at its end: no bucket could be sent before. Which
buckets there are follows PyTorch's documentation of DDP: from the last parameters to the first, a
small one first unless the user set the size.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tc import trace
from tc.compiler.aot_dispatch import EAGER_MARKS
from tc.compiler.capture.torch_api.modes import SETS_MODES
from tc.compiler.capture.torch_api.transforms import LEVELLED
from tc.compiler.core.graphtext import PLACE

Compiled = Callable[..., Any]
#: marks of graphs whose parts would not be what they are together
WHOLE = (*EAGER_MARKS, SETS_MODES, LEVELLED)


def bucket_limits() -> tuple[int, ...]:
    """Return the sizes of buckets in bytes of the DDP module whose forward runs, the last repeats.

    Empty: none runs, or its gradients need no sending.
    """
    ddp = torch.nn.parallel.DistributedDataParallel._active_ddp_module
    if ddp is None or not torch.is_grad_enabled() or not ddp.require_backward_grad_sync:
        return ()
    caps = getattr(ddp, "bucket_bytes_cap", None)
    if not isinstance(caps, int) or caps <= 0:
        return ()
    if getattr(ddp, "bucket_bytes_cap_default", False):
        first = torch.distributed._DEFAULT_FIRST_BUCKET_BYTES  # type: ignore[attr-defined]
        return first, caps
    return (caps,)


@dataclass(frozen=True)
class Part:
    """A part of a graph: its module, and the nodes of the whole that it takes and gives."""

    module: fx.GraphModule
    takes: tuple[fx.Node, ...]
    gives: tuple[fx.Node, ...]

    @property
    def examples(self) -> list[Any]:
        """The fake inputs."""
        placeholders = self.module.graph.find_nodes(op="placeholder")
        return [node.meta["example_value"] for node in placeholders]


def parts_of(gm: fx.GraphModule, inputs: Sequence[Any], limits: Sequence[int]) -> tuple[Part, ...]:
    """Return a graph as parts in order; empty if it is to stay whole.

    Args:
        inputs: the real inputs, one a placeholder: parameters are recognised.
        limits: of `bucket_limits`.
    """
    if not limits or any(gm.meta.get(mark) for mark in WHOLE) or not _can_be_cut(gm):
        return ()
    placeholders = gm.graph.find_nodes(op="placeholder")
    parameters = {
        node: value.numel() * value.element_size()
        for node, value in zip(placeholders, inputs, strict=True)
        if isinstance(value, torch.nn.Parameter) and value.requires_grad
    }
    numbers = _part_numbers(gm.graph, parameters, limits)
    groups: dict[int, list[fx.Node]] = {}
    for node in gm.graph.nodes:
        if node in numbers:
            groups.setdefault(numbers[node], []).append(node)
    parts = [_part(gm, groups[number]) for number in sorted(groups)]
    crossing = [node for part in parts for node in part.gives]
    plain = all(isinstance(one, fx.Node) for one in _outputs(gm.graph))
    if len(parts) < 2 or not plain or not all(map(_is_tensor, crossing)):
        return ()
    return tuple(parts)


def compile_parts(
    gm: fx.GraphModule, parts: Sequence[Part], compile_part: Callable[[Part], Compiled]
) -> Compiled:
    """Return what runs the parts of a graph in order, each compiled by itself."""
    sizes = " + ".join(str(len(part.module.graph.nodes) - len(part.takes) - 1) for part in parts)
    text = f"{len(parts)} graphs of {sizes} operations, one a bucket of DistributedDataParallel"
    trace.emit(trace.Artifact("tc_ddp_buckets", text))
    slots = {node: at for at, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
    steps = []
    for part in parts:
        takes = [slots[node] for node in part.takes]
        for node in part.gives:
            slots[node] = len(slots)
        steps.append((compile_part(part), takes))
    picks = [slots[node] for node in _outputs(gm.graph)]

    def run(*args: Any) -> tuple[Any, ...]:
        values = list(args)
        for compiled, takes in steps:
            values.extend(compiled(*(values[at] for at in takes)))
        return tuple(values[at] for at in picks)

    return run


def _outputs(graph: fx.Graph) -> list[Any]:
    given: Any = graph.output_node().args[0]
    return list(given) if isinstance(given, (tuple, list)) else [given]


def _part(gm: fx.GraphModule, nodes: Sequence[fx.Node]) -> Part:
    inside, graph = set(nodes), fx.Graph()
    used = [one for node in nodes for one in node.all_input_nodes if one not in inside]
    takes = tuple(dict.fromkeys(used))
    gives = tuple(node for node in nodes if any(user not in inside for user in node.users))
    copies: dict[fx.Node, fx.Node] = {}
    for node in takes:
        copies[node] = copy = graph.placeholder(node.name)
        copy.meta = {**node.meta, "example_value": _as_input(node.meta.get("example_value"))}
    for node in nodes:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in gives))
    module = fx.GraphModule(torch.nn.Module(), graph)
    module.meta = {PLACE: gm.meta[PLACE]} if PLACE in gm.meta else {}
    return Part(module, takes, gives)


def _as_input(value: Any) -> Any:
    """Return a fake tensor as it comes into another graph: a leaf of autograd."""
    if isinstance(value, torch.Tensor) and value.grad_fn is not None:
        return value.detach().requires_grad_(value.requires_grad)
    return value


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(node.meta.get("example_value"), torch.Tensor)


def _can_be_cut(gm: fx.GraphModule) -> bool:
    """Return whether no operation writes: a view of one part that another writes to is refused by
    autograd."""
    for node in gm.graph.nodes:
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        writes = name.endswith("_") and not name.endswith("__")
        if node.op.startswith("call_") and (
            writes or node.kwargs.get("inplace") or "out" in node.kwargs
            or node.target in (operator.setitem, *_IN_PLACE)
        ):  # fmt: skip
            return False
        if node.op in ("call_module", "get_attr"):
            return False
    return True


_IN_PLACE = tuple(
    getattr(operator, name) for name in dir(operator) if name.startswith("i") and name[1:] in
    ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor",
     "lshift", "rshift")
)  # fmt: skip


def _part_numbers(
    graph: fx.Graph, parameters: Mapping[fx.Node, int], limits: Sequence[int]
) -> dict[fx.Node, int]:
    """Return for each node the number of its part, from the first to run."""
    order = {node: at for at, node in enumerate(graph.nodes)}
    ready: dict[fx.Node, int] = {}  # node -> bytes of the gradients that its backward completes
    for parameter, size in parameters.items():
        if parameter.users:
            first = min(parameter.users, key=order.__getitem__)
            ready[first] = ready.get(first, 0) + size
    from_last: dict[fx.Node, int] = {}
    bucket = filled = 0
    for node in reversed(graph.nodes):
        if node.op in ("placeholder", "output"):
            continue
        if filled >= limits[min(bucket, len(limits) - 1)] and ready.get(node):
            bucket, filled = bucket + 1, 0
        from_last[node] = bucket
        filled += ready.get(node, 0)
    return {node: bucket - number for node, number in from_last.items()}
