"""The tuner of this process's machine: where its answers are kept, and what they depend on."""

from __future__ import annotations

import torch

from tc.compiler.core.tune import Tuner
from tc.compiler.runtime import store
from tc.compiler.runtime.build import cpu_identity


def tuner(thorough: bool = False) -> Tuner:
    """Return what tells the quickest way on this machine; see `Tuner`."""
    machine = f"{cpu_identity()}\0{torch.__version__}\0{torch.get_num_threads()} threads"
    return Tuner(store, machine, thorough)
