"""Calls that may fail for the values of tensors, where the program handles the error.

A compiled graph runs as a whole, outside of the ``try`` block that its operations were written in.
What its kernels refuse would pass by the ``except`` clause. Such a call therefore breaks the graph:
Python makes it where it stands. Where the clause only raises another error it stays, if Python can
run the frame when the graph raises (`resume/rerun.py`); under ``fullgraph`` it always does. What
nothing uses may not be computed then, so that its error is lost, as outside of ``try`` blocks;
a clause that gives another result must not depend on that.
"""

from __future__ import annotations

import contextlib
import dis
import types
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from tc.compiler.capture import breaks
from tc.compiler.capture.bytecode.instructions import TERMINAL
from tc.compiler.capture.guards.facts import is_library
from tc.compiler.capture.parts.reads import names
from tc.compiler.capture.parts.repeatable import may_run_again
from tc.compiler.capture.values.base import Value
from tc.compiler.capture.values.containers import ListValue
from tc.compiler.capture.values.functions import FunctionValue, MethodValue
from tc.compiler.capture.values.generators import GeneratorValue
from tc.compiler.capture.values.lookup import python_method
from tc.compiler.capture.values.numbers import is_whole
from tc.compiler.capture.values.objects import ObjectValue
from tc.compiler.core import levels

if TYPE_CHECKING:
    from tc.compiler.capture.bytecode.instructions import Handler, Instruction
    from tc.compiler.capture.values.interfaces import Interpreter

#: factorisations, which exist for some matrices only, distributions, and losses of probabilities
_OF_VALUES = names("""
    cholesky cholesky_inverse cond eig eigh eigvals eigvalsh inv inverse ldl_factor ldl_solve
    lstsq lu lu_factor matrix_power matrix_rank pinv solve svd svdvals tensorinv tensorsolve
    bernoulli bernoulli_ binomial cauchy_ exponential_ geometric_ log_normal_ multinomial normal
    normal_ poisson random_ uniform_ binary_cross_entropy histc quantile nanquantile ctc_loss
    _assert_async
""")
#: functions of indices, targets and counts, in tensors of integers
_OF_INDICES = names("""
    getitem __getitem__ setitem __setitem__ bincount cross_entropy cross_entropy_loss embedding
    embedding_bag gather index_add index_add_ index_copy index_copy_ index_fill index_fill_
    index_put index_put_ index_reduce index_reduce_ index_select max_unpool1d max_unpool2d
    max_unpool3d multi_margin_loss multilabel_margin_loss nll_loss nll_loss_nd one_hot put put_
    repeat_interleave scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_
    take take_along_dim masked_scatter masked_scatter_ segment_reduce histogram histogramdd
""")
#: operations of integers, whose kernels refuse other numbers
_OF_INTEGERS = names("""
    and_ iand __and__ bitwise_and bitwise_and_ or_ ior __or__ bitwise_or bitwise_or_ xor ixor
    __xor__ bitwise_xor bitwise_xor_ invert bitwise_not bitwise_not_ lshift ilshift __lshift__
    bitwise_left_shift bitwise_left_shift_ rshift irshift __rshift__ bitwise_right_shift
    bitwise_right_shift_ gcd gcd_ lcm lcm_
""")
#: divisions, which fail where an integer is divided by zero
_DIVISIONS = names("""
    div div_ divide floor_divide floor_divide_ floordiv fmod fmod_ mod remainder remainder_
""")
_RAISES = frozenset({"RAISE_VARARGS", "RERAISE"})
#: functions that refuse values which programs seldom have: they are mistakes
_SELDOM = _OF_INDICES | _OF_INTEGERS | _DIVISIONS
#: exceptions that no operation raises for a value
_OTHER_ERRORS = names("""
    AttributeError AssertionError EOFError FileNotFoundError GeneratorExit ImportError KeyError
    KeyboardInterrupt ModuleNotFoundError NameError OSError StopAsyncIteration StopIteration
    SystemExit TypeError UnicodeDecodeError
""")


def break_where_handled(frame: Any, name: str, args: Sequence[Any]) -> None:
    """Break the graph at a call whose error the frame, or one that calls it, may handle.

    Where it only raises another, and under ``fullgraph``, it is noted that such a call is in the
    graph.

    Args:
        name: of the function or method of torch.
        args: fake tensors and numbers.
    """
    if any(_is_handled(one) for one in frame.chain()) and _may_fail(name, args):
        output = frame.t.output
        assumes = name in _SELDOM and may_assume(frame) and _only_renames(frame)
        if assumes or output.whole:
            output.assumes, output.handled = output.assumes or assumes, True
            return
        raise breaks.GraphBreak(breaks.HANDLED_CALL, name)


def may_assume(frame: Any) -> bool:
    """Return whether a graph may hold what may raise, since Python may run the frame then."""
    t = frame.t
    if (
        not t.output.may_assume
        or len(t.output.scopes) > 1
        or t.overrides.modes
        or levels.depth()
    ):
        return False
    return may_run_again(t.output, frame.chain()[0].code)


def _only_renames(frame: Any) -> bool:
    """Return whether all clauses that handle an error here do no more than to raise another."""
    return all(
        only_raises(one.program, handler.target)
        for one in frame.chain()
        for handler in _handlers(one)
        if _catches(one, handler, _OTHER_ERRORS)
    )


def only_raises(program: Any, start: Instruction, within: Any = ...) -> bool:
    """Return whether all ways from an instruction end in a ``raise``.

    Args:
        within: the handler of the block that they may not leave before; any, unless given.
    """
    seen, waiting = set[int](), [start]
    while waiting:
        one = waiting.pop()
        at = program.index[id(one)]
        if at in seen:
            continue
        seen.add(at)
        leaves = within is not ... and one.handler is not within
        if leaves or one.opname.startswith("YIELD"):
            return False
        if one.target is not None:
            waiting.append(one.target)
        if one.opname in TERMINAL:
            if one.opname not in _RAISES:
                return False
        elif not one.opname.startswith("JUMP_"):
            waiting.append(program.instructions[at + 1])
    return True


def _may_fail(name: str, args: Sequence[Any]) -> bool:
    leaves = pytree.tree_leaves(list(args))
    of_data = any(
        isinstance(one, torch.SymInt) and free_unbacked_symbols(one) for one in leaves
    )
    if of_data or name.removeprefix("linalg_") in _OF_VALUES:
        return True
    if name not in _SELDOM:
        return False
    whole = [is_whole(leaf.dtype) for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if name in _OF_INTEGERS:
        return not all(whole)
    if name in _OF_INDICES:
        return any(whole) or any(isinstance(one, list) for one in _index(name, args))
    divisor = leaves[1] if len(leaves) > 1 else None
    if isinstance(divisor, int | float) and divisor:
        return False
    # sizes are divided by what is guarded not to be zero
    return bool(whole) and all(whole)


def _index(name: str, args: Sequence[Any]) -> Sequence[Any]:
    """Return the parts of an index: lists among them are indices, as tensors are."""
    if name.strip("_") not in ("getitem", "setitem"):
        return ()
    index = args[1]
    return index if isinstance(index, tuple) else (index,)


def catches_any(frame: Any) -> bool:
    """Return whether a frame may handle an error of its current instruction, of whatever type."""
    return _is_handled(frame, frozenset())


def _is_handled(frame: Any, others: frozenset[str] = _OTHER_ERRORS) -> bool:
    return any(_catches(frame, handler, others) for handler in _handlers(frame))


def _handlers(frame: Any) -> Iterator[Handler]:
    """Yield the handlers around the current instruction of a frame, the innermost first."""
    handler = frame.current.handler
    while handler is not None:
        yield handler
        handler = handler.target.handler


def _catches(frame: Any, handler: Handler, others: frozenset[str]) -> bool:
    """Return whether a handler may end an error that is not only of ``others``.

    It is one of a ``with`` block, an ``except`` clause or a ``finally``.
    """
    instructions, index = frame.program.instructions, frame.program.index
    at = index[id(handler.target)] + 1
    found: list[Any] = []
    while at < len(instructions):
        one: Instruction = instructions[at]
        if one.opname == "WITH_EXCEPT_START":
            return _may_suppress(frame, handler, others)
        if one.opname in ("CHECK_EXC_MATCH", "CHECK_EG_MATCH"):
            if not others.issuperset(found):
                return True
            following = next(
                jump for jump in instructions[at:] if jump.target is not None
            )
            at, found = index[id(following.target)], []
            continue
        if one.opname.startswith("LOAD_"):
            found.append(one.argval)
        elif one.opname not in ("BUILD_TUPLE", "COPY", "NOP", "CACHE", "PUSH_EXC_INFO"):
            if one.opname == "POP_TOP" and not found:  # ``except:``
                return True
            # of ``finally``, which ends the error where it returns or leaves a loop
            return not only_raises(frame.program, handler.target)
        at += 1
    return False


def _may_suppress(frame: Any, handler: Handler, others: frozenset[str]) -> bool:
    """Return whether leaving the ``with`` block of a handler may end an error, or raise another."""
    leaving = (
        frame.stack[handler.depth - 1] if handler.depth <= len(frame.stack) else None
    )
    return isinstance(leaving, MethodValue) and _suppresses(frame.t, leaving, others)


def _suppresses(t: Interpreter, leaving: Value, others: frozenset[str]) -> bool:
    """Return whether a callable given an error, as ``__exit__`` is, may end it or raise another."""
    if not isinstance(leaving, MethodValue):
        return not isinstance(leaving, FunctionValue) or _may_return_true(leaving.code)
    owner = leaving.owner
    kind = owner.python_type()
    of_generator = (
        contextlib._GeneratorContextManager
    )  # by ``contextlib.contextmanager``
    if isinstance(owner, ObjectValue) and issubclass(kind, of_generator):
        made = owner.stored(t, "gen")
        if isinstance(made, GeneratorValue):
            within = made.frame  # at the ``yield`` that the error is thrown in
            return any(_catches(within, one, others) for one in _handlers(within))
    if isinstance(owner, ObjectValue) and issubclass(kind, contextlib.ExitStack):
        callbacks = owner.stored(t, "_exit_callbacks")
        if isinstance(callbacks, ListValue):
            pairs = [one.unpack(t) for one in callbacks.unpack(t)]
            return any(_suppresses(t, one, others) for _, one in pairs)
    method = python_method(kind, "__exit__")
    if method is None or not is_library(kind.__module__):
        return method is not None
    return _may_return_true(method.__code__)


def _may_return_true(code: types.CodeType) -> bool:
    """Return whether a function may return anything but constants that are false."""
    before: Any = None
    for one in dis.get_instructions(code):
        if one.opname == "RETURN_CONST" and one.argval:
            return True
        if one.opname == "RETURN_VALUE" and (
            before.opname != "LOAD_CONST" or before.argval
        ):
            return True
        before = one
    return False
