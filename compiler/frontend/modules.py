"""Compiled modules: calls go to the compiler, all else to the module that was compiled."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tc.compiler.capture import hook
from tc.compiler.frames import FrameCompiler
from tc.compiler.options import Options, config
from tc.compiler.process import PROCESS


class OptimizedModule(torch.nn.Module):
    """A compiled module: calls are captured, all else goes to the module it wraps."""

    _orig_mod: torch.nn.Module

    def __init__(
        self,
        module: torch.nn.Module,
        compiler: FrameCompiler | Callable[[Callable[..., Any]], Callable[..., Any]] | None,
    ) -> None:
        """Wrap a module.

        Args:
            compiler: of tc; or what compiles a function, as torch's own class takes; or None:
                calls of the module stay out of compiled code.
        """
        super().__init__()
        self._modules["_orig_mod"] = module
        self.__dict__["_compiler"] = compiler
        call = module.__call__
        if compiler is None:
            compiled = hook.disabled(call)
        elif isinstance(compiler, FrameCompiler):
            compiled = hook.wrap(call, compiler)
        else:
            compiled = compiler(call)
        self.__dict__["_call"] = compiled
        self.__dict__["training"] = module.training

    @hook.hidden
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module under capture."""
        return self._call(*args, **kwargs)

    @hook.hidden
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if (
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or self._backward_pre_hooks
            or "forward" in self.__dict__
        ):  # set on the compiled module itself: they run as Python, around the call or in its place
            return super().__call__(*args, **kwargs)
        return self._call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._modules["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_orig_mod", "_call", "_compiler", "_is_full_backward_hook"):
            self.__dict__[name] = value
        elif hasattr(type(self), name):
            # The class answers reads of it, so the compiled module is what has it: its `forward`,
            # and its `__class__`, which `fully_shard` sets to put a mixin before it.
            object.__setattr__(self, name, value)
        else:
            setattr(self._modules["_orig_mod"], name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            object.__delattr__(self, name)
        else:
            delattr(self._modules["_orig_mod"], name)

    def train(self, mode: bool = True) -> OptimizedModule:
        """Set the wrapped module's training mode."""
        self._orig_mod.train(mode)
        self.__dict__["training"] = mode
        return self

    def __bool__(self) -> bool:
        return bool(self._orig_mod)  # without this, Python would ask `__len__`

    def __len__(self) -> int:
        return len(self._orig_mod)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._orig_mod)  # type: ignore[call-overload,no-any-return]

    def __getitem__(self, key: Any) -> Any:
        return self._orig_mod[key]  # type: ignore[index]

    def __reduce__(self) -> Any:
        compiler = self.__dict__["_compiler"]
        options = None if compiler is None else compiler.options
        return _rebuild_module, (self._modules["_orig_mod"], options), self._own_state()

    def __deepcopy__(self, memo: dict[int, Any]) -> OptimizedModule:
        inner = copy.deepcopy(self._modules["_orig_mod"], memo)
        assert inner is not None
        copied = OptimizedModule(inner, self.__dict__["_compiler"])
        copied.__dict__.update(copy.deepcopy(self._own_state(), memo))
        return copied

    def _own_state(self) -> dict[str, Any]:
        """Return what was registered on the compiled module itself: hooks, buffers, modules."""
        return {name: v for name, v in self.__dict__.items() if name not in ("_call", "_compiler")}


def _rebuild_module(module: torch.nn.Module, options: Options | None) -> OptimizedModule:
    compiler = None if options is None else FrameCompiler(options, config, PROCESS)
    return OptimizedModule(module, compiler)
