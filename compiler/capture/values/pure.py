"""C functions of the standard library are traced as their equivalents in Python."""

from __future__ import annotations

import _bisect
import _heapq
import _operator
import collections
import functools
import importlib.util
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tc.compiler.capture.traceable import count_elements, key_by_comparison
from tc.compiler.capture.values.base import Args, Kwargs, Value
from tc.compiler.capture.values.builtins import BUILTINS, Handler, builtin

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


@functools.cache
def in_python(name: str, accelerator: str) -> ModuleType:
    """Return a module of the standard library imported without its C accelerator."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    before = sys.modules[accelerator]
    sys.modules[accelerator] = None  # type: ignore[assignment]  # an import of it fails
    try:
        spec.loader.exec_module(module)
    finally:
        sys.modules[accelerator] = before
    return module


def _traced(module: str, accelerator: str, name: str) -> Handler:
    def call(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
        return t.inline_object(
            getattr(in_python(module, accelerator), name), args, kwargs
        )

    return call


#: functions of ``operator`` that are no operators: they loop over sequences, or call
_NO_OPERATORS = ("call", "concat", "countOf", "iconcat", "indexOf")
for _accelerator in (_heapq, _bisect, _operator):
    for _name, _function in vars(_accelerator).items():
        _wanted = _accelerator is not _operator or _name in _NO_OPERATORS
        if _wanted and not _name.startswith("__"):
            _row = _traced(_accelerator.__name__[1:], _accelerator.__name__, _name)
            BUILTINS.add(id(_function), _row)


@builtin(collections._count_elements)  # type: ignore[attr-defined]
def _count(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return t.inline_object(count_elements, args, kwargs)


@builtin(functools.cmp_to_key)
def _key(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    return t.inline_object(key_by_comparison, args, kwargs)


@builtin(os.fspath)
def _path_text(t: Interpreter, args: Args, kwargs: Kwargs) -> Value:
    path: Any = args[0] if args else kwargs["path"]
    if issubclass(path.python_type(), str | bytes):
        return path  # type: ignore[no-any-return]
    own = path.call_own(t, "__fspath__")
    return own or t.python.folded(os.fspath, t.python.concrete(path))
