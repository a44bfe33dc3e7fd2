"""Memoizes guards that depend on dictionaries alone: a full check once, then version checks.

A module has many guards (on its hooks, its flags, its submodules), which almost never fail. They
read instance dictionaries and the values in these, so they still hold if no dictionary on the path
has changed. `groups` finds such guards; the memo that `build` gets compares the versions of the
dictionaries. Tensors on these paths are checked each time, all in one call.
"""

from __future__ import annotations

import collections
import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from tc.compiler.capture.guards.facts import ObjectRef, is_heap_type
from tc.compiler.capture.guards.rows import GUARDS, Guard
from tc.compiler.capture.guards.tree import GuardTree
from tc.compiler.core.sources import (
    AttrSource,
    DictSource,
    ItemSource,
    LocalsSource,
    Scope,
    Source,
    instance_dict,
)

#: a memo is made only for at least this many guards
WORTHWHILE = 8
#: kinds of guards that can fail only if a dictionary's version changes
OF_DICTS = ("DICT_KEYS", "DICT_LENGTH", "CONTAINS", "NOT_CONTAINS", "LENGTH")
OF_CONSTANTS = ("EQUALS", "NONE", "NOT_NONE", "BOOL")
CONSTANTS = (
    int,
    float,
    complex,
    bool,
    str,
    bytes,
    type(None),
    type(...),
    enum.Enum,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)

Way = tuple[Any, ...]
"""From the base down: keys of dictionaries; None leads from an object to its ``__dict__``."""


class MakeMemo(Protocol):
    """The constructor of memos; see ``memo.c`` in the runtime."""

    def __call__(
        self,
        steps: tuple[tuple[int, Any], ...],
        full: Any,
        wanted: tuple[int, ...],
        each: Any,
        /,
    ) -> Any: ...


class Steps:
    """Paths through dictionaries from an object: parent and key of each step, the object first."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, Any], int] = {(-1, None): 0}

    def add(self, way: Way) -> int:
        """Add the missing steps of a path, and return the number of its last step."""
        at = 0
        for key in way:
            at = self._numbers.setdefault((at, key), len(self._numbers))
        return at

    def rows(self) -> tuple[tuple[int, Any], ...]:
        """Return all steps in order."""
        return tuple(self._numbers)


@dataclass
class Group:
    """Guards that share one memo.

    Attributes:
        base: the source at which all their paths start.
        tensors: the guard of each tensor on a path, by its step.
    """

    base: Source
    guards: list[Guard] = field(default_factory=list)
    tensors: dict[int, Guard] = field(default_factory=dict)
    steps: Steps = field(default_factory=Steps)

    def add(self, guard: Guard, way: Way) -> None:
        """Add a guard, and the steps to the value that it checks."""
        step = self.steps.add(way)
        if guard.kind == "TENSOR":
            self.tensors[step] = guard
        else:
            self.guards.append(guard)

    def __len__(self) -> int:
        return len(self.guards) + len(self.tensors)

    def install(self, tree: GuardTree, make_memo: MakeMemo) -> None:
        """Install the guards on trees of their own, and their memo on ``tree``."""
        below = GuardTree.below(self.base, tree)
        for guard in self.guards:
            GUARDS[guard.kind].install(below, guard)
        each = GuardTree.of_items(
            [guard.source for guard in self.tensors.values()], tree
        )
        for guard in self.tensors.values():
            GUARDS[guard.kind].install(each, guard)
        check = make_memo(
            self.steps.rows(),
            below.root.check,
            tuple(self.tensors),
            each.root.check if self.tensors else None,
        )
        tree.test(self.base, f"{len(self)} guards below {self.base}", check)


def groups(guards: Iterable[Guard], scope: Scope) -> dict[int, Group]:
    """Return the group of each guard to memoize, by the guard's id."""
    found: dict[str, Group] = {}
    ways = Ways(scope)
    taken: dict[int, Group] = {}
    kinds = {"TYPE", "INTEGER", "ID", "TENSOR", *OF_DICTS, *OF_CONSTANTS}
    if any(_is_of_tensors(guard, scope) for guard in guards):
        kinds.remove("TENSOR")  # it reaches all tensors anyway
    for guard in guards:
        of_all = not guard.source.name or isinstance(guard.source, LocalsSource)
        if of_all or guard.kind not in kinds:
            continue  # each call has a dict of its locals of its own
        try:
            base, way = ways.way(guard.source)
            remembered = _rests_on_dicts(guard, guard.source.evaluate(scope), way)
        except Exception:
            continue  # its value cannot be reached, which installing it reports
        if remembered:
            group = found.setdefault(base.name, Group(base))
            group.add(guard, way)
            taken[id(guard)] = group
    return {key: group for key, group in taken.items() if len(group) >= WORTHWHILE}


def _is_of_tensors(guard: Guard, scope: Scope) -> bool:
    """Return whether a guard requires tensors to be distinct."""
    apart = guard.kind == "NO_ALIASING"
    return apart and isinstance(guard.source.evaluate(scope), torch.Tensor)


def reads(
    sources: Iterable[Source], scope: Scope
) -> Iterator[tuple[Source, Steps, dict[int, Source]]]:
    """Yield the bases of many of the sources: base, steps, sources by the number of their step."""
    ways = Ways(scope)
    found: dict[str, tuple[Source, Steps, dict[int, Source]]] = {}
    for source in sources:
        base, way = ways.way(source)
        if way:
            _, steps, at = found.setdefault(base.name, (base, Steps(), {}))
            at[steps.add(way)] = source
    for base, steps, at in found.values():
        if len(at) >= WORTHWHILE:
            yield base, steps, at


def _rests_on_dicts(guard: Guard, value: Any, way: Way) -> bool:
    """Return whether a guard holds while its value is the same object and no dictionary changed."""
    if guard.kind == "TENSOR":
        return bool(way)  # checked each time
    if guard.kind in OF_CONSTANTS:
        return isinstance(value, CONSTANTS) or value is None
    if guard.kind == "DICT_KEYS":
        return type(value) is dict
    if guard.kind in OF_DICTS:
        return type(value) in (dict, collections.OrderedDict)
    return guard.kind in ("TYPE", "INTEGER") or isinstance(guard.expected, ObjectRef)


class Ways:
    """Finds the base of a source and the path through dictionaries from the base to it."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._known: dict[str, tuple[Source, Way]] = {}

    def way(self, source: Source) -> tuple[Source, Way]:
        """Return the base of a source, and the path from the base to it."""
        found = self._known.get(source.name)
        if found is None:
            parent = source.parent
            step = (
                None if parent is None else _step(source, parent.evaluate(self._scope))
            )
            if parent is None or step is None:
                found = (source, ())
            else:
                base, way = self.way(parent)
                found = (base, (*way, *step))
            self._known[source.name] = found
        return found


def _step(source: Source, owner: Any) -> Way | None:
    """Return the dictionaries from a parent to its source, or None for another kind of access."""
    if isinstance(source, DictSource):
        plain = is_heap_type(type(owner)) and not issubclass(type(owner), type)
        return (None,) if plain and instance_dict(owner) is not None else None
    if isinstance(source, ItemSource):
        plain_dict = (
            type(owner) in (dict, collections.OrderedDict) and source.key in owner
        )
        return (source.key,) if plain_dict and type(source.key) in (str, int) else None
    if not isinstance(source, AttrSource) or not isinstance(owner, torch.nn.Module):
        return None
    if hasattr(type(owner), source.attr):
        return None
    if source.attr in owner.__dict__:
        return None, source.attr
    if type(owner).__getattr__ is torch.nn.Module.__getattr__:
        for table in ("_parameters", "_buffers", "_modules"):
            if source.attr in owner.__dict__[table]:
                return None, table, source.attr
    return None
