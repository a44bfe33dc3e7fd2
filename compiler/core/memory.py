"""Which tensors share memory: real ones and fake ones alike."""

from __future__ import annotations

import torch


def storage_id(tensor: torch.Tensor) -> int:
    """Return an id of a tensor's storage: equal for two live tensors exactly if they share it.

    Raises:
        NotImplementedError: the tensor has no storage, as sparse ones.
    """
    return int(tensor.untyped_storage()._cdata)


def share_storage(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two live tensors lie in one storage; raises as `storage_id`."""
    return storage_id(one) == storage_id(other)
