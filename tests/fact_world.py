"""A small world that a program lives in: made of text, changed by text, and put back when closed.

A world is a module of its own (fresh globals, fresh code objects) in which ``f`` is the program
and ``args`` are the arguments of its next call (a tuple, or a function that makes one). Eager and
compiled code get a world each, so that what one call leaves behind never reaches the other.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import dataclasses
import enum
import functools
import gc
import itertools
import linecache
import math
import operator
import os
import random
import sys
import textwrap
import threading
import types
import typing
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_GIVEN = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        collections, contextlib, contextvars, dataclasses, enum, functools, gc, itertools, math,
        operator, os, random, sys, threading, torch, types, typing, weakref,
    )
} | {
    "np": np, "nn": torch.nn, "F": torch.nn.functional,
    "TorchFunctionMode": TorchFunctionMode, "TorchDispatchMode": TorchDispatchMode,
}  # fmt: skip
_ABSENT = object()
_numbers = itertools.count()


@dataclass(frozen=True)
class Fact:
    """Something that a compiled function reads of the world, and a change of it.

    Attributes:
        setup: text that defines ``f`` and ``args``.
        change: text that changes what ``f`` reads; it may rebind ``args``.
        alone: whether the change breaks other programs, so that no other may share the world.
    """

    name: str
    family: str
    setup: str
    change: str
    alone: bool = False

    def program(self) -> str:
        """Return the fact as a program that a person can read."""
        return f"{self.setup}\nf(*args)\n{self.change}\nf(*args)"


class Family(list[Fact]):
    """The facts of one family; calling it adds one."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __call__(self, name: str, setup: str, change: str, *, alone: bool = False) -> None:
        """Add a fact; its texts may be indented as the code around them is."""
        setup, change = textwrap.dedent(setup).strip(), textwrap.dedent(change).strip()
        self.append(Fact(f"{self.name}.{name}", self.name, setup, change, alone))


class World:
    """One world; see the module. It is a context manager that undoes what was patched."""

    def __init__(self, setup: str, name: str = "world") -> None:
        self.name = f"{name}_{next(_numbers)}".replace(".", "_")
        module = types.ModuleType(self.name)
        sys.modules[self.name] = module
        self.space = module.__dict__
        self.space.update(_GIVEN)
        self.space.update(
            t=example, patch=self.patch, put=self.put, enter=self.enter, defer=self._defer,
            module=self.module,
        )  # fmt: skip
        self._undo = contextlib.ExitStack()
        self._changes: list[tuple[contextlib.ExitStack, dict[str, Any]]] = []
        self._texts = itertools.count()
        self._defer(lambda: sys.modules.pop(self.name, None))
        self.run(setup)
        #: the program as it is without a compiler
        self.program: Callable[..., Any] = self.space["f"]

    def __enter__(self) -> World:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Undo all changes outside of the world."""
        while self._changes:
            self._changes.pop()[0].close()
        self._undo.close()
        torch.set_grad_enabled(True)  # compiled code that fails may leave it off: snapshots show it

    def run(self, text: str) -> None:
        """Run text among the world's globals."""
        path = f"{self.name}_{next(self._texts)}.py"  # "<...>" would be no code of the user
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
        self._undo.callback(linecache.cache.pop, path, None)
        exec(compile(text, path, "exec"), self.space)

    def change(self, text: str) -> None:
        """Run text that `back` can undo: globals bound, things patched, contexts entered."""
        self._changes.append((contextlib.ExitStack(), dict(self.space)))
        self.run(text)

    def back(self) -> None:
        """Undo the last change that is still made, as far as it can be undone."""
        if not self._changes:
            return
        stack, before = self._changes.pop()
        stack.close()
        for name in self.space.keys() - before.keys():
            if not name.startswith(("__compiled_fn_", "__tc_", "__import_")):  # compilers' own
                del self.space[name]
        for name, value in before.items():
            if self.space.get(name, _ABSENT) is not value:
                self.space[name] = value

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments of the next call."""
        args = self.space["args"]
        return tuple(args()) if callable(args) else tuple(args)

    def watched(self) -> Any:
        """Return what the text wants looked at after a call, by its name ``watch``."""
        found = self.space.get("watch")
        return found() if isinstance(found, types.FunctionType) else found

    # -- what texts may call -------------------------------------------------------------------
    def patch(self, owner: Any, name: str, value: Any = _ABSENT) -> None:
        """Set an attribute (delete it where no value is given) until the world ends."""
        held = vars(owner).get(name, _ABSENT) if hasattr(owner, "__dict__") else _ABSENT
        if held is _ABSENT and hasattr(getattr(type(owner), name, None), "__set__"):
            held = getattr(owner, name)
        if value is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, value)
        self._defer(lambda: _restore(owner, name, held))

    def put(self, mapping: Any, key: Any, value: Any = _ABSENT) -> None:
        """Set an item (delete it where no value is given) until the world ends."""
        held = mapping.get(key, _ABSENT)
        if value is _ABSENT:
            del mapping[key]
        else:
            mapping[key] = value
        self._defer(lambda: _put_back(mapping, key, held))

    def enter(self, context: Any) -> Any:
        """Enter a context that is left when the world ends."""
        return self._stack().enter_context(context)

    def module(self, name: str, text: str) -> types.ModuleType:
        """Make a module that can be imported until the world ends."""
        module = types.ModuleType(name)
        module.__dict__.update(_GIVEN)
        self.put(sys.modules, name, module)
        exec(compile(textwrap.dedent(text), f"{name}.py", "exec"), module.__dict__)
        return module

    def _stack(self) -> contextlib.ExitStack:
        return self._changes[-1][0] if self._changes else self._undo

    def _defer(self, undo: Callable[[], object]) -> None:
        self._stack().callback(undo)


def example(shift: float = 0, *shape: int) -> torch.Tensor:
    """Return a small tensor, of two rows and three columns unless a shape is given."""
    shape = shape or (2, 3)
    return torch.arange(float(math.prod(shape))).reshape(shape) + shift


def _restore(owner: Any, name: str, held: Any) -> None:
    if held is _ABSENT:
        with contextlib.suppress(AttributeError):
            delattr(owner, name)
    else:
        setattr(owner, name, held)


def _put_back(mapping: Any, key: Any, held: Any) -> None:
    if held is _ABSENT:
        mapping.pop(key, None)
    else:
        mapping[key] = held


@contextlib.contextmanager
def plain_torch() -> Iterator[None]:
    """Keep the modes of a world away from those who only look at it."""
    from torch.utils._python_dispatch import _disable_current_modes

    with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
        yield
