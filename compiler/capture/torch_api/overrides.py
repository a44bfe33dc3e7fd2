"""`__torch_function__`: traces the overrides of operations by classes and modes.

The arguments of an override come from torch itself: the operation runs on stand-ins under a mode
that stops it. The override is then traced like other Python code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
)
from torch.utils._device import DeviceContext

from tc.compiler.capture import breaks
from tc.compiler.capture.values.base import Args, Kwargs, NotConstant, Value
from tc.compiler.capture.values.const import is_not_implemented
from tc.compiler.capture.values.containers import ListValue, SequenceValue, TupleValue
from tc.compiler.capture.values.objects import ObjectValue
from tc.compiler.capture.values.slices import SliceValue
from tc.compiler.capture.values.subclasses import (
    CLASSES_OFF,
    OFF,
    ON,
    SubclassValue,
    override_of,
)
from tc.compiler.capture.values.tensor import SymValue, TensorValue
from tc.compiler.core.sources import CallSource

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


@dataclass
class Overrides:
    """The active overrides of operations in traced code.

    Attributes:
        level: ON, CLASSES_OFF or OFF.
        modes: the active modes, innermost last.
        outer_modes: the modes that were active when the frame began.
        device_modes: the number of device modes below them, which torch itself applies.
    """

    level: int = ON
    modes: list[Value] = field(default_factory=list)
    outer_modes: tuple[Value, ...] = ()
    device_modes: int = 0

    @classmethod
    def now(cls, t: Interpreter) -> Overrides:
        """Return the state of this thread."""
        level = ON if torch._C._is_torch_function_enabled() else CLASSES_OFF
        if torch._C._is_torch_function_all_disabled():
            level = OFF
        active: list[Any] = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
        if all(type(mode) is DeviceContext for mode in active):
            return cls(level, device_modes=len(active))
        read = t.values.object_source(torch._C._get_function_stack_at)
        sources = [
            CallSource(read, partial(_at, i), f"{{}}({i})") for i in range(len(active))
        ]
        modes = [
            t.values.wrap(mode, source)
            for mode, source in zip(active, sources, strict=True)
        ]
        return cls(level, modes, tuple(modes))

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Switch overrides off for the tracer's own calls of torch."""
        taken = [_pop_mode() for _ in self.outer_modes]  # type: ignore[no-untyped-call]
        try:
            with torch._C.DisableTorchFunctionSubclass():
                yield
        finally:
            for mode in reversed(taken):
                _push_mode(mode)  # type: ignore[no-untyped-call]

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Switch traced modes off while a graph that contains their operations is compiled."""
        if not self.outer_modes:
            yield
            return
        with torch._C.DisableTorchFunction():
            yield

    def changes(self) -> tuple[int, list[Value]]:
        """Return how many of the outer modes were left, and which modes were entered since."""
        kept = 0
        for before, after in zip(self.outer_modes, self.modes, strict=False):
            if before is not after:
                break
            kept += 1
        return len(self.outer_modes) - kept, self.modes[kept:]

    @contextmanager
    def at_least(self, level: int) -> Iterator[None]:
        """Switch off at least the overrides of a level."""
        before = self.level
        self.level = max(level, before)
        try:
            yield
        finally:
            self.level = before


def _at(index: int, read: Callable[[int], Any]) -> Any:
    return read(index)


def without_classes(graph: Callable[..., Any], *inputs: Any) -> Any:
    """Call a graph with overrides of classes off, as it contains them.

    Called from residual code.
    """
    with torch._C.DisableTorchFunctionSubclass():
        return graph(*inputs)


def without_modes(graph: Callable[..., Any], *inputs: Any) -> Any:
    """Call a graph with active modes off, as it contains them; called from residual code."""
    with torch._C.DisableTorchFunction():
        return graph(*inputs)


def runner(t: Interpreter) -> Callable[..., Any] | None:
    """Return the function that has to call a traced graph, or None."""
    if t.overrides.outer_modes:
        return without_modes
    return without_classes if t.output.derived.below else None


# -- who overrides ---------------------------------------------------------------------------
def _flat(t: Interpreter, values: Any) -> Iterator[Value]:
    for value in values:
        if isinstance(value, SequenceValue):
            yield from _flat(t, value.values(t))
        else:
            yield value


def _overrides(value: Value) -> bool:
    if isinstance(value, SubclassValue):
        return value.overrides
    return isinstance(value, ObjectValue) and override_of(value.cls) is not None


def owners_among(t: Interpreter, values: Any) -> list[Value]:
    """Return one argument for each overriding class, in the order of dispatch."""
    found: list[Value] = []
    for value in _flat(t, values):
        kind = value.python_type() if _overrides(value) else None
        if kind is None or any(kind is other.python_type() for other in found):
            continue
        above = (i for i, o in enumerate(found) if issubclass(kind, o.python_type()))
        found.insert(next(above, len(found)), value)
    return found


def intercept(
    t: Interpreter,
    operation: Callable[..., Any],
    args: Args,
    kwargs: Kwargs | None = None,
) -> Value | None:
    """Return the result of an operation's overrides; None if there are none."""
    kwargs = kwargs or {}
    state = t.overrides
    if state.level == OFF or (state.level == CLASSES_OFF and not state.modes):
        return None
    owners = owners_among(t, [*args, *kwargs.values()]) if state.level == ON else []
    if not owners and not state.modes:
        return None
    found = _Probe(t).run(operation, args, kwargs)
    if found is None:
        return None
    function, args, kwargs = found
    return dispatch(t, function, owners, args, kwargs)


def dispatch(
    t: Interpreter, function: Any, owners: list[Value], args: Args, kwargs: Kwargs
) -> Value:
    """Offer an operation to the innermost mode and then to the classes of its arguments."""
    kinds = t.values.new_tuple(t.values.known(owner.python_type()) for owner in owners)
    rest: list[Value] = [t.values.known(function), kinds, TupleValue(list(args))]
    rest.append(t.values.dict_of(kwargs.items()))
    state = t.overrides
    if state.modes:
        mode = state.modes.pop()
        try:
            result = mode.attr(t, "__torch_function__").call(t, rest, {})
        finally:
            state.modes.append(mode)
        if not is_not_implemented(result):
            return result
    for owner in owners:
        method = t.attributes.class_attr(
            owner, owner.python_type(), "__torch_function__"
        )
        assert method is not None
        result = method.call(t, rest, {})
        if not is_not_implemented(result):
            return result
    # Python has other operands to ask, or torch raises an error, whose text it knows
    what = getattr(function, "__name__", str(function))
    raise breaks.GraphBreak(
        breaks.UNSUPPORTED_CALL, f"{what}, which no override of its arguments takes,"
    )


# -- asking torch ----------------------------------------------------------------------------
#: packages whose code dispatches whole operations: torch's, and tc's, which calls C functions
OFFERING = ("torch", "tc")


class _Stopped(Exception):
    """Control flow: torch offered an operation to the probing mode."""


class _Stopper(TorchFunctionMode):
    """Stops at the first operation that torch offers."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if (
            sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
            not in OFFERING
        ):
            # This call is a step inside the operation, which somebody has replaced by Python code.
            raise breaks.GraphBreak(
                breaks.UNSUPPORTED_CALL,
                f"a replaced method, which calls {func.__name__}",
            )
        raise _Stopped(func, args, kwargs or {})


class _Overriding:
    """A stand-in for an object that is no tensor but overrides torch functions."""

    __torch_function__ = _Stopper.__torch_function__


class _Probe:
    """Finds the arguments that torch passes to the overrides of one operation."""

    def __init__(self, t: Interpreter) -> None:
        self.t = t
        self._values: dict[int, Value] = {}
        self._kept: list[Any] = []

    def run(
        self, operation: Callable[..., Any], args: Args, kwargs: Kwargs
    ) -> tuple[Any, list[Value], Kwargs] | None:
        """Return function and arguments; None if torch does not offer the operation at all."""
        plain = [self._stand_in(arg) for arg in args]
        named = {key: self._stand_in(value) for key, value in kwargs.items()}
        try:
            with torch._C._EnableTorchFunction(), _Stopper():
                operation(*plain, **named)
        except _Stopped as stopped:
            function, found, found_named = stopped.args
            back = [self._value(arg) for arg in found]
            return (
                function,
                back,
                {key: self._value(v) for key, v in found_named.items()},
            )
        except breaks.GraphBreak:
            raise
        except Exception:  # recording the operation reports its error
            return None
        return None

    def _stand_in(self, value: Value) -> Any:
        made = self._make(value)
        self._kept.append(made)
        self._values[id(made)] = value
        return made

    def _make(self, value: Value) -> Any:
        if isinstance(value, TensorValue):
            return torch.empty(0, device="cpu")
        if isinstance(value, SymValue):
            return value.example
        if isinstance(value, SliceValue):
            return slice(*[self._stand_in(part) for part in value.parts])
        if isinstance(value, SequenceValue):
            items = [self._stand_in(item) for item in value.values(self.t)]
            return items if isinstance(value, ListValue) else tuple(items)
        if isinstance(value, ObjectValue):
            return _Overriding() if _overrides(value) else object()
        try:
            return value.constant()
        except NotConstant:
            return object()

    def _value(self, found: Any) -> Value:
        value = self._values.get(id(found))
        if value is not None:
            return value
        if isinstance(found, tuple):
            return TupleValue([self._value(item) for item in found])
        if isinstance(found, list):
            return ListValue([self._value(item) for item in found])
        if isinstance(found, dict):
            return self.t.values.dict_of(
                (key, self._value(item)) for key, item in found.items()
            )
        return self.t.values.known(found)
