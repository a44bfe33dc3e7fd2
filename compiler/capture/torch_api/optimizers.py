"""Optimizers of ``torch.optim``: what is around their steps; their state, made before capture."""

from __future__ import annotations

import contextlib
import types
from typing import Any

import torch

MODULE = "torch.optim."
#: what torch wraps a step in: it asks for breaks around the update, which is captured
AROUND_STEPS = (
    "Optimizer.profile_hook_step.<locals>.wrapper",
    "_use_grad_for_differentiable.<locals>._use_grad",
)


def is_around_step(code: types.CodeType, module: str) -> bool:
    """Return whether code is what torch wraps the step of each optimizer in."""
    return module == "torch.optim.optimizer" and code.co_qualname in AROUND_STEPS


def unpatched(function: Any) -> Any:
    """Return a part of a step as it is before torch.compile, where it runs, marks it as disabled.

    Other functions are returned as they are.
    """
    original = getattr(function, "_torchdynamo_orig_callable", None)
    part = getattr(original, "__name__", "step") != "step"
    return original if part and original.__module__.startswith(MODULE) else function


def make_state(code: types.CodeType, module: str, values: dict[str, Any]) -> None:
    """Have an optimizer make the state that its step would make first, if the code is a step.

    The step would do the same before anything else; capture then sees parameters that have their
    state already, as in all later steps, and the first graph serves those as well.

    Args:
        values: the locals with which the code is about to run.
    """
    optimizer = values.get("self")
    if code.co_name != "step" or not module.startswith(MODULE):
        return
    initialise = unpatched(getattr(type(optimizer), "_init_group", None))
    if not isinstance(optimizer, torch.optim.Optimizer) or not (
        isinstance(initialise, types.FunctionType) and initialise.__module__.startswith(MODULE)
    ):
        return
    lists = initialise.__code__.co_argcount - 2  # it fills those: parameters, gradients, states
    with contextlib.suppress(Exception), torch.no_grad():  # what it raises, the step will raise
        for group in optimizer.param_groups:
            initialise(optimizer, group, *([] for _ in range(lists)))
