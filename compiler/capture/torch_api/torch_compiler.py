"""Names of torch.compiler, and of what is behind them, that mean something else in traced code."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._higher_order_ops import _invoke_quant, foreach_map
from torch._higher_order_ops import print as printing
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph_placeholder

from tc.compiler.capture import breaks
from tc.compiler.capture.traceable import (
    ErrorOnGraphBreak,
    WithoutEffect,
    error_on_graph_break,
    numpy_function,
    over_rows,
)
from tc.compiler.capture.values.base import Args, Kwargs, LambdaValue, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.deferred_calls import DeferredCall
from tc.compiler.capture.values.functions import FunctionValue
from tc.compiler.capture.values.handlers import BY_NAME, handles

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter
    from tc.compiler.core.sources import Source

#: attribute by which functions of `torch.compile` hold what they were made of
COMPILED_FROM = "_torchdynamo_orig_callable"


def is_compiled_by_torch(obj: Any) -> bool:
    """Return whether `torch.compile` made a function, which `torch.compiler.disable` did not.

    `functools.wraps` copies the attributes of such a function to others: their ids differ.
    """
    if not isinstance(obj, types.FunctionType):
        return False
    marks = vars(obj)
    made = marks.get("_torchdynamo_wrapper_id") == id(obj)
    return made and not marks.get("_torchdynamo_disable", False)


def arrays_function(obj: Any) -> Any:
    """Return `tc.wrap_numpy`'s form of what `torch.compiler.wrap_numpy` made, or None.

    That of torch calls ``numpy()``, which eager refuses for tensors that require gradients.
    """
    if not isinstance(obj, types.FunctionType):
        return None
    code = obj.__code__
    module = obj.__globals__.get("__name__")
    if (
        module != "torch._dynamo.external_utils"
        or code.co_qualname != "wrap_numpy.<locals>.wrap"
    ):
        return None
    closure = dict(zip(code.co_freevars, obj.__closure__ or (), strict=True))
    return numpy_function(closure["f"].cell_contents)


@handles(invoke_subgraph_placeholder, _invoke_quant.invoke_quant_packed)
def _region(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Trace a region that torch keeps apart as any other call, and mark its operations."""
    settings = ("scheme", "quant_options")
    given = dict(kwargs)
    for name in settings:
        given.pop(name, None)
    with t.output.region_call(args[0].describe()):
        return args[0].call(t, args[1:], given)


@handles(foreach_map)
def _foreach_map(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return t.inline_object(over_rows, args, kwargs)


@handles(printing)
def _print(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Print after the graph what does not depend on it."""
    if not all(value.is_constant() for value in (*args, *kwargs.values())):
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, "torch.ops.higher_order.print")
    t.effects.demand(DeferredCall(printing, args, kwargs))
    return ConstValue(None)


@handles(torch.compile)
def _compile(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Return the function: compiled code that compiles it would only trace it again."""
    model = args[0] if args else kwargs.get("model")
    if model is None or t.python.is_none(model):
        return LambdaValue(lambda t, args, kwargs: args[0], "torch.compile()")
    return model


BY_NAME.add("tc.compiler.api.compile", _compile)


def _call_module(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Call what `torch.compile` made of a module: its hooks, and its ``forward``."""
    return t.inline_object(torch.nn.Module.__call__, args, kwargs)


BY_NAME.add("torch._dynamo.eval_frame.OptimizedModule.__call__", _call_module)


def _error_on_graph_break(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Make tc's context manager in the place of that of torch."""
    named = {
        "on" if name == "error_on_graph_break" else name: v
        for name, v in kwargs.items()
    }
    return t.inline_object(error_on_graph_break, args, named)


BY_NAME.add("torch._dynamo.decorators.error_on_graph_break", _error_on_graph_break)


def _without_effect(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Make a context manager that does nothing; or return the function to be decorated."""
    function = args[0] if len(args) == 1 and not kwargs else None
    if isinstance(function, FunctionValue):
        return function
    return t.values.known(WithoutEffect())


#: they change how Dynamo traces, or how Inductor replays CUDA graphs: no result depends on it
for _name in (
    "patch_dynamo_config",
    "dont_skip_tracing",
    "disable_nested_graph_breaks",
    "override_cudagraphs",
):
    BY_NAME.add(f"torch._dynamo.decorators.{_name}", _without_effect)
BY_NAME.add(
    "torch._dynamo.decorators.override_optimization_hint",
    lambda t, args, kwargs: ConstValue(None),
)

#: classes of context managers of `torch._dynamo.decorators` -> one of tc for one of these
_CONTEXTS: dict[str, Callable[[Any], Any]] = {
    "ErrorOnGraphBreakDecoratorContextManager": lambda obj: ErrorOnGraphBreak(
        obj.error_on_graph_break
    ),
    "DynamoConfigPatchProxy": lambda obj: WithoutEffect(),
    "CudagraphOverrideContextManager": lambda obj: WithoutEffect(),
}


def is_context(obj: Any) -> bool:
    """Return whether an object is a context manager of `torch._dynamo.decorators`."""
    kind = type(obj)
    return kind.__name__ in _CONTEXTS and kind.__module__ == "torch._dynamo.decorators"


def wrap_context(t: Interpreter, obj: Any, source: Source) -> Value:
    """Return tc's context manager for one of torch that existed before the frame."""
    t.guards.add("ID", source, obj)
    return t.values.known(_CONTEXTS[type(obj).__name__](obj))
