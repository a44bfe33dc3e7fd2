"""Guards of a compiled frame: collected by tracing, checked by C++ at each call, and explained.

In: a `GuardList` and the frame that it was made for. Out: `CheckedGuards`, whose C++ tree decides
in a fraction of a microsecond, and which can list every guard that fails for another frame, with
old and new values.
"""

from __future__ import annotations

import contextlib
import re
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import CodeType
from typing import Any, Final

from tc import trace
from tc.compiler.capture.bytecode.resume_functions import inner_names
from tc.compiler.capture.guards.facts import PROCESS, ObjectRef, TensorSpec
from tc.compiler.capture.guards.in_c import InC
from tc.compiler.capture.guards.memo import groups
from tc.compiler.capture.guards.rows import GUARDS, Guard, Predicate
from tc.compiler.capture.guards.shape_guards import ShapeGuards
from tc.compiler.capture.guards.tree import GuardTree
from tc.compiler.core.levels import dispatch_keys_of_program
from tc.compiler.core.sources import Scope, Source
from tc.compiler.errors import StageError
from tc.trace.ids import changed_apart

UserLine = tuple[str, int]
#: kinds of guards that hold only for objects of one type
FIX_TYPE = frozenset(
    (
        "TYPE",
        "ID",
        "EQUALS",
        "NONE",
        "LENGTH",
        "TENSOR",
        "CALLABLE_CODE",
        "DUPLICATE",
        "INTEGER",
    )
)
#: the number of a code object's newest entries whose failing guards are all listed
EXPLAINED = 16
#: suffixes of the names of tree nodes between an object and the values reached through it
BETWEEN = ("", ".__dict__", "._parameters", "._buffers", "._modules")


class GuardList:
    """The guards of one trace without duplicates, in the order in which tracing needed them."""

    def __init__(self) -> None:
        self._guards: dict[tuple[str, str], Guard] = {}
        self._typed: set[str] = set()  # sources with a guard that implies the type

    def fixes_type(self, source: Source) -> bool:
        """Return whether a guard holds only for objects of one type at a source."""
        return source.name in self._typed

    def add(
        self,
        kind: str,
        source: Source,
        value: Any = None,
        user_line: UserLine | None = None,
    ) -> Guard:
        """Add a guard.

        Args:
            kind: a row of `GUARDS`.
            source: where the value is reached; `PROCESS` for guards on global state.
            value: the live value, or what the row documents (the key for CONTAINS, the other
                source for DUPLICATE, other sources for NO_ALIASING, a `TensorSpec` with
                None at free dimensions for TENSOR, a `Predicate` for CUSTOM, ...).
            user_line: the user's line that needs the guard.
        """
        guard = Guard(kind, source, GUARDS[kind].remember(value), user_line)
        if kind in FIX_TYPE:
            self._typed.add(source.name)
        return self._guards.setdefault((kind, guard.text), guard)

    def drop(self, kind: str, source: Source, value: Any) -> None:
        """Remove a guard that another one implies."""
        guard = Guard(kind, source, GUARDS[kind].remember(value), None)
        self._guards.pop((kind, guard.text), None)

    def put(self, guard: Guard) -> None:
        """Add a guard of another list."""
        if guard.kind in FIX_TYPE:
            self._typed.add(guard.source.name)
        self._guards.setdefault((guard.kind, guard.text), guard)

    def extend(self, other: GuardList) -> None:
        """Add all guards of another list."""
        for key, guard in other._guards.items():
            self._guards.setdefault(key, guard)
        self._typed |= other._typed

    def copy(self) -> GuardList:
        """Return an independent copy, for tracing that may be undone."""
        twin = GuardList()
        twin.extend(self)
        return twin

    def __iter__(self) -> Iterator[Guard]:
        return iter(self._guards.values())

    def __len__(self) -> int:
        return len(self._guards)

    def __str__(self) -> str:
        return "\n".join(map(str, self))


_WORD = re.compile(r"\b\w+\b")


@dataclass(frozen=True)
class Failure:
    """One property of a frame that made a guard fail.

    Attributes:
        source: what changed, as the user would write it (``x.shape[0]``).
        text: the guard as Python.
    """

    guard: Guard | None
    source: str
    text: str
    old: str
    new: str
    user_line: UserLine | None

    def __str__(self) -> str:
        return f"{self.source}: {self.old} -> {self.new}"

    def with_names(self, named: Mapping[str, str]) -> Failure:
        """Return the failure with names of the user's in place of those of parameters."""

        def with_them(text: str) -> str:
            return _WORD.sub(lambda word: named.get(word[0], word[0]), text)

        return replace(
            self,
            source=with_them(self.source),
            text=with_them(self.text),
            old=with_them(self.old),
            new=with_them(self.new),
        )


@dataclass(frozen=True, slots=True)
class Gone:
    """Compiled code that ended with an object that it referred to by identity.

    Attributes:
        compile_id: of the code.
        guards: those on the object.
        label: what the object was.
    """

    compile_id: str
    guards: tuple[Guard, ...]
    label: str

    def failures(
        self, locals: dict[str, Any], globals: dict[str, Any]
    ) -> list[Failure]:
        """Return what a frame has in the place of the object. Never raises.

        Only variables are read: an attribute may be a property of the user's now.
        """
        scope = Scope(locals, globals, {})
        plain = (guard for guard in self.guards if guard.source.pretty.isidentifier())
        found = [f for guard in plain for f in _failures(guard, scope)]
        return found or [
            Failure(g, g.source.name, g.text, self.label, "another object", g.user_line)
            for g in self.guards[:1]
        ]


@dataclass(eq=False)
class CheckedGuards:
    """Guards installed in C++.

    Attributes:
        relation: checks the conditions of `shapes` of the values at its sources.
        root: the C++ tree.
        drop: set by the frame hook; removes the code behind these guards from its cache.
        alive: False once an object that the code refers to by identity has died.
        ended: is called then.
        failing: names of the sources whose guards failed in refused calls.
        event: records these guards, if an event sink is attached.
    """

    guards: tuple[Guard, ...]
    shapes: ShapeGuards
    relation: Callable[..., bool]
    compile_id: str
    root: Any
    drop: Callable[[], None] | None = None
    alive: bool = True
    ended: Callable[[Gone], None] | None = None
    failing: set[str] = field(default_factory=set)
    event: trace.Guards | None = None
    _watched: list[Any] = field(default_factory=list, repr=False)

    @cached_property
    def _at(self) -> dict[str, list[Guard]]:
        """The guards by the names of their sources."""
        rows: dict[str, list[Guard]] = {}
        for guard in self.guards:
            rows.setdefault(guard.source.name, []).append(guard)
        return rows

    @property
    def text(self) -> str:
        """All guards as Python, one a line."""
        lines = [str(guard) for guard in self.guards]
        return "\n".join([*lines, *(f"SHAPE: {guard}" for guard in self.shapes.guards)])

    def to_event(self) -> trace.Guards:
        """Return the guards as an event."""
        of, shapes = self.guards, self.shapes.guards
        return trace.Guards(
            [g.kind for g in of] + ["SHAPE" for _ in shapes],
            [g.source.name for g in of]
            + [", ".join(o.text for o in g.operands) for g in shapes],
            [g.text for g in of] + [g.text for g in shapes],
            [*(g.user_line for g in of), *(g.user_line for g in shapes)],
        )

    def check(self, locals: dict[str, Any]) -> bool:
        """Ask C++ whether all guards hold for a frame with these locals."""
        with dispatch_keys_of_program():
            return self.alive and bool(self.root.check(locals))

    def explain(self, locals: dict[str, Any], globals: dict[str, Any]) -> list[Failure]:
        """Return every guard that fails for a frame. Never raises.

        What can no longer be reached because something above it changed is left out. Nothing is
        read out of an object of another type than the guards fix, as in C++: there, an attribute of
        the same name may be a property of the user, which runs code.
        """
        scope = Scope(locals, globals, {})
        readable = _Readable(self._at, scope)
        failures = [
            f
            for guard in self.guards
            if readable.allows(guard)
            for f in _failures(guard, scope)
        ]
        failures = _without_aftermath(failures)
        if not failures:  # shape guards may read only tensors whose own guards hold
            failures = [
                Failure(None, where, text, old, new, line)
                for where, text, old, new, line in self.shapes.failures(scope)
            ]
        if not failures and not self.alive:
            gone = "an object for which this code was compiled no longer exists"
            failures.append(Failure(None, "process", gone, "alive", "gone", None))
        return failures

    def refuse(self, locals: dict[str, Any], globals: dict[str, Any]) -> list[Failure]:
        """Explain a refusal as `explain` does, and remember the sources whose guards failed."""
        failures = self.explain(locals, globals)
        self.failing |= {f.guard.source.name for f in failures if f.guard is not None}
        return failures

    def differs(self, at: Collection[str], scope: Scope) -> bool:
        """Return whether one of the guards on some sources fails for a frame."""
        rows, readable = self._at, _Readable(self._at, scope)
        return any(
            not readable.allows(guard) or _fails(guard, scope)
            for name in at
            for guard in rows.get(name, ())
        )

    def few(self, failing: set[str]) -> Any:
        """Return a tree of only the guards on tensors, on sizes, and on the given sources."""
        chosen = [
            g.source
            for g in self.guards
            if g.kind == "TENSOR" or g.source.name in failing
        ]
        ways = {"L", "G"}
        for source in chosen:
            step: Source | None = source
            while step is not None:
                ways |= {step.name + below for below in BETWEEN}
                step = step.parent
        names = tuple(source.name for source in chosen if source.name)

        def keeps(node: Any) -> bool:
            name = node.get_source()
            return name in ways or name.startswith(names)

        return self.root.clone_manager(keeps)

    def _watch(self) -> None:
        """Invalidate the code when an object that it refers to by identity dies.

        The object's address may be used again.
        """
        own = weakref.ref(self)
        process_ends = sys.is_finalizing  # modules have lost their names by then

        def died(ref: ObjectRef, _: Any) -> None:
            if (guards := own()) is not None and not process_ends():
                guards.alive = False
                if guards.ended is not None:
                    on_it = tuple(g for g in guards.guards if ref in _refs(g.expected))
                    guards.ended(Gone(guards.compile_id, on_it, ref.label))
                if guards.drop is not None:
                    guards.drop()

        refs = {ref.id: ref for guard in self.guards for ref in _refs(guard.expected)}
        for ref in refs.values():
            if ref.is_weak:
                self._watched.append(weakref.ref(ref.get(), partial(died, ref)))


def refusals(
    entries: Sequence[CheckedGuards], locals: dict[str, Any], globals: dict[str, Any]
) -> tuple[int, list[Failure]]:
    """Return why guards refuse a frame, and record the differing sources of older ones.

    Only the newest entries list all failing guards. An older one is skipped if one of its guards
    fails at a source that differed in an earlier call.

    Args:
        entries: newest first.

    Returns:
        The number of the entry that the frame differs from least, the newest of equals, and how.
        Where two things change in turn, the newest entry differs in both. Items of containers that
        change alike, as the tensors of a cache that grows, count once.
    """
    found = [guards.refuse(locals, globals) for guards in entries[:EXPLAINED]]
    if len(entries) > EXPLAINED:
        scope = Scope(locals, globals, {})
        names = [
            f.guard.source.name
            for failures in found
            for f in failures
            if f.guard is not None
        ]
        known = [name for name, _ in Counter(names).most_common()]
        for guards in entries[EXPLAINED:]:
            if not guards.differs(known, scope):
                guards.refuse(locals, globals)
                known += sorted(guards.failing - set(known))
    if not found:
        return 0, []
    nearest = min(
        range(len(found)),
        key=lambda n: (not found[n], changed_apart(one.source for one in found[n]), n),
    )
    named = inner_names(locals)
    return nearest, [one.with_names(named) if named else one for one in found[nearest]]


def _refs(expected: Any) -> Iterator[ObjectRef]:
    if isinstance(expected, ObjectRef):
        yield expected
    elif isinstance(expected, TensorSpec):
        yield expected.cls
    elif isinstance(expected, tuple | frozenset):
        for item in expected:
            yield from _refs(item)


class _Readable:
    """Which guards may be evaluated for a frame: those on objects of the types that are fixed."""

    def __init__(self, at: Mapping[str, Sequence[Guard]], scope: Scope) -> None:
        self._at = at
        self._scope = scope
        self._known: dict[str, bool] = {}  # by the name of a source

    def allows(self, guard: Guard) -> bool:
        """Return whether a guard can be evaluated without code that only another type defines."""
        if guard.kind not in FIX_TYPE:
            return self._is_typed(guard.source)
        above = guard.source.parent
        return above is None or self._is_typed(above)

    def _is_typed(self, source: Source) -> bool:
        known = self._known.get(source.name)
        if known is None:
            above = source.parent
            known = (above is None or self._is_typed(above)) and self._has_its_type(
                source
            )
            self._known[source.name] = known
        return known

    def _has_its_type(self, source: Source) -> bool:
        fixing = [g for g in self._at.get(source.name, ()) if g.kind in FIX_TYPE]
        try:
            value = source.evaluate(self._scope) if fixing else None
            return all(_is_of_its_type(guard, value, self._scope) for guard in fixing)
        except Exception:
            return True  # what cannot be reached is reported as that


#: where kinds of guards keep the type that they require
_TYPE_IN: Mapping[str, Callable[[Any], ObjectRef]] = {
    "TYPE": lambda expected: expected,
    "LENGTH": lambda expected: expected[0],
    "TENSOR": lambda expected: expected.cls,
}


def _is_of_its_type(guard: Guard, value: Any, scope: Scope) -> bool:
    """Return whether a value has the type that a guard, which may fail, requires."""
    expected = guard.expected
    if guard.kind in _TYPE_IN:
        return _TYPE_IN[guard.kind](expected).is_(type(value))
    if guard.kind == "ID":
        return type(value) is type(expected.get())
    if guard.kind == "DUPLICATE":
        return type(value) is type(expected.evaluate(scope))
    return guard.holds(value, scope)


_UNREACHABLE: Final = "cannot be reached"


def _fails(guard: Guard, scope: Scope) -> bool:
    try:
        return not guard.holds(guard.source.evaluate(scope), scope)
    except Exception:
        return True


def _failures(guard: Guard, scope: Scope) -> list[Failure]:
    try:
        value = guard.source.evaluate(scope)
    except Exception as error:
        missing = f"{_UNREACHABLE}: {type(error).__name__}: {error}"
        return [_failure(guard, guard.source.pretty, "present", missing)]
    try:
        if guard.holds(value, scope):
            return []
        found = GUARDS[guard.kind].explain(value, guard, scope)
        return [_failure(guard, where, old, new) for where, old, new in found]
    except Exception as error:
        unknown = (
            f"{type(value).__qualname__}, checking which raises {type(error).__name__}"
        )
        return [_failure(guard, guard.source.pretty, guard.text, unknown)]


def _without_aftermath(failures: list[Failure]) -> list[Failure]:
    """Leave out what cannot be reached, unless it is all there is: what holds it changed."""
    reached = [one for one in failures if not one.new.startswith(_UNREACHABLE)]
    return reached or failures


def _failure(guard: Guard, where: str, old: str, new: str) -> Failure:
    return Failure(guard, where, guard.text, old, new, guard.user_line)


def build(
    guards: GuardList,
    shapes: ShapeGuards | None,
    code: CodeType,
    locals: dict[str, Any],
    globals: dict[str, Any],
    compile_id: str,
    in_c: InC = InC(),  # noqa: B008
) -> CheckedGuards:
    """Install guards in C++ and check that they hold for the frame that they were made from.

    Args:
        guards: in the order of checking.
        shapes: guards over symbolic sizes, or None.
        code: the frame's own code.
        locals: as `tc.compiler.capture.hook.Frame` gives them.
        globals: of the frame.
        compile_id: for messages.
        in_c: what checks in C.

    Raises:
        StageError: a guard cannot be installed, or does not hold.
    """
    scope = Scope(locals, globals, {})
    tree = GuardTree(code, scope)
    grouped = groups(guards, scope)
    memo = in_c.memo() if grouped else None
    for guard in guards:
        try:
            group = grouped.get(id(guard))
            if memo is None or group is None:
                GUARDS[guard.kind].install(tree, guard)
            elif guard is group.guards[0]:
                group.install(tree, memo)
        except Exception as error:
            raise StageError(
                "capture.guards",
                f"[{compile_id}] cannot install guard {guard}: {error!r}",
            ) from error
    shapes = shapes or ShapeGuards()
    relation = shapes.over_values(in_c.relation)
    if shapes.guards:
        tree.last(shapes.text, shapes.bind(globals, relation))
    checked = CheckedGuards(tuple(guards), shapes, relation, compile_id, tree.root)
    _verify(checked, locals, globals)
    if trace.enabled():
        checked.event = checked.to_event()
    checked._watch()
    return checked


def _verify(
    checked: CheckedGuards, locals: dict[str, Any], globals: dict[str, Any]
) -> None:
    failures = checked.explain(locals, globals)
    if failures:
        first = failures[0]
        raise StageError(
            "capture.guards",
            f"[{checked.compile_id}] guard fails for the frame it was made from: {first.text}"
            f" ({first}); {len(failures)} such guards in all",
        )
    if not checked.check(locals):
        why = "unknown"
        with contextlib.suppress(Exception):
            why = "; ".join(checked.root.check_verbose(locals).verbose_code_parts)
        raise StageError(
            "capture.guards",
            f"[{checked.compile_id}] C++ and Python disagree on a guard: {why}",
        )


__all__ = [
    "GUARDS",
    "PROCESS",
    "CheckedGuards",
    "Failure",
    "Guard",
    "GuardList",
    "Predicate",
    "TensorSpec",
    "build",
]
