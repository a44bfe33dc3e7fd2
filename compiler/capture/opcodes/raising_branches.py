"""Branches on the data of a tensor, one side of which only raises.

Programs check their arguments: ``assert (x > 0).all()``, ``if x.isnan().any(): raise ...``. The
graph does not end there. The other side is traced, and the condition that leads to it becomes an
assertion of the graph. Where that fails the graph raises, and Python runs the frame from its start
(`resume/rerun.py`), so that the error is the program's own.

A frame that Python could not run again is traced again, and breaks the graph at such branches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.bytecode.instructions import Instruction
from tc.compiler.capture.parts.handled_errors import (
    catches_any,
    may_assume,
    only_raises,
)
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.tensor import TensorValue

if TYPE_CHECKING:
    from tc.compiler.capture.frame import Frame
    from tc.compiler.capture.values.base import Value

#: how the error of such an assertion begins, which Python's own error replaces
BRANCH = "tc: a branch that only raises was taken"


def truth(f: Frame, value: Value, jump: Instruction) -> bool:
    """Return the truth of a value that a conditional jump goes by.

    Args:
        value: the condition.
        jump: POP_JUMP_IF_TRUE or POP_JUMP_IF_FALSE, in any of its spellings.

    Raises:
        GraphBreak: it depends on data, and may not be assumed.
    """
    try:
        return value.truth(f.t)
    except breaks.GraphBreak as cause:
        if cause.reason is not breaks.DATA_BRANCH or not isinstance(value, TensorValue):
            raise
        side = (
            _side_that_raises(f, jump) if _is_number(value) and _may_assume(f) else None
        )
        if side is None:
            raise
        _assert(f, value, not side)
        return not side


def _side_that_raises(f: Frame, jump: Instruction) -> bool | None:
    """Return which truth leads to code that only raises; None if both do, or neither does."""
    assert jump.target is not None
    after = f.program.index[id(jump)] + 1
    jumping, staying = (
        only_raises(f.program, start, f.current.handler)
        for start in (jump.target, f.program.instructions[after])
    )
    if jumping == staying:
        return None
    return jumping == jump.opname.endswith("TRUE")


def _is_number(value: TensorValue) -> bool:
    """Return whether a tensor is one of PyTorch's own, on the CPU, with one element of data."""
    example = value.example
    return (
        value.kind is torch.Tensor
        and example.device.type == "cpu"
        and not example.is_nested
        and example.layout is torch.strided
        and all(isinstance(size, int) and size == 1 for size in example.shape)
    )


def _may_assume(f: Frame) -> bool:
    """Return whether the graph may assert here, and Python may run the frame where it raises."""
    return may_assume(f) and not any(map(catches_any, f.chain()))


def _assert(f: Frame, value: TensorValue, wanted: bool) -> None:
    """Record that a condition has to hold."""
    t, place = f.t, f.place()
    t.output.assumes = True
    holds: Value = value
    if value.example.dtype is not torch.bool or not wanted:
        holds = t.python.binary("ne" if wanted else "eq", value, ConstValue(0))
    if value.example.dim():
        holds = t.output.call_torch("reshape", [holds, ConstValue(())], {}, method=True)
    why = ConstValue(f"{BRANCH} at {place.file}:{place.line}")
    t.output.call_torch(torch._assert_async, [holds, why], {})
