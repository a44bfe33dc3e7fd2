"""What users say of their functions: how compiled code treats them."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, TypeVar

import torch

try:
    from torch.fx.experimental import dynamic_spec
except ImportError:  # before torch 2.13
    dynamic_spec = None  # type: ignore[assignment]

from tc.compiler.capture import hook, traceable
from tc.compiler.capture.skips import DISABLED
from tc.compiler.capture.torch_api import annotated, opaque_call, torch_functions
from tc.compiler.core.settings import require_callable
from tc.compiler.errors import OptionError
from tc.compiler.frontend.modules import OptimizedModule

F = TypeVar("F", bound=Callable[..., Any])
FUNCTIONS = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.MethodWrapperType, types.ClassMethodDescriptorType,
)  # fmt: skip


# -- what is dynamic ------------------------------------------------------------------------------
def one_spec(model: Any, **given: Any) -> Any:
    """Return what is said of the inputs of a function or module, or None.

    Args:
        model: what is compiled. What torch's decorator ``dynamic_spec`` (since 2.14) says of it, or
            of a module's ``forward``, counts as given.
        given: the parameters of `tc.compile` that say it, by name.

    Raises:
        OptionError: it is said twice.
    """
    said = {name: spec for name, spec in given.items() if spec is not None}
    if attribute := getattr(dynamic_spec, "_DYNAMIC_SPEC_ATTR", None):
        module = model if isinstance(model, torch.nn.Module) else getattr(model, "__self__", None)
        holder = module.forward if isinstance(module, torch.nn.Module) else model
        if attached := getattr(holder, attribute, None):
            said["@dynamic_spec"] = attached
    if len(said) > 1:
        raise OptionError(f"give {' or '.join(said)}, not both: each says what is dynamic")
    return next(iter(said.values()), None)


# -- out of compiled code ------------------------------------------------------------------------
class Disabled:
    """What `disable` returns without a function: a decorator, and a context manager."""

    def __init__(self, recursive: bool, reason: str | None) -> None:
        self.recursive = recursive
        self.reason = reason
        self._blocks: list[Any] = []

    def __call__(self, fn: Any) -> Any:
        return disable(fn, self.recursive, reason=self.reason)

    def __enter__(self) -> None:
        block = hook.off()
        block.__enter__()
        self._blocks.append(block)

    def __exit__(self, *raised: Any) -> None:
        self._blocks.pop().__exit__(*raised)


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Keep a function out of compiled code: it runs eagerly wherever it is called from.

    Args:
        fn: a function, a module, or a class (whose ``__init__`` is meant); without it a
            decorator is returned, which also is a context manager.
        recursive: what it calls is kept out too.
        reason: stated in the graph break that a call of it makes.

    Example:
        >>> import tc
        >>> @tc.disable
        ... def log(x):
        ...     print(x.shape)
    """
    if fn is None:
        return Disabled(recursive, reason)
    if isinstance(fn, staticmethod | classmethod):
        return type(fn)(disable(fn.__func__, recursive, reason=reason))
    if isinstance(fn, type):
        fn.__init__ = disable(fn.__init__, recursive, reason=reason)  # type: ignore[misc]
        return fn
    require_callable("tc.disable", fn)
    fn = innermost(fn)
    if isinstance(fn, torch.nn.Module):
        return OptimizedModule(getattr(fn, "_orig_mod", fn), None)
    wrapper = hook.disabled(fn) if recursive else _passing_on(hook.passed_over(fn))
    setattr(wrapper, DISABLED, reason or "tc.disable")
    return wrapper


def innermost(fn: Any) -> Any:
    """Return what a compiled function was made of; other objects as they are."""
    original = hook.original_of(fn)
    return fn if original is None else original


def _passing_on(fn: Any) -> Any:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


def run(fn: Any = None) -> Any:
    """Return a function that uses what is compiled already, and compiles nothing.

    Args:
        fn: the function, compiled or not; without it a decorator is returned.
    """
    if fn is None:
        return run
    require_callable("tc.run", fn)
    return hook.cached_only(innermost(fn))


# -- how calls are traced ------------------------------------------------------------------------
def allow_in_graph(fn: Any) -> Any:
    """Record calls of a function whole, without looking into it.

    It is run once on fake tensors while tracing, so it must do nothing but compute, and not depend
    on the values of tensors.

    Args:
        fn: the function, or a list of several.

    Returns:
        What was given.
    """
    return _each(fn, annotated.allow)


def disallow_in_graph(fn: Any) -> Any:
    """Break the graph at calls of a function that would be recorded (``torch.sub``).

    Args:
        fn: the function, or a list of several.

    Raises:
        OptionError: calls of it are not recorded anyway.
    """

    def check(function: Any) -> None:
        if torch_functions.classify(function) is None:
            raise OptionError(
                f"disallow_in_graph takes functions that are recorded, as those of torch are; "
                f"calls of {function!r} are not: tc.disable keeps it out of graphs"
            )
        annotated.disallow(function)

    return _each(fn, check)


def forbid_in_graph(fn: Any) -> Any:
    """Raise `ForbiddenCall` where a function is called in compiled code.

    Args:
        fn: the function, or a list of several.
    """
    return _each(fn, annotated.forbid)


def _each(fn: Any, say: Callable[[Any], None]) -> Any:
    for function in fn if isinstance(fn, list | tuple) else (fn,):
        require_callable("this decorator", function, "a function")
        say(function)
    return fn


def nonstrict_trace(traceable_fn: F) -> F:
    """Record calls of a function whole; arguments and results may be any registered pytree.

    Like `allow_in_graph`, for functions that take or return containers and objects of classes
    known to `torch.utils._pytree`.
    """

    require_callable("tc.nonstrict_trace", traceable_fn, "a function")

    @functools.wraps(traceable_fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return traceable_fn(*args, **kwargs)

    annotated.annotate(wrapper, "nonstrict", opaque_call.call_tree)
    return wrapper  # type: ignore[return-value]


def assume_constant_result(fn: F) -> F:
    """Call a function while tracing, and take what it returns for a constant from then on."""
    require_callable("tc.assume_constant_result", fn, "a function")
    annotated.fix_result(fn)
    return fn


def substitute_in_graph(
    original_fn: Any,
    *,
    can_constant_fold_through: bool = False,
    skip_signature_check: bool = False,
) -> Callable[[F], F]:
    """Return a decorator: its function is traced in the place of another, written in C say.

    Args:
        original_fn: the function that is replaced while tracing; outside it is called as ever.
        can_constant_fold_through: call the original on arguments that are constants.
        skip_signature_check: let the two have different parameters.

    Raises:
        TypeError: one of them is no function, or their parameters differ.
        ValueError: the original already has a substitute.

    Example:
        >>> import operator, tc
        >>> @tc.substitute_in_graph(operator.indexOf)
        ... def index_of(a, b, /):
        ...     return list(a).index(b)
    """
    if not isinstance(original_fn, FUNCTIONS):
        raise TypeError(f"substitute_in_graph takes a function, not {original_fn!r}")

    def decorate(replacement: F) -> F:
        if not isinstance(replacement, FUNCTIONS):
            raise TypeError(f"a substitute must be a function, not {replacement!r}")
        if not skip_signature_check:
            _check_signatures(original_fn, replacement)
        existing = annotated.annotation_of(original_fn)
        if existing is not None and existing.name == "substituted":
            raise ValueError(f"{original_fn!r} already has a substitute")

        @functools.wraps(replacement)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return original_fn(*args, **kwargs)

        for function in (original_fn, wrapper):
            annotated.substitute(function, replacement, original_fn, can_constant_fold_through)
        return wrapper  # type: ignore[return-value]

    return decorate


def _check_signatures(original: Any, replacement: Any) -> None:
    try:
        signatures = [inspect.signature(original), inspect.signature(replacement)]
    except ValueError:
        return  # many functions in C have none
    shapes = [_shape(signature) for signature in signatures]
    if shapes[0] != shapes[1] and not any(map(_takes_anything, signatures)):
        raise TypeError(
            f"{replacement.__qualname__}{signatures[1]} takes other parameters than "
            f"{original.__name__}{signatures[0]}"
        )


def _shape(signature: inspect.Signature) -> Any:
    """Return what has to agree: names and defaults, the order of those given by position."""
    rest = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [p for p in signature.parameters.values() if p.kind not in rest]
    keyword = {p.name for p in named if p.kind is inspect.Parameter.KEYWORD_ONLY}
    ordered = [p.name for p in named if p.name not in keyword]
    return ordered, keyword, {p.name: p.default for p in named}


def _takes_anything(signature: inspect.Signature) -> bool:
    return bool(_shape(signature) == ([], set(), {}))


def nested_compile_region(
    fn: Any = None, *, options: Any = None, max_reuse_entries: int = 8, reuse_hash_fn: Any = None
) -> Any:
    """Mark a function of which equal calls in a graph are compiled once, and run one after another.

    A model of many equal layers compiles in a fraction of the time, and each call costs what the
    call of a compiled graph costs; nothing is fused across its ends. Calls are equal if they do the
    same operations on tensors of equal sizes, strides and types; others are compiled as if they
    were not marked. The trace says which calls share a graph (``tc_compile_regions``).

    Args:
        fn: the function, a method of a class for example; a decorator is returned where it is
            omitted. The other arguments are PyTorch's, whose capture reuses a trace by them; here
            they change nothing.

    Example:
        >>> import tc, torch
        >>> @tc.nested_compile_region
        ... def layer(x, weight):
        ...     return torch.relu(x @ weight)
        >>> def model(x, weights):
        ...     for weight in weights:
        ...         x = layer(x, weight)
        ...     return x
        >>> tc.compile(model)(torch.ones(1, 2), [torch.eye(2)] * 12)
        tensor([[1., 1.]])
    """
    if fn is None:
        return nested_compile_region
    require_callable("tc.nested_compile_region", fn, "a function")
    return torch.compiler.nested_compile_region(fn)


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a function of numpy arrays into one of tensors; compiled, it runs on any device.

    Example:
        >>> import numpy as np, tc, torch
        >>> @tc.wrap_numpy
        ... def total(a):
        ...     return np.sum(a * a)
        >>> total(torch.ones(3))
        tensor(3.)
    """
    require_callable("tc.wrap_numpy", fn, "a function")
    return traceable.numpy_function(fn)
