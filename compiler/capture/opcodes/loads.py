"""Opcodes that load and store names, attributes and closure cells."""

from __future__ import annotations

import builtins
import importlib
from typing import TYPE_CHECKING

from tc.compiler.capture import breaks
from tc.compiler.capture.bytecode.opcode_table import opcode
from tc.compiler.capture.values.base import NULL, UNBOUND, LambdaValue, Raised, Value
from tc.compiler.capture.values.class_statements import build_class
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.super_calls import SuperValue

if TYPE_CHECKING:
    from tc.compiler.capture.bytecode.instructions import Instruction
    from tc.compiler.capture.frame import Frame
    from tc.compiler.capture.values.interfaces import ResidualInterface


@opcode("LOAD_CONST")
def load_const(f: Frame, i: Instruction) -> None:
    """Push a constant of the code object."""
    f.push(f.t.values.known(i.argval))


@opcode("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW")
def load_fast(f: Frame, i: Instruction) -> None:
    """Push a local."""
    f.push(f.local(i.argval))


@opcode("LOAD_FAST_AND_CLEAR", since=(3, 12))
def load_fast_and_clear(f: Frame, i: Instruction) -> None:
    """Push a local, or NULL, and unbind it."""
    f.push(f.local(i.argval) if i.argval in f.locals else NULL)
    f.locals.pop(i.argval, None)


@opcode("LOAD_FAST_LOAD_FAST", since=(3, 13))
def load_fast_load_fast(f: Frame, i: Instruction) -> None:
    """Push two locals."""
    for name in i.argval:
        f.push(f.local(name))


@opcode("STORE_FAST")
def store_fast(f: Frame, i: Instruction) -> None:
    """Bind a local; NULL unbinds it."""
    value = f.pop()
    if value is NULL:
        f.locals.pop(i.argval, None)
    else:
        f.locals[i.argval] = value


@opcode("STORE_FAST_LOAD_FAST", since=(3, 13))
def store_fast_load_fast(f: Frame, i: Instruction) -> None:
    """Bind one local and push another."""
    f.locals[i.argval[0]] = f.pop()
    f.push(f.local(i.argval[1]))


@opcode("STORE_FAST_STORE_FAST", since=(3, 13))
def store_fast_store_fast(f: Frame, i: Instruction) -> None:
    """Bind two locals."""
    for name in i.argval:
        f.locals[name] = f.pop()


@opcode("DELETE_FAST")
def delete_fast(f: Frame, i: Instruction) -> None:
    """Unbind a local."""
    f.local(i.argval)
    del f.locals[i.argval]


@opcode("LOAD_GLOBAL")
def load_global(f: Frame, i: Instruction) -> None:
    """Push a global or builtin; the flag bit asks for the NULL of a call."""
    found = f.global_value(i.argval)
    f.push_callable(found) if (i.arg or 0) & 1 else f.push(found)


@opcode("LOAD_NAME")
def load_name(f: Frame, i: Instruction) -> None:
    """Push a name of a class body."""
    name = i.argval
    if name in f.locals:
        f.push(f.locals[name])
    else:
        f.push(f.global_value(name))


@opcode("STORE_NAME")
def store_name(f: Frame, i: Instruction) -> None:
    """Bind a name of a class body."""
    f.locals[i.argval] = f.pop()


@opcode("DELETE_NAME")
def delete_name(f: Frame, i: Instruction) -> None:
    """Unbind a name of a class body."""
    if f.locals.pop(i.argval, None) is None:
        f.t.python.raise_(NameError, f"name {i.argval!r} is not defined")


@opcode("SETUP_ANNOTATIONS")
def setup_annotations(f: Frame, i: Instruction) -> None:
    """Give a class body a dictionary of annotations."""
    f.locals.setdefault("__annotations__", f.t.values.dict_of([]))


@opcode("LOAD_LOCALS", since=(3, 12))
def load_locals(f: Frame, i: Instruction) -> None:
    """Push the names of a class body; only the instructions below look at them."""
    f.push(ConstValue(None))


@opcode("LOAD_FROM_DICT_OR_GLOBALS", since=(3, 12))
def load_from_dict_or_globals(f: Frame, i: Instruction) -> None:
    """Push a name of a class body, or a global."""
    f.pop()
    load_name(f, i)


@opcode("LOAD_FROM_DICT_OR_DEREF", since=(3, 12))
def load_from_dict_or_deref(f: Frame, i: Instruction) -> None:
    """Push a name of a class body, or else what a cell holds."""
    f.pop()
    load_class_deref(f, i)


@opcode("STORE_GLOBAL")
def store_global(f: Frame, i: Instruction) -> None:
    """Bind a global."""
    f.t.effects.store_global(f.module_globals, i.argval, f.pop())


@opcode("DELETE_GLOBAL")
def delete_global(f: Frame, i: Instruction) -> None:
    """Unbind a global."""
    raise breaks.GraphBreak(breaks.UNSUPPORTED_STORE, f"del {i.argval} (a global)")


@opcode("LOAD_ATTR", until=(3, 11))
def load_attr_plain(f: Frame, i: Instruction) -> None:
    """Read an attribute."""
    f.push(f.pop().attr(f.t, i.argval))


@opcode("LOAD_ATTR", since=(3, 12))
def load_attr(f: Frame, i: Instruction) -> None:
    """Read an attribute; the flag bit asks for a method ready to be called."""
    found = f.pop().attr(f.t, i.argval)
    if (i.arg or 0) & 1:
        f.push_callable(found)
    else:
        f.push(found)


@opcode("LOAD_METHOD", until=(3, 11))
def load_method(f: Frame, i: Instruction) -> None:
    """Read a method, ready to be called."""
    f.push_callable(f.pop().attr(f.t, i.argval))


@opcode("LOAD_SUPER_ATTR", since=(3, 12))
def load_super_attr(f: Frame, i: Instruction) -> None:
    """Read ``super(cls, owner).name``."""
    _, cls, owner = f.popn(3)
    base = SuperValue(f.t.python.concrete(cls), owner)
    found = base.attr(f.t, i.argval)
    f.push_callable(found) if (i.arg or 0) & 1 else f.push(found)


@opcode("STORE_ATTR")
def store_attr(f: Frame, i: Instruction) -> None:
    """Do ``owner.name = value``."""
    value, owner = f.popn(2)
    owner.set_attr(f.t, i.argval, value)


@opcode("DELETE_ATTR")
def delete_attr(f: Frame, i: Instruction) -> None:
    """Do ``del owner.name``."""
    f.pop().del_attr(f.t, i.argval)


@opcode("MAKE_CELL")
def make_cell(f: Frame, i: Instruction) -> None:
    """Do nothing: the frame's setup has made the local a cell."""


@opcode("COPY_FREE_VARS")
def copy_free_vars(f: Frame, i: Instruction) -> None:
    """Do nothing: the frame's setup has taken the cells of the closure."""


@opcode("LOAD_CLOSURE")
def load_closure(f: Frame, i: Instruction) -> None:
    """Push a cell."""
    f.push(f.cells[i.argval])


@opcode("LOAD_CLASSDEREF", until=(3, 11))
def load_class_deref(f: Frame, i: Instruction) -> None:
    """Push a name of a class body, or else the content of a cell."""
    name = i.argval
    if name in f.locals:
        f.push(f.locals[name])
    else:
        f.push(_held(f, name))


@opcode("LOAD_DEREF")
def load_deref(f: Frame, i: Instruction) -> None:
    """Push what a cell holds."""
    f.push(_held(f, i.argval))


def _held(f: Frame, name: str) -> Value:
    """Return what a cell holds; an empty one raises into the traced code."""
    found: Value = f.cells[name].load(f.t)
    if found is UNBOUND:
        own = name in f.code.co_cellvars
        kind, where = ("local", "") if own else ("free", " in enclosing scope")
        text = f"cannot access {kind} variable {name!r} where it is not associated with a value"
        f.t.python.raise_(UnboundLocalError if own else NameError, text + where)
    return found


@opcode("STORE_DEREF")
def store_deref(f: Frame, i: Instruction) -> None:
    """Store into a cell."""
    f.cells[i.argval].store(f.t, f.pop())


@opcode("DELETE_DEREF")
def delete_deref(f: Frame, i: Instruction) -> None:
    """Empty a cell."""
    _held(f, i.argval)
    f.cells[i.argval].store(f.t, UNBOUND)


@opcode("IMPORT_NAME")
def import_name(f: Frame, i: Instruction) -> None:
    """Push an imported module."""
    level, names = (f.t.python.concrete(v) for v in f.popn(2))
    name = i.argval
    if level:
        package = f.module_globals.get("__package__") or ""
        name = importlib.util.resolve_name("." * level + name, package)
    f.t.guards.definitions.resolve_import(name)
    module = f.t.python.run_now(importlib.import_module, name)
    if not names and "." in name:
        name = name.partition(".")[0]
        f.t.guards.definitions.resolve_import(name)
        module = importlib.import_module(name)
    f.push(f.t.values.known(module))


@opcode("IMPORT_FROM")
def import_from(f: Frame, i: Instruction) -> None:
    """Push an attribute of the module on top."""
    module = f.stack[-1]
    try:
        f.push(module.attr(f.t, i.argval))
    except Raised as raised:
        if not issubclass(raised.value.python_type(), AttributeError):
            raise
        f.t.python.raise_(
            ImportError, f"cannot import name {i.argval!r} from {module.describe()!r}"
        )


@opcode("LOAD_ASSERTION_ERROR")
def load_assertion_error(f: Frame, i: Instruction) -> None:
    """Push AssertionError."""
    f.push(f.t.values.known(AssertionError))


@opcode("LOAD_BUILD_CLASS")
def load_build_class(f: Frame, i: Instruction) -> None:
    """Push the builtin that makes a class."""
    f.push(LambdaValue(build_class, "class statement", _rebuild_builder))


def _rebuild_builder(r: ResidualInterface) -> None:
    r.load_object(builtins.__build_class__)


@opcode("RETURN_CONST", since=(3, 12))
def return_const(f: Frame, i: Instruction) -> None:
    """Return a constant."""
    f.returned = ConstValue(i.argval)
