"""NumPy arrays as tensors on the same memory."""

from __future__ import annotations

from typing import Any

import torch


def as_tensor(array: Any) -> torch.Tensor:
    """Return a tensor on the memory of a NumPy array, on the CPU whatever the default device is.

    It is a copy of a scalar, and of what may not be written to.
    """
    memory = array if array.flags.writeable else array.copy()
    with torch._C.DisableTorchFunction():  # modes of the program have nothing to do with it
        return torch.as_tensor(memory, device="cpu")
