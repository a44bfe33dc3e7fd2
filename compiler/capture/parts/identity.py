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
from typing import TYPE_CHECKING, TypeGuard

from tc.compiler.capture.array_memory import as_tensor
from tc.compiler.capture.breaks import SkipFrame
from tc.compiler.capture.values.base import Value
from tc.compiler.capture.values.const import ConstValue
from tc.compiler.capture.values.copies import IdentityNumber
from tc.compiler.capture.values.functions import CellValue
from tc.compiler.capture.values.nn_modules import NNModuleValue
from tc.compiler.capture.values.objects import Attributed, ClassValue
from tc.compiler.capture.values.proxies import behind
from tc.compiler.capture.values.tensor import SymValue
from tc.compiler.core.sources import CallSource, DictSource, Source, instance_dict

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter

Apart = tuple[Source, ...]
"""Sources of objects that are all different."""


class Identities:
    """The assumptions of one trace about the identity of objects."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], Apart] = {}
        self._keys: dict[int, Value] = {}

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

    def apart(self, t: Interpreter) -> Iterator[Apart]:
        """Yield groups of sources whose objects have to be distinct."""
        yield from self._pairs.values()
        yield from _by_type(self._keys.values())
        changed = t.effects.changed_outside()
        kinds = {value.python_type() for value in changed}
        owners = [value for value in changed if _has_attributes(value)]
        _refuse_shared_dicts(t, changed)
        alike = [
            value
            for value in t.values.wrapped()
            if owners
            and value.python_type() in kinds
            and _has_attributes(value)
            and not isinstance(value, NNModuleValue)
        ]
        attributes = [
            DictSource(source)
            for value in (*owners, *alike)
            if (source := _outside(value))
        ]
        if attributes:
            kinds.add(dict)
        known = [
            v
            for v in t.values.wrapped()
            if _outside(v) is not None and v.python_type() in kinds
        ]
        yield from _by_type([*changed, *known], attributes)


def _refuse_shared_dicts(t: Interpreter, changed: list[Value]) -> None:
    """Skip a frame that changes attributes which it reads by other names too.

    Attributes of an object or a class may be read as items of its ``__dict__``, and those of an
    object through a second object that has the same ``__dict__``.
    """
    holders: dict[int, Value] = {}
    for owner in changed:
        if not _has_attributes(owner) and not isinstance(owner, ClassValue):
            continue
        own = (
            instance_dict(owner.obj)
            if _has_attributes(owner)
            else behind(vars(owner.obj))
        )
        holders[id(own)] = owner
        if t.values.find(own) is not None:
            raise SkipFrame(
                f"{owner.describe()} is changed, and its __dict__ is read as well"
            )
    for value in t.values.wrapped() if holders else ():
        other = (
            holders.get(id(instance_dict(value.obj)))
            if _has_attributes(value)
            else None
        )
        if other is not None and other.obj is not value.obj:
            raise SkipFrame(
                f"{other.describe()} is changed, and {value.describe()} has the same __dict__"
            )


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


def _has_attributes(value: Value) -> TypeGuard[Attributed]:
    return isinstance(value, Attributed) and instance_dict(value.obj) is not None


def _outside(value: Value) -> Source | None:
    """Return the source of an object that existed before the frame; None if it has none.

    Numbers and constants have none, as they are compared by value; nor have cells, whose source
    leads to their contents. For a number from ``id()`` it is the source of the object.
    """
    if isinstance(value, IdentityNumber):
        return _outside(value.obj)
    if value.source is None or isinstance(value, ConstValue | CellValue | SymValue):
        return None
    return lasting(value.source)


def lasting(source: Source) -> Source:
    """Return the source of an object that persists: an array's tensor is made at each read."""
    made = isinstance(source, CallSource) and source.function is as_tensor
    return source.base if made else source  # type: ignore[attr-defined]
