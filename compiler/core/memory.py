"""Which tensors share memory: real ones and fake ones alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

#: mark on inputs that get other memory after the graph, and on graphs whose gradients such an input
#: would take part in
REPLACED = "tc_replaced"


def storage_id(tensor: torch.Tensor) -> int:
    """Return an id of a tensor's storage: equal for two live tensors exactly if they share it.

    Raises:
        NotImplementedError: the tensor has no storage, as sparse ones.
    """
    return int(tensor.untyped_storage()._cdata)


def share_storage(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two live tensors lie in one storage; raises as `storage_id`."""
    return storage_id(one) == storage_id(other)


def layout(tensor: torch.Tensor) -> tuple[torch.Size, tuple[int, ...]]:
    """Return the sizes and strides of a strided tensor."""
    return tensor.shape, tensor.stride()


def same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two live strided tensors consist of the same elements of one storage."""
    here = one.storage_offset() == other.storage_offset()
    return here and share_storage(one, other) and layout(one) == layout(other)


def takes_data(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether a strided tensor without history accepts another's as its ``.data``."""
    alike = (one.dtype, one.device, one.layout) == (other.dtype, other.device, torch.strided)
    plain = one.layout is torch.strided and one.grad_fn is None
    return alike and plain and not (one.is_inference() or other.is_inference())


def note_replaced(node: fx.Node | None) -> bool:
    """Mark an input of a captured graph: backward, which runs later, finds other data there.

    Autograd saves leaves as they are, so that a use before the store reads the later data too.

    Returns:
        Whether there is a use before that autograd may have saved it for.
    """
    if node is None or node.op != "placeholder":
        return False
    node.meta[REPLACED] = True
    made = [user.meta["example_value"] for user in node.users]
    return not all(isinstance(one, torch.Tensor) and not one.requires_grad for one in made)


def count_writes_to_list(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Increment the versions of the tensors that a call of ``_foreach_*_`` has written to.

    Autograd leaves that to the kernels, which do not run under a dispatch mode. Without it, a write
    to a value that backward needs would pass, where eager refuses it, with wrong gradients.
    """
    if isinstance(target, torch._ops.OpOverload):
        target = target.overloadpacket
    name = getattr(target, "__name__", "")
    if name.startswith("_foreach_") and name.endswith("_"):
        written = args[0] if args else kwargs["self"]
        counted = [one for one in written if not one.is_inference()]
        torch.autograd.graph.increment_version(counted)
