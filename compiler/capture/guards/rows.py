"""The table of guard kinds: how each is stored, printed, installed, checked and explained.

Adding a kind is adding a row at the end, and an example to ``tests/compiler/capture``.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from tc.compiler.capture.guards import facts as values
from tc.compiler.capture.guards.definitions import unchanged
from tc.compiler.capture.guards.facts import ObjectRef, Process, TensorSpec, literal
from tc.compiler.capture.guards.tree import GlobalStateGuard, GuardTree, Manager, child
from tc.compiler.core.levels import dispatch_modes
from tc.compiler.core.modes import torch_mode
from tc.compiler.core.sources import Scope, Source
from tc.compiler.core.table import Table
from tc.compiler.errors import StageError


@dataclass(frozen=True)
class Guard:
    """One assumption of compiled code about the frame.

    Attributes:
        kind: a row of `GUARDS`.
        expected: the facts that the row stores of the value; keeps no tensor and no module alive.
        user_line: file and line of the user's code that needs the guard.
    """

    kind: str
    source: Source
    expected: Any
    user_line: tuple[str, int] | None = None

    @cached_property
    def text(self) -> str:
        """The guard as a Python expression over ``L``, ``G`` and `values.NAMES`."""
        return GUARDS[self.kind].text(self)

    def holds(self, value: Any, scope: Scope) -> bool:
        """Return whether ``value``, found at the source in a frame, is as expected."""
        return GUARDS[self.kind].holds(value, self, scope)

    def __str__(self) -> str:
        place = f"  # {self.user_line[0]}:{self.user_line[1]}" if self.user_line else ""
        return f"{self.kind}: {self.text}{place}"


@dataclass(frozen=True)
class Predicate:
    """The check of a CUSTOM guard.

    ``text`` prints it as an expression with ``{}`` for the value, over `values.NAMES`.
    """

    text: str
    check: Callable[[Any], bool]


@dataclass(frozen=True)
class Answer:
    """The check of an ANSWER guard: what ``ask()``, printed as ``call``, returned."""

    call: str
    ask: Callable[[], Any]
    value: Any


Difference = tuple[str, str, str]
"""Where (the source as the user writes it, or a part of it), old value, new value."""


def _difference(value: Any, guard: Guard, scope: Scope) -> list[Difference]:
    return [(guard.source.pretty, _old(guard.expected), values.brief(value))]


def _old(expected: Any) -> str:
    return expected.label if isinstance(expected, ObjectRef) else literal(expected)


def _as_is(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Row:
    """How one kind of guard works.

    Attributes:
        about: the requirement, in words.
        remember: computes ``expected`` from the live value (or the argument of `GuardList.add`).
        text: prints the guard.
        install: installs it on the C++ tree.
        holds: does the same check in Python.
        explain: returns the differences of a value for which the guard fails.
    """

    about: str
    remember: Callable[[Any], Any]
    text: Callable[[Guard], str]
    install: Callable[[GuardTree, Guard], None]
    holds: Callable[[Any, Guard, Scope], bool]
    explain: Callable[[Any, Guard, Scope], list[Difference]] = _difference


def _install_equals(tree: GuardTree, guard: Guard) -> None:
    _equals(
        tree, tree.manager(guard.source), guard.source.name, guard.expected, guard.text
    )


def _equals(tree: GuardTree, at: Manager, name: str, expected: Any, text: str) -> None:
    """Install an equality check: in C++ where its ``==`` is exact, item by item for tuples."""
    kind = type(expected)
    if kind is ObjectRef:
        tree.guard(at, "id_match", text, expected.id)
    elif kind is bool:
        tree.guard(at, "true_match" if expected else "false_match", text)
    elif expected is None:
        tree.guard(at, "none_match", text)
    elif kind is tuple:
        tree.guard(at, "type_match", text, id(tuple))
        tree.guard(at, "length_check", text, len(expected))
        for i, item in enumerate(expected):
            below = f"{name}[{i}]"
            _equals(tree, child(at, "tuple_getitem", below, key=i), below, item, text)
    elif kind in (complex, frozenset, slice) or (
        kind is float and (expected == 0.0 or math.isnan(expected))
    ):
        tree.test(at, text, lambda value: values.same(value, expected))
    else:
        tree.guard(at, "equals_match", text, expected)


def _remember_length(value: Any) -> tuple[ObjectRef, int]:
    if type(value) is tuple and len(value) == 2 and type(value[0]) is ObjectRef:
        return value[0], value[1]
    return ObjectRef.of(type(value)), values.length_of(value)


def _install_length(tree: GuardTree, guard: Guard) -> None:
    kind, length = guard.expected
    tree.guard(guard.source, "type_match", guard.text, kind.id)
    plain = not values.counts_itself(kind.get())
    if plain and issubclass(kind.get(), dict):
        tree.guard(guard.source, "dict_length_check", guard.text, length)
    elif plain and issubclass(kind.get(), list | tuple | set | frozenset):
        tree.guard(guard.source, "length_check", guard.text, length)
    else:
        tree.test(
            guard.source, guard.text, lambda value: values.has_length(value, length)
        )


def _length_holds(value: Any, guard: Guard, scope: Scope) -> bool:
    kind, length = guard.expected
    return values.has_length(value, length, kind)


def _explain_length(value: Any, guard: Guard, scope: Scope) -> list[Difference]:
    kind, length = guard.expected
    where = guard.source.pretty
    if not values.is_type(value, kind):
        return [(f"type({where})", kind.label, values.label_of(type(value)))]
    return [(f"len({where})", str(length), str(values.length_of(value)))]


def _install_keys(tree: GuardTree, guard: Guard) -> None:
    expected = guard.expected
    if isinstance(tree.value(guard.source), dict):
        tree.guard(guard.source, "dict_length_check", guard.text, len(expected))
        if all(type(key) is str for key in expected):
            tree.test(
                guard.source,
                guard.text,
                lambda value: values.keys_of(value) == expected,
            )
            return
    tree.test(guard.source, guard.text, lambda value: values.same_keys(value, expected))


def _remember_keys(value: Any) -> tuple[Any, ...]:
    keys = value if isinstance(value, tuple) else values.keys_of(value)
    return tuple(map(_key, keys))


def _key(key: Any) -> Any:
    try:
        return values.constant(key)
    except StageError:
        return ObjectRef.of(key)


def _install_contains(tree: GuardTree, guard: Guard) -> None:
    container, present = tree.value(guard.source), guard.kind == "CONTAINS"
    key = guard.expected
    if isinstance(container, dict):
        tree.guard(guard.source, "dict_contains", guard.text, present, key)
    elif isinstance(container, set | frozenset):
        tree.guard(guard.source, "set_contains", guard.text, present, key)
    else:
        tree.test(guard.source, guard.text, lambda value: (key in value) is present)


def _explain_contains(value: Any, guard: Guard, scope: Scope) -> list[Difference]:
    there, gone = "present", "absent"
    old, new = (there, gone) if guard.kind in ("CONTAINS", "HASATTR") else (gone, there)
    if guard.kind in ("HASATTR", "NO_ATTR"):
        return [(f"{guard.source.pretty}.{guard.expected}", old, new)]
    return [(f"{guard.expected!r} in {guard.source.pretty}", old, new)]


def _install_tensor(tree: GuardTree, guard: Guard) -> None:
    tree.tensor(guard.source, guard.text, guard.expected, guard.expected.keys)


def _remember_tensor(value: Any) -> TensorSpec:
    return value if isinstance(value, TensorSpec) else TensorSpec.of(value)


def _tensor_holds(value: Any, guard: Guard, scope: Scope) -> bool:
    return isinstance(value, Tensor) and not _tensor_differences(value, guard)


def _tensor_differences(value: Any, guard: Guard) -> list[tuple[str, Any, Any]]:
    spec: TensorSpec = guard.expected
    if not spec.cls.is_(type(value)):
        return [("type({})", spec.cls.label, values.label_of(type(value)))]
    return spec.differences(TensorSpec.of(value))


def _explain_tensor(value: Any, guard: Guard, scope: Scope) -> list[Difference]:
    where = guard.source.pretty
    differences = _tensor_differences(value, guard)
    if len(differences) > 1:  # implied by a change of type or dtype
        differences = [d for d in differences if not d[0].startswith("dispatch keys")]
    if any("shape" in d[0] for d in differences):  # implied by a change of sizes
        differences = [d for d in differences if "stride" not in d[0]]
    return [(part.format(where), str(old), str(new)) for part, old, new in differences]


def _install_global_state(tree: GuardTree, guard: Guard) -> None:
    tree.guard(guard.source, "global_state", guard.text, guard.expected)


def global_state(snapshot: Any = None) -> dict[str, Any]:
    """Return the process state that compiled code depends on, by name; of a snapshot if given."""
    text: Any = (snapshot or GlobalStateGuard()).__getstate__()
    state: dict[str, Any] = json.loads(text)
    return state


def _explain_global_state(value: Any, guard: Guard, scope: Scope) -> list[Difference]:
    old, new = global_state(guard.expected), global_state()
    changed = [name for name in old if old[name] != new[name]]
    return [(name, str(old[name]), str(new[name])) for name in changed]


def _install_modes(tree: GuardTree, guard: Guard) -> None:
    tree.guard(
        guard.source, "torch_function_mode_stack", guard.text, values.function_modes()
    )


def _install_weak(tree: GuardTree, guard: Guard) -> None:
    below = child(tree.manager(guard.source), "weakref_call", f"{guard.source.name}()")
    tree.guard(below, "not_none", guard.text)


def _install_code(tree: GuardTree, guard: Guard) -> None:
    tree.guard(guard.source, "type_match", guard.text, id(types.FunctionType))
    below = child(tree.manager(guard.source), "code", f"{guard.source.name}.__code__")
    tree.guard(below, "id_match", guard.text, guard.expected.id)


def _remember_code(value: Any) -> ObjectRef:
    return ObjectRef.of(value if isinstance(value, types.CodeType) else value.__code__)


def _install_has_attr(tree: GuardTree, guard: Guard) -> None:
    # Reaching the attribute is the whole check.
    name = f"{guard.source.name}.{guard.expected}"
    child(tree.manager(guard.source), "getattr", name, attr=guard.expected)


def _leaf(kind: str, *arguments: str) -> Callable[[GuardTree, Guard], None]:
    """Install the C++ guard of that name; ``arguments`` name attributes of ``expected``."""

    def install(tree: GuardTree, guard: Guard) -> None:
        picked = (getattr(guard.expected, name) for name in arguments)
        tree.guard(guard.source, kind, guard.text, *picked)

    return install


def _aliases_text(guard: Guard) -> str:
    names = [guard.source.name, *(source.name for source in guard.expected)]
    return f"no_aliases({', '.join(names)})"


def _explain_aliases(value: Any, guard: Guard, scope: Scope) -> list[Difference]:
    seen: dict[int, str] = {}
    for source in (guard.source, *guard.expected):
        first = seen.setdefault(id(source.evaluate(scope)), source.pretty)
        if first != source.pretty:
            return [(source.pretty, "a distinct object", f"the same object as {first}")]
    return []


def _others(guard: Guard, scope: Scope) -> list[Any]:
    return [source.evaluate(scope) for source in guard.expected]


GUARDS: Table[str, Row] = Table("guard kinds")

GUARDS.add("TYPE", Row(
    "is of exactly this type",
    lambda value: ObjectRef.of(value if isinstance(value, type | ObjectRef) else type(value)),
    lambda g: f"is_type({g.source.name}, {g.expected})",
    _leaf("type_match", "id"),
    lambda value, g, scope: g.expected.is_(type(value)),
    lambda value, g, scope: [
        (f"type({g.source.pretty})", g.expected.label, values.label_of(type(value)))
    ],
))  # fmt: skip
GUARDS.add("ID", Row(
    "is the same object",
    ObjectRef.of,
    lambda g: f"same({g.source.name}, {g.expected})",
    _leaf("id_match", "id"),
    lambda value, g, scope: g.expected.is_(value),
))  # fmt: skip
GUARDS.add("EQUALS", Row(
    "is a constant of this type and value",
    values.constant,
    lambda g: f"same({g.source.name}, {literal(g.expected)})",
    _install_equals,
    lambda value, g, scope: values.same(value, g.expected),
))  # fmt: skip
GUARDS.add("NONE", Row(
    "is None",
    lambda value: None,
    lambda g: f"{g.source.name} is None",
    _leaf("none_match"),
    lambda value, g, scope: value is None,
))  # fmt: skip
GUARDS.add("NOT_NONE", Row(
    "is not None",
    lambda value: None,
    lambda g: f"{g.source.name} is not None",
    _leaf("not_none"),
    lambda value, g, scope: value is not None,
    lambda value, g, scope: [(g.source.pretty, "not None", "None")],
))  # fmt: skip
GUARDS.add("BOOL", Row(
    "is True, or is False",
    bool,
    lambda g: f"{g.source.name} is {g.expected}",
    _install_equals,
    lambda value, g, scope: value is g.expected,
))  # fmt: skip
GUARDS.add("LENGTH", Row(
    "is of this type and has this many items",
    _remember_length,
    lambda g: f"has_length({g.source.name}, {g.expected[1]}, {g.expected[0]})",
    _install_length,
    _length_holds,
    _explain_length,
))  # fmt: skip
GUARDS.add("DICT_KEYS", Row(
    "has these keys in this order",
    _remember_keys,
    lambda g: f"same_keys({g.source.name}, {literal(g.expected)})",
    _install_keys,
    lambda value, g, scope: values.same_keys(value, g.expected),
    lambda value, g, scope: [
        (f"list({g.source.pretty})", literal(g.expected), values.brief(values.keys_of(value)))
    ],
))  # fmt: skip
GUARDS.add("DICT_LENGTH", Row(
    "is a dict with this many items",
    lambda value: value if isinstance(value, int) else len(value),
    lambda g: f"isinstance({g.source.name}, dict) and has_length({g.source.name}, {g.expected})",
    lambda tree, g: tree.guard(g.source, "dict_length_check", g.text, g.expected),
    lambda value, g, scope: isinstance(value, dict) and len(value) == g.expected,
    lambda value, g, scope: [
        (f"len({g.source.pretty})", str(g.expected), str(len(value)))
        if isinstance(value, dict)
        else (f"type({g.source.pretty})", "dict", values.label_of(type(value)))
    ],
))  # fmt: skip
GUARDS.add("ITEMS", Row(
    "is a set of these items, of their types, that gives them in this order",
    lambda value: tuple(map(_key, value)),
    lambda g: f"same(tuple({g.source.name}), {literal(g.expected)})",
    lambda tree, g: tree.test(
        g.source, g.text, lambda value: values.same(tuple(value), g.expected)
    ),
    lambda value, g, scope: values.same(tuple(value), g.expected),
    lambda value, g, scope: [
        (f"items of {g.source.pretty}", literal(g.expected), values.brief(tuple(value)))
    ],
))  # fmt: skip
GUARDS.add("CONTAINS", Row(
    "is a dict or set with this key",
    _as_is,
    lambda g: f"{literal(g.expected)} in {g.source.name}",
    _install_contains,
    lambda value, g, scope: g.expected in value,
    _explain_contains,
))  # fmt: skip
GUARDS.add("NOT_CONTAINS", Row(
    "is a dict or set without this key",
    _as_is,
    lambda g: f"{literal(g.expected)} not in {g.source.name}",
    _install_contains,
    lambda value, g, scope: g.expected not in value,
    _explain_contains,
))  # fmt: skip
GUARDS.add("HASATTR", Row(
    "has an attribute of this name",
    _as_is,
    lambda g: f"hasattr({g.source.name}, {g.expected!r})",
    _install_has_attr,
    lambda value, g, scope: hasattr(value, g.expected),
    _explain_contains,
))  # fmt: skip
GUARDS.add("NO_ATTR", Row(
    "has no attribute of this name",
    _as_is,
    lambda g: f"not hasattr({g.source.name}, {g.expected!r})",
    lambda tree, g: tree.guard(g.source, "no_hasattr", g.text, g.expected),
    lambda value, g, scope: not hasattr(value, g.expected),
    _explain_contains,
))  # fmt: skip
GUARDS.add("TENSOR", Row(
    "is a tensor of this class, dtype, device, sizes and strides",
    _remember_tensor,
    lambda g: f"check_tensor({g.source.name}, {g.expected})",
    _install_tensor,
    _tensor_holds,
    _explain_tensor,
))  # fmt: skip
GUARDS.add("CALLABLE_CODE", Row(
    "is a Python function with this code object",
    _remember_code,
    lambda g: f"has_code({g.source.name}, {g.expected})",
    _install_code,
    lambda value, g, scope: type(value) is types.FunctionType
    and g.expected.is_(value.__code__),
))  # fmt: skip
GUARDS.add("WEAK_ALIVE", Row(
    "is a weak reference to a living object",
    lambda value: None,
    lambda g: f"{g.source.name}() is not None",
    _install_weak,
    lambda value, g, scope: value() is not None,
    lambda value, g, scope: [(f"{g.source.pretty}()", "a living object", "None")],
))  # fmt: skip
GUARDS.add("DUPLICATE", Row(
    "is the same object as another source",
    _as_is,
    lambda g: f"{g.source.name} is {g.expected.name}",
    lambda tree, g: tree.aliases(g.source, g.expected, g.text),
    lambda value, g, scope: value is g.expected.evaluate(scope),
    lambda value, g, scope: [
        (g.source.pretty, f"the same object as {g.expected.pretty}", "a distinct object")
    ],
))  # fmt: skip
GUARDS.add("NO_ALIASING", Row(
    "is not the same object as another of these sources",
    tuple,
    _aliases_text,
    lambda tree, g: tree.no_aliases((g.source, *g.expected), g.text),
    lambda value, g, scope: values.no_aliases(value, *_others(g, scope)),
    _explain_aliases,
))  # fmt: skip
GUARDS.add("GLOBAL_STATE", Row(
    "grad mode, autocast, default dtype, determinism and the like are unchanged",
    lambda value: value or GlobalStateGuard(),
    lambda g: f"global_state() == {global_state(g.expected)}",
    _install_global_state,
    lambda value, g, scope: g.expected.check(),
    _explain_global_state,
))  # fmt: skip
GUARDS.add("DEFAULT_DEVICE", Row(
    "the default device is unchanged",
    lambda value: values.default_device(),
    lambda g: f"default_device() == {g.expected!r}",
    lambda tree, g: tree.guard(g.source, "default_device", g.text),
    lambda value, g, scope: values.default_device() == g.expected,
    lambda value, g, scope: [
        ("default device", str(g.expected), str(values.default_device()))
    ],
))  # fmt: skip
GUARDS.add("TORCH_FUNCTION_MODES", Row(
    "modes of these types, and no others, are active",
    lambda value: values.mode_types(),
    lambda g: f"mode_types() == {g.expected!r}",
    _install_modes,
    lambda value, g, scope: values.mode_types() == g.expected,
    lambda value, g, scope: [
        ("torch function modes", str(g.expected), str(values.mode_types()))
    ],
))  # fmt: skip
GUARDS.add("TRANSFORMS", Row(
    "these transforms of torch.func, and no others, are active",
    lambda value: values.transforms(),
    lambda g: f"transforms() == {g.expected!r}",
    lambda tree, g: tree.test(g.source, g.text, lambda value: values.transforms() == g.expected),
    lambda value, g, scope: values.transforms() == g.expected,
    lambda value, g, scope: [("transforms", str(g.expected), str(values.transforms()))],
))  # fmt: skip
GUARDS.add("MODE", Row(
    "a mode of torch, beyond those of its own guard on global state, is unchanged",
    _as_is,
    lambda g: f"torch_mode({g.expected[0]!r}) == {g.expected[1]!r}",
    lambda tree, g: tree.test(
        g.source, g.text, lambda value: torch_mode(g.expected[0]) == g.expected[1]
    ),
    lambda value, g, scope: torch_mode(g.expected[0]) == g.expected[1],
    lambda value, g, scope: [
        (f"torch._C.{g.expected[0]}()", str(g.expected[1]), str(torch_mode(g.expected[0])))
    ],
))  # fmt: skip
GUARDS.add("DEFINITIONS", Row(
    "classes, modules and functions that the code looked at keep their definitions",
    _as_is,
    lambda g: f"unchanged({g.expected})",
    lambda tree, g: tree.test(g.source, g.text, g.expected.watch),
    lambda value, g, scope: g.expected.watch(),
    lambda value, g, scope: g.expected.differences(),
))  # fmt: skip
GUARDS.add("NO_ERROR", Row(
    "no exception is being handled by a caller",
    lambda value: None,
    lambda g: "not handles_error()",
    lambda tree, g: tree.test(g.source, g.text, lambda value: not values.handles_error()),
    lambda value, g, scope: not values.handles_error(),
    lambda value, g, scope: [("sys.exc_info()", "(None, None, None)", "an error")],
))  # fmt: skip
GUARDS.add("CUSTOM", Row(
    "a custom check holds",
    _as_is,
    lambda g: g.expected.text.format(g.source.name),
    lambda tree, g: tree.test(g.source, g.text, g.expected.check),
    lambda value, g, scope: bool(g.expected.check(value)),
    lambda value, g, scope: [
        (g.source.pretty, g.expected.text.format(g.source.pretty), values.brief(value))
    ],
))  # fmt: skip
GUARDS.add("ANSWER", Row(
    "a function of the state of the process returns what it returned",
    _as_is,
    lambda g: f"{g.expected.call} == {g.expected.value!r}",
    lambda tree, g: tree.test(
        g.source, g.text, lambda value: bool(g.expected.ask() == g.expected.value)
    ),
    lambda value, g, scope: bool(g.expected.ask() == g.expected.value),
    lambda value, g, scope: [
        (g.expected.call, values.brief(g.expected.value), values.brief(g.expected.ask()))
    ],
))  # fmt: skip
GUARDS.add("INTEGER", Row(
    "is an integer of so many bits, besides its sign",
    _as_is,
    lambda g: f"fits_bits({g.source.name}, {g.expected})",
    lambda tree, g: tree.test(
        g.source, g.text, lambda value: values.fits_bits(value, g.expected)
    ),
    lambda value, g, scope: values.fits_bits(value, g.expected),
    lambda value, g, scope: [
        (g.source.pretty, f"an int of {g.expected} bits", values.brief(value))
    ],
))  # fmt: skip

NAMES = {**values.NAMES, "global_state": global_state, "unchanged": unchanged,
         "dispatch_modes": dispatch_modes}  # fmt: skip
"""What printed guards may name besides ``L`` and ``G``."""

__all__ = ["GUARDS", "NAMES", "Difference", "Guard", "Predicate", "Process", "Row"]
