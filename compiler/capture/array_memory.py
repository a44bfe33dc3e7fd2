"""Makes tensors that share the memory of NumPy arrays."""

from __future__ import annotations

from typing import Any

import torch


def as_tensor(array: Any) -> torch.Tensor:
    """Return a CPU tensor that shares the memory of a NumPy array, whatever the default device is.

    Scalars and read-only arrays are copied.
    """
    memory = array if array.flags.writeable else array.copy()
    with torch._C.DisableTorchFunction():  # function modes of the program must not see this call
        return torch.as_tensor(memory, device="cpu")
