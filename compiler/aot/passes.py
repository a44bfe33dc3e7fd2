"""Graph passes of this stage, each from a functional ATen graph to an equivalent one, in order."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable
from typing import Any, TypeGuard

import torch
from torch import fx
from torch._prims_common import is_non_overlapping_and_dense_or_false as dense
from torch.fx.experimental.symbolic_shapes import guard_or_false

from tc.compiler.aot.artifact import is_mutable, memory_of
from tc.compiler.aot.decompositions import draws_random_numbers
from tc.compiler.aot.layouts import elements_apart, layout_key
from tc.compiler.core.gate import Gate
from tc.compiler.core.origins import OF_CHECK

aten = torch.ops.aten

Pass = Callable[[fx.Graph], None]

# Checks that torch makes of known data; guards cover the shapes already.
CHECKS = (
    aten._assert_tensor_metadata.default,
    aten._assert_async.msg,
    aten._assert_async.default,
)

# Namespaces of collectives, which another rank may need though this one does not use the result.
COLLECTIVES = ("_c10d_functional", "_c10d_functional_autograd", "_dtensor")

# Data-dependent results, each of which has an unbacked symbol.
OF_DATA = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


def run_passes(graph: fx.Graph, gate: Gate, kind: str) -> None:
    """Run the `PASSES` that the gate allows, in place; then give each output its own memory.

    Args:
        kind: the graph's kind, for the gate's notes.
    """
    for graph_pass in PASSES:
        name = f"aot.{graph_pass.__name__}"
        if gate.allow(name):
            with gate.watching(name, graph, kind):
                graph_pass(graph)
        elif gate.notes is not None:
            gate.notes.refused_pass(name, kind)
    graph.lint()
    with gate.watching("aot.separate_outputs", graph, kind):
        separate_outputs(graph)


def has_effect(node: fx.Node) -> bool:
    """Return whether a node must stay even if nothing uses its value."""
    if node.op in ("placeholder", "output"):
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    if node.target in CHECKS[:1]:
        return False
    if is_mutable(node.target) or draws_random_numbers(node.target):
        return True
    if node.target.namespace in COLLECTIVES:
        return True
    return not node.target._schema.returns or node.target in CHECKS


def drop_dead_code(graph: fx.Graph) -> None:
    """Remove nodes without users; random draws stay, since they advance eager's stream."""
    for node in reversed(list(graph.nodes)):
        if not node.users and not has_effect(node):
            graph.erase_node(node)


def drop_no_ops(graph: fx.Graph) -> None:
    """Replace ops that return their argument unchanged by the argument."""
    for node in list(graph.nodes):
        if node.op != "call_function" or not node.args or not isinstance(node.args[0], fx.Node):
            continue
        source = node.args[0]
        if node.target in IDENTITIES and same_layout(node, source):
            node.replace_all_uses_with(source)
            graph.erase_node(node)


IDENTITIES = (
    aten.alias.default,
    aten.detach.default,
    aten.view.default,
    aten._unsafe_view.default,
    aten.expand.default,
    aten.slice.Tensor,
    aten.lift_fresh.default,
)


def same_layout(node: fx.Node, source: fx.Node) -> bool:
    """Return whether two nodes hold tensors of one dtype, shape and stride, known for certain."""
    a, b = node.meta.get("val"), source.meta.get("val")
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor) or a.dtype != b.dtype:
        return False
    return layout_key(a) == layout_key(b)


def fold_transposes(graph: fx.Graph) -> None:
    """Cancel two transpositions that undo each other.

    Gradients of linear layers have many of them, and at the graph's end each would be a copy.
    """
    for node in graph.find_nodes(op="call_function", target=aten.transpose.int):
        source = node.args[0]
        if source.target is aten.transpose.int and same_layout(node, source.args[0]):
            rank = max(node.meta["val"].dim(), 1)
            axes, others = ({axis % rank for axis in n.args[1:]} for n in (node, source))
            if axes == others:
                node.replace_all_uses_with(source.args[0])
                graph.erase_node(node)


def choose_gradients(joint: fx.Graph) -> None:
    """Give the gradient of a maximum, minimum or median to its elements by a choice.

    On a CPU eager puts each element's share where the result was found. Under a dispatch mode torch
    multiplies all elements by whether they were, and gives those that were not NaN if the share is
    infinite.
    """
    for node in joint.find_nodes(op="call_function", target=aten.mul.Tensor):
        mask, share = node.args
        if not _calls(mask, aten.logical_or.default) or not _calls(share, aten.div.Tensor):
            continue
        count, value = share.args[1], node.meta["val"]
        counted = _calls(count, aten.sum.default) and count.args[0] is mask
        if not counted or value.device.type != "cpu":
            continue
        with joint.inserting_before(node):
            known = {"dtype": value.dtype, "device": value.device}
            zero = joint.call_function(aten.scalar_tensor.default, (0.0,), known)
            chosen = joint.call_function(aten.where.self, (mask, share, zero))
        zero.meta, chosen.meta = {**node.meta, "val": value.new_zeros(())}, node.meta
        node.replace_all_uses_with(chosen)
        joint.erase_node(node)


def _calls(value: Any, target: Any) -> TypeGuard[fx.Node]:
    return isinstance(value, fx.Node) and value.target is target


def share_common_subexpressions(graph: fx.Graph) -> None:
    """Merge nodes with the same op and arguments (common subexpression elimination)."""
    seen: dict[Hashable, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op == "get_attr":
            key: Hashable = ("get_attr", node.target)
        elif node.op == "call_function" and may_share(node):
            # A node of a check has no fake value: what computes with the number needs its own.
            of_check = node.meta.get(OF_CHECK)
            key = (node.target, _freeze(node.args), _freeze(node.kwargs), of_check)
        else:
            continue
        first = seen.setdefault(key, node)
        if first is not node:
            first.meta["tc_also"] = (*first.meta.get("tc_also", ()), node.meta.get("tc_origin"))
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def may_share(node: fx.Node) -> bool:
    """Return whether equal nodes may merge: no random draws, writes, new memory or sizes."""
    if node.target is operator.getitem:
        return True
    if has_effect(node) or OF_DATA & set(getattr(node.target, "tags", ())):
        return False
    return node.target not in (aten.empty.memory_format, aten.empty_strided.default)


def _freeze(value: Any) -> Hashable:
    """Return a hashable stand-in for a node's arguments; 1, 1.0 and True stay apart."""
    if isinstance(value, (list, tuple)):
        return (type(value).__name__[-5:], *map(_freeze, value))
    if isinstance(value, dict):
        return tuple((key, _freeze(item)) for key, item in sorted(value.items()))
    if isinstance(value, slice):
        return ("slice", _freeze(value.start), _freeze(value.stop), _freeze(value.step))
    if isinstance(value, (int, float, bool, complex)):
        return (type(value).__name__, repr(value))
    return value  # type: ignore[no-any-return]


PASSES: tuple[Pass, ...] = (
    drop_no_ops,
    fold_transposes,
    share_common_subexpressions,
    drop_dead_code,
)


def separate_outputs(graph: fx.Graph, saved_from: int | None = None) -> None:
    """Give each output memory of its own; correctness needs it, so it is no optional pass.

    Outputs that share memory in eager are described to the runtime, and occur once here. Two
    others may share it by then: equal values were merged, and one is returned through a view. One
    whose layout newly allocated memory cannot have becomes contiguous, unless it is a view of
    memory that can (an expanded number): that of an input is copied, and viewed again.

    Args:
        saved_from: where the values that backward needs begin. No user writes to these, so they
            may be views of the outputs before them.
    """
    output = graph.output_node()
    seen: set[fx.Node] = set()
    separate: list[Any] = []
    for position, value in enumerate(output.args[0]):  # type: ignore[arg-type]
        if isinstance(value, fx.Node) and isinstance(value.meta.get("val"), torch.Tensor):
            base = memory = memory_of(value)
            saved = saved_from is not None and position >= saved_from
            if saved or memory.op in ("placeholder", "get_attr"):
                memory = value
            apart = elements_apart(value.meta["val"])
            again = memory in seen and memory is not value and apart
            if again or (not apart and memory is value and _is_smaller(base, value)):
                memory, value = viewed_again(graph, base, value)
            elif (
                memory in seen
                or value.op in ("placeholder", "get_attr")
                or (memory is value and not apart)
            ):
                memory = value = copied(graph, value)
            seen.update((value, memory))
        separate.append(value)
    output.args = (separate,)


def _is_smaller(base: fx.Node, value: fx.Node) -> bool:
    """Return whether memory can be allocated in a layout, and has fewer elements than a view."""
    memory = base.meta["val"]
    if base is value or not elements_apart(memory):
        return False
    return guard_or_false(memory.numel() < value.meta["val"].numel())


def viewed_again(graph: fx.Graph, memory: fx.Node, value: fx.Node) -> tuple[fx.Node, fx.Node]:
    """Add a copy of the memory that a value views, and the same views of it; return both."""
    views = [value]
    while (base := views[-1].args[0]) is not memory:
        assert isinstance(base, fx.Node)
        views.append(base)
    copies = {memory: copied(graph, memory)}
    with graph.inserting_before(value.next):
        for view in reversed(views):
            copies[view] = graph.node_copy(view, lambda node: copies.get(node, node))
    return copies[memory], copies[value]


def copied(graph: fx.Graph, value: fx.Node) -> fx.Node:
    """Add a copy of a value, made before anything is written to."""
    fake = value.meta["val"]
    kwargs: dict[str, Any] = {} if dense(fake) else {"memory_format": torch.contiguous_format}
    first = next(n for n in graph.nodes if n.op not in ("placeholder", "get_attr"))
    inside = value.op != "placeholder"  # constants, which nothing writes to, are among the calls
    with graph.inserting_after(value) if inside else graph.inserting_before(first):
        copy = graph.call_function(aten.clone.default, (value,), kwargs)
    copy.meta.update(value.meta)
    if kwargs:
        with fake.fake_mode:
            copy.meta["val"] = torch.empty(fake.shape, dtype=fake.dtype, device=fake.device)
    return copy
