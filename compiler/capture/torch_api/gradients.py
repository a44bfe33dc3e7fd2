"""Calls that ask autograd for gradients: each breaks the graph, and autograd's own engine runs it.

Gradients of a compiled graph reach its inputs. One with respect to a tensor that the graph made
itself is known to eager autograd only, which then runs the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch._functorch import eager_transforms

from tc.compiler.capture import breaks
from tc.compiler.capture.torch_api.subgraphs import leaves
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.handlers import handles
from tc.compiler.capture.values.tensor import METHODS, TensorValue

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

#: mark on graphs that make a tensor which gradients are asked of
DIFFERENTIATED = "tc_differentiated"


def _break(
    t: Interpreter, reason: breaks.Reason, detail: str, args: Args, kwargs: Kwargs
) -> Value:
    """Break the graph, and mark it if a gradient is asked of a tensor that it makes.

    Args:
        args: arguments of the call behind the one that is differentiated.
    """
    cause = breaks.GraphBreak(reason, detail)
    given = [*args, *kwargs.values()]
    asked = [leaf for arg in given for leaf in leaves(t, arg)]
    if any(
        isinstance(one, TensorValue)
        and one.source is None
        and one.example.requires_grad
        for one in asked
    ):
        cause.mark = DIFFERENTIATED
    raise cause


@handles(torch.autograd.grad)
def _grad(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    if t.top is not None and t.top.code is eager_transforms._autograd_grad.__code__:
        return t.output.call_torch(torch.autograd.grad, args, kwargs)
    others = {name: value for name, value in kwargs.items() if name != "outputs"}
    return _break(t, breaks.UNSUPPORTED_CALL, "torch.autograd.grad", args[1:], others)


@handles(torch.autograd.backward)
def _backward(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    others = {name: value for name, value in kwargs.items() if name != "tensors"}
    return _break(t, breaks.BACKWARD, "", args[1:], others)


def _tensor_backward(
    t: Interpreter, tensor: TensorValue, args: Args, kwargs: Kwargs
) -> Value:
    return _break(t, breaks.BACKWARD, "", args, kwargs)


METHODS["backward"] = _tensor_backward
