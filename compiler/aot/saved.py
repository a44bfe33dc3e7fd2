"""Finds the inputs and outputs that eager autograd would save, to detect writes to them.

A compiled backward may use other saved values than eager's. Writing to a value that eager saves is
an error in eager, and so it is here, although the compiled result would be right.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from tc.compiler.aot.observe import Observation
from tc.compiler.aot.run import storage_key


def saved_by_eager(
    observed: Observation, kept: Sequence[tuple[str, int]]
) -> tuple[tuple[str, int], ...]:
    """Return inputs and outputs that eager saves and that are not among the saved values.

    Args:
        observed: a plain run of the captured graph.
        kept: the values saved for backward: ``input`` or ``output`` of forward, and its number.
    """
    returned = observed.results.returned
    memories = {
        storage_key(tensor)
        for tensor in saved_tensors(_roots(returned))
        if tensor.layout == torch.strided
    }
    # The new value of an input is copied into it after the call, which counts as a write.
    written = {*observed.mutated, *(i for i, _ in observed.rewritten)}
    after = {place for _, place in observed.rewritten}
    found = [("input", i) for i in _in(memories, observed.inputs) if i not in written]
    found += [("output", i) for i in _in(memories, returned) if i not in after]
    return tuple(place for place in found if place not in kept)


def run_once_in_eager(observed: Observation, outputs: Sequence[int]) -> tuple[int, ...]:
    """Return the outputs from which eager can go backward once, whichever gradients are asked for.

    A compiled backward may need no saved tensor: that of ``x * 2``, for which eager saves the 2.
    """
    alone = len(observed.wanting) == 1
    found = ((i, observed.results.returned[i].grad_fn) for i in outputs)
    return tuple(i for i, root in found if any(True for _ in _always_freed(root, alone)))


def _always_freed(root: Any, alone: bool) -> Iterator[torch.Tensor]:
    """Yield tensors that each backward from a node frees.

    Args:
        alone: one input has gradients, so that all nodes run. Else those before the first fork do.
    """
    if alone:
        yield from saved_tensors([root])
        return
    node = root
    while node is not None:
        yield from _saved_of(node)
        following = [one for one, _ in node.next_functions if one is not None]
        node = following[0] if len(following) == 1 else None


def _roots(returned: Sequence[Any]) -> list[Any]:
    made = [value.grad_fn for value in returned if isinstance(value, torch.Tensor)]
    return [root for root in made if root is not None]


def _in(memories: set[int], values: Sequence[Any]) -> list[int]:
    return [
        i for i, value in enumerate(values)
        if isinstance(value, torch.Tensor) and storage_key(value) in memories
    ]  # fmt: skip


def saved_tensors(roots: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors that the nodes of an autograd graph have saved for backward."""
    stack, seen = list(roots), set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        stack += [following for following, _ in node.next_functions]
        yield from _saved_of(node)


def _saved_of(node: Any) -> Iterator[torch.Tensor]:
    kind: Any = type(node)
    for name in _names(kind):
        try:
            value = getattr(node, name)
        except RuntimeError:  # written to inside of the graph, or not accessible
            continue
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(item, torch.Tensor):
                yield item


@functools.cache
def _names(kind: type) -> tuple[str, ...]:
    """Return the attributes of a kind of node that may hold saved tensors.

    Tensors have a raw form. Saved numbers have none, and must not be read: a symbolic one would
    become a constant.
    """
    known = dir(kind)
    names = [name for name in known if name.startswith("_saved_") and f"_raw{name}" in known]
    return (*names, "saved_tensors") if hasattr(kind, "saved_tensors") else tuple(names)
