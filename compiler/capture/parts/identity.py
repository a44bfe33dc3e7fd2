"""Records which objects of the frame have to be distinct objects for a trace to be valid.

In: identity comparisons with a false result, keys of dictionaries and sets, and the objects that
traced code changed. Out: guards that no two of these objects are the same one.

One object always has one value, and an object found under a second source gets a DUPLICATE guard.
The opposite, that two sources lead to distinct objects, is assumed whenever values are compared. It
matters in three places only: ``is`` (and other comparisons by identity), keys that are hashed by
identity, and writes, which a second name of the same object would see.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tc.compiler.capture.array_memory import as_tensor
from tc.compiler.capture.breaks import SkipFrame
from tc.compiler.capture.values.base import Lazy, Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.copies import IdentityNumber
from tc.compiler.capture.values.dicts import DictValue
from tc.compiler.capture.values.functions import CellValue, FunctionValue
from tc.compiler.capture.values.nn_modules import NNModuleValue
from tc.compiler.capture.values.objects import Attributed, ClassValue
from tc.compiler.capture.values.proxies import behind
from tc.compiler.capture.values.tensor import SymValue
from tc.compiler.core.sources import (
    CallSource,
    DictSource,
    Source,
    instance_dict,
)

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

Apart = tuple[Source, ...]
"""Sources of objects that are all different."""


class Identities:
    """The assumptions of one trace about the identity of objects."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], Apart] = {}
        self._keys: dict[int, Value] = {}
        self._tables: dict[int, tuple[Any, Source, set[str]]] = {}

    def differ(self, left: Value, right: Value) -> None:
        """Record that two values were compared and are distinct objects."""
        a, b = _outside(left), _outside(right)
        if a is None or b is None or left.python_type() is not right.python_type():
            return
        first, second = sorted((a, b), key=lambda source: source.name)
        self._pairs.setdefault((first.name, second.name), (first, second))

    def hashed(self, key: Value) -> None:
        """Record that a value was a key that is hashed by identity."""
        self._keys[id(key)] = key

    def reads(self, table: Any, source: Source, name: str) -> None:
        """Record that an entry of a module's table was read, or found absent."""
        self._tables.setdefault(id(table), (table, source, set()))[2].add(name)

    def apart(self, t: Interpreter) -> Iterator[Apart]:
        """Yield groups of sources whose objects have to be distinct."""
        yield from self._pairs.values()
        yield from _by_type(self._keys.values())
        changed = [*t.effects.changed_outside(), *_changed_modules(t)]
        owners = [value for value in changed if _has_attributes(value)]
        owned = {value.python_type() for value in changed} if owners else set()
        changed = [value.holder for value in changed]
        kinds = {value.python_type() for value in changed}
        dicts = _changed_dicts(t, changed)
        _refuse_shared_dicts(t, changed, dicts)
        _refuse_own_cells(t, changed)
        outside = [one for one in t.values.wrapped() if _is_used(one)]
        alike = [
            value
            for value in outside
            if (dicts or value.python_type() in owned) and _may_share(value)
        ]
        attributes = list(self._tables_with(t, dicts))
        attributes += _dictionaries(t, [*owners, *alike])
        if attributes:
            kinds.add(dict)
        known = [value for value in outside if value.python_type() in kinds]
        yield from _by_type([*changed, *known], attributes)

    def _tables_with(self, t: Interpreter, dicts: list[DictValue]) -> Iterator[Source]:
        """Yield the sources of modules' tables that were asked for keys which dicts lost or got."""
        keys = set().union(*map(_touched, dicts))
        for table, source, names in self._tables.values():
            if t.values.find(table) is None and not names.isdisjoint(keys):
                yield source


def _refuse_own_cells(t: Interpreter, changed: list[Value]) -> None:
    """Skip a frame where a changed cell and one of its own may be one in a later call.

    No guard sees which cell a variable of the frame lies in. Functions that share one have one name
    for it.
    """
    names = {value.name for value in changed if isinstance(value, CellValue)}
    if not names:
        return
    cells = [one for one in t.values.wrapped() if isinstance(one, CellValue)]
    used = [cell for cell in cells if cell.name in names and cell.content is not None]
    own = {cell.name for cell in used if cell.root_name is not None}
    others = {cell.name for cell in used if cell.root_name is None}
    both = sorted(own & others)
    if both:
        raise SkipFrame(
            f"variables {both[0]} of two functions are used, and one is changed"
        )


def _is_used(value: Value) -> bool:
    if isinstance(value, CellValue) and value.content is None:
        return False
    return _outside(value) is not None


def _changed_modules(t: Interpreter) -> list[Value]:
    """Return the modules that globals were stored in, of those the program has as objects."""
    spaces = {id(space) for space, _, _ in t.effects.global_stores()}
    values = t.values.wrapped() if spaces else []
    return [value for value in values if id(instance_dict(value.obj)) in spaces]


def _dictionaries(t: Interpreter, owners: list[Value]) -> Iterator[Source]:
    """Yield the sources of the dictionaries of objects; guard that those which share one do."""
    found: dict[int, Source] = {}
    for value in owners:
        source = _outside(value)
        if source is None:
            continue
        place: Source = DictSource(source)
        first = found.setdefault(id(instance_dict(value.obj)), place)
        if first is place:
            yield place
        elif first != place:
            t.guards.add("DUPLICATE", place, first)


def _touched(value: DictValue) -> set[Any]:
    """Return the keys of a dict that were written, or looked at."""
    kept = {key for key, (_, held) in value.entries.items() if isinstance(held, Lazy)}
    return {*value.entries, *value.obj} - kept


def _changed_dicts(t: Interpreter, changed: list[Value]) -> list[DictValue]:
    """Return the dicts that were changed, and that another object may have as its ``__dict__``.

    Of a module's a guard on the dict says that it is none: a frame has many modules.
    """
    plain = [
        value
        for value in changed
        if isinstance(value, DictValue) and type(value.obj) is dict
    ]
    others = [value for value in plain if id(value.obj) not in t.values.owners]
    for value in others:
        if "_modules" in value.obj:
            raise SkipFrame(f"{value.describe()} is changed, and may be a module's")
        t.guards.contains(value, ConstValue("_modules"), there=False)
    return others


def _refuse_shared_dicts(
    t: Interpreter, changed: list[Value], dicts: list[DictValue]
) -> None:
    """Skip a frame that changes attributes which it reads by other names too.

    Attributes of an object or a class may be read as items of its ``__dict__``, and those of an
    object through a second object that has the same ``__dict__``.
    """
    holders: dict[int, Value] = {id(value.obj): value for value in dicts}
    for owner in changed:
        own = _attributes_of(owner)
        if own is None:
            continue
        holders[id(own)] = owner
        if id(own) not in t.values.owners and t.values.find(own) is not None:
            raise SkipFrame(
                f"{owner.describe()} is changed, and its __dict__ is read as well"
            )
    for value in t.values.wrapped() if holders else ():
        held = instance_dict(value.obj) if _has_attributes(value) else None
        other = holders.get(id(held))
        if isinstance(value, FunctionValue) and value.space is not None:
            continue  # attributes are read through it
        if other is not None and other.obj is not value.obj:
            raise SkipFrame(
                f"{other.describe()} is changed, and {value.describe()} has the same __dict__"
            )


def _attributes_of(value: Value) -> Any:
    """Return the dictionary of the attributes of an object or a class; None for others."""
    if isinstance(value, ClassValue):
        return behind(vars(value.obj))
    return instance_dict(value.obj) if _has_attributes(value) else None


def _by_type(values: Iterable[Value], dicts: Iterable[Source] = ()) -> Iterator[Apart]:
    groups: dict[type, dict[str, Source]] = {
        dict: {source.name: source for source in dicts}
    }
    seen: dict[int, Source] = {}
    for value in values:
        source = _outside(value)
        if source is None:
            continue
        if value.obj is not None and seen.setdefault(id(value.obj), source) != source:
            continue  # a class, which was found at another source as well
        groups.setdefault(value.python_type(), {})[source.name] = source
    yield from (tuple(group.values()) for group in groups.values() if len(group) > 1)


def _has_attributes(value: Value) -> bool:
    return isinstance(instance_dict(value.obj), dict)


def _may_share(value: Value) -> bool:
    """Return whether an object's ``__dict__`` may be a dict that was changed by another name."""
    if not _has_attributes(value) or isinstance(value, NNModuleValue):
        return False
    if isinstance(value, FunctionValue):
        return value.space is None and (value.is_asked or bool(value.obj.__dict__))
    return isinstance(value, Attributed) or bool(instance_dict(value.obj))


def _outside(value: Value) -> Source | None:
    """Return the source of an object that existed before the frame; None if it has none.

    Numbers and constants have none, as they are compared by value; nor have the frame's own cells,
    whose source leads to their contents. For a number from ``id()`` it is the source of the object.
    """
    if isinstance(value, IdentityNumber):
        return _outside(value.obj)
    if value.source is None or isinstance(value, ConstValue | SymValue):
        return None
    if isinstance(value, CellValue) and value.root_name is not None:
        return None
    return lasting(value.source)


def lasting(source: Source) -> Source:
    """Return the source of an object that persists: an array's tensor is made at each read."""
    made = isinstance(source, CallSource) and source.function is as_tensor
    return source.base if made else source  # type: ignore[attr-defined]
