"""Makes the values of Python objects, one for each object."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.capture import breaks
from tc.compiler.capture.array_memory import as_number
from tc.compiler.capture.guards.facts import is_empty
from tc.compiler.capture.parts.wrap import wrap_object, wrap_tensor
from tc.compiler.capture.torch_api import torch_functions
from tc.compiler.capture.values.base import Lazy, Slot, Value
from tc.compiler.capture.values.const import ConstValue, is_constant_object
from tc.compiler.capture.values.containers import ListValue, TupleValue
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.functions import (
    CellValue,
    guard_empty,
    wrap_function,
)
from tc.compiler.capture.values.keys import OWN_LOOKUP, find
from tc.compiler.capture.values.lookup import MISSING
from tc.compiler.capture.values.objects import Attributed, ClassValue
from tc.compiler.capture.values.sets import SetValue, set_of
from tc.compiler.capture.values.tensor import TensorValue
from tc.compiler.capture.values.tuple_objects import tuple_of
from tc.compiler.core.sources import (
    AttrSource,
    CallSource,
    DictSource,
    GlobalSource,
    ItemSource,
    LocalSource,
    Scope,
    Source,
    instance_dict,
)

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

#: accesses that lead to numbers which may differ from call to call
_PATHS = (LocalSource, GlobalSource, AttrSource, DictSource, ItemSource)


class ValueFactory:
    """Makes values of Python objects, and sources for those that have none.

    Attributes:
        aliases: globals that the residual code needs and the module does not have.
        tensors: values of the input tensors, in the order of first use.
        made_inside: ids of objects that live only as long as the trace.
        owners: the id of an instance dictionary -> its object, and the source of that (None
            where only the compiled code keeps it).
    """

    def __init__(self, t: Interpreter) -> None:
        self.t = t
        self.aliases: dict[Source, Any] = {}
        self.tensors: list[TensorValue] = []
        self.made_inside: set[int] = set()
        self.owners: dict[int, tuple[Any, Source | None]] = {}
        self._values: dict[int, tuple[Any, Value]] = {}
        self._kept: list[Any] = []
        self._cells: dict[int, tuple[types.CellType, CellValue]] = {}
        self._being_wrapped: set[int] = (
            set()
        )  # the frame's own cells whose content is being wrapped
        self._globals: dict[tuple[int, str], Value] = {}

    # -- new values ----------------------------------------------------------------------------
    def new_tuple(self, values: Iterable[Value]) -> TupleValue:
        """Return a new tuple."""
        return TupleValue(list(values))

    def list_of(self, values: Iterable[Value]) -> ListValue:
        """Return a new list."""
        return ListValue(list(values))

    def dict_of(self, pairs: Iterable[tuple[Any, Value]]) -> DictValue:
        """Return a new dict; keys are values or plain constants."""
        entries: dict[Any, tuple[Slot, Slot]] = {}
        for key, value in pairs:
            held = key if isinstance(key, Value) else self.known(key)
            token = self.t.python.key(held)
            found = find(entries, token)
            with OWN_LOOKUP:
                first = held if found is MISSING else entries[found][0]
                entries[token if found is MISSING else found] = (first, value)
        return DictValue(entries)

    def set_of(self, values: Iterable[Value], kind: type = set) -> SetValue:
        """Return a new set."""
        return set_of(self.t, values, kind)

    def number_is_dynamic(self, obj: float, source: Source) -> bool:
        """Return whether a number gets a symbol.

        One that is held by an object or a global gets one if it differed between two calls; an
        integer of a module, of what a module leads to, or of a global configures, and is constant.
        """
        specified = self.t.sizes.specified
        if specified is not None and specified.says(source):
            return self.t.sizes.number(source, obj)
        if isinstance(source, CallSource) and source.function is as_number:
            source = source.base
        steps = _chain(source)
        if not all(isinstance(step, _PATHS) for step in steps):
            return False
        held = any(
            isinstance(step, GlobalSource | AttrSource | DictSource) for step in steps
        )
        if held and type(obj) is int and self._configures(steps):
            return False
        return self.t.sizes.number(source, obj, held)

    def _configures(self, steps: Sequence[Source]) -> bool:
        if isinstance(steps[-1], GlobalSource):
            return True
        return any(
            issubclass(type(step.evaluate(self._scope)), torch.nn.Module)
            for step in steps
        )

    @cached_property
    def _scope(self) -> Scope:
        """The frame as it was called; what lies between it and its numbers is read once."""
        return Scope(self.t.frame.locals, self.t.frame.globals, {})

    # -- wrapping ------------------------------------------------------------------------------
    def wrap(self, obj: Any, source: Source) -> Value:
        """Return the value of a live object; one object, one value."""
        if is_constant_object(obj):
            return wrap_object(self.t, obj, source)
        known = self._values.get(id(obj))
        if known is None and type(obj) is dict and id(obj) in self.owners:
            known = obj, self._vars_of(*self.owners[id(obj)])
            self._values[id(obj)] = known
        if known is not None:
            value = known[1]
            if id(obj) in self.made_inside:
                return value
            first = value.source
            if first is None or first.root in self.aliases:
                self.t.guards.same(obj, source, first)
            elif first != source:
                self.t.guards.add("DUPLICATE", source, first)
            return value
        value = wrap_object(self.t, obj, source)
        if type(obj) is not types.MethodType:
            self._values[id(obj)] = (obj, value)
        if isinstance(value, Attributed):
            self._note_owner(obj, source)
        return value

    def _note_owner(self, obj: Any, source: Source) -> None:
        """Note whose an instance dictionary is.

        Raises:
            TraceAgain: the dictionary has a value by now, which is not that of `vars`.
            SkipFrame: so it is, and it is of a class of its own.
        """
        held = instance_dict(obj)
        if held is None:
            return
        owner = (obj, None if source.root in self.aliases else source)
        if id(held) in self._values and id(held) not in self.owners:
            if type(held) is not dict:
                raise breaks.SkipFrame(f"the __dict__ of {source.pretty} is no dict")
            raise breaks.TraceAgain(owners={id(held): owner})
        self.owners.setdefault(id(held), owner)

    def _vars_of(self, obj: Any, source: Source | None) -> Value:
        owner = self.wrap_kept(obj) if source is None else self.wrap(obj, source)
        assert isinstance(owner, Attributed)
        return self.t.attributes.attributes_of(owner)

    def make_inside(self, obj: Any, value: Value) -> None:
        """Register an object that lives only as long as the trace as the object of a value."""
        self._values[id(obj)] = (obj, value)
        self.made_inside.add(id(obj))

    def find(self, obj: Any) -> Value | None:
        """Return the value of an object that was wrapped before, or None."""
        known = self._values.get(id(obj))
        return known[1] if known is not None else None

    def wrapped(self) -> list[Value]:
        """Return the values of all objects that were wrapped, and of cells."""
        found = [value for _, value in self._values.values()]
        for _, cell in self._cells.values():
            found.append(cell)
        return found

    def wrap_tensor(self, tensor: torch.Tensor, source: Source) -> TensorValue:
        """Return the value of a tensor made from a sourced object."""
        return wrap_tensor(self.t, tensor, source)

    def wrap_kept(self, obj: Any) -> Value:
        """Return the value of an object that compiled code keeps, unreachable from the frame."""
        return self.wrap(obj, self.object_source(obj))

    def keep(self, obj: Any) -> None:
        """Keep an object alive as long as the trace."""
        self._kept.append(obj)

    def known(self, obj: Any) -> Value:
        """Return the value of an object that traced code made or that needs no guard."""
        self.t.guards.definitions.meet(obj)
        if is_constant_object(obj):
            return ConstValue(obj)
        if type(obj) is list:
            return ListValue([self.known(item) for item in obj])
        if issubclass(type(obj), tuple):
            return tuple_of([self.known(item) for item in obj], type(obj))
        if type(obj) is dict:
            return self.dict_of((k, self.known(v)) for k, v in obj.items())
        if type(obj) in (set, frozenset):
            made = set_of(self.t, [self.known(item) for item in obj], type(obj))
            made.table = obj.copy()
            return made
        if issubclass(type(obj), type):
            known = self._values.get(id(obj))
            return known[1] if known is not None else ClassValue(obj)
        return self.wrap(obj, self.object_source(obj))

    def lazy_slots(self, items: Any, source: Source) -> list[Slot]:
        """Return the items of a sequence, to be wrapped when looked at."""
        return [
            Lazy(item, ItemSource(source, index)) for index, item in enumerate(items)
        ]

    def cell(self, cell: types.CellType, source: Source, name: str) -> CellValue:
        """Return the value of a real cell; one cell, one value."""
        known = self._cells.get(id(cell))
        if known is None:
            value = CellValue(obj=cell, source=source, name=name)
            self._cells[id(cell)] = (cell, value)
            return value
        value = known[1]
        if value.root_name is not None:  # a cell of the frame: guards see its content
            # the cell may contain itself by a function
            if id(cell) not in self._being_wrapped:
                self._being_wrapped.add(id(cell))
                if is_empty(cell):
                    guard_empty(self.t, source)
                else:
                    self.wrap(cell.cell_contents, AttrSource(source, "cell_contents"))
                self._being_wrapped.remove(id(cell))
        elif value.source is not None and value.source != source:
            self.t.guards.add("DUPLICATE", source, value.source)
        return value

    def own_cell(self, cell: types.CellType, value: CellValue) -> None:
        """Register a cell of the frame under capture."""
        self._cells[id(cell)] = (cell, value)

    # -- sources of what has none --------------------------------------------------------------
    def alias(self, name: str, obj: Any) -> GlobalSource:
        """Return a global by whose generated name residual code finds an object."""
        source = GlobalSource(name)
        self.aliases[source] = obj
        return source

    def object_source(self, obj: Any) -> Source:
        """Return a source for an object that was not reached from the frame."""
        if isinstance(obj, types.ModuleType):
            name = "__import_" + obj.__name__.replace(".", "_dot_")
            if sys.modules.get(obj.__name__) is obj:
                return self.alias(name, obj)
        return self.alias(f"__tc_object_{id(obj):x}", obj)

    def source_of(self, value: Any) -> Source:
        """Return a value's source, making one for classes and modules reached otherwise."""
        return (
            value.source if value.source is not None else self.object_source(value.obj)
        )

    # -- globals -------------------------------------------------------------------------------
    @staticmethod
    def has_rule(obj: Any) -> bool:
        """Return whether a function is torch's, or annotated by users."""
        return torch_functions.classify(obj) is not None

    def load_global(self, module_globals: dict[str, Any], name: str) -> Value:
        """Return a global of a module, or a builtin."""
        stored = self.t.effects.global_value(module_globals, name)
        if stored is not None:
            return stored
        key = (id(module_globals), name)
        if key not in self._globals:
            self._globals[key] = self._find_global(module_globals, name)
        return self._globals[key]

    def _find_global(self, module_globals: dict[str, Any], name: str) -> Value:
        if name in module_globals:
            source = self.global_source(module_globals, name)
            # the frame's own module has guards
            if module_globals is not self.t.frame.globals:
                self.t.guards.look_up(module_globals, name, source)
            return self.wrap(module_globals[name], source)
        builtins = module_globals.get("__builtins__", __builtins__)
        table = builtins if isinstance(builtins, dict) else vars(builtins)
        self.t.guards.definitions.look_up(module_globals, name)
        self.t.guards.definitions.look_up(table, name)
        if name not in table:
            return self.t.python.raise_(NameError, f"name {name!r} is not defined")
        return self.known(table[name])

    def global_source(self, module_globals: dict[str, Any], name: str) -> Source:
        """Return the source of a global of any module."""
        if module_globals is self.t.frame.globals:
            return GlobalSource(name)
        module = sys.modules.get(module_globals.get("__name__", ""))
        if module is not None and module.__dict__ is module_globals:
            return AttrSource(self.object_source(module), name)
        return ItemSource(
            self.alias(f"__tc_globals_{id(module_globals):x}", module_globals), name
        )

    def function_of_class(self, raw: Any) -> Value:
        """Return the value of a function found in a class."""
        known = self._values.get(id(raw))
        if known is not None:
            return known[1]
        if not isinstance(raw, types.FunctionType):
            return self.known(raw)
        special = torch_functions.classify(raw)
        if special is not None:
            return special(raw, None)
        value = wrap_function(self.t, raw, None)
        self._values[id(raw)] = (raw, value)
        return value


def _chain(source: Source) -> list[Source]:
    found: list[Source] = []
    step: Source | None = source
    while step is not None:
        found.append(step)
        step = step.parent
    return found
