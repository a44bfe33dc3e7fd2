"""Backends for finding out which stage is to blame, and ones that fail on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from tc.compiler.errors import BackendError

Compiled = Callable[..., Any]
Compiler = Callable[..., Compiled]


def eager_noexcept(gm: fx.GraphModule, example_inputs: Sequence[Any], **ignored: Any) -> Compiled:
    """Run the captured graph as it is; an operation that raises is a bug of capture."""

    def run(*args: Any) -> Any:
        try:
            return gm(*args)
        except Exception as error:
            raise BackendError(
                "backend", f"the captured graph raised {type(error).__name__}: {error}"
            ) from error

    return run


def eager_debug(gm: fx.GraphModule, example_inputs: Sequence[Any], **ignored: Any) -> Compiled:
    """Run the captured graph and compare each operation with what its schema promises."""
    from torch._subclasses.schema_check_mode import SchemaCheckMode

    def run(*args: Any) -> Any:
        with SchemaCheckMode():
            return gm(*args)

    return run


def pre_dispatch_eager(
    gm: fx.GraphModule, example_inputs: Sequence[Any], **ignored: Any
) -> Compiled:
    """Trace the captured graph down to ATen operations, above autograd and autocast; run those."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def interpret(*args: Any) -> Any:
        return fx.Interpreter(gm).run(*args)

    flat: Compiled = make_fx(interpret, pre_dispatch=True)(*example_inputs)
    return flat


def torchscript(gm: fx.GraphModule, example_inputs: Sequence[Any], **ignored: Any) -> Compiled:
    """Script the captured graph with TorchScript."""
    scripted: Compiled = torch.jit.script(gm)
    return scripted


# -- backends that fail where the graph has a relu, to try tools on ------------------------------
class ReluCompileError(Exception):
    """What the backend that cannot compile a relu raises."""


class NonLeafCompileError(Exception):
    """What the backend that wants leaves for inputs raises."""


def _relus(gm: fx.GraphModule) -> list[fx.Node]:
    return [node for node in gm.graph.nodes if node.target in (torch.relu, "relu")]


def _with_relus_as(gm: fx.GraphModule, function: Callable[..., Any], *more: Any) -> Compiled:
    for node in _relus(gm):
        node.op, node.target = "call_function", function
        node.args = (*node.args, *more)
    gm.recompile()
    return gm


def relu_compile_error(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Compiled:
    """Refuse a graph with a relu."""
    if _relus(gm):
        raise ReluCompileError
    return gm


def relu_runtime_error(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Compiled:
    """Let a relu raise when it runs."""
    return _with_relus_as(gm, _raise)


def _raise(*args: Any) -> Any:
    raise RuntimeError("a relu, as this backend is made to do")


def relu_accuracy_error(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Compiled:
    """Let a relu give a wrong result."""
    return _with_relus_as(gm, torch.add, 1)


def non_leaf_compile_error(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Compiled:
    """Refuse a graph that computes something from inputs which are no leaves of autograd."""
    computes = any(node.op == "call_function" for node in gm.graph.nodes)
    tensors = [example for example in example_inputs if isinstance(example, torch.Tensor)]
    if computes and not all(tensor.is_leaf for tensor in tensors):
        raise NonLeafCompileError
    return gm


DEBUG_BACKENDS: dict[str, Compiler] = {
    "eager_noexcept": eager_noexcept,
    "eager_debug": eager_debug,
    "pre_dispatch_eager": pre_dispatch_eager,
    "ts": torchscript,
    "relu_compile_error_TESTING_ONLY": relu_compile_error,
    "relu_runtime_error_TESTING_ONLY": relu_runtime_error,
    "relu_accuracy_error_TESTING_ONLY": relu_accuracy_error,
    "non_leaf_compile_error_TESTING_ONLY": non_leaf_compile_error,
}
