"""Stores to tensors are replayed after the graph: what would be lost by that breaks the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from tc.compiler.capture import breaks
from tc.compiler.core.memory import layout, share_storage

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Store(NamedTuple):
    """What a tensor is from a store to one of its attributes on."""

    name: str
    fake: torch.Tensor
    facts: Any
    of_data: bool


class StoredData:
    """The stores to ``.data`` and ``.grad`` of tensors, in the order of a graph's calls."""

    def __init__(self) -> None:
        self._stores: list[_Store] = []

    def add(
        self,
        name: str,
        fake: torch.Tensor,
        of_data: bool,
    ) -> None:
        """Record a store to a tensor.

        Args:
            name: of the tensor's attribute.
            fake: the tensor from here on.
            of_data: whether it has another's memory now.
        """
        self._stores.append(_Store(name, fake, facts_of(fake), of_data))

    def check(
        self,
        operands: Sequence[Any],
        result: Any,
        text: str,
    ) -> None:
        """Break the graph before a call that a store cannot follow.

        A gradient has to fit the tensor as it is at the store. In the graph, what was stored as
        data takes the tensor's place: a view would be one of that, or of a copy that has the
        tensor's history; a change of shape, or a history by a write, would be that of what was
        stored.
        """
        for store in self._stores:
            views = store.of_data and _has_views(store.fake, operands, result, text)
            if views or store.facts != facts_of(store.fake):
                what = f"{store.name}, before {text},"
                raise breaks.GraphBreak(breaks.UNSUPPORTED_STORE, what)


def facts_of(fake: torch.Tensor) -> Any:
    """Return what a call in place changes of a tensor besides its elements."""
    return layout(fake), fake.requires_grad


def _has_views(
    fake: torch.Tensor, operands: Sequence[Any], result: Any, text: str
) -> bool:
    """Return whether a call on a tensor has another one in its memory, with its history."""
    if not any(one is fake for one in tree_leaves(operands)):
        return False
    if text == "detach" and not fake.requires_grad:
        return False
    made = [one for one in tree_leaves(result) if isinstance(one, torch.Tensor)]
    return any(one is not fake and share_storage(one, fake) for one in made)
