"""Optimizers of ``torch.optim``: the wrapper of their steps, and the creation of their state."""

from __future__ import annotations

import contextlib
import types
from typing import Any

import torch

from tc.compiler.core.ahead import is_ahead

MODULE = "torch.optim."
#: torch's wrapper of a step, which breaks the graph around the update; that is captured
AROUND_STEPS = (
    "Optimizer.profile_hook_step.<locals>.wrapper",
    "_use_grad_for_differentiable.<locals>._use_grad",
)

#: optimizers that ask for numbers out of tensors at every turn; the closures that they call are
#: captured on their own
IN_PYTHON = ("torch.optim.lbfgs",)


def is_around_step(code: types.CodeType, module: str) -> bool:
    """Return whether code is that of torch's wrapper around the step of each optimizer."""
    return module == "torch.optim.optimizer" and code.co_qualname in AROUND_STEPS


def _is_of_optimizers(function: Any) -> bool:
    """Return whether torch's optimizers define a function; one may have no module (``exec``)."""
    return str(function.__module__).startswith(MODULE)


def unpatched(function: Any) -> Any:
    """Return a part of a step without the mark that torch.compile, where it runs, puts on it.

    Other functions are returned unchanged.
    """
    original = getattr(function, "_torchdynamo_orig_callable", None)
    part = getattr(original, "__name__", "step") != "step"
    return original if part and _is_of_optimizers(original) else function


def make_state(code: types.CodeType, module: str, values: dict[str, Any]) -> None:
    """Initialise the state of an optimizer before its step is captured, if the code is a step.

    The step would do the same first. Capture then finds parameters that have their state, as in all
    later steps, so that the first graph serves those as well.

    Args:
        values: the locals with which the code is about to run.
    """
    optimizer = values.get("self")
    if code.co_name != "step" or not module.startswith(MODULE) or is_ahead():
        return
    initialise = unpatched(getattr(type(optimizer), "_init_group", None))
    if not isinstance(optimizer, torch.optim.Optimizer) or not (
        isinstance(initialise, types.FunctionType) and _is_of_optimizers(initialise)
    ):
        return
    # its output lists: parameters, gradients, states
    lists = initialise.__code__.co_argcount - 2
    # the step will raise the same error
    with contextlib.suppress(Exception), torch.no_grad():
        for group in optimizer.param_groups:
            initialise(optimizer, group, *([] for _ in range(lists)))
