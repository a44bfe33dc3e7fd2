"""Definitions that a trace looked at outside of its frame: classes, modules, builtins, functions.

Goes in: each class, module and function that capture meets, and the code it interprets. Comes out:
one guard that none of them defines something else by now under any name that the code spells.

Capture reads a definition in many places (an operator looks a method up, ``len`` finds a builtin,
``F.relu`` is an attribute of a module), and a place that forgot its guard would give stale results.
So no place adds one. What traced code can look up is bounded by its text: names are in ``co_names``
of the code objects, are special methods, or were given to ``getattr`` and the like as strings. The
guard covers all of these names in all classes, along with their bases, that values of the trace
have; present or absent alike. It costs one comparison of a version tag a class (`Watch`).
"""

from __future__ import annotations

import functools
import sys
import types
import weakref
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch.autograd import forward_ad

from tc.compiler.capture.guards.facts import label_of

#: what the interpreter and torch look up by themselves, whatever the code spells
IMPLICIT = frozenset(
    (
        *dir(object), *dir(int), *dir(float), *dir(str), *dir(list), *dir(dict), *dir(set),
        *dir(type), *dir(type(lambda: 0)), *dir(type(lambda: (yield))),
    )
) | frozenset((
    "__getattr__", "__setattr__", "__delattr__", "__get__", "__set__", "__delete__", "__set_name__",
    "__bool__", "__index__", "__next__", "__enter__", "__exit__", "__missing__", "__fspath__",
    "__matmul__", "__rmatmul__", "__imatmul__", "__truediv__", "__rtruediv__", "__itruediv__",
    "__ifloordiv__", "__ipow__", "__ilshift__", "__irshift__", "__copy__", "__deepcopy__",
    "__instancecheck__", "__subclasscheck__", "__post_init__", "__torch_function__",
    "__torch_dispatch__", "__array__", "__tensor_flatten__", "__tensor_unflatten__",
    "_call_impl", "_fields", "_missing_", "forward", "setup_context", "backward", "jvp", "vmap",
    "_validate_args",
))  # fmt: skip
_CHANGEABLE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE

Change = tuple[Any, str, Any, Any]
"""Owner, name, old and new value; ``...`` for what is absent."""

Names = tuple[dict[Any, Any], tuple[str | tuple[str], ...] | None]
"""A dictionary, and the names that matter there; None: how many items it has does.

Of definitions it matters which they are, of data only their type; a name in a tuple of its own
stands for data of which it matters which object they are.
"""

#: Whether forward-mode derivatives are at work: compiled code would drop them.
FORWARD_LEVEL: Names = (vars(forward_ad), (("_current_level",),))


class Watch(Protocol):
    """Checks definitions; see ``watch.c`` in the runtime."""

    def __call__(self, _: Any = None, /) -> bool: ...

    def changed(self) -> list[Change]:
        """Return what differs."""


MakeWatch = Callable[
    [
        frozenset[str],
        tuple[type, ...],
        tuple[Names, ...],
        tuple[types.FunctionType, ...],
        Callable[[], bool] | None,
    ],
    Watch,
]


@dataclass
class Definitions:
    """What one trace looked at.

    Attributes:
        names: what its code spells.
        classes: of all values, and those that are values.
        modules: dictionaries of modules, by id, with the names that were looked up there.
        functions: whose code was interpreted, and that the frame does not hand over itself.
        counted: dictionaries of which only the size matters.
        answers: class, abstract class, and whether the one is a subclass of the other.
    """

    names: set[str] = field(default_factory=set)
    classes: dict[type, None] = field(default_factory=dict)
    modules: dict[int, tuple[dict[str, Any], dict[str, None]]] = field(default_factory=dict)
    functions: dict[int, types.FunctionType] = field(default_factory=dict)
    counted: dict[int, dict[Any, Any]] = field(default_factory=dict)
    answers: list[tuple[weakref.ref[type], weakref.ref[type], bool]] = field(default_factory=list)

    def spell(self, code: types.CodeType) -> None:
        """Take in the names that code spells."""
        self.names.update(code.co_names)

    def meet(self, obj: Any) -> None:
        """Take in the class of an object, and the object itself if it is one."""
        self.classes[type(obj)] = None
        if isinstance(obj, type):
            self.classes[obj] = None

    def look_up(self, namespace: dict[str, Any], name: str) -> None:
        """Note that a name was looked up in the dictionary of a module."""
        self.modules.setdefault(id(namespace), (namespace, {}))[1][name] = None

    def count(self, items: dict[Any, Any]) -> None:
        """Note that it matters how many items a dictionary has."""
        self.counted[id(items)] = items

    def register(self, cls: type, abstract: type) -> None:
        """Note that a class was looked for among those registered with an abstract one."""
        self.answers.append((weakref.ref(cls), weakref.ref(abstract), issubclass(cls, abstract)))

    def resolve_import(self, name: str) -> None:
        """Note that a module was imported by name."""
        self.look_up(sys.modules, name)

    def interpret(self, function: types.FunctionType) -> None:
        """Note that a function's code was interpreted."""
        self.functions[id(function)] = function

    def watch(self, made_inside: Iterable[int], make: MakeWatch | None) -> Unchanged:
        """Return what checks all of it from now on.

        Args:
            made_inside: ids of classes that the trace itself made, which die with it.
            make: what makes a `Watch`; None where there is no C compiler.
        """
        inside = frozenset(made_inside)
        mro = dict.fromkeys(base for cls in self.classes for base in cls.__mro__)
        classes = tuple(cls for cls in mro if is_changeable(cls) and id(cls) not in inside)
        dicts: tuple[Names, ...] = (
            *((space, tuple(names)) for space, names in self.modules.values()),
            *((items, None) for items in self.counted.values()),
            FORWARD_LEVEL,
        )
        functions = tuple(self.functions.values())
        names = frozenset(self.names) | IMPLICIT
        abstract = functools.partial(_as_answered, self.answers) if self.answers else None
        watch = (make or PlainWatch)(names, classes, dicts, functions, abstract)
        labels = [*map(label_of, (*classes, *functions)), *map(str, (named for _, named in dicts))]
        key = f"{zlib.crc32(' '.join(sorted((*labels, *self.names))).encode()):08x}"
        return Unchanged(len(classes), len(dicts), len(functions), watch, key)


def _as_answered(
    answers: Iterable[tuple[weakref.ref[type], weakref.ref[type], bool]],
) -> bool:
    """Return whether abstract classes still have the subclasses that they had."""
    for cls, abstract, answer in answers:
        one, other = cls(), abstract()
        if one is None or other is None or issubclass(one, other) is not answer:
            return False
    return True


def is_changeable(cls: type) -> bool:
    """Return whether attributes of a class can be set."""
    return bool(cls.__flags__ & _CHANGEABLE) and not cls.__flags__ & _IMMUTABLE


def is_definition(value: Any) -> bool:
    """Return whether it matters which object a name of a module or class stands for."""
    is_module = isinstance(value, types.ModuleType)
    return callable(value) or is_module or hasattr(type(value), "__get__")


_living: weakref.WeakValueDictionary[str, Unchanged] = weakref.WeakValueDictionary()


@dataclass(frozen=True, eq=False)
class Unchanged:
    """What a guard on definitions expects; calling `watch` checks it.

    Attributes:
        key: a hash of the names of all of it, by which the printed guard finds it again.
    """

    classes: int
    modules: int
    functions: int
    watch: Watch
    key: str

    def __post_init__(self) -> None:
        _living[self.key] = self

    def __str__(self) -> str:
        counts = (
            (self.classes, "classes"), (self.modules, "modules"), (self.functions, "functions")
        )  # fmt: skip
        return f"{self.key!r}, " + ", ".join(f"{what}={count}" for count, what in counts)

    def differences(self) -> list[tuple[str, str, str]]:
        """Return (what, old, new) for each definition that differs, as people write them."""
        rows = self.watch.changed()
        return [(_place(owner, name), _named(old), _named(new)) for owner, name, old, new in rows]


def unchanged(key: str, **counts: int) -> bool:
    """Return whether definitions hold, for evaluating printed guards; False once they are gone."""
    found = _living.get(key)
    return found is not None and found.watch()


def _place(owner: Any, name: str) -> str:
    if not isinstance(owner, dict):
        where = getattr(owner, "__qualname__", "an object that no longer exists")
    elif owner is sys.modules:
        return f"sys.modules[{name!r}]"
    else:
        where = owner.get("__name__", "a module")
    return f"{where}.{name}"


def _named(value: Any) -> str:
    if value is ...:
        return "absent"
    return "gone" if value is None else label_of(value)


class PlainWatch:
    """`Watch` in Python, for machines without a C compiler: it compares everything each time."""

    def __init__(
        self,
        names: frozenset[str],
        classes: tuple[type, ...],
        dicts: tuple[Names, ...],
        functions: tuple[types.FunctionType, ...],
        abstract: Callable[[], bool] | None = None,
    ) -> None:
        self._names = names
        self._abstract = abstract
        self._classes = [(weakref.ref(cls), self._defined(cls)) for cls in classes]
        self._dicts = [(items, wanted, _held(items, wanted)) for items, wanted in dicts]
        self._functions = [(weakref.ref(f), weakref.ref(f.__code__)) for f in functions]

    def _defined(self, cls: type) -> dict[str, Any]:
        found = {name: _core(value) for name, value in vars(cls).items() if name in self._names}
        return {**found, "__mro__": tuple(map(weakref.ref, cls.__mro__))}

    def __call__(self, _: Any = None) -> bool:
        return not self.changed()

    def changed(self) -> list[Change]:
        """Return what differs."""
        rows: list[Change] = []
        for function, code in self._functions:
            f = function()
            if f is None or f.__code__ is not code():
                rows.append((f, "__code__", code(), getattr(f, "__code__", ...)))
        for ref, old in self._classes:
            cls = ref()
            if cls is None:
                rows.append((None, "a class", ..., ...))
                continue
            rows += _differing(cls, old, self._defined(cls))
        for items, wanted, old in self._dicts:
            rows += _differing(items, old, _held(items, wanted))
        if self._abstract is not None and not self._abstract():
            rows.append((None, "the registry of an abstract class", ..., ...))
        return rows


def _held(items: dict[Any, Any], wanted: tuple[str | tuple[str], ...] | None) -> dict[str, Any]:
    if wanted is None:
        return {"its size": ("size", len(items))}
    found = {name: _core(items[name]) for name in wanted if name in items}
    return found | {name[0]: ("value", items[name[0]]) for name in wanted if type(name) is tuple}


def _differing(owner: Any, old: dict[str, Any], now: dict[str, Any]) -> list[Change]:
    names = [name for name in {**old, **now} if old.get(name, ...) != now.get(name, ...)]
    return [(owner, name, _read(old, name), _read(now, name)) for name in names]


def _read(found: dict[str, Any], name: str) -> Any:
    core = found[name] if name == "__mro__" else found.get(name, ("", ...))[1]
    return core() if isinstance(core, weakref.ref) else core


def _core(value: Any) -> tuple[str, Any]:
    """Return what of a definition is compared: its kind, and an object or a weak reference."""
    slots = (types.MemberDescriptorType, types.GetSetDescriptorType)
    if isinstance(value, property):
        return "property", _weak(value.fget)
    if isinstance(value, staticmethod | classmethod):
        return type(value).__name__, _weak(value.__func__)
    if is_definition(value) and not isinstance(value, slots):
        return "definition", _weak(value)
    return "data", type(value)


def _weak(value: Any) -> Any:
    try:
        return weakref.ref(value)
    except TypeError:
        return value
