"""Backends of other packages under tc's capture: what each needs so that its results are right.

In: a backend that a package registers for `torch.compile`. Out: a backend for `tc.compile`. Names
that PyTorch's documentation has and that no package brings are rows too, each with what to use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from tc.compiler.backends.aot_backend import aot_backend
from tc.compiler.backends.registry import ADAPTERS, ELSEWHERE, Backend


def pure(backend: Backend) -> Backend:
    """Return a backend that is only given pure graphs of ATen operations, of fixed sizes.

    For one that computes neither gradients nor writes to inputs: tc computes both around it, and
    compiles the backward as another graph.
    """

    def adapted(gm: fx.GraphModule, inputs: Sequence[Any], **settings: Any) -> Callable[..., Any]:
        def compile_part(part: fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
            compiled = backend(part, [_real(one) for one in examples], **settings)
            return lambda *args: [_own(one) for one in compiled(*args)]

        return aot_backend(compile_part)(gm, inputs)

    return adapted


def _own(value: Any) -> Any:
    """Return a result in memory of its own: a backend may use its memory again at the next call."""
    return value.clone() if isinstance(value, torch.Tensor) else value


def _real(value: Any) -> Any:
    """Return zeros of the size of a fake tensor: the backend traces its graph on them."""
    if not isinstance(value, torch.Tensor):
        return value
    made = torch.empty_strided(
        [int(size) for size in value.size()],
        [int(step) for step in value.stride()],
        dtype=value.dtype,
        device=value.device,
    )
    return made.zero_()


#: names that programs for `torch.compile` use -> what to do here
_ELSEWHERE = {
    "onnxrt": "PyTorch has removed it; export the model with torch.onnx.export(..., dynamo=True) "
    "and run it with onnxruntime.InferenceSession",
    "tvm": "PyTorch's own code for it belongs to torch.compile; pass a function "
    "(gm, example_inputs) -> callable that calls TVM, see docs/aot-backends.md",
    "openxla": "it compiles for XLA devices by torch_xla, which torch.compile drives",
    "aot_ts": 'backend="ts" runs the captured graph with TorchScript',
    "aot_eager_default_partitioner": 'backend="aot_eager" keeps what backward uses',
}
for _name, _instead in _ELSEWHERE.items():
    ELSEWHERE.add(_name, _instead)
ADAPTERS.add("openvino", pure)  # it computes neither gradients nor writes
