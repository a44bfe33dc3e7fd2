"""Where a node of a graph comes from: the user's line, found in the stack that capture noted."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from tc.trace import StackFrame

#: key of a node's `meta`: the name of the node that it was put in the place of
STANDS_FOR = "tc_stands_for"
#: key of a node's `meta`: it takes part in a check of what sizes rest on, and has no fake value
OF_CHECK = "tc_of_check"
LIBRARY = str(Path(torch.__file__).parent) + os.sep


def place_of(node: fx.Node) -> StackFrame | None:
    """Return the innermost place of a node's stack that is not in torch itself, None if unknown.

    Where all of the stack is in torch, its innermost.
    """
    return _place_in(node.meta)


def _place_in(meta: Mapping[str, Any]) -> StackFrame | None:
    places: Sequence[StackFrame] = meta.get("tc_origin") or ()
    for place in reversed(places):
        if not place.file.startswith(LIBRARY):
            return place
    return places[-1] if places else None


def line_of(node: fx.Node) -> str:
    """Return ``file:line`` of a node's place; empty if unknown."""
    return line_in(node.meta)


def line_in(meta: Mapping[str, Any]) -> str:
    """Return ``file:line`` of the place in metadata of a node; empty if unknown."""
    place = _place_in(meta)
    return f"{place.file}:{place.line}" if place is not None else ""
