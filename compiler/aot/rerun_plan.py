"""Plans how a captured graph runs again for differentiable gradients (`double_backward`)."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from tc.compiler.aot.artifact import RerunPlan, aten
from tc.compiler.aot.observe import Observation
from tc.compiler.aot.partition import Partition
from tc.compiler.aot.run import Made


def rerun_plan(
    observed: Observation,
    diffs: Sequence[int],
    parts: Partition,
    written: Sequence[int],
    needed: frozenset[int],
    draws: tuple[str, ...],
) -> RerunPlan:
    """Return the plan of one graph.

    Args:
        observed: a plain run of the captured graph.
        diffs: which results of the compiled graph have gradients.
        parts: the saved values, and backward.
        written: inputs that the graph writes to.
        needed: inputs that gradients are computed from.
        draws: device types of the random generators that the graph uses.
    """
    kept = parts.saved[: parts.saved_tensors]
    clones = {i: at for i in written for at, saved in enumerate(kept)
              if saved.name == parts.inputs[i] and i not in observed.wanting}  # fmt: skip
    return RerunPlan(
        outputs=_places(observed, diffs),
        draws=draws,
        originals=tuple(clones.items()),
        lost=tuple(i for i in written if i in needed and i not in clones),
        by_operations=not _has_bodies(observed.captured) and _by_operations(parts),
    )


#: positions of the running statistics among the arguments of a normalisation
STATISTICS = (3, 4)
#: normalisation -> position of its ``training`` argument; if that is true, the running statistics
#: affect only the updated statistics, which are results 3 and 4
TRAINING: dict[Any, int] = {
    aten.native_batch_norm.default: 5,
    aten._native_batch_norm_legit.default: 5,
    aten._native_batch_norm_legit_functional.default: 5,
    aten.native_batch_norm_backward.default: 7,
    aten.batch_norm_backward.default: 7,
}


def _read_by(node: fx.Node) -> list[fx.Node]:
    """Return the inputs of a node that its results depend on."""
    if node.target is aten.copy.default:
        return node.all_input_nodes[1:]
    if node.target is operator.getitem and node.args[1] >= 3:  # type: ignore[operator]
        (source,) = node.all_input_nodes
        return [source, *(source.all_input_nodes if source.target in TRAINING else ())]
    training = TRAINING.get(node.target)
    if training is not None and len(node.args) > training and node.args[training] is True:
        left = [arg for at, arg in enumerate(node.args) if at not in STATISTICS]
        return [arg for arg in left if isinstance(arg, fx.Node)]
    return node.all_input_nodes


def inputs_of_gradients(joint: fx.Graph, inputs: int, returned: int) -> frozenset[int]:
    """Return which inputs the gradients of a joint graph depend on."""
    placeholders = joint.find_nodes(op="placeholder")[:inputs]
    results = list(joint.output_node().args[0])[returned:]  # type: ignore[arg-type]
    stack = [node for node in results if isinstance(node, fx.Node)]
    found: set[fx.Node] = set()
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += _read_by(node)
    return frozenset(i for i, node in enumerate(placeholders) if node in found)


def devices_drawn_from(joint: fx.Graph) -> tuple[str, ...]:
    """Return the device types of the generators that a graph draws random numbers from."""
    found: dict[str, None] = {}
    for node in joint.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and (
            torch.Tag.nondeterministic_seeded in node.target.tags
        ):
            values = node.meta["val"]
            for value in values if isinstance(values, (list, tuple)) else [values]:
                if isinstance(value, torch.Tensor):
                    found[value.device.type] = None
    return tuple(found)


def _places(
    observed: Observation, diffs: Sequence[int]
) -> tuple[tuple[str, int | None] | None, ...]:
    """Return the nodes of the captured graph with the differentiable outputs."""
    captured = observed.captured.graph
    given: Any = captured.output_node().args[0]
    outputs = given if isinstance(given, (list, tuple)) else [given]
    own = set(captured.nodes)
    tensors = [i for i, v in enumerate(observed.results.returned) if isinstance(v, torch.Tensor)]
    places: list[tuple[str, int | None] | None] = []
    for i in diffs:
        place = observed.places[tensors.index(i)]
        if isinstance(place, Made):
            inside = place.node not in own
            places.append(None if inside else (place.node.name, place.item))
        else:
            node = outputs[place]
            places.append((node.name, None))
    return tuple(places)


def _has_bodies(captured: fx.GraphModule) -> bool:
    """Return whether a graph has nested graphs, whose gradients may follow their own rules."""
    return any(isinstance(child, fx.GraphModule) for child in captured.children())


def _by_operations(parts: Partition) -> bool:
    """Return whether backward can be differentiated operation by operation.

    It can if no saved value is differentiable: then backward depends only on the gradients of the
    outputs, in which it is linear.
    """
    kept = parts.backward.find_nodes(op="placeholder")[: parts.saved_tensors]
    if any(
        tensor.is_floating_point() or tensor.is_complex()
        for tensor in (n.meta["val"] for n in kept)
    ):
        return False
    calls = [node for node in parts.backward.nodes if node.op not in ("placeholder", "output")]
    return all(
        node.op == "call_function"
        and isinstance(node.target, torch._ops.OpOverload)
        and node.target.namespace == "aten"
        and any(
            torch._C._dispatch_has_kernel_for_dispatch_key(
                node.target._schema.name + _overload(node.target), key
            )
            for key in ("Autograd", "CompositeImplicitAutograd")
        )
        for node in calls
    )


def _overload(op: torch._ops.OpOverload) -> str:
    """Return the overload's suffix in the dispatcher's name of an operator."""
    overload = op._schema.overload_name
    return f".{overload}" if overload else ""
