"""Activation checkpoints: regions of a captured graph that backward recomputes.

The body of `torch.utils.checkpoint.checkpoint` is traced in place, once. Its nodes carry their
region, and the partition recomputes them instead of saving them. Exceptions are random draws, whose
results are saved so that both passes see the same, and values that a policy saves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.checkpoint
from torch import fx
from torch._higher_order_ops import wrap
from torch.utils.checkpoint import (
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    SelectiveCheckpointContext,
)

from tc.compiler.aot.artifact import Fallback

Policy = Callable[..., Any]

CHECKPOINTS = (torch.utils.checkpoint.checkpoint, wrap.tag_activation_checkpoint)
RECOMPUTE = (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)

REGION = "tc_region"
"""Key of a node's ``meta``: the `Region` it is in."""
KEEP = "tc_keep"
"""Key of a node's ``meta``: present if a policy asks to save its value."""


@dataclass(frozen=True, eq=False)
class Region:
    """One checkpoint call; a region inside another one is part of it.

    Attributes:
        name: the name of the call's node.
        policy: decides for each op of the region whether its result is saved; None saves none.
    """

    name: str
    policy: Policy | None = None

    def keeps(self, op: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> bool:
        """Return whether the policy saves an op's result."""
        if self.policy is None or op in SAC_IGNORED_OPS:
            return False
        context = SelectiveCheckpointContext(is_recompute=False, op_output=result)
        answer = self.policy(context, op, *args, **kwargs)
        return answer if isinstance(answer, bool) else answer not in RECOMPUTE


def region_of(name: str, body: fx.GraphModule) -> Region:
    """Return the region of a checkpoint call.

    Raises:
        Fallback: its contexts are no policy.
    """
    contexts = body.meta.get("_checkpoint_context_fn", torch.utils.checkpoint.noop_context_fn)
    if contexts is torch.utils.checkpoint.noop_context_fn:
        return Region(name)
    policy = getattr(contexts()[0], "policy_fn", None)
    if not callable(policy):
        raise Fallback("a checkpoint runs under its own dispatch modes")
    return Region(name, policy)
