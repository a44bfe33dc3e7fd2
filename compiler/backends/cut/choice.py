"""Where a captured graph is cut: the first of the reasons to cut one that holds.

In: a captured graph. Out: its parts, for `parts.compile_parts`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from tc.compiler.backends.cut.buckets import at_buckets, bucket_limits
from tc.compiler.backends.cut.mutable_operators import at_mutable_operators
from tc.compiler.backends.cut.parts import Part
from tc.compiler.backends.cut.regions import at_regions


def parts_for(
    gm: fx.GraphModule, inputs: Callable[[], list[Any]], freezing: bool
) -> tuple[Part, ...]:
    """Return a graph as parts in order; empty if it is compiled whole.

    Args:
        inputs: makes the real inputs, which DDP's buckets ask for.
        freezing: parameters become constants of one graph.
    """
    limits = bucket_limits()
    parts = at_buckets(gm, inputs(), limits) if limits else ()
    if parts or freezing:
        return parts
    return at_regions(gm) or at_mutable_operators(gm)
