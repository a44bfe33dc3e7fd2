"""A call that is not made: a function and its inputs in, the frame that it would run out."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import FunctionType, MethodType
from typing import Any

import torch
from torch.nn.modules import module as torch_module

from tc.compiler.capture import hook
from tc.compiler.errors import OptionError

#: functions of torch that run a function under a context -> names of both in their closure
_CONTEXTS = {
    "context_decorator.<locals>.decorate_context": ("ctx_factory", "func"),
    "autocast_decorator.<locals>.decorate_autocast": ("autocast_instance", "func"),
}
_MODULE_CALLS = (torch.nn.Module._wrapped_call_impl, torch.nn.Module._call_impl)
#: attributes of a module, and of torch, that hold what runs before its forward
_BEFORE = ("_forward_pre_hooks", "_backward_pre_hooks", "_backward_hooks")
_STEPS = 64


class NotAhead(Exception):
    """Code of the user's would run before the function; the message says which."""


@contextmanager
def frame_of(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[hook.Frame]:
    """Return the frame that a call would offer to the compiler, under the contexts it would set.

    Goes through bound methods, partial functions, calls of modules, and torch's context decorators,
    as Python would; nothing of the user's runs.

    Raises:
        NotAhead: hooks of a module would run first.
        OptionError: the function does not take these inputs, or has no Python code.
    """
    with ExitStack() as contexts:
        found, args, kwargs = _resolved(function, tuple(args), dict(kwargs), contexts)
        yield _frame(found, args, kwargs)


def parameters_of(function: Any) -> tuple[str, ...] | None:
    """Return the names of the parameters that a call fills by position; None: not known."""
    target = function.forward if isinstance(function, torch.nn.Module) else function
    with contextlib.suppress(TypeError, ValueError):
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        found = inspect.signature(target).parameters.values()
        return tuple(one.name for one in found if one.kind in kinds)
    return None


def _resolved(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], contexts: ExitStack
) -> tuple[FunctionType, tuple[Any, ...], dict[str, Any]]:
    for _ in range(_STEPS):
        original = hook.original_of(function)
        if original is not None:
            function = original
        elif isinstance(function, MethodType):
            function, args = function.__func__, (function.__self__, *args)
        elif isinstance(function, functools.partial):
            args, kwargs = (*function.args, *args), {**function.keywords, **kwargs}
            function = function.func
        elif function in _MODULE_CALLS:
            function, args = _call_of(args[0]), args[1:]
        elif isinstance(function, FunctionType):
            inner = _inside_context(function, contexts)
            if inner is None:
                return function, args, kwargs
            function = inner
        else:
            call = type(function).__call__
            if not isinstance(call, FunctionType):
                raise OptionError(f"{function!r} has no Python code to capture")
            function, args = call, (function, *args)
    raise OptionError(f"{function!r} is wrapped more than {_STEPS} times")


def _call_of(module: torch.nn.Module) -> Callable[..., Any]:
    """Return what a call of a module runs, if nothing of the user's runs before it."""
    compiled = getattr(module, "_compiled_call_impl", None)
    if compiled is not None and hook.original_of(compiled) is not None:
        return module.forward
    for name in _BEFORE:
        if getattr(module, name) or getattr(torch_module, f"_global{name}", None):
            what = name.strip("_").replace("_", " ")
            raise NotAhead(f"{what} of {type(module).__name__} run before it, on real inputs")
    return module.forward


def _inside_context(function: FunctionType, contexts: ExitStack) -> Callable[..., Any] | None:
    """Enter the context of torch that a function sets; returns what it then calls."""
    names = _CONTEXTS.get(function.__code__.co_qualname)
    module = str(function.__globals__.get("__name__", ""))
    if names is None or not module.startswith("torch."):
        return None
    held = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    context, inner = (held[name].cell_contents for name in names)
    made = context if hasattr(context, "__enter__") else context()
    if not type(made).__module__.startswith("torch."):
        raise NotAhead(f"{type(made).__name__}, a context of yours, is entered before it")
    contexts.enter_context(made)
    found: Callable[..., Any] = inner
    return found


def _frame(function: FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> hook.Frame:
    code = function.__code__
    # A copy without `__wrapped__` and `__signature__`, which describe other functions.
    plain = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    plain.__kwdefaults__ = function.__kwdefaults__
    try:
        bound = inspect.signature(plain).bind(*args, **kwargs)
    except TypeError as error:
        raise OptionError(
            f"{function.__qualname__}() does not take these inputs: {error}"
        ) from None
    bound.apply_defaults()
    values = dict(bound.arguments)
    closure = function.__closure__ or ()
    for name, cell in zip(code.co_freevars, closure, strict=True):
        with contextlib.suppress(ValueError):  # nothing in it yet
            values[name] = cell.cell_contents
    plain_function: Any = function
    builtins = plain_function.__builtins__
    return hook.Frame(code, values, function.__globals__, builtins, closure)
