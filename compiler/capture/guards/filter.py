"""Guard filters of the user: calls get faster, and results wrong if a dropped guard mattered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tc.compiler.capture.guards.guard_list import Guard, GuardList
from tc.compiler.capture.guards.shape_guards import ShapeGuards
from tc.compiler.core.sources import GlobalSource, Scope, Source
from tc.compiler.errors import OptionError

#: kinds of guards -> the names of these kinds in torch.compile, which users' filters test
TORCH_NAMES = {
    "TYPE": "TYPE_MATCH",
    "ID": "ID_MATCH",
    "EQUALS": "CONSTANT_MATCH",
    "BOOL": "BOOL_MATCH",
    "NONE": "NONE_MATCH",
    "NOT_NONE": "NOT_NONE_MATCH",
    "LENGTH": "SEQUENCE_LENGTH",
    "DICT_KEYS": "DICT_KEYS_MATCH",
    "CONTAINS": "DICT_CONTAINS",
    "NOT_CONTAINS": "DICT_CONTAINS",
    "NO_ATTR": "NOT_PRESENT_IN_GENERIC_DICT",
    "TENSOR": "TENSOR_MATCH",
    "CALLABLE_CODE": "CLOSURE_MATCH",
    "DUPLICATE": "DUPLICATE_INPUT",
    "TORCH_FUNCTION_MODES": "TORCH_FUNCTION_STATE",
    "SHAPE": "SHAPE_ENV",
}


@dataclass(frozen=True)
class GuardEntry:
    """One guard, as a filter sees it.

    Attributes:
        name: the guarded source, as Python over ``L`` and ``G``.
        has_value: whether the value could be read; `value` is None if not.
        guard_type: kind of the guard in torch.compile; `kind`: in tc ("SHAPE" for all
            conditions on sizes together).
        is_global: whether the source starts at a global.
        modules: the `torch.nn` modules that the source leads through, outermost first.
        orig_guard: the guard itself; None for conditions on sizes.
    """

    name: str
    has_value: bool
    value: Any
    guard_type: str
    kind: str
    is_global: bool
    modules: tuple[torch.nn.Module, ...]
    orig_guard: Guard | None
    derived_guard_types: tuple[str, ...] = ()


GuardFilter = Callable[[Sequence[GuardEntry]], Sequence[bool]]


def filtered(
    guards: GuardList, shapes: ShapeGuards, keep: GuardFilter, scope: Scope
) -> tuple[GuardList, ShapeGuards]:
    """Return the guards that a filter keeps.

    Raises:
        OptionError: the filter does not return one bool for each guard.
    """
    entries = [_entry(guard, scope) for guard in guards]
    if shapes.guards:
        entries.append(
            GuardEntry("", False, None, "SHAPE_ENV", "SHAPE", False, (), None)
        )
    try:
        kept = list(keep(entries))
    except Exception as error:
        raise OptionError(
            f"guard_filter_fn, given {len(entries)} guards, raised {type(error).__name__}: {error}"
        ) from error
    if len(kept) != len(entries):
        raise OptionError(
            f"guard_filter_fn returned {len(kept)} values for {len(entries)} guards: it has to "
            "return a list with True for each guard that is kept, and False for the others"
        )
    left = GuardList()
    for entry, wanted in zip(entries, kept, strict=True):
        if wanted and entry.orig_guard is not None:
            left.put(entry.orig_guard)
    drops_shapes = shapes.guards and not kept[-1]
    return left, ShapeGuards() if drops_shapes else shapes


def _entry(guard: Guard, scope: Scope) -> GuardEntry:
    modules: list[torch.nn.Module] = []
    step: Source | None = guard.source
    while step is not None:
        _, found = _read(step, scope)
        if isinstance(found, torch.nn.Module):
            modules.insert(0, found)
        step = step.parent
    there, value = _read(guard.source, scope)
    return GuardEntry(
        guard.source.name,
        there,
        value,
        TORCH_NAMES.get(guard.kind, guard.kind),
        guard.kind,
        isinstance(guard.source.root, GlobalSource),
        tuple(modules),
        guard,
    )


def _read(source: Source, scope: Scope) -> tuple[bool, Any]:
    try:
        return True, source.evaluate(scope)
    except Exception:  # user code may run here, and raise anything
        return False, None


# -- filters to use ------------------------------------------------------------------------------
def _of_torch(module: torch.nn.Module) -> bool:
    return type(module).__module__.startswith("torch.nn.")


def keep_portable_guards_unsafe(guard_entries: Sequence[GuardEntry]) -> list[bool]:
    """Keep the guards on torch's state, on sizes, and on tensors that are no globals."""
    return [
        entry.kind in ("GLOBAL_STATE", "SHAPE")
        or (entry.kind == "TENSOR" and not entry.is_global)
        for entry in guard_entries
    ]


def keep_tensor_guards_unsafe(
    guard_entries: Sequence[GuardEntry], keep_parameters: bool = False
) -> list[bool]:
    """Keep the guards on tensors and sizes; those on parameters only if asked to."""
    return [
        entry.kind == "SHAPE"
        or (
            entry.kind == "TENSOR"
            and (keep_parameters or not isinstance(entry.value, torch.nn.Parameter))
        )
        for entry in guard_entries
    ]


def skip_guard_on_inbuilt_nn_modules_unsafe(
    guard_entries: Sequence[GuardEntry],
) -> list[bool]:
    """Leave out guards on modules of torch's classes, and on everything reached through them."""
    return [not any(map(_of_torch, entry.modules)) for entry in guard_entries]


def skip_guard_on_all_nn_modules_unsafe(
    guard_entries: Sequence[GuardEntry],
) -> list[bool]:
    """Leave out guards on modules, and on everything reached through them."""
    return [not entry.modules for entry in guard_entries]


def skip_guard_on_globals_unsafe(guard_entries: Sequence[GuardEntry]) -> list[bool]:
    """Leave out guards on globals, and on everything reached from them."""
    return [not entry.is_global for entry in guard_entries]


def skip_all_guards_unsafe(guard_entries: Sequence[GuardEntry]) -> list[bool]:
    """Leave out all guards: the first compiled code runs for all later calls."""
    return [False for _ in guard_entries]
