"""Runs a program under torch's functionalisation: writes become new values.

Writes to inputs become one copy for each input at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch


def functionalised(program: Callable[[list[Any]], list[Any]], inputs: Sequence[Any]) -> list[Any]:
    """Run a program over wrapped inputs; returns its results, unwrapped, and writes inputs back.

    Args:
        program: takes the inputs as a list; returns tensors and other values.
        inputs: fake tensors and numbers.
    """
    with functionalisation():
        wrapped = [as_functional(value) for value in inputs]
        results = [as_plain(value) for value in program(wrapped)]
        for functional, value in zip(wrapped, inputs, strict=True):
            if isinstance(value, torch.Tensor):
                became = as_plain(functional)
                if became is not value:
                    with torch.no_grad():
                        value.copy_(became)
    return results


@contextmanager
def functionalisation() -> Iterator[None]:
    """Turn on torch's functionalisation of tensors wrapped by `as_functional`."""
    torch._enable_functionalization(reapply_views=True)
    try:
        yield
    finally:
        torch._disable_functionalization()  # type: ignore[no-untyped-call]


def as_functional(value: Any) -> Any:
    """Wrap a tensor so that writes to it make new values instead."""
    if not isinstance(value, torch.Tensor):
        return value
    wrapped = torch._to_functional_tensor(value)
    torch._mirror_autograd_meta_to(value, wrapped)  # type: ignore[attr-defined]
    return wrapped


def as_plain(value: Any) -> Any:
    """Return the newest value of a wrapped tensor."""
    if not isinstance(value, torch.Tensor) or not torch._is_functional_tensor(value):
        return value
    torch._functionalize_sync(value)
    return torch._from_functional_tensor(value)
