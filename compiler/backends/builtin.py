"""The backends that tc brings, by name: the pipeline, and those that bisect stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

import tc.compiler.backends.others  # noqa: F401 -- the tables have to be full
from tc.compiler.backends.aot_backend import aot_backend
from tc.compiler.backends.debug import DEBUG_BACKENDS
from tc.compiler.backends.registry import DEBUG, register_backend
from tc.compiler.pipeline import inductor


def operations(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """Run a graph of ATen operations one by one."""
    return gm.forward


aot_eager = aot_backend(operations)
aot_eager_decomp_partition = aot_backend(operations, decompositions=True, partition="min_cut")

register_backend(inductor, "inductor")
register_backend(inductor, "tc")  # what torch.compile calls it
register_backend(inductor, "cudagraphs")  # with options, see BACKEND_OPTIONS
register_backend(aot_eager, "aot_eager", DEBUG)
register_backend(aot_eager_decomp_partition, "aot_eager_decomp_partition", DEBUG)
for _name, _backend in DEBUG_BACKENDS.items():
    register_backend(_backend, _name, DEBUG)
