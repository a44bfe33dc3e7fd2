"""Activation checkpoints: regions of a captured graph that backward computes again.

The body of `torch.utils.checkpoint.checkpoint` is traced in place, once. Its nodes carry the region
they are in, and the partition computes them again instead of keeping them: all but random draws,
whose results are kept so that both passes see the same, and what a policy asks to keep.
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
"""Key of a node's ``meta``: there if a policy asks to keep its value."""


@dataclass(frozen=True, eq=False)
class Region:
    """One checkpoint call; a region inside another one is part of it.

    Attributes:
        name: of the call's node.
        policy: asked for each op of the region whether its result is kept; None keeps none.
    """

    name: str
    policy: Policy | None = None

    def keeps(self, op: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> bool:
        """Return whether the policy asks to keep an op's result."""
        if self.policy is None or op in SAC_IGNORED_OPS:
            return False
        context = SelectiveCheckpointContext(is_recompute=False, op_output=result)
        answer = self.policy(context, op, *args, **kwargs)
        return answer if isinstance(answer, bool) else answer not in RECOMPUTE


def region_of(name: str, body: fx.GraphModule) -> Region:
    """Return the region of a checkpoint call.

    Raises:
        Fallback: its contexts are something else than a policy.
    """
    contexts = body.meta.get("_checkpoint_context_fn", torch.utils.checkpoint.noop_context_fn)
    if contexts is torch.utils.checkpoint.noop_context_fn:
        return Region(name)
    policy = getattr(contexts()[0], "policy_fn", None)
    if not callable(policy):
        raise Fallback("a checkpoint runs under its own dispatch modes")
    return Region(name, policy)
