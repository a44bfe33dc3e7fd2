"""Guards the definitions that a trace used: classes, modules, builtins and functions.

In: each class, module and function that capture meets, and the code that it interprets. Out: one
guard that all names which the code uses still have the same definitions there.

Capture reads definitions in many places (an operator looks a method up, ``len`` finds a builtin,
``F.relu`` is an attribute of a module). A place that forgot its guard would give stale results, so
no place adds one. The text of traced code bounds what it can look up: a name is in ``co_names`` of
a code object, is a special method, or was passed to ``getattr`` and the like as a string. The guard
covers all of these names in the classes of all values of the trace and in their bases, whether they
are present or absent. It costs one comparison of a version tag a class (`Watch`).
"""

from __future__ import annotations

import functools
import operator
import sys
import types
import weakref
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch.autograd import forward_ad

from tc.compiler.capture.guards.facts import label_of

#: names that the interpreter and torch look up by themselves, whatever the code uses
IMPLICIT = frozenset(
    (
        *dir(object),
        *dir(int),
        *dir(float),
        *dir(str),
        *dir(list),
        *dir(dict),
        *dir(set),
        *dir(type),
        *dir(type(lambda: 0)),
        *dir(type(lambda: (yield))),
        # every operator, also those in place
        *(name for name in dir(operator) if name.startswith("__")),
    )
) | frozenset(
    (
        "__getattr__",
        "__setattr__",
        "__delattr__",
        "__get__",
        "__set__",
        "__delete__",
        "__delitem__",
        "__set_name__",
        "__class_getitem__",
        "__init_subclass__",
        "__length_hint__",
        "__reversed__",
        "__complex__",
        "__bytes__",
        "__bool__",
        "__index__",
        "__next__",
        "__enter__",
        "__exit__",
        "__missing__",
        "__fspath__",
        "__rmatmul__",
        "__copy__",
        "__deepcopy__",
        "__instancecheck__",
        "__subclasscheck__",
        "__post_init__",
        "__torch_function__",
        "__torch_dispatch__",
        "__array__",
        "__tensor_flatten__",
        "__tensor_unflatten__",
        "_call_impl",
        "_fields",
        "_missing_",
        "forward",
        "setup_context",
        "backward",
        "jvp",
        "vmap",
        "_validate_args",
    )
)
_CHANGEABLE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE

Change = tuple[Any, str, Any, Any]
"""Owner, name, old and new value; ``...`` for what is absent."""

Names = tuple[dict[Any, Any], tuple[str | tuple[str], ...] | None]
"""A dictionary, and the names that matter there; None: how many items it has does.

Of definitions it matters which they are, of data only their type; a name in a tuple of its own
is one of data of which the identity matters.
"""

#: Returns whether forward-mode AD is active: compiled code would drop its derivatives.
FORWARD_LEVEL: Names = (vars(forward_ad), (("_current_level",),))


class Watch(Protocol):
    """Checks definitions; see ``watch.c`` in the runtime."""

    def __call__(self, _: Any = None, /) -> bool: ...

    def changed(self) -> list[Change]:
        """Return the definitions that differ."""


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
    """The definitions that one trace used.

    Attributes:
        names: the names that its code uses.
        classes: the classes of all values, and classes that are values themselves.
        modules: dictionaries of modules, by id, with the names that were looked up there.
        functions: interpreted functions that are not among the frame's inputs.
        counted: dictionaries of which only the size matters.
        subclass_tests: class, abstract class, and whether the first is a subclass of the second.
    """

    names: set[str] = field(default_factory=set)
    classes: dict[type, None] = field(default_factory=dict)
    modules: dict[int, tuple[dict[str, Any], dict[str, None]]] = field(
        default_factory=dict
    )
    functions: dict[int, types.FunctionType] = field(default_factory=dict)
    counted: dict[int, dict[Any, Any]] = field(default_factory=dict)
    subclass_tests: list[tuple[weakref.ref[type], weakref.ref[type], bool]] = field(
        default_factory=list
    )

    def spell(self, code: types.CodeType) -> None:
        """Add the names that a code object uses."""
        self.names.update(code.co_names)

    def meet(self, obj: Any) -> None:
        """Add the class of an object, and the object itself if it is a class."""
        self.classes[type(obj)] = None
        if issubclass(type(obj), type):
            self.classes[obj] = None

    def look_up(self, namespace: dict[str, Any], name: str) -> None:
        """Record that a name was looked up in the dictionary of a module."""
        self.modules.setdefault(id(namespace), (namespace, {}))[1][name] = None

    def count(self, items: dict[Any, Any]) -> None:
        """Record that the trace depends on the number of items of a dictionary."""
        self.counted[id(items)] = items

    def register(self, cls: type, abstract: type, answer: bool) -> None:
        """Record the result of a subclass test against an abstract class."""
        self.subclass_tests.append((weakref.ref(cls), weakref.ref(abstract), answer))

    def resolve_import(self, name: str) -> None:
        """Record that a module was imported by name."""
        self.look_up(sys.modules, name)

    def interpret(self, function: types.FunctionType) -> None:
        """Record that a function's code was interpreted."""
        self.functions[id(function)] = function

    def watch(self, made_inside: Iterable[int], make: MakeWatch | None) -> Unchanged:
        """Return a check that all recorded definitions stay the same.

        Args:
            made_inside: ids of classes that the trace itself made, which die with it.
            make: the constructor of `Watch`; None where there is no C compiler.
        """
        inside = frozenset(made_inside)
        mro = dict.fromkeys(base for cls in self.classes for base in cls.__mro__)
        classes = tuple(
            cls for cls in mro if is_changeable(cls) and id(cls) not in inside
        )
        dicts: tuple[Names, ...] = (
            *((space, tuple(names)) for space, names in self.modules.values()),
            *((items, None) for items in self.counted.values()),
            FORWARD_LEVEL,
        )
        functions = tuple(self.functions.values())
        names = frozenset(self.names) | IMPLICIT
        abstract = (
            functools.partial(_same_subclasses, self.subclass_tests)
            if self.subclass_tests
            else None
        )
        watch = (make or PlainWatch)(names, classes, dicts, functions, abstract)
        labels = [label_of(one) for one in (*classes, *functions)]
        labels += [str(named) for _, named in dicts]
        labels += self.names
        text = " ".join(sorted(labels))
        # UTF-8 does not hold every name
        encoded = text.encode("utf-8", "surrogatepass")
        key = f"{zlib.crc32(encoded):08x}"
        return Unchanged(len(classes), len(dicts), len(functions), watch, key)


def _same_subclasses(
    tests: Iterable[tuple[weakref.ref[type], weakref.ref[type], bool]],
) -> bool:
    """Return whether abstract classes still have the subclasses that they had."""
    for cls, abstract, result in tests:
        one, other = cls(), abstract()
        if one is None or other is None or issubclass(one, other) is not result:
            return False
    return True


def is_changeable(cls: type) -> bool:
    """Return whether attributes of a class can be set."""
    return bool(cls.__flags__ & _CHANGEABLE) and not cls.__flags__ & _IMMUTABLE


def is_definition(value: Any) -> bool:
    """Return whether an object counts as a definition: a class, function, module or the like."""
    is_module = isinstance(value, types.ModuleType)
    bound = any("__get__" in base.__dict__ for base in type(value).__mro__)
    return callable(value) or is_module or bound


_living: weakref.WeakValueDictionary[str, Unchanged] = weakref.WeakValueDictionary()


@dataclass(frozen=True, eq=False)
class Unchanged:
    """The expectation of a guard on definitions; calling `watch` checks it.

    Attributes:
        key: a hash of the names of all definitions, by which the printed guard finds this object.
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
            (self.classes, "classes"),
            (self.modules, "modules"),
            (self.functions, "functions"),
        )
        return f"{self.key!r}, " + ", ".join(
            f"{what}={count}" for count, what in counts
        )

    def differences(self) -> list[tuple[str, str, str]]:
        """Return (name, old, new) as text for each definition that differs."""
        rows = self.watch.changed()
        found = []
        for owner, name, old, new in rows:
            found.append((_place(owner, name), _named(old), _named(new)))
        return found


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
    """`Watch` in Python, for machines without a C compiler: each check compares everything."""

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
        found = {
            name: _core(value)
            for name, value in vars(cls).items()
            if name in self._names
        }
        return {**found, "__mro__": tuple(map(weakref.ref, cls.__mro__))}

    def __call__(self, _: Any = None) -> bool:
        return not self.changed()

    def changed(self) -> list[Change]:
        """Return the definitions that differ."""
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


def _held(
    items: dict[Any, Any], wanted: tuple[str | tuple[str], ...] | None
) -> dict[str, Any]:
    if wanted is None:
        return {"its size": ("size", len(items))}
    found = {name: _core(items[name]) for name in wanted if name in items}
    return found | {
        name[0]: ("value", items[name[0]]) for name in wanted if type(name) is tuple
    }


def _differing(owner: Any, old: dict[str, Any], now: dict[str, Any]) -> list[Change]:
    names = [*old, *(name for name in now if name not in old)]
    names = [name for name in names if old.get(name, ...) != now.get(name, ...)]
    return [(owner, name, _read(old, name), _read(now, name)) for name in names]


def _read(found: dict[str, Any], name: str) -> Any:
    core = found[name] if name == "__mro__" else found.get(name, ("", ...))[1]
    return core() if isinstance(core, weakref.ref) else core


def _core(value: Any) -> tuple[str, Any]:
    """Return the compared part of a definition: its kind, and an object or a weak reference."""
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
