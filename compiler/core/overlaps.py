"""Writes to a part of the memory that the same call reads: eager refuses most of them.

Functional graphs read all operands before any write, so such a call would give values there, which
no kernel of eager's gives. Whether eager refuses one depends on the op, so it is asked about
tensors that lie in memory as those of the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from tc.compiler.core import levels
from tc.compiler.core.memory import storage_id
from tc.compiler.core.symbolic import SYMBOLIC, hint


def check(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Check a call on fake tensors, for the current sizes.

    Raises:
        RuntimeError: eager refuses it.
    """
    if not isinstance(func, torch._ops.OpOverload) or not func._schema.is_mutable:
        return
    if torch.Tag.nondeterministic_seeded in func.tags:
        return
    tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
    apart = _are_apart(tensors, alike=torch.Tag.pointwise in func.tags)
    if not apart or any(map(_repeats, _written_lists(func, args))):
        _ask_eager(func, args, kwargs)


def _written_lists(func: Any, args: Sequence[Any]) -> list[torch.Tensor]:
    """Return the tensors in lists that a call writes to; of others shape functions ask as eager."""
    pairs = zip(func._schema.arguments, args, strict=False)
    lists = [given for one, given in pairs if one.alias_info and isinstance(given, list | tuple)]
    return [one for one in tree_leaves(lists) if isinstance(one, torch.Tensor)]


def _repeats(tensor: torch.Tensor) -> bool:
    """Return whether elements of a tensor evidently lie at one place, as an expanded one's do."""
    if tensor.layout is not torch.strided:
        return False
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return any(hint(step) == 0 and hint(size) not in (0, 1, None) for size, step in pairs)


def _are_apart(tensors: Iterable[torch.Tensor], alike: bool) -> bool:
    """Return whether no two tensors share memory; so if that is unknown.

    What lies between the first and the last element of a tensor counts as its memory.

    Args:
        alike: whether tensors may share memory if their elements lie at the same places, as those
            of an elementwise op may: each element is read before it is written.
    """
    seen: dict[int, list[tuple[int, ...]]] = {}
    for tensor in tensors:
        if tensor.layout is not torch.strided:
            return True
        place = _place(tensor)
        if None in place:
            return True
        seen.setdefault(storage_id(tensor), []).append(
            (*_ends(tensor), tensor.element_size(), *place)
        )
    for places in seen.values():
        reached = 0
        for first, end, *_ in sorted(set(places) if alike else places):
            if first < min(end, reached):
                return False
            reached = max(reached, end)
    return True


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return where the elements lie: offset, sizes and strides, None for what depends on data."""
    return tuple(map(hint, (tensor.storage_offset(), *tensor.shape, *tensor.stride())))


def _ends(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first byte of a tensor of known sizes in its storage, and that after its last."""
    offset, *numbers = _place(tensor)
    sizes, strides = numbers[: tensor.dim()], numbers[tensor.dim() :]
    last = sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))
    count = 0 if 0 in sizes else last + 1
    return offset * tensor.element_size(), (offset + count) * tensor.element_size()


def _ask_eager(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Call with zeros that lie in memory as the tensors of the call."""
    memory: dict[int, torch.UntypedStorage] = {}

    def real(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return hint(value) if isinstance(value, SYMBOLIC) else value
        storage = storage_id(value)
        if storage not in memory:
            size = hint(value.untyped_storage().nbytes())
            zeros = torch.zeros(size, dtype=torch.uint8, device="cpu")
            memory[storage] = zeros.untyped_storage()
        offset, *numbers = _place(value)
        sizes, strides = numbers[: value.dim()], numbers[value.dim() :]
        made = torch.empty(0, dtype=value.dtype, device="cpu")
        return made.set_(memory[storage], offset, sizes, strides)

    with levels.eager_itself(), torch.no_grad():
        given, named = tree_map(real, (list(args), dict(kwargs)))
        func(*given, **named)
