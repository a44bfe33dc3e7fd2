"""Higher-order operations: calls that take functions become nodes that take captured bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint
from torch._higher_order_ops import wrap as wraps
from torch._higher_order_ops.cond import cond_op

from tc.compiler.capture import breaks
from tc.compiler.capture.subgraphs import Body, capture_body, results, same_operands
from tc.compiler.capture.torchfns import Handler, handles
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.tensor import NodeValue, TensorValue

if TYPE_CHECKING:
    from tc.compiler.capture.tracer import Tracer


def _call(t: Tracer, target: Any, args: tuple[Any, ...], kwargs: Any, body: Body) -> Value:
    node = t.graph.call_function(target, args, kwargs)
    t.annotate(node, None)
    t.calls += 1
    return results(t, node, body.result)


def _wrapped(target: Any, name: str) -> Handler:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        body = capture_body(t, name, args[0], args[1:], kwargs)
        read = t.scopes[-1].add_body(f"{name}_body", body.scope.module())
        return _call(t, target, (read, *body.lifted), {}, body)

    return handler


handles(wraps.wrap)(_wrapped(wraps.wrap, "wrap"))


@handles(torch.utils.checkpoint.checkpoint)
def _checkpoint(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    own = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop")
    if not t.is_none(kwargs.get("context_fn", ConstValue(None))):
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, "checkpoint with a context_fn")
    plain = {name: t.concrete(value) for name, value in kwargs.items() if name in own}
    given = {name: value for name, value in kwargs.items() if name not in own}
    plain.setdefault("use_reentrant", True)
    if plain["use_reentrant"] is None:
        plain["use_reentrant"] = True
    body = capture_body(t, "checkpoint", args[0], args[1:], given)
    read = t.scopes[-1].add_body("wrap_body", body.scope.module())
    return _call(t, torch.utils.checkpoint.checkpoint, (read, *body.lifted), plain, body)


@handles(torch.cond, cond_op)
def _cond(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    names = ("pred", "true_fn", "false_fn", "operands")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    operands = given["operands"].unpack(t) if "operands" in given else []
    condition = given["pred"]
    if not isinstance(condition, NodeValue):
        chosen = given["true_fn"] if condition.truth(t) else given["false_fn"]
        return chosen.call(t, operands, {})
    if isinstance(condition, TensorValue) and condition.example.numel() != 1:
        t.raise_(RuntimeError, "torch.cond: the condition has more than one element")
    bodies = [capture_body(t, "cond", given[name], operands) for name in ("true_fn", "false_fn")]
    _agree(bodies)
    lifted = same_operands(bodies)
    scope = t.scopes[-1]
    true, false = (
        scope.add_body(name, body.scope.module())
        for name, body in zip(("cond_true", "cond_false"), bodies, strict=True)
    )
    return _call(t, cond_op, (condition.node(t), true, false, tuple(lifted)), {}, bodies[0])


def _agree(bodies: list[Body]) -> None:
    """Break unless both branches return tensors of the same shapes and dtypes."""
    shapes = []
    for body in bodies:
        (output,) = (node for node in body.scope.graph.nodes if node.op == "output")
        examples = [node.meta.get("example_value") for node in output.args[0]]
        shapes.append([(e.shape, e.dtype) for e in examples if isinstance(e, torch.Tensor)])
    if shapes[0] != shapes[1]:
        raise breaks.GraphBreak(
            breaks.UNSUPPORTED_CALL, f"torch.cond whose branches differ: {shapes[0]}, {shapes[1]}"
        )
