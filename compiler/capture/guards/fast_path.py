"""Fast-path dispatch: matching calls run compiled code without going through the frame hook.

In: a function, the arguments of its latest call, and the hook's entries for its code. Out: an entry
of the function's fast path (``fast_path.c``), which checks the same guards from the arguments alone
and calls the residual code as a function. The hook, its lookup and torch's guard tree take more
than half of the time of a short call.

A fast path has an entry only if it supports all kinds of the guards, and if the residual code does
nothing but call its graph, so that no frame runs that should have been offered to the hook.
"""

from __future__ import annotations

import dis
import math
from collections.abc import Callable, Iterable
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import torch

from tc.compiler.capture import hook
from tc.compiler.capture.bytecode.linetable import decode_exceptions
from tc.compiler.capture.guards.facts import PROCESS, ObjectRef, TensorSpec
from tc.compiler.capture.guards.guard_list import CheckedGuards
from tc.compiler.capture.guards.rows import Guard
from tc.compiler.capture.guards.tree import check_of_tensors
from tc.compiler.core.gate import Gate
from tc.compiler.core.sources import GlobalSource, LocalSource, Scope, Source

Place = Any
"""Where ``fast_path.c`` finds a value: number of an argument, a cell, or dict and key."""
Test = tuple[str, Any, Any]
"""Kind, place or what is called, expected value or its address."""

#: opcodes that residual code may contain besides one call
HARMLESS = frozenset(
    (
        "RESUME",
        "NOP",
        "POP_TOP",
        "COPY",
        "SWAP",
        "PUSH_NULL",
        "PRECALL",
        "RETURN_VALUE",
        "RETURN_CONST",
        "LOAD_GLOBAL",
        "LOAD_CONST",
        "LOAD_DEREF",
        "LOAD_CLOSURE",
        "COPY_FREE_VARS",
        "MAKE_CELL",
        "LOAD_FAST",
        "LOAD_FAST_CHECK",
        "LOAD_FAST_AND_CLEAR",
        "LOAD_FAST_LOAD_FAST",
        "STORE_FAST",
        "STORE_FAST_LOAD_FAST",
        "STORE_FAST_STORE_FAST",
        "DELETE_FAST",
        "BINARY_SUBSCR",
        "UNPACK_SEQUENCE",
        "BUILD_TUPLE",
        "BUILD_LIST",
        "BUILD_MAP",
        "BUILD_CONST_KEY_MAP",
    )
)
#: the most values that an entry may read; see ``fast_path.c``
MOST = 32
_GENERATOR_OR_VARIADIC = 0x04 | 0x08 | 0x20 | 0x80 | 0x200  # flags of code objects
#: constants that C compares as `guard_values.same` does
_PLAIN = (int, str, bytes, torch.dtype, torch.device, torch.layout, torch.memory_format)


class _Unknown(Exception):
    """Control flow: fast paths do not support a guard."""


class FastPaths:
    """Makes fast paths for the hook; the gate is asked for ``capture.fast_path``."""

    def __init__(
        self,
        make: Callable[[FunctionType], tuple[Any, Any] | None],
        close_all: Callable[[], None],
        gate: Gate,
    ) -> None:
        self.make, self.close_all = make, close_all
        self.open = partial(install_entry, gate)


def install_entry(
    gate: Gate,
    fast_path: Any,
    fn: FunctionType,
    entries: Callable[[], Iterable[hook.CacheEntry]],
    args: tuple[Any, ...],
) -> bool:
    """Add the entry that matches a call's arguments; return whether there was one.

    Args:
        fast_path: the fast path of ``fn``, which was just called with positional ``args`` only.
        entries: returns the hook's entries for the function's code.
    """
    epoch = fast_path.epoch  # the entry is refused if the epoch changes after this read
    code = fn.__code__
    plain = not code.co_flags & _GENERATOR_OR_VARIADIC and not code.co_kwonlyargcount
    if not plain or len(args) != code.co_argcount:
        return False
    locals = dict(zip(code.co_varnames, args, strict=False))
    for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=True):
        try:
            locals[name] = cell.cell_contents
        except ValueError:
            return False  # not set yet
    for entry in entries():
        guards: CheckedGuards = entry.guards
        if not guards.check(locals):
            continue
        if not _only_calls_graph(entry.code):
            return False
        way = _Way(fn, locals)
        try:
            for guard in guards.guards:
                way.add(guard)
            check = way.check_of_tensors()
            relation, related = way.relation(guards)
        except _Unknown:
            return False
        if len(way.places) > MOST or not gate.allow(
            "capture.fast_path", code.co_qualname
        ):
            return False
        code = hook.uncaptured(entry.code)
        run = FunctionType(code, fn.__globals__, fn.__name__, None, fn.__closure__)
        places, tensors = tuple(way.places), tuple(way.tensors)
        values = places, tuple(way.tests), tensors, check, relation, related
        return bool(fast_path.add(epoch, run, len(args), *values))
    return False


def _only_calls_graph(code: CodeType) -> bool:
    """Return whether code, until its graph raises, does nothing else of note than to call it.

    What handles errors comes last.
    """
    handlers = [2 * one.target for one in decode_exceptions(code.co_exceptiontable)]
    end = min(handlers, default=len(code.co_code))
    steps = [step for step in dis.get_instructions(code) if step.offset < end]
    calls = [step for step in steps if step.opname == "CALL"]
    return len(calls) == 1 and all(
        s.opname in HARMLESS for s in steps if s is not calls[0]
    )


class _Way:
    """The parts of an entry: the values to read, the tests of each, and the tensors among them."""

    def __init__(self, fn: FunctionType, locals: dict[str, Any]) -> None:
        self.places: list[Place] = []
        self.tests: list[Test] = []
        self.tensors: list[int] = []
        self._fn, self._scope = fn, Scope(locals, fn.__globals__)
        self._known: dict[str, int] = {}
        self._examples: list[tuple[Any, TensorSpec]] = []
        self._apart: set[int] = set()
        # The hook names compiled regions for profilers; a fast path does not.
        profiler = (torch.autograd.profiler.__dict__, "_is_profiler_enabled")
        self._is("profiler", profiler, False)

    def add(self, guard: Guard) -> None:
        """Add a guard.

        Raises:
            _Unknown: fast paths do not support its kind or its source.
        """
        if guard.source is PROCESS:
            self._add_of_process(guard)
            return
        kind, expected = guard.kind, guard.expected
        place = self._place(guard.source)
        if kind == "NO_ALIASING":
            self._apart |= {place, *map(self._place, expected)}
        elif kind == "TENSOR":
            self.tensors.append(place)
            self._examples.append((guard.source.evaluate(self._scope), expected))
        elif kind in ("TYPE", "ID"):
            self.tests.append(("t" if kind == "TYPE" else "i", place, expected.id))
        elif kind == "INTEGER":
            self.tests.append(("b", place, expected))
        elif kind == "CALLABLE_CODE":
            self.tests.append(("f", place, expected.id))
        elif kind in ("NONE", "EQUALS", "BOOL") and (
            expected is None or type(expected) is bool
        ):
            self.tests.append(("i", place, id(expected)))
        elif kind == "EQUALS" and isinstance(expected, ObjectRef):
            self.tests.append(("i", place, expected.id))
        elif kind == "EQUALS" and (
            type(expected) in _PLAIN or _is_plain_float(expected)
        ):
            self.tests.append(("=", place, expected))
        else:
            raise _Unknown

    def check_of_tensors(self) -> Any:
        """Return torch's check that all tensors are distinct and have the guarded properties.

        Raises:
            _Unknown: it cannot check them.
        """
        if not self._apart <= set(self.tensors):
            raise _Unknown
        if not self._examples:
            return None
        tensors = [tensor for tensor, _ in self._examples]
        if any(type(t) not in (torch.Tensor, torch.nn.Parameter) for t in tensors):
            raise _Unknown
        sizes = [list(spec.size) for _, spec in self._examples]
        strides = [list(spec.stride) for _, spec in self._examples]
        check = check_of_tensors(tensors, sizes, strides)
        if check is None or any(t.layout is not torch.strided for t in tensors):
            raise _Unknown
        return check

    def relation(
        self, guards: CheckedGuards
    ) -> tuple[Callable[..., bool] | None, tuple[int, ...]]:
        """Return the check of sizes, strides and numbers, and the places of its arguments.

        Raises:
            _Unknown: reading them may run a program's code.
        """
        shapes = guards.shapes
        if not shapes.guards:
            return None, ()
        if shapes.derived:
            raise _Unknown
        return guards.relation, tuple(map(self._place, shapes.sources))

    def _add_of_process(self, guard: Guard) -> None:
        kind, expected = guard.kind, guard.expected
        if kind == "GLOBAL_STATE":
            self.tests.append(("c", expected.check, True))
        elif kind == "DEFAULT_DEVICE" and expected is None:
            self._is("device", (torch.utils._device.__dict__, "CURRENT_DEVICE"), None)
        elif kind == "TORCH_FUNCTION_MODES" and not expected:
            self.tests.append(("c", torch._C._len_torch_function_stack, 0))
        elif kind == "DEFINITIONS":
            self.tests.append(("c", expected.watch, True))
        else:
            raise _Unknown

    def _is(self, name: str, place: Place, value: Any) -> None:
        """Add the test that a value is a certain Python constant."""
        self.tests.append(("i", self._numbered(name, place), id(value)))

    def _place(self, source: Source) -> int:
        code = self._fn.__code__
        if isinstance(source, LocalSource):
            name = source.local
            if name in code.co_freevars:
                cell = (self._fn.__closure__ or ())[code.co_freevars.index(name)]
                return self._numbered(source.name, cell)
            return self._numbered(source.name, code.co_varnames.index(name))
        if not isinstance(source, GlobalSource):
            raise _Unknown
        if source.global_name not in self._fn.__globals__:
            raise _Unknown  # a builtin
        return self._numbered(source.name, (self._fn.__globals__, source.global_name))

    def _numbered(self, name: str, place: Place) -> int:
        if name not in self._known:
            self._known[name] = len(self.places)
            self.places.append(place)
        return self._known[name]


def _is_plain_float(value: Any) -> bool:
    return type(value) is float and value != 0.0 and not math.isnan(value)
