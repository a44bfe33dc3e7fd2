"""Ranks of a job that is running are compared, so that a divergence is an error and no hang."""

from __future__ import annotations

import sys


def follow_setting(limit: float) -> None:
    """Guard the ranks of the job if ``config.rank_check`` asks for it; see `guard.guard_ranks`."""
    if limit or "tc.compiler.ranks.guard" in sys.modules:
        from tc.compiler.ranks.guard import guard_ranks  # most processes have no ranks

        guard_ranks(limit)
