"""Class statements of traced code: the body is traced, and a class is made of its names.

The class lives only while the frame is traced, with stand-ins for the functions of its body; calls
of these are traced like any other. If residual code would need the class itself, the frame is
traced again with its class statements left to Python (`breaks.TraceAgain`).
"""

from __future__ import annotations

import abc
import types
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.builtins import builtin
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import ListValue, TupleValue
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.functions import CellValue, FunctionValue
from tc.compiler.capture.values.lookup import MISSING, replaced_slot
from tc.compiler.capture.values.objects import ClassValue
from tc.compiler.capture.values.reflection import DescriptorValue
from tc.compiler.capture.values.sets import SetValue
from tc.compiler.capture.values.tensor import NodeValue
from tc.compiler.capture.values.texts import TextValue

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

METACLASSES = (type, abc.ABCMeta, torch.autograd.function.FunctionMeta)
#: names of a class body that its class does not keep
BY_THE_COMPILER = ("__classcell__", "__static_attributes__")


def build_class(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    """Trace ``__build_class__(body, name, *bases)``."""
    body, name, *bases = args
    if t.leave_classes:
        raise _refusal("whose class outlives the graph")
    if not _is_bound_at_once(t):
        raise _refusal("with decorators")
    if kwargs or not isinstance(body, FunctionValue):
        raise _refusal("with keywords")
    real_bases = tuple(_real_base(base) for base in bases)
    title = str(name.constant())
    made_by = t.python.fold(types.prepare_class, title, real_bases)[0]
    if made_by not in METACLASSES:
        raise _refusal(f"whose metaclass is {made_by.__qualname__}")
    bound = t.names_bound_by(body)
    space = {k: _real(t, k, v) for k, v in bound.items() if k not in BY_THE_COMPILER}
    cls = t.python.run_now(made_by, title, real_bases, space)
    value = ClassValue(cls)
    t.values.make_inside(cls, value)
    cell = bound.get("__classcell__")
    if isinstance(cell, CellValue):
        cell.store(t, value)
    return value


class _Held:
    """Has the place of a value in a class: a tensor, a size, or a container."""


def _is_bound_at_once(t: Interpreter) -> bool:
    """Return whether the class is bound to its name next: decorators could inspect or change it."""
    frame = t.top
    assert frame is not None
    return frame.next_instruction().opname.startswith("STORE_")


def _refusal(what: str) -> breaks.GraphBreak:
    return breaks.GraphBreak(breaks.UNSUPPORTED_OPCODE, f"a class statement {what}")


def _real_base(base: Value) -> type:
    if not isinstance(base, ClassValue):
        raise _refusal("whose base is not a plain class")
    if replaced_slot(base.obj, "__init_subclass__") is not MISSING:
        raise _refusal(f"whose base {base.describe()} has an __init_subclass__")
    return base.obj


def _real(t: Interpreter, name: str, value: Value) -> Any:
    """Return the Python object for a value that a class body binds to a name."""
    if isinstance(value, FunctionValue):
        return stand_in(t, value)
    if value.has_own("__set_name__"):
        raise _refusal(f"that binds {value.describe()}, which is given its name")
    plain = isinstance(
        value, NodeValue | TextValue | ListValue | SetValue | DictValue | TupleValue
    )
    # which neither Python nor a metaclass reads
    if plain and not name.startswith("__"):
        made = _Held()
        t.values.make_inside(made, value)
        return made
    if isinstance(value, ConstValue | DescriptorValue | ClassValue):
        return value.constant()
    if isinstance(value, DictValue | TupleValue):
        return t.python.concrete(value)
    raise _refusal(f"that binds {value.describe()}")


def stand_in(t: Interpreter, function: FunctionValue) -> types.FunctionType:
    """Return a stand-in for a function made by traced code; it is never called."""
    if function.obj is not None:
        return function.obj
    cells = tuple(types.CellType() for _ in function.code.co_freevars)
    made = types.FunctionType(function.code, function.module_globals, None, None, cells)
    made.__qualname__ = function.name
    for name, held in function.extra.items():  # such as that it is abstract
        if held.is_constant():
            vars(made)[name] = held.constant()
    t.values.make_inside(made, function)
    return made


# -- the decorators of methods -------------------------------------------------------------------
def _decorator(kind: Any) -> Any:
    def make(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        functions = [*args, *kwargs.values()]
        if not all(
            isinstance(one, FunctionValue) or t.python.is_none(one) for one in functions
        ):
            raise breaks.GraphBreak(breaks.UNSUPPORTED_CALL, f"class {kind.__name__}")
        real = [_real(t, "", function) for function in args]
        named = {name: _real(t, "", function) for name, function in kwargs.items()}
        made = kind(*real, **named)
        value = DescriptorValue(made)
        t.values.make_inside(made, value)
        return value

    return make


for _kind in (staticmethod, classmethod, property):
    builtin(_kind)(_decorator(_kind))
