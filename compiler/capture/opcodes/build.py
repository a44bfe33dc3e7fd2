"""Opcodes that build containers, strings, slices and functions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

from tc.compiler.capture.bytecode.opcode_table import opcode
from tc.compiler.capture.opcodes.calls import called
from tc.compiler.capture.values.base import Exhausted, Slot, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.containers import ListValue, SequenceValue, TupleValue
from tc.compiler.capture.values.dicts import DictValue, items_to_merge
from tc.compiler.capture.values.functions import CellValue, FunctionValue
from tc.compiler.capture.values.lookup import ITERABLE, full_name, has_any
from tc.compiler.capture.values.sets import set_of
from tc.compiler.capture.values.slices import SliceValue
from tc.compiler.capture.values.texts import joined

if TYPE_CHECKING:
    from tc.compiler.capture.bytecode.instructions import Instruction
    from tc.compiler.capture.frame import Frame


@opcode("BUILD_TUPLE")
def build_tuple(f: Frame, i: Instruction) -> None:
    """Make a tuple of the top n."""
    f.push(TupleValue(list(f.popn(i.arg or 0))))


@opcode("BUILD_LIST")
def build_list(f: Frame, i: Instruction) -> None:
    """Make a list of the top n."""
    f.push(ListValue(list(f.popn(i.arg or 0))))


@opcode("BUILD_SET")
def build_set(f: Frame, i: Instruction) -> None:
    """Make a set of the top n."""
    f.push(set_of(f.t, f.popn(i.arg or 0)))


@opcode("BUILD_MAP")
def build_map(f: Frame, i: Instruction) -> None:
    """Make a dict of the top n pairs."""
    flat = f.popn(2 * (i.arg or 0))
    keys, values = flat[::2], flat[1::2]
    pairs = zip(keys, values, strict=True)
    f.push(f.t.values.dict_of(pairs))


@opcode("BUILD_CONST_KEY_MAP")
def build_const_key_map(f: Frame, i: Instruction) -> None:
    """Make a dict of constant keys and the top n values."""
    keys = f.t.python.concrete(f.pop())
    values = f.popn(i.arg or 0)
    pairs = zip(keys, values, strict=True)
    f.push(f.t.values.dict_of(pairs))


@opcode("BUILD_SLICE")
def build_slice(f: Frame, i: Instruction) -> None:
    """Make a slice of two or three bounds."""
    bounds = f.popn(i.arg or 2)
    while len(bounds) < 3:
        bounds.append(ConstValue(None))
    f.push(SliceValue(bounds))


@opcode("BUILD_STRING")
def build_string(f: Frame, i: Instruction) -> None:
    """Join the top n strings."""
    f.push(joined(f.t, f.popn(i.arg or 0)))


CONVERSIONS: dict[int, Callable[[Any], str]] = {
    1: str,
    2: repr,
    3: ascii,
}


@opcode("FORMAT_VALUE", until=(3, 12))
def format_value(f: Frame, i: Instruction) -> None:
    """Format a value of an f-string."""
    flags = i.arg or 0
    spec = f.t.python.concrete(f.pop()) if flags & 4 else ""
    value = f.pop()
    if flags & 3:
        value = f.t.python.convert_text(CONVERSIONS[flags & 3], value)
    f.push(f.t.python.format(value, spec))


@opcode("CONVERT_VALUE", since=(3, 13))
def convert_value(f: Frame, i: Instruction) -> None:
    """Apply ``!s``, ``!r`` or ``!a``."""
    convert = CONVERSIONS[i.arg or 1]
    f.push(f.t.python.convert_text(convert, f.pop()))


@opcode("FORMAT_SIMPLE", since=(3, 13))
def format_simple(f: Frame, i: Instruction) -> None:
    """Format without a specification."""
    f.push(f.t.python.format(f.pop(), ""))


@opcode("FORMAT_WITH_SPEC", since=(3, 13))
def format_with_spec(f: Frame, i: Instruction) -> None:
    """Format with a specification."""
    value, spec = f.popn(2)
    f.push(f.t.python.format(value, f.t.python.concrete(spec)))


@opcode("LIST_APPEND")
def list_append(f: Frame, i: Instruction) -> None:
    """Append in a comprehension."""
    value = f.pop()
    container = f.stack[-(i.arg or 1)]
    container.method(f.t, "append", [value], {})


@opcode("SET_ADD")
def set_add(f: Frame, i: Instruction) -> None:
    """Add in a comprehension."""
    value = f.pop()
    container = f.stack[-(i.arg or 1)]
    container.method(f.t, "add", [value], {})


@opcode("MAP_ADD")
def map_add(f: Frame, i: Instruction) -> None:
    """Add a pair in a comprehension."""
    key, value = f.popn(2)
    f.stack[-(i.arg or 1)].set_item(f.t, key, value)


def _require(f: Frame, value: Value, methods: tuple[str, ...], refusal: str) -> None:
    """Raise a TypeError if the class of a value has none of some methods."""
    kind = value.python_type()
    if not has_any(kind, methods) and not issubclass(kind, type):
        f.t.python.raise_(TypeError, refusal.format(full_name(kind)))


@opcode("LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE")
def extend(f: Frame, i: Instruction) -> None:
    """Add all items of the top to a container below."""
    values = f.pop()
    name = "extend" if i.opname == "LIST_EXTEND" else "update"
    if i.opname == "LIST_EXTEND":
        _require(f, values, ITERABLE, "Value after * must be an iterable, not {}")
    elif i.opname == "DICT_UPDATE":
        _require(f, values, ("keys",), "'{}' object is not a mapping")
    container = f.stack[-(i.arg or 1)]
    container.method(f.t, name, [values], {})


@opcode("DICT_MERGE")
def dict_merge(f: Frame, i: Instruction) -> None:
    """Add keyword arguments; one given twice is an error."""
    values = f.pop()
    target = f.stack[-(i.arg or 1)]
    assert isinstance(target, DictValue)

    def refuse(text: str) -> None:
        callee = called(f, 2 + (i.arg or 1))
        f.t.python.raise_(TypeError, f"{callee} {text}")

    if not has_any(values.python_type(), ("keys",)):
        name = full_name(values.python_type())
        refuse(f"argument after ** must be a mapping, not {name}")
    for key, value in items_to_merge(f.t, values):
        if target.has(f.t, key):
            name = f.t.python.concrete(key)
            refuse(f"got multiple values for keyword argument '{name}'")
        target.put(f.t, key, value)


@opcode("LIST_TO_TUPLE", until=(3, 11))
def list_to_tuple(f: Frame, i: Instruction) -> None:
    """Turn the list on top into a tuple."""
    f.push(TupleValue(list(f.pop().unpack(f.t))))


@opcode("UNPACK_SEQUENCE")
def unpack_sequence(f: Frame, i: Instruction) -> None:
    """Push the items of an iterable of exactly n."""
    wanted = i.arg or 0
    iterable = f.pop()
    if isinstance(iterable, SequenceValue):
        values = iterable.unpack(f.t)
    else:
        _require(f, iterable, ITERABLE, "cannot unpack non-iterable {} object")
        values = list(islice(iterable.each(f.t), wanted + 1))
    if len(values) != wanted:
        few = len(values) < wanted
        text = f"not enough values to unpack (expected {wanted}, got {len(values)})"
        f.t.python.raise_(
            ValueError,
            text if few else f"too many values to unpack (expected {wanted})",
        )
    for value in reversed(values):
        f.push(value)


@opcode("UNPACK_EX")
def unpack_ex(f: Frame, i: Instruction) -> None:
    """Push the items before and after a starred target, and the list between them."""
    before, after = (i.arg or 0) & 255, (i.arg or 0) >> 8
    iterable = f.pop()
    _require(f, iterable, ITERABLE, "cannot unpack non-iterable {} object")
    values = _items_around(f, iterable, before)
    if len(values) < before + after:
        expected = f"expected at least {before + after}, got {len(values)}"
        f.t.python.raise_(ValueError, f"not enough values to unpack ({expected})")
    middle: list[Slot] = list(values[before : len(values) - after])
    tail = values[len(values) - after :]
    parts: list[Value] = [*values[:before], ListValue(middle), *tail]
    for value in reversed(parts):
        f.push(value)


def _items_around(f: Frame, iterable: Value, before: int) -> list[Value]:
    """Return the items for targets one of which is starred.

    For the list, Python asks the iterator itself for an iterator: it may start again.
    """
    if not iterable.has_own(*ITERABLE):
        return iterable.unpack(f.t)
    iterator = iterable.iterate(f.t)
    first: list[Value] = []
    try:
        while len(first) < before:
            first.append(iterator.advance(f.t))
    except Exhausted:
        return first
    return [*first, *iterator.unpack(f.t)]


@opcode("MAKE_FUNCTION", until=(3, 12))
def make_function(f: Frame, i: Instruction) -> None:
    """Make a function of the code on top and the parts that the flags announce."""
    code = f.t.python.concrete(f.pop())
    function = FunctionValue(code, f.module_globals, code.co_qualname)
    for flag in (8, 4, 2, 1):
        if (i.arg or 0) & flag:
            _set_part(f, function, flag, f.pop())
    f.push(function)


@opcode("MAKE_FUNCTION", since=(3, 13))
def make_plain_function(f: Frame, i: Instruction) -> None:
    """Make a function of the code on top."""
    code = f.t.python.concrete(f.pop())
    f.push(FunctionValue(code, f.module_globals, code.co_qualname))


@opcode("SET_FUNCTION_ATTRIBUTE", since=(3, 13))
def set_function_attribute(f: Frame, i: Instruction) -> None:
    """Give the function on top its defaults, annotations or closure."""
    part, function = f.popn(2)
    assert isinstance(function, FunctionValue)
    _set_part(f, function, i.arg or 0, part)
    f.push(function)


def _set_part(f: Frame, function: FunctionValue, flag: int, part: Value) -> None:
    if flag == 1:
        function.defaults = TupleValue(list(part.unpack(f.t)))
    elif flag == 2:
        assert isinstance(part, DictValue)
        function.kwdefaults = part
    elif flag == 4:
        items = part.unpack(f.t)
        names = f.t.python.concrete_list(items[::2])
        pairs = zip(names, items[1::2], strict=True)
        function.extra["__annotations__"] = f.t.values.dict_of(pairs)
    elif flag == 8:
        cells = [cell for cell in part.unpack(f.t) if isinstance(cell, CellValue)]
        function.closure = tuple(cells)
