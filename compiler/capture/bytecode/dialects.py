"""What differs between the bytecode of Python versions: one row a version."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from tc.compiler.core.table import Table

Version = tuple[int, int]
RUNNING: Version = (sys.version_info[0], sys.version_info[1])


@dataclass(frozen=True)
class Dialect:
    """The bytecode conventions of one Python version."""

    directions: Mapping[str, tuple[str, str | None]]
    """Jump that has a direction -> its forward and its backward opcode (None: there is none)."""

    name_flags: Mapping[str, int]
    """Opcodes whose argument keeps this many flag bits below the index of the name."""

    compare_shift: int
    """Bits below the number of the comparison in COMPARE_OP's argument."""

    compare_to_bool: int = 0
    """The bit of COMPARE_OP's argument that asks for its result as a bool."""

    compare_masks: Mapping[str, int] = field(default_factory=dict)
    """The hint bits that COMPARE_OP carries for the specialising interpreter."""

    fused: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Opcode that does two fast-local operations at once -> the two."""

    closure_is_fast: bool = False
    """LOAD_FAST of a cell's slot is how LOAD_CLOSURE is spelled."""

    merges_locations: bool = True
    """Neighbours with one position share location entries."""

    generator_entry_depth: int = 0
    """Depth at which `dis.stack_effect` counts a generator's first instruction."""


_CONDITIONS = ("TRUE", "FALSE", "NONE", "NOT_NONE")

PLAIN_JUMPS: dict[str, tuple[str, str | None]] = {
    "JUMP": ("JUMP_FORWARD", "JUMP_BACKWARD"),
    "JUMP_FORWARD": ("JUMP_FORWARD", "JUMP_BACKWARD"),
    "JUMP_BACKWARD": ("JUMP_FORWARD", "JUMP_BACKWARD"),
    "JUMP_BACKWARD_NO_INTERRUPT": ("JUMP_FORWARD", "JUMP_BACKWARD_NO_INTERRUPT"),
}


def _conditional_jumps_3_11() -> dict[str, tuple[str, str | None]]:
    rows: dict[str, tuple[str, str | None]] = {}
    for condition in _CONDITIONS:
        pair = (f"POP_JUMP_FORWARD_IF_{condition}", f"POP_JUMP_BACKWARD_IF_{condition}")
        for name in (*pair, f"POP_JUMP_IF_{condition}"):
            rows[name] = pair
    return rows


_COMPARE_MASKS = {"<": 2, "<=": 10, "==": 8, "!=": 7, ">": 4, ">=": 12}

DIALECTS: Table[tuple[int, int], Dialect] = Table("bytecode dialects")

DIALECTS.add(
    (3, 11),
    Dialect(
        directions={**PLAIN_JUMPS, **_conditional_jumps_3_11()},
        name_flags={"LOAD_GLOBAL": 1},
        compare_shift=0,
        merges_locations=False,
        generator_entry_depth=1,
    ),
)
DIALECTS.add(
    (3, 12),
    Dialect(
        directions=PLAIN_JUMPS,
        name_flags={"LOAD_GLOBAL": 1, "LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2},
        compare_shift=4,
        compare_masks=_COMPARE_MASKS,
        generator_entry_depth=1,
    ),
)
DIALECTS.add(
    (3, 13),
    Dialect(
        directions=PLAIN_JUMPS,
        name_flags={"LOAD_GLOBAL": 1, "LOAD_ATTR": 1, "LOAD_SUPER_ATTR": 2},
        compare_shift=5,
        compare_to_bool=16,
        compare_masks=_COMPARE_MASKS,
        fused={
            "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
            "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
            "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
        },
        closure_is_fast=True,
    ),
)

VERSION: tuple[int, int] = (sys.version_info[0], sys.version_info[1])
if VERSION not in DIALECTS:
    raise ImportError(
        f"tc reads the bytecode of Python 3.11 to 3.13, not of {VERSION[0]}.{VERSION[1]}; "
        "run it with one of those."
    )
DIALECT = DIALECTS[VERSION]
"""The row of the running Python."""
