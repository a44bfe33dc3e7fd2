"""Sources: where a value of a frame came from, as an expression over the frame.

A source prints much as Python (``L['self'].layers[0]``), evaluates against a live frame, and is the
address under which guards and residual code reach the value again. It is known by its name, which
no other source of a frame has.
"""

from __future__ import annotations

import enum
import keyword
import threading
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Scope:
    """The live names of a frame that sources are evaluated against.

    Attributes:
        seen: values by the names of their sources, where none of them changes in the meantime.
    """

    locals: dict[str, Any]
    globals: dict[str, Any]
    seen: dict[str, Any] | None = None


@dataclass(frozen=True)
class Source:
    """Base of all sources."""

    @cached_property
    def name(self) -> str:
        """The source as a Python expression over ``L`` (locals) and ``G`` (globals)."""
        return self._name()

    def _name(self) -> str:
        raise NotImplementedError

    @cached_property
    def pretty(self) -> str:
        """The source as the user would write it (``self.layers[0]``)."""
        return self._pretty()

    def _pretty(self) -> str:
        return self.name

    def evaluate(self, scope: Scope) -> Any:
        """Return the value this source has in a live frame. Raises what the access raises."""
        if scope.seen is None:
            return self._evaluate(scope)
        found = scope.seen.get(self.name, scope)  # which is no value
        if found is scope:
            found = scope.seen[self.name] = self._evaluate(scope)
        return found

    def _evaluate(self, scope: Scope) -> Any:
        raise NotImplementedError

    def code(self, hold: Callable[[Any], str]) -> str:
        """Return Python over ``L`` and ``G`` that does what `evaluate` does.

        Args:
            hold: takes an object, and returns the name that it has in the code.
        """
        raise NotImplementedError

    @property
    def parent(self) -> Source | None:
        """The source this one is reached through."""
        return getattr(self, "base", None)

    @cached_property
    def root(self) -> Source:
        """The local, global or constant that the chain starts at."""
        above = self.parent
        return self if above is None else above.root

    def __str__(self) -> str:
        return self.pretty


#: the parameter of a comprehension's code, up to Python 3.11, and of a generator expression's
ITERATED = ".0"


@dataclass(frozen=True)
class LocalSource(Source):
    """An argument or local of the compiled frame; ``cell`` if it is held in a closure cell."""

    local: str
    cell: bool = False

    def _name(self) -> str:
        return f"L[{self.local!r}]"

    def _pretty(self) -> str:
        return "the comprehension" if self.local == ITERATED else self.local

    def _evaluate(self, scope: Scope) -> Any:
        return scope.locals[self.local]

    def code(self, hold: Callable[[Any], str]) -> str:
        return f"L[{self.local!r}]"


@dataclass(frozen=True)
class LocalsSource(Source):
    """All bound locals of the compiled frame, by name."""

    def _name(self) -> str:
        return "L"

    def _pretty(self) -> str:
        return "locals()"

    def _evaluate(self, scope: Scope) -> Any:
        return scope.locals

    def code(self, hold: Callable[[Any], str]) -> str:
        return "L"


@dataclass(frozen=True)
class GlobalSource(Source):
    """A global of the compiled frame's module, or a builtin."""

    global_name: str

    def _name(self) -> str:
        return f"G[{self.global_name!r}]"

    def _pretty(self) -> str:
        return self.global_name

    def _evaluate(self, scope: Scope) -> Any:
        if self.global_name in scope.globals:
            return scope.globals[self.global_name]
        builtins = scope.globals["__builtins__"]
        table = builtins if isinstance(builtins, dict) else vars(builtins)
        return table[self.global_name]

    def code(self, hold: Callable[[Any], str]) -> str:
        return f"G[{self.global_name!r}]"


@dataclass(frozen=True)
class AttrSource(Source):
    """``base.attr``."""

    base: Source
    attr: str

    def _name(self) -> str:
        return _attribute(self.base.name, self.attr)

    def _pretty(self) -> str:
        return _attribute(self.base.pretty, self.attr)

    def _evaluate(self, scope: Scope) -> Any:
        return getattr(self.base.evaluate(scope), self.attr)

    def code(self, hold: Callable[[Any], str]) -> str:
        return _attribute(self.base.code(hold), self.attr)


def _attribute(base: str, attr: str) -> str:
    """Return the expression; any string may name an attribute, one with a dot in it as well."""
    plain = attr.isidentifier() and not keyword.iskeyword(attr)
    if plain and unicodedata.is_normalized("NFKC", attr):  # Python's parser normalizes others
        return f"{base}.{attr}"
    return f"getattr({base}, {attr!r})"


#: keys that are not known by their text, by the text that several may share
_ALIKE: dict[str, list[object]] = {}


def _key_text(key: object) -> str:
    """Return a text for a key that no other key has: sources are known by their names."""
    if type(key) in (int, str, bool, bytes, type(None)):
        return repr(key)
    text = repr(key)
    if isinstance(key, enum.Enum) and isinstance(key._name_, str):
        text = f"{type(key).__qualname__}.{key._name_}"
    alike = _ALIKE.setdefault(text, [])
    place = next((i for i, other in enumerate(alike) if other is key or other == key), len(alike))
    if place == len(alike):
        alike.append(key)
    return f"{text}#{place + 1}" if place else text


@dataclass(frozen=True)
class ItemSource(Source):
    """``base[key]``, for a constant key."""

    base: Source
    key: Any

    def _name(self) -> str:
        return f"{self.base.name}[{_key_text(self.key)}]"

    def _pretty(self) -> str:
        if isinstance(self.base, DictSource) and isinstance(self.key, str):
            return _attribute(self.base.base.pretty, self.key)
        return f"{self.base.pretty}[{_key_text(self.key)}]"

    def _evaluate(self, scope: Scope) -> Any:
        container = self.base.evaluate(scope)
        if isinstance(container, dict) and not dict.__contains__(container, self.key):
            raise KeyError(self.key)  # a look at it must not run `__missing__`, which may write
        return container[self.key]

    def code(self, hold: Callable[[Any], str]) -> str:
        key = repr(self.key) if type(self.key) in (int, str) else hold(self.key)
        return f"{self.base.code(hold)}[{key}]"


def instance_dict(obj: Any) -> dict[str, Any] | None:
    """Return the instance dictionary of an object, None if there is none.

    No ``__getattribute__`` of the object's class is called.
    """
    found: dict[str, Any] | None
    if issubclass(type(obj), threading.local):
        found = obj.__dict__  # one a thread, which only the object itself finds
        return found
    try:
        found = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        found = None
    return found


@dataclass(frozen=True)
class DictSource(Source):
    """The instance dictionary ``base.__dict__``, which skips descriptors and ``__getattr__``."""

    base: Source

    def _name(self) -> str:
        return f"{self.base.name}.__dict__"

    def _pretty(self) -> str:
        return f"vars({self.base.pretty})"

    def _evaluate(self, scope: Scope) -> Any:
        owner = self.base.evaluate(scope)
        found = instance_dict(owner)
        if found is None:
            raise AttributeError(f"{type(owner).__qualname__} has no __dict__")
        return found

    def code(self, hold: Callable[[Any], str]) -> str:
        return f"{self.base.code(hold)}.__dict__"


@dataclass(frozen=True)
class TypeSource(Source):
    """``type(base)``."""

    base: Source

    def _name(self) -> str:
        return f"type({self.base.name})"

    def _pretty(self) -> str:
        return f"type({self.base.pretty})"

    def _evaluate(self, scope: Scope) -> Any:
        return type(self.base.evaluate(scope))

    def code(self, hold: Callable[[Any], str]) -> str:
        return f"type({self.base.code(hold)})"


@dataclass(frozen=True)
class CallSource(Source):
    """``function(base)`` for a named pure access (``len``, ``list of keys``, a cell's contents).

    ``text`` prints with ``{}`` in the place of the base; so does ``words``, which is what people
    read where the text says nothing to them.
    """

    base: Source
    function: Callable[[Any], Any]
    text: str
    words: str = ""

    def _name(self) -> str:
        return self.text.replace("{}", self.base.name)

    def _pretty(self) -> str:
        return (self.words or self.text).replace("{}", self.base.pretty)

    def _evaluate(self, scope: Scope) -> Any:
        return self.function(self.base.evaluate(scope))

    def code(self, hold: Callable[[Any], str]) -> str:
        return f"{hold(self.function)}({self.base.code(hold)})"


@dataclass(frozen=True)
class DrawnSource(Source):
    """A number that residual code draws before the graph runs, as a tensor.

    Attributes:
        number: of the drawn numbers of its frame, in order.
        owner: the generator.
        call: what is drawn.
        sample: such a tensor. No guard depends on what is drawn.
    """

    number: int
    owner: Source
    call: tuple[Any, ...]
    sample: Any

    def _name(self) -> str:
        return f"drawn({self.number})"

    def _pretty(self) -> str:
        return f"{self.call[0]}()"

    def _evaluate(self, scope: Scope) -> Any:
        return self.sample
