"""The lowering table: ATen overload -> function ``(builder, call) -> tensor or tensors``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tc.compiler.core.table import Table
from tc.compiler.loops.index import Index
from tc.compiler.loops.lower.builder import Builder, NotLowered, Tensor
from tc.compiler.loops.lower.sympy_boundary import SizeReader


@dataclass(frozen=True)
class Call:
    """One call of an ATen op: its arguments as lowered values, and its fake result.

    Attributes:
        args: positional arguments filled up with the schema's defaults, keywords included:
            `Tensor`, `Index` for sizes, plain Python values, lists of those.
        fake: the fake result.
        reader: reads its sizes.
    """

    op: Any
    args: dict[str, Any]
    fake: Any
    reader: SizeReader

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument the overload may not have."""
        return self.args.get(name, default)

    @property
    def dtype(self) -> torch.dtype:
        """Type of the (first) result."""
        fake = self.fake[0] if isinstance(self.fake, tuple | list) else self.fake
        dtype: torch.dtype = fake.dtype
        return dtype

    @property
    def sizes(self) -> tuple[Index, ...]:
        """Sizes of the (first) result."""
        return self.reader.sizes(self.fake[0] if isinstance(self.fake, tuple | list) else self.fake)


Lowering = Callable[[Builder, Call], Any]
LOWERINGS: Table[Any, Lowering] = Table("lowerings")
VIEWS: Table[Any, bool] = Table("view ops")
#: ops that write at computed positions; their results are in memory, like those of calls
SCATTERS: Table[Any, Lowering] = Table("scatters")
#: ops that are lowered only if an earlier stage set this key of the node's ``meta``
CHOSEN = "tc_lowered"
#: key of the ``meta`` of a node: tc's routine that the wrapper calls instead of its op
ROUTINE = "tc_routine"
BY_CHOICE = (torch.ops.aten.mm.default,)


def overload(name: str) -> Any | None:
    """``add.Tensor`` -> ``torch.ops.aten.add.Tensor``; None if this torch has no such op.

    Other namespaces stand before the name: ``prims::copy_strided``.
    """
    space, _, name = name.rpartition("::")
    op, _, which = name.partition(".")
    packet = getattr(getattr(torch.ops, space or "aten"), op, None)
    found = getattr(packet, which or "default", None)
    if found is None or not any("Tensor" in str(r.type) for r in found._schema.returns):
        return None
    return found


def made_of_loops(node: fx.Node) -> bool:
    """Return whether a call is lowered, judging by its op alone."""
    chosen = node.target not in BY_CHOICE or bool(node.meta.get(CHOSEN))
    return node.target in LOWERINGS and chosen


def readers(node: fx.Node) -> list[fx.Node]:
    """Return all readers of a result, directly or through views."""
    found: list[fx.Node] = []
    for user in node.users:
        found += readers(user) if user.target in VIEWS else [user]
    return found


def lowering(
    *names: str, view: bool = False, table: Table[Any, Lowering] = LOWERINGS
) -> Callable[[Lowering], Lowering]:
    """Register a lowering for ATen overloads; ``view`` if the result aliases the argument."""

    def register(function: Lowering) -> Lowering:
        for name in names:
            op = overload(name)
            if op is not None:
                table.add(op, function)
                if view:
                    VIEWS.add(op, True)
        return function

    return register


def tensor(value: Any) -> Tensor:
    """Return the value, which must be a tensor that loops can read."""
    if not isinstance(value, Tensor):
        raise NotLowered(f"expected a tensor, got {type(value).__name__}")
    return value


def number(value: Any) -> int:
    """Return the value, which must be a constant int."""
    if isinstance(value, Index):
        value = value.constant
    if not isinstance(value, int):
        raise NotLowered("an argument that must be constant is symbolic")
    return value


def dimension(value: Any, rank: int) -> int:
    """Return a dimension number counted from the front."""
    dim = number(value)
    return dim + max(rank, 1) if dim < 0 else dim
