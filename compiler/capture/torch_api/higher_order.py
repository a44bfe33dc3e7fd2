"""Traces higher-order operations: their functions become captured bodies of a node."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint
from torch._higher_order_ops import wrap as wraps
from torch._higher_order_ops.cond import cond_op
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.out_dtype import out_dtype, out_dtype_dense
from torch._higher_order_ops.strict_mode import strict_mode_op
from torch.utils._python_dispatch import TorchDispatchMode

from tc.compiler.capture import breaks
from tc.compiler.capture.torch_api.subgraphs import (
    Body,
    capture_body,
    leaves,
    results,
    same_operands,
)
from tc.compiler.capture.traceable import checkpoint_without_gradients
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import SequenceValue
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.handlers import handles
from tc.compiler.capture.values.partials import PartialValue
from tc.compiler.capture.values.tensor import NodeValue, TensorValue
from tc.compiler.errors import UncapturedHigherOrderOpError

if TYPE_CHECKING:
    from torch import fx

    from tc.compiler.capture.values.interfaces import Interpreter


#: breaks inside a branch that are errors of the program: eager torch.cond rejects them as well
_FAULTS = (breaks.BODY_EFFECT, breaks.LEAKED_BODY)


def call(
    t: Interpreter,
    target: Any,
    args: tuple[Any, ...],
    kwargs: Any,
    body: Body,
    examples: list[Any] | None = None,
) -> Value:
    """Record a call of an operation; return its body's result as values of the outer graph.

    Args:
        examples: fakes of the operation's results, if they differ from those of its body.
    """
    node = t.output.graph.call_function(target, args, kwargs)
    t.output.annotate(node, tuple(examples) if examples is not None else None)
    t.output.calls += 1
    return results(t, node, body.result, examples)


def read(t: Interpreter, name: str, body: Body) -> fx.Node:
    """Make a body an attribute of the enclosing graph; return the node that reads it."""
    t.output.counts_writes = False
    return t.output.scopes[-1].add_body(name, body.scope.module())


def reject(name: str, why: str) -> UncapturedHigherOrderOpError:
    """Return the error for an operation whose bodies are invalid."""
    return UncapturedHigherOrderOpError(f"{name} cannot be captured: {why}")


@handles(wraps.wrap)
def _wrap(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    body = capture_body(t, ("wrap", wraps.wrap), args[0], args[1:], kwargs)
    operands = (read(t, "wrap_body", body), *body.lifted)
    return call(t, wraps.wrap, operands, {}, body)


@handles(hints_wrapper)
def _hints_wrapper(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    names = ("body_fn", "args", "kwargs", "hints")
    given = dict(zip(names, args, strict=False)) | kwargs
    if set(given) != set(names):
        t.python.raise_(TypeError, f"hints_wrapper takes {names}, not {tuple(given)}")
    named, hints = given["kwargs"], given["hints"]
    if (
        not isinstance(named, DictValue)
        or named.keys(t)
        or not isinstance(hints, DictValue)
    ):
        t.python.raise_(
            RuntimeError,
            "hints_wrapper: kwargs must be an empty dict, and hints a dict",
        )
    plain: dict[str, Any] = {}
    for name, value in zip(hints.keys(t), hints.values(t), strict=True):
        if not isinstance(value, ConstValue) or not isinstance(
            value.obj, int | float | str
        ):
            t.python.raise_(
                RuntimeError,
                "hints_wrapper: each hint must be an int, float, bool or str",
            )
        plain[t.python.concrete(name)] = value.obj
    operation = ("hints_wrapper", hints_wrapper)
    body = capture_body(t, operation, given["body_fn"], given["args"].unpack(t))
    function = read(t, "hints_wrapper_body", body)
    no_names: dict[str, Any] = {}
    operands = (function, tuple(body.lifted), no_names)
    return call(t, hints_wrapper, operands, {"hints": plain}, body)


@handles(strict_mode_op)
def _strict_mode(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Trace the function: eager calls it on its operands, too."""
    given = dict(zip(("callable", "operands"), args, strict=False)) | kwargs
    return given["callable"].call(t, given["operands"].unpack(t), {})


@handles(out_dtype)
def _out_dtype(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Trace what eager runs: an operation on operands that are converted to its dtype."""
    return t.inline_object(out_dtype_dense, args, kwargs)


# -- checkpoint ------------------------------------------------------------------------------
@handles(torch.utils.checkpoint.checkpoint)
def _checkpoint(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    own = (
        "use_reentrant",
        "preserve_rng_state",
        "determinism_check",
        "debug",
        "early_stop",
    )
    settings = {name: value for name, value in kwargs.items() if name in own}
    given = {k: v for k, v in kwargs.items() if k not in (*own, "context_fn")}
    plain: dict[str, Any] = t.python.concrete_dict(settings)
    if plain.get("use_reentrant") is None:
        plain["use_reentrant"] = True
    if plain["use_reentrant"] and given:  # eager refuses them
        raise breaks.GraphBreak(
            breaks.UNSUPPORTED_CALL, "a reentrant checkpoint with keywords"
        )
    if plain["use_reentrant"] and not any(map(_has_gradient, args[1:])):
        return t.inline_object(checkpoint_without_gradients, args)
    target: Any = torch.utils.checkpoint.checkpoint
    body = capture_body(t, ("checkpoint", target), args[0], args[1:], given)
    module = body.scope.module()
    contexts = kwargs.get("context_fn", ConstValue(None))
    # a separate operation, which torch's partitioner knows too
    if not t.python.is_none(contexts):
        target = wraps.tag_activation_checkpoint
        module.meta["_checkpoint_context_fn"] = _contexts(t, contexts)
    t.output.counts_writes = False
    function = t.output.scopes[-1].add_body("wrap_body", module)
    return call(t, target, (function, *body.lifted), plain, body)


def _has_gradient(argument: Value) -> bool:
    return isinstance(argument, TensorValue) and bool(argument.example.requires_grad)


def _contexts(t: Interpreter, function: Value) -> Callable[[], Any]:
    """Return the real ``context_fn`` of a checkpoint, which graphs call."""
    real = _real(t, function)
    if real is not torch.utils.checkpoint.noop_context_fn:
        made = t.python.run_now(real)
        modes = isinstance(made, tuple) and len(made) == 2
        if not modes or not all(isinstance(mode, TorchDispatchMode) for mode in made):
            text = "`context_fn` must generate a tuple of two `TorchDispatchMode`s"
            raise reject("checkpoint", f"under compilation, {text}")
    return real  # type: ignore[no-any-return]


def _real(t: Interpreter, function: Value) -> Any:
    """Return a function that existed before the frame, and guard its identity."""
    if isinstance(function, PartialValue):
        args = [t.python.real_object(arg) for arg in function.arguments.values(t)]
        named = {
            name: t.python.real_object(arg) for name, arg in function.named(t).items()
        }
        return functools.partial(_real(t, function.function), *args, **named)
    obj = function.obj
    if not callable(obj):
        function.cannot(
            breaks.UNSUPPORTED_CALL, f"checkpoint with {function.describe()}"
        )
    if function.source is not None:
        t.guards.add("ID", function.source, obj)
    return obj


# -- cond ------------------------------------------------------------------------------------
@handles(torch.cond, cond_op)
def _cond(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    names = ("pred", "true_fn", "false_fn", "operands")
    given = dict(zip(names, args, strict=False)) | kwargs
    if set(given) - set(names) or not set(names[:3]) <= set(given):
        raise reject(
            "torch.cond", f"it takes {', '.join(names)}, not {', '.join(given)}"
        )
    operands = _operands(t, given["operands"]) if "operands" in given else []
    condition = given["pred"]
    if not isinstance(condition, NodeValue):
        chosen = given["true_fn"] if condition.truth(t) else given["false_fn"]
        return chosen.call(t, operands, {})
    if isinstance(condition, TensorValue) and condition.example.numel() != 1:
        t.python.raise_(
            RuntimeError, "torch.cond: the condition has more than one element"
        )
    try:
        bodies = [
            capture_body(t, ("cond", cond_op), given[name], operands)
            for name in ("true_fn", "false_fn")
        ]
    except breaks.GraphBreak as cause:
        if cause.reason in _FAULTS:
            raise reject("torch.cond", cause.title) from cause
        raise
    _agree(bodies)
    lifted = same_operands(bodies)
    true = read(t, "cond_true", bodies[0])
    false = read(t, "cond_false", bodies[1])
    passed = (condition.node(t), true, false, tuple(lifted))
    return call(t, cond_op, passed, {}, bodies[0])


def _operands(t: Interpreter, value: Value) -> list[Value]:
    """Return the operands of a cond: nests of lists, tuples and dicts of tensors."""
    if not isinstance(value, SequenceValue):
        raise reject("torch.cond", "operands must be a list or tuple")
    operands = value.values(t)
    for leaf in leaves(t, value):
        if not isinstance(leaf, NodeValue):
            raise reject("torch.cond", f"an operand is {leaf.describe()}, not a tensor")
    return operands


def _agree(bodies: list[Body]) -> None:
    """Refuse branches that do not return tensors of the same shapes and dtypes."""
    shapes = []
    for body in bodies:
        (output,) = (node for node in body.scope.graph.nodes if node.op == "output")
        examples = [node.meta.get("example_value") for node in output.args[0]]
        tensors = [example for example in examples if isinstance(example, torch.Tensor)]
        shapes.append([(tensor.shape, tensor.dtype) for tensor in tensors])
    if shapes[0] != shapes[1]:
        raise reject("torch.cond", f"its branches return {shapes[0]} and {shapes[1]}")
