"""torch.func transforms: vmap, grad, jvp … are traced as PyTorch's own Python code.

That code pushes a level, wraps tensors for it, runs the function on the wrapped tensors and pops
the level. Each of these calls is a node of the graph, and the level is active while the function is
traced over fake tensors.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _functorch
from torch._functorch import eager_transforms, predispatch
from torch.autograd import forward_ad

from tc.compiler.capture import breaks
from tc.compiler.capture.guards.facts import PROCESS
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.handlers import BY_NAME, Handler, handles, recorded
from tc.compiler.capture.values.tensor import TensorValue
from tc.compiler.core import levels

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

#: mark on graphs that push levels, which an exception at run time has to pop
LEVELLED = "tc_levelled"
_autograd = torch._C._autograd


def _among(homes: tuple[Any, ...], *names: str) -> list[Any]:
    """Return the functions of these names that the installed torch has, in any of the modules."""
    return [
        getattr(home, name) for home in homes for name in names if hasattr(home, name)
    ]


_LOW = (predispatch, _functorch, torch._C)
#: calls that wrap and unwrap tensors for a level
WRAPPING = _among(
    (*_LOW, eager_transforms),
    "_add_batch_dim",
    "_remove_batch_dim",
    "_wrap_for_grad",
    "_unwrap_for_grad",
    "_make_dual",
    "_unpack_dual",
    "get_unwrapped",
    "_set_tensor_requires_grad",
)
#: calls that push or pop a level, or set a mode that the code under it runs in
SETTING = _among(
    (*_LOW, _autograd),
    "_vmap_increment_nesting",
    "_vmap_decrement_nesting",
    "_jvp_increment_nesting",
    "_jvp_decrement_nesting",
    "_grad_increment_nesting",
    "_grad_decrement_nesting",
    "_enter_dual_level",
    "_exit_dual_level",
    "set_inplace_requires_grad_allowed",
    "_set_fwd_grad_enabled",
    "_saved_tensors_hooks_disable",
    "_saved_tensors_hooks_enable",
)
_DUAL_LEVELS = {"_enter_dual_level": 1, "_exit_dual_level": -1}
#: queries of modes, which those calls change
ASKING_MODES = _among(
    (_functorch, _autograd),
    "get_inplace_requires_grad_allowed",
    "maybe_current_level",
    "current_level",
    "_saved_tensors_hooks_get_disabled_error_message",
    "_saved_tensors_hooks_is_enabled",
)
#: queries of a tensor, evaluated on its example
ASKING_TENSORS = _among(
    (_functorch,),
    "is_batchedtensor",
    "is_gradtrackingtensor",
    "is_functorch_wrapped_tensor",
    "is_functionaltensor",
    "is_legacy_batchedtensor",
    "is_dead_tensor_wrapper",
    "maybe_get_level",
    "maybe_get_bdim",
)
#: calls that only prepare torch itself, so that running them while tracing is enough
PREPARING = _among(
    (predispatch, forward_ad), "lazy_load_decompositions", "_maybe_load_decompositions"
)


def _set(function: Any) -> Handler:
    def handler(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        if LEVELLED not in t.output.marks:
            t.output.marks.add(LEVELLED)
            t.guards.recorded.add(
                "TRANSFORMS", PROCESS, None
            )  # levels are numbered from those at entry
        result = t.output.call_state(function, args, kwargs)
        levels.count_dual_level(_DUAL_LEVELS.get(function.__name__, 0))
        return result

    return handler


def _ask_mode(function: Any) -> Handler:
    return lambda t, args, kwargs: t.values.known(function())


def _ask_tensor(function: Any) -> Handler:
    def handler(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        if not isinstance(args[0], TensorValue):
            args[0].cannot(breaks.UNSUPPORTED_CALL, f"{function.__name__} of no tensor")
        return t.values.known(function(args[0].example))

    return handler


for _functions, _make in (
    (WRAPPING, recorded),
    (SETTING, _set),
    (ASKING_MODES, _ask_mode),
    (ASKING_TENSORS, _ask_tensor),
    (PREPARING, _ask_mode),
):
    for _function in _functions:
        handles(_function)(_make(_function))


BY_NAME.add(
    "torch._dynamo.compiled_autograd._disable",
    lambda t, args, kwargs: t.inline_object(contextlib.nullcontext, []),
)
