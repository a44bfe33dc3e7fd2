"""What a worker process needs: a function, its inputs and settings as bytes, without the weights.

A worker only fills the cache on disk, whose entries are addressed by their content, so nothing
rests on what arrives there: a graph that differs is not found, and is compiled by the process that
asked.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from types import FunctionType
from typing import Any

import torch

from tc import trace
from tc.compiler.ahead.specs import Spec
from tc.compiler.capture import hook
from tc.compiler.core import levels
from tc.compiler.options import Config, Options, config


class NotCarried(Exception):
    """A function cannot be made again in another process; the message says why."""


@dataclass(frozen=True)
class Job:
    """What workers compile: a function for the cases of specs.

    Attributes:
        state: settings of torch that compiled code depends on.
        settings: those of tc that differ from its defaults.
    """

    function: Any
    options: Options
    specs: tuple[Spec, ...]
    state: State
    settings: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, function: Any, options: Options, specs: Sequence[Spec]) -> Job:
        """Return the job for a function, as the process is set now."""
        fresh = Config()
        changed = tuple(
            (one.name, getattr(config, one.name))
            for one in fields(Config)
            if getattr(config, one.name) != getattr(fresh, one.name)
        )
        return cls(function, options, tuple(specs), State.now(), changed)

    def packed(self) -> bytes:
        """Return it as bytes.

        Raises:
            NotCarried: a part of it is not found by its name in another process.
        """
        into = io.BytesIO()
        try:
            _Pickler(into, protocol=pickle.HIGHEST_PROTOCOL).dump(self)
        except NotCarried:
            raise
        except Exception as error:  # whatever classes of the user's raise
            raise NotCarried(f"it cannot be pickled: {error}") from None
        return into.getvalue()


@dataclass(frozen=True)
class State:
    """Settings of torch, as the calls to come will find them."""

    threads: int
    dtype: torch.dtype
    grad: bool
    inference: bool
    precision: tuple[str, ...]
    deterministic: bool
    autocast: levels.Autocast
    traced: bool

    @classmethod
    def now(cls) -> State:
        """Return them as they are."""
        return cls(
            torch.get_num_threads(),
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            tuple(one.fp32_precision for one in _products()),
            torch.are_deterministic_algorithms_enabled(),
            levels.Autocast.now(),
            trace.enabled(),
        )

    @contextmanager
    def again(self) -> Iterator[None]:
        """Set them, in a worker."""
        torch.set_num_threads(self.threads)
        torch.set_default_dtype(self.dtype)
        for one, precision in zip(_products(), self.precision, strict=True):
            if one.fp32_precision != precision:  # "none" is not the same as its meaning, once set
                one.fp32_precision = precision
        torch.use_deterministic_algorithms(self.deterministic)
        with ExitStack() as modes:
            if self.traced:  # entries of the cache then hold what traces say
                modes.enter_context(trace.capture_events())
            modes.enter_context(torch.inference_mode(self.inference))
            modes.enter_context(torch.set_grad_enabled(self.grad))
            modes.enter_context(self.autocast.again())
            yield


def _products() -> tuple[Any, ...]:
    """Return where torch keeps the precision of products."""
    backends: Any = torch.backends
    return backends.cuda.matmul, backends.mkldnn.matmul


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        """Leave the values of tensors out, and refuse what a worker could not import."""
        if type(obj) in (torch.Tensor, torch.nn.Parameter) and obj.layout is torch.strided:
            given = tuple(obj.shape), obj.stride(), obj.dtype, str(obj.device), obj.requires_grad
            return _without_values, (*given, type(obj) is torch.nn.Parameter)
        if isinstance(obj, type | FunctionType):
            if obj.__module__ == "__main__":
                raise NotCarried(
                    f"{obj.__qualname__} is defined in the script that runs, which a worker would "
                    "run again"
                )
            if isinstance(obj, FunctionType) and (named := _named(obj)) is not obj:
                if hook.original_of(named) is not obj:
                    raise NotCarried(f"{obj.__qualname__} is not found by its name")
                return _original, (obj.__module__, obj.__qualname__)
        return NotImplemented


def _named(function: FunctionType) -> Any:
    found: Any = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return found


def _original(module: str, name: str) -> Any:
    """Return the function that a compiled one, which has its name, was made of."""
    __import__(module)
    found: Any = sys.modules[module]
    for part in name.split("."):
        found = getattr(found, part)
    return hook.original_of(found) or found


def _without_values(
    shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype, device: str,
    requires_grad: bool, is_parameter: bool,
) -> torch.Tensor:  # fmt: skip
    made = torch.empty_strided(shape, stride, dtype=dtype, device=device)
    if is_parameter:
        return torch.nn.Parameter(made, requires_grad)
    return made.requires_grad_(requires_grad)
