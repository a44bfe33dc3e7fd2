"""Which graphs get kernels for GPUs, and how a graph on several is split.

In: an ATen graph. Out: the GPU; or parts of the graph, each for one, and what runs them in turn.
Each part is a program of its own, which makes its GPU the current one while it launches; moving
tensors between GPUs is left to ATen, which keeps their streams in order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from tc import trace
from tc.compiler.runtime.triton import available as triton_available

Boxed = Callable[[list[Any]], tuple[Any, ...]]
CompilePart = Callable[[fx.GraphModule, torch.device | None], Boxed]
COPY = "aten.copy_.default"


def gpu_of(module: fx.GraphModule) -> torch.device | None:
    """Return the GPU that a graph's kernels are for, None where the CPU computes.

    That is the one GPU its tensors are on, where Triton is there to make kernels for it. Tensors
    elsewhere are left to ATen; graphs on several GPUs are split first, see `split`.
    """
    devices = set(filter(None, map(gpu_of_node, module.graph.nodes)))
    if len(devices) != 1:
        return None
    if not triton_available():
        _report("triton is not installed: ATen runs the whole graph")
        return None
    return devices.pop()


def gpu_of_node(node: fx.Node) -> torch.device | None:
    """Return the GPU that a node's value is on, None if it is on none."""
    for value in pytree.tree_leaves(node.meta.get("val")):
        if isinstance(value, torch.Tensor) and value.device.type == "cuda":
            return value.device
    return None


def _report(why: str) -> None:
    trace.emit(trace.Artifact("tc_no_gpu_kernels", why))


# -- several GPUs ----------------------------------------------------------------------------
@dataclass(frozen=True)
class GraphSplit:
    """A graph in parts.

    Attributes:
        whole: calls the parts, which are its submodules, one after the other.
        gpus: name of a part -> the GPU it is for; None where it was not split off for one.
    """

    whole: fx.GraphModule
    gpus: dict[str, torch.device | None]


def split(module: fx.GraphModule) -> GraphSplit | None:
    """Split a graph where the next operation is on another GPU; None if there is one GPU or none.

    A graph that cannot be split is left to ATen, and the trace says why.
    """
    nodes = list(module.graph.nodes)
    if len(set(filter(None, map(gpu_of_node, nodes)))) < 2:
        return None
    why = "triton is not installed" if not triton_available() else _why_whole(nodes)
    if why:
        _report(f"its tensors are on several GPUs, and {why}: ATen runs the whole graph")
        return None
    from torch.fx.passes.split_module import split_module  # graphs on one GPU do without

    part_of, gpus = _parts(nodes)
    whole = split_module(module, module, part_of.__getitem__, keep_original_order=True)
    return GraphSplit(whole, {f"submod_{number}": gpu for number, gpu in enumerate(gpus)})


def _why_whole(nodes: Sequence[fx.Node]) -> str:
    """Return why a graph cannot be split; empty if it can."""
    values = [leaf for n in nodes for leaf in pytree.tree_leaves(n.meta.get("val"))]
    sizes = [s for v in values if isinstance(v, torch.Tensor) for s in (*v.shape, *v.stride())]
    if any(isinstance(value, torch.SymInt | torch.SymFloat) for value in (*values, *sizes)):
        return "a size is symbolic"
    copies = [str(node.target) == COPY for node in nodes if node.op == "call_function"]
    if sorted(copies) != copies:
        return "an input is written to before the end"
    sources = [node.args[1] for node in nodes if str(node.target) == COPY]
    if any(isinstance(source, fx.Node) and source.op == "placeholder" for source in sources):
        return "an input is copied into another"
    return ""


def _parts(nodes: Sequence[fx.Node]) -> tuple[dict[fx.Node, int], list[torch.device | None]]:
    """Number the part of each operation; writes to inputs come last, in a part of their own."""
    part_of: dict[fx.Node, int] = {}
    gpus: list[torch.device | None] = []
    written = False
    for node in nodes:
        if node.op != "call_function":
            continue
        source = node.args[0] if node.target is operator.getitem else None
        if isinstance(source, fx.Node) and source in part_of:  # one of several results
            part_of[node] = part_of[source]
            continue
        writes, gpu = str(node.target) == COPY, gpu_of_node(node)
        if not gpus or writes > written or (gpu is not None and gpus[-1] != gpu and not writes):
            gpus.append(None if writes else gpu)
        written = writes
        part_of[node] = len(gpus) - 1
    return part_of, gpus


@trace.reports(trace.nothing)
def report_limits(kind: str, cached: bool, replayed: bool) -> None:
    """Report what was asked for and is not done for a graph in parts."""
    if cached:
        trace.emit(trace.Artifact("tc_graph_cache_bypass", f"{kind} graph: it is on several GPUs"))
    if replayed:
        trace.emit(trace.CudaGraph("refused", "elsewhere", "it is on several GPUs", kind))


def in_turn(parts: GraphSplit, compile_part: CompilePart) -> Boxed:
    """Compile each part, and return what runs them; values are dropped after their last use."""
    steps: list[tuple[Boxed, list[str], list[str]]] = []
    graph = parts.whole.graph
    held = {n.name: getattr(parts.whole, str(n.target)) for n in graph.find_nodes(op="get_attr")}
    for node in graph.find_nodes(op="call_module"):
        part = parts.whole.get_submodule(str(node.target))
        assert isinstance(part, fx.GraphModule)
        results = part.graph.output_node().args[0]
        made = _names(node, len(results)) if isinstance(results, tuple | list) else [node.name]
        given = [source.name for source in node.args if isinstance(source, fx.Node)]
        steps.append((compile_part(part, parts.gpus[str(node.target)]), given, made))
    inputs = [node.name for node in graph.find_nodes(op="placeholder")]
    returned = graph.output_node().args[0]
    wanted = returned if isinstance(returned, tuple | list) else (returned,)
    kept = {item.name for item in wanted if isinstance(item, fx.Node)}
    last = {name: at for at, (_, given, _) in enumerate(steps) for name in given}

    def call(args: list[Any]) -> tuple[Any, ...]:
        known = {**held, **dict(zip(inputs, args, strict=True))}
        args.clear()
        for at, (run, given, made) in enumerate(steps):
            values = [known[name] for name in given]
            for name in given:
                if last[name] == at and name not in kept:
                    known.pop(name, None)
            known.update(zip(made, run(values), strict=True))
        return tuple(known[r.name] if isinstance(r, fx.Node) else r for r in wanted)

    return call


def _names(node: fx.Node, count: int) -> list[str]:
    """What the results of a part are called where it is called, those unused too."""
    taken = {user.args[1]: user.name for user in node.users}
    return [taken.get(k, f"{node.name}_{k}") for k in range(count)]
