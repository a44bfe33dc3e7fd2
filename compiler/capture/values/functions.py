"""Callables that are inlined: functions and methods; cells."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from tc.compiler.capture.bytecode.dialects import RUNNING
from tc.compiler.capture.guards.facts import is_empty
from tc.compiler.capture.values.base import (
    UNBOUND,
    Args,
    Kwargs,
    LambdaValue,
    NotConstant,
    OpaqueValue,
    Slot,
    Value,
)
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import TupleValue
from tc.compiler.capture.values.dicts import DictValue, Entries
from tc.compiler.capture.values.keys import find
from tc.compiler.core.sources import (
    AttrSource,
    CallSource,
    ItemSource,
    LocalsSource,
    Source,
)

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter, ResidualInterface


class CellValue(Value):
    """A closure cell.

    Attributes:
        content: its current content; None: read the real cell on first use.
        obj: the real cell of a sourced value.
        root_name: the name of the cell in the frame under capture, if it belongs to that frame.
        name: of the variable, which all functions that share a cell have in common.
    """

    noun = "a closure cell"

    def __init__(
        self,
        content: Value | None = None,
        obj: types.CellType | None = None,
        source: Source | None = None,
        root_name: str | None = None,
        name: str = "",
    ) -> None:
        self.content = content
        self.name = root_name or name
        self.obj: types.CellType | None = obj
        self.source = source
        self.root_name = root_name
        self.creation_index = self.next_creation_index()

    def python_type(self) -> type:
        return types.CellType

    def load(self, t: Interpreter) -> Value:
        """Return the content of the cell, or UNBOUND."""
        if self.content is None:
            self.content = UNBOUND
            if self.obj is not None and self.source is not None:
                self.content = self._read(t, self.obj, self.source)
        return self.content

    def _read(self, t: Interpreter, cell: types.CellType, source: Source) -> Value:
        """Return the content of a real cell, and guard that it is empty if it is."""
        if is_empty(cell):
            # the frame opens the cell: its source is the variable
            if self.root_name is not None:
                t.guards.add("NOT_CONTAINS", LocalsSource(), self.root_name)
            else:
                guard_empty(t, source)
            return UNBOUND
        if self.root_name is None:
            source = AttrSource(source, "cell_contents")
        return t.values.wrap(cell.cell_contents, source)

    def store(self, t: Interpreter, value: Value) -> None:
        """Put a value into the cell."""
        t.effects.changed(self)
        self.content = value

    def attr(self, t: Interpreter, name: str) -> Value:
        if name == "cell_contents":
            found = self.load(t)
            return (
                t.python.raise_(ValueError, "Cell is empty")
                if found is UNBOUND
                else found
            )
        return super().attr(t, name)

    def held(self) -> list[Value]:
        """Return the content of the cell if it was read; it is stored after the cell is made."""
        return [] if self.content is None or self.content is UNBOUND else [self.content]

    def rebuild(self, r: ResidualInterface) -> None:
        if self.root_name is not None:
            r.e.load_closure(self.root_name)
            return
        r.load_callable(types.CellType)
        r.e.call(0)

    def replay(self, r: ResidualInterface) -> None:
        """Emit the store of the contents."""
        if self.content is UNBOUND:
            if self.root_name is not None:
                r.e.load_const(None)  # the frame's own cell may be empty still
                r.e.store_deref(self.root_name)
                r.e.delete_deref(self.root_name)
            return
        assert self.content is not None
        r.push(self.content)
        if self.root_name is not None:
            r.e.store_deref(self.root_name)
        else:
            r.push(self)
            r.e.store_attr("cell_contents")


def guard_empty(t: Interpreter, source: Source) -> None:
    """Guard that the cell at a source holds nothing."""
    t.guards.add("BOOL", CallSource(source, is_empty, "is_empty({})"), True)


#: attributes that every function has
STANDARD = frozenset(dir(types.FunctionType))
#: attributes of a function that its calls read
PARTS = ("__code__", "__defaults__", "__kwdefaults__")
#: attributes of a function that cannot be replaced, or that represent all others
FIXED = ("__builtins__", "__closure__", "__dict__", "__globals__")


class FunctionValue(Value):
    """A Python function: a real one, or one made by traced code."""

    noun = "a function"

    def __init__(
        self,
        code: types.CodeType,
        module_globals: dict[str, Any],
        name: str,
        defaults: list[Slot] | None = None,
        closure: tuple[CellValue, ...] = (),
        obj: types.FunctionType | None = None,
        source: Source | None = None,
    ) -> None:
        self.code = code
        self.module_globals = module_globals
        self.name = name
        self.defaults = TupleValue(defaults or [])
        self.kwdefaults: DictValue | None = None
        self.closure = closure
        self.obj: types.FunctionType | None = obj
        self.source = source
        self.extra: dict[str, Value] = {}
        self.space: Value | None = None
        self.is_asked = False

    def python_type(self) -> type:
        return types.FunctionType

    def truth(self, t: Interpreter) -> bool:
        return True

    def constant(self) -> Any:
        if self.obj is None:
            return super().constant()
        return self.obj

    def describe(self) -> str:
        return self.name

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        return t.inline(self, args, kwargs)

    def tail_call_codes(self) -> tuple[types.CodeType, ...]:
        return (self.code,)

    def attr(self, t: Interpreter, name: str) -> Value:
        if name in self.extra:
            return self.extra[name]
        if name in ("__name__", "__qualname__") and self.obj is None:
            return t.values.known(
                self.name.rpartition(".")[2] if name == "__name__" else self.name
            )
        if name == "__get__":
            return LambdaValue(self._bind, f"{self.name}.__get__")
        if self.obj is not None:
            return self._attr_of_real(t, self.obj, name)
        if name == "__dict__":
            return FunctionDict(self)
        known = self._known_attr(t, name)
        if known is not None:
            return known
        if name not in STANDARD:
            return t.python.raise_(
                AttributeError, f"'function' object has no attribute '{name}'"
            )
        return super().attr(t, name)

    def _attr_of_real(
        self, t: Interpreter, obj: types.FunctionType, name: str
    ) -> Value:
        """Return an attribute of a real function: its default values and names are live objects."""
        if name == "__kwdefaults__":
            return ConstValue(None) if self.kwdefaults is None else self.kwdefaults
        if name == "__dict__":
            return self._space_of_real(t)
        self.is_asked = True
        if self.space is not None and name not in STANDARD:
            key = ConstValue(name)
            if self.space.method(t, "__contains__", [key], {}).truth(t):
                return self.space.item(t, key)
        elif hasattr(obj, name):
            found = getattr(obj, name)
            if self.source is None and not isinstance(found, dict | list | set):
                return t.values.known(found)
            source = AttrSource(t.values.source_of(self), name)
            return t.values.wrap(found, source)
        else:
            t.guards.add("NO_ATTR", t.values.source_of(self), name)
        return t.python.raise_(
            AttributeError, f"'function' object has no attribute '{name}'"
        )

    def _space_of_real(self, t: Interpreter) -> Value:
        """Return the ``__dict__`` of a real function, through which stored attributes are read."""
        if self.space is None:
            assert self.obj is not None
            source = AttrSource(t.values.source_of(self), "__dict__")
            self.space = t.values.wrap(self.obj.__dict__, source)
        return self.space

    def _known_attr(self, t: Interpreter, name: str) -> Value | None:
        """Return a standard attribute of a function that traced code made."""
        if name == "__code__":
            return t.values.known(self.code)
        if name == "__module__":
            return t.values.known(self.module_globals.get("__name__"))
        if name == "__doc__":
            first = self.code.co_consts[0] if self.code.co_consts else None
            return t.values.known(first if isinstance(first, str) else None)
        if name == "__annotations__":
            self.extra[name] = t.values.dict_of([])
            return self.extra[name]
        if name == "__type_params__" and RUNNING >= (3, 12):
            return t.values.known(())
        if name == "__defaults__":
            return self.defaults if self.defaults.slots else ConstValue(None)
        if name == "__kwdefaults__":
            return ConstValue(None) if self.kwdefaults is None else self.kwdefaults
        if name == "__closure__":
            return TupleValue(list(self.closure)) if self.closure else ConstValue(None)
        return None

    def _bind(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        return self if t.python.is_none(args[0]) else MethodValue(args[0], self)

    def set_attr(self, t: Interpreter, name: str, value: Value) -> None:
        """Store an attribute; what a call reads takes the place of what the function had."""
        if self.obj is not None:
            if name in STANDARD:
                super().set_attr(t, name, value)
            self._space_of_real(t).set_item(t, ConstValue(name), value)
        elif name in PARTS:
            self._set_part(t, name, value)
        elif name in FIXED:
            super().set_attr(t, name, value)
        else:
            self.extra[name] = value

    def _set_part(self, t: Interpreter, name: str, value: Value) -> None:
        given = None if t.python.is_none(value) else value
        if name == "__defaults__" and (given is None or type(given) is TupleValue):
            self.defaults = TupleValue([]) if given is None else given
        elif name == "__kwdefaults__" and (given is None or type(given) is DictValue):
            self.kwdefaults = given
        elif name == "__code__" and self._takes(value):
            self.code = value.constant()
        else:
            super().set_attr(t, name, value)

    def _takes(self, code: Value) -> bool:
        """Return whether Python lets the function have another code."""
        if not issubclass(code.python_type(), types.CodeType):
            return False
        return len(code.constant().co_freevars) == len(self.closure)

    def del_attr(self, t: Interpreter, name: str) -> None:
        """Delete an attribute that the program stored."""
        if self.obj is not None or name not in self.extra or name in STANDARD:
            super().del_attr(t, name)
        del self.extra[name]

    def children(self, t: Interpreter) -> list[Value]:
        own = [*self.closure, *self.defaults.values(t), *self.extra.values()]
        return (
            own
            if self.kwdefaults is None or self.obj is not None
            else [*own, self.kwdefaults]
        )

    def rebuild(self, r: ResidualInterface) -> None:
        if self.obj is not None:
            r.load_object(self.obj)
            return
        r.load_callable(_make_function)
        r.e.load_const(self.code)
        r.load_object(self.module_globals)
        r.e.load_const(self.name)
        r.push_slots(self.defaults.slots)
        r.e.build_tuple(len(self.defaults.slots))
        r.push(ConstValue(None) if self.kwdefaults is None else self.kwdefaults)
        r.push_slots(list(self.closure))
        r.e.build_tuple(len(self.closure))
        r.e.call(6)
        for name, value in self.extra.items():
            r.e.copy(1)
            r.push(value)
            r.e.swap(2)
            r.e.store_attr(name)


def _make_function(
    code: types.CodeType,
    module_globals: dict[str, Any],
    name: str,
    defaults: tuple[Any, ...],
    kwdefaults: dict[str, Any] | None,
    closure: tuple[Any, ...],
) -> Any:
    """Make a function as a def statement does; called from residual code."""
    function = types.FunctionType(
        code, module_globals, name.rpartition(".")[2], defaults or None, closure or None
    )
    function.__qualname__ = name
    function.__kwdefaults__ = kwdefaults
    return function


class FunctionDict(DictValue):
    """The ``__dict__`` of a function made by traced code: stores are stores to the function."""

    noun = "a function's __dict__"

    def __init__(self, owner: FunctionValue) -> None:
        super().__init__({})
        self.owner = owner

    def constant(self) -> Any:
        raise NotConstant(self.describe())

    def whole(self, t: Interpreter) -> Entries:
        """Return all attributes in the function's dictionary."""
        extra = self.owner.extra
        found = {k: v for k, v in extra.items() if k not in STANDARD}
        self.entries = {
            name: (ConstValue(name), value) for name, value in found.items()
        }
        return self.entries

    def find(self, t: Interpreter, key: Value) -> Any:
        """Return the name of an attribute that the function has, or MISSING."""
        return find(self.whole(t), t.python.key(key))

    def put(self, t: Interpreter, key: Value, value: Value) -> None:
        """Store an attribute."""
        self.owner.extra[t.python.concrete(key)] = value

    def drop(self, t: Interpreter, token: Any) -> Value:
        """Delete an attribute and return its value."""
        return self.owner.extra.pop(token)

    def children(self, t: Interpreter) -> list[Value]:
        return [self.owner]

    def rebuild(self, r: ResidualInterface) -> None:
        r.push(self.owner)
        r.e.load_attr("__dict__")


class MethodValue(Value):
    """A function bound to its first argument."""

    noun = "a method"

    def __init__(
        self, owner: Value, function: Value, source: Source | None = None
    ) -> None:
        self.owner = owner
        self.function = function
        self.source = source

    def python_type(self) -> type:
        return types.MethodType

    def truth(self, t: Interpreter) -> bool:
        return True

    def describe(self) -> str:
        return self.function.describe()

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        return self.function.call(t, [self.owner, *args], kwargs)

    def tail_call_codes(self) -> tuple[types.CodeType, ...]:
        return self.function.tail_call_codes()

    def attr(self, t: Interpreter, name: str) -> Value:
        if name == "__self__":
            return self.owner
        if name == "__func__":
            return self.function
        return self.function.attr(t, name)

    def children(self, t: Interpreter) -> list[Value]:
        return [self.owner, self.function]

    def rebuild(self, r: ResidualInterface) -> None:
        r.load_callable(types.MethodType)
        r.push(self.function)
        r.push(self.owner)
        r.e.call(2)


class FunctionWrapperValue(OpaqueValue):
    """A wrapper of a function, whose calls are traced as those of the function.

    Such are functions behind `functools.lru_cache` (their caches are neither read nor filled) and
    scripted functions.
    """

    def __init__(
        self, obj: Any, source: Source, attribute: str, function: Value
    ) -> None:
        super().__init__(obj, source)
        self.attribute = attribute
        self.function = function

    def truth(self, t: Interpreter) -> bool:
        return True

    def call(self, t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        return self.function.call(t, args, kwargs)

    def tail_call_codes(self) -> tuple[types.CodeType, ...]:
        return self.function.tail_call_codes()

    def attr(self, t: Interpreter, name: str) -> Value:
        assert self.source is not None
        if name == self.attribute:
            return self.function
        # copied from the function, or the user's
        if name in getattr(self.obj, "__dict__", {}):
            return t.values.wrap(getattr(self.obj, name), AttrSource(self.source, name))
        return super().attr(t, name)


def wrap_function(
    t: Interpreter, obj: types.FunctionType, source: Source | None
) -> FunctionValue:
    """Return the value of a real function; its defaults and cells are wrapped on first use."""
    from_source = source if source is not None else t.values.object_source(obj)
    names, place = obj.__code__.co_freevars, AttrSource(from_source, "__closure__")
    cells = [
        t.values.cell(cell, ItemSource(place, i), names[i])
        for i, cell in enumerate(obj.__closure__ or ())
    ]
    value = FunctionValue(
        obj.__code__,
        obj.__globals__,
        obj.__qualname__,
        closure=tuple(cells),
        obj=obj,
        source=source,
    )
    value.defaults = TupleValue(
        t.values.lazy_slots(
            obj.__defaults__ or (), AttrSource(from_source, "__defaults__")
        )
    )
    if obj.__kwdefaults__ is not None:
        named = t.values.wrap(
            obj.__kwdefaults__, AttrSource(from_source, "__kwdefaults__")
        )
        assert isinstance(named, DictValue)
        value.kwdefaults = named
    return value
