"""Saves the state of torch at the start of a frame, and shields it from traced code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from tc.compiler.core import levels

if TYPE_CHECKING:
    from tc.compiler.capture.values.interfaces import Interpreter


class TorchState:
    """The state of torch at the start of the frame.

    Attributes:
        levels_before: transforms and dispatch modes that were active.
        grad_before: whether gradients were recorded.
    """

    def __init__(self, t: Interpreter) -> None:
        self.t = t
        self.levels_before = levels.modes()
        self.grad_before: bool = t.modes.value_before("grad")
        self._dispatch_keys = (
            torch._C._dispatch_tls_local_include_set(),
            torch._C._dispatch_tls_local_exclude_set(),
        )

    @contextmanager
    def as_at_entry(self) -> Iterator[None]:
        """Dispatch as at the start of the frame, outside of later transforms and modes."""
        keys = torch._C._ForceDispatchKeyGuard(*self._dispatch_keys)
        with levels.popped_to(self.levels_before[0]), keys:
            before = torch.is_grad_enabled()
            torch._C._set_grad_enabled(self.grad_before)
            try:
                yield
            finally:
                torch._C._set_grad_enabled(before)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Undo what traced code does to torch's global modes while it is traced."""
        with self.t.overrides.aside():
            try:
                with levels.kept():
                    yield
            finally:
                self.t.modes.restore()
