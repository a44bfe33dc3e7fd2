"""Symbolic numbers of torch: sizes, and what is computed from them, that a graph keeps open."""

from __future__ import annotations

from typing import Any

import torch

Symbolic = torch.SymInt | torch.SymFloat | torch.SymBool
#: their classes, for `isinstance`
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def hint(number: Any) -> Any:
    """Return the value at hand of a number; None for a symbol whose value depends on data."""
    return number.node.hint if isinstance(number, SYMBOLIC) else number
