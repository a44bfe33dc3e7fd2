"""Makes tensors that share the memory of NumPy arrays, and Python numbers of NumPy scalars."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def as_tensor(array: Any) -> torch.Tensor:
    """Return a CPU tensor that shares the memory of a NumPy array, whatever the default device is.

    Scalars and read-only arrays are copied.
    """
    memory = array if array.flags.writeable else array.copy()
    # The program's modes must not see this call. Where a guard is checked while compiling, dispatch
    # keys say that there is a mode (`levels.dispatch_keys_of_program`), but none is in force.
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        return torch.as_tensor(memory, device="cpu")


def as_number(scalar: np.generic) -> int | float | complex:
    """Return the Python number that torch takes a NumPy scalar for, where it is an operand.

    Integers keep their kind; ``complex128`` is a ``complex``, since it is derived from it. All
    others are read as ``float``, truth values and single-precision complex numbers among them.
    """
    if isinstance(scalar, np.integer):
        return int(scalar)
    if isinstance(scalar, complex):
        return complex(scalar)
    return float(scalar.real)
