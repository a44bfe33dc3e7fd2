"""Python of ours that traced code may call: it is traced into like the user's own."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree


class _Strictness(threading.local):
    on: bool | None = None


_STRICTNESS = _Strictness()


def breaks_are_errors() -> bool | None:
    """Say whether graph breaks are errors in this thread; None: ``fullgraph`` decides."""
    return _STRICTNESS.on


def set_error_on_graph_break(on: bool | None) -> bool | None:
    """Set whether graph breaks are errors from here on; return what was set before."""
    before, _STRICTNESS.on = _STRICTNESS.on, on
    return before


class ErrorOnGraphBreak:
    """Context manager and decorator; see `tc.error_on_graph_break`."""

    def __init__(self, on: bool) -> None:
        self.on = on
        self.before: list[bool | None] = []

    def __enter__(self) -> None:
        self.before.append(set_error_on_graph_break(self.on))

    def __exit__(self, *raised: object) -> None:
        set_error_on_graph_break(self.before.pop())

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        on = self.on

        @functools.wraps(function)
        def strict(*args: Any, **kwargs: Any) -> Any:
            before = set_error_on_graph_break(on)
            try:
                return function(*args, **kwargs)
            finally:
                set_error_on_graph_break(before)

        return strict


def error_on_graph_break(on: bool) -> ErrorOnGraphBreak:
    """Make graph breaks errors, or not, in a block or a function; ``fullgraph`` goes before.

    Args:
        on: True: `tc.exc.Unsupported` is raised at a break; False: breaks are let pass.

    Example:
        >>> import tc
        >>> @tc.error_on_graph_break(True)
        ... def f(x):
        ...     return x.sin()
    """
    return ErrorOnGraphBreak(on)


def over_tensors(function: Any, args: Any, kwargs: Any) -> Any:
    """Call a function of numpy arrays on tensors; traced code has an answer of its own."""
    args, kwargs = pytree.tree_map_only(torch.Tensor, _to_array, (args, kwargs))
    return pytree.tree_map_only(
        (np.ndarray, np.generic), torch.as_tensor, function(*args, **kwargs)
    )


def _to_array(tensor: torch.Tensor) -> Any:
    return tensor.numpy(force=True)


def numpy_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of tensors that calls one of arrays."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return over_tensors(function, args, kwargs)

    return wrapper


def calling(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls another, which has no frame of its own to be captured."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    own: Any = call
    own.__code__ = own.__code__.replace()  # compiled code is kept with the code object
    return call
