"""Calls of torch on fake tensors: what goes wrong in them is a reason for a graph break."""

from __future__ import annotations

import re
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.fx.node import _get_qualified_name

from tc.compiler.capture import breaks
from tc.compiler.capture.values.deferred_calls import (
    filters_are_changed,
    leave_recording,
)
from tc.compiler.core import refusals
from tc.compiler.core.composites import COMPOSITES
from tc.compiler.core.memory import count_writes_to_list
from tc.compiler.core.symbolic import SYMBOLIC

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

#: names of in-place functions: they end in one underscore, or are in-place operators
_IN_PLACE = re.compile(
    r"(?<!_)_$|^i(add|sub|mul|truediv|floordiv|mod|pow|and|or|xor|matmul|lshift|rshift)$"
)
#: what PyTorch says where a function without a rule for fake tensors reads the data of one
_NO_DATA: Final = "data is not allocated yet"
#: operators that read and write under an index, by all their names
_INDEXING: Final = ("getitem", "setitem", "Tensor.__getitem__", "Tensor.__setitem__")


def writes_first(name: str) -> bool:
    """Return whether a function or method of that name writes to its first argument."""
    return name == "setitem" or bool(_IN_PLACE.search(name))


def _called(target: Any, text: str, method: bool) -> str:
    """Return by which name a program knows a method of tensors, an operator or a function."""
    if method:
        return f"Tensor.{text}"
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return f"torch.ops.{target}"
    try:
        name = _get_qualified_name(target)
    except (AttributeError, RuntimeError):  # it is found under no name
        return text
    return name if name.startswith("torch.") else text


def _named(text: str, operands: list[Any]) -> str:
    """An operator of Python's by what the user wrote for it."""
    masks = any(
        getattr(one, "dtype", None) is torch.bool
        for one in torch.utils._pytree.tree_leaves(operands[1:2])
    )
    index = "mask" if masks else "i"
    return {"getitem": f"x[{index}]", "setitem": f"x[{index}] = y"}.get(text, text)


def _dispatching(text: str, operands: list[Any]) -> AbstractContextManager[Any]:
    """Run torch's Python decompositions of operations if sizes or numbers are symbolic.

    Not all of those in C++ take symbols, and some write past their memory where they fail.
    """
    if text == "dropout":  # the decomposition copies where eager returns its argument
        return nullcontext()
    flat = torch.utils._pytree.tree_leaves(operands)
    symbolic = any(
        isinstance(operand, SYMBOLIC)
        or (isinstance(operand, torch.Tensor) and operand._has_symbolic_sizes_strides)
        for operand in flat
    )
    return enable_python_dispatcher() if symbolic else nullcontext()


def _called_with(
    target: Any, given: list[Any], named: dict[str, Any], method: bool
) -> Any:
    """Call a function, or the method of that name of the first argument."""
    if method:
        return getattr(given[0], target)(*given[1:], **named)
    return COMPOSITES.get(target, target)(*given, **named)


def _is_view_with_gradients(value: Any) -> bool:
    """Return whether a value is a view of a tensor that autograd follows."""
    if not isinstance(value, torch.Tensor) or value._base is None:
        return False
    return value.requires_grad or value._base.requires_grad


def run_fake(
    t: Interpreter,
    target: Any,
    text: str,
    fakes: list[Any],
    named: dict[str, Any],
    method: bool,
) -> Any:
    """Call a function on fake tensors; an exception breaks the graph.

    So does a warning, where traced code has changed which warnings are shown, raised or recorded.
    """
    if not filters_are_changed(t):
        return _run_fake(t, target, text, fakes, named, method)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        found = _run_fake(t, target, text, fakes, named, method)
    if shown:
        leave_recording(t)
        what = f"{text}, which warns, where filters of warnings are changed,"
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, what)
    return found


def _run_fake(
    t: Interpreter,
    target: Any,
    text: str,
    fakes: list[Any],
    named: dict[str, Any],
    method: bool,
) -> Any:
    try:
        with (
            t.shapes.mode,
            t.shapes.mode.asking_eager(),
            t.output.derived.as_below(t.overrides.level),
        ):
            sized = refusals.with_sizes(text, (fakes, named))
            if sized is not None:
                _called_with(target, sized[0], sized[1], method)
            try:
                with _dispatching(text, [*fakes, *named.values()]):
                    found = _called_with(target, fakes, named, method)
                count_writes_to_list(target, fakes, named)
                return found
            except DataDependentOutputException:
                with enable_python_dispatcher():  # decompositions may need no data
                    return _called_with(target, fakes, named, method)
    except DataDependentOutputException as error:
        called = _called(target, text, method)
        why = breaks.TENSOR_INDEX if called in _INDEXING else breaks.TENSOR_ITEM
        raise breaks.GraphBreak(why, f"{called}()", str(error)) from None
    except DynamicOutputShapeException as error:
        raise breaks.GraphBreak(
            breaks.DYNAMIC_SHAPE, _named(text, fakes), str(error)
        ) from None
    except GuardOnDataDependentSymNode as error:
        raise t.shapes.unknown(_named(text, fakes), error) from None
    except UnsupportedFakeTensorException as error:
        raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, text, str(error)) from None
    except Exception as error:
        note = f"{type(error).__name__}: {error}"
        if _IN_PLACE.search(text) and any(map(_is_view_with_gradients, fakes)):
            # The views that a compiled graph returns do not carry what autograd goes by when
            # it refuses this: after a graph break the write would pass.
            raise breaks.SkipFrame(f"{text} of a view raised {note}") from error
        why = breaks.NEEDS_DATA if _NO_DATA in str(error) else breaks.OP_FAILED
        raise breaks.GraphBreak(why, text, note) from error
