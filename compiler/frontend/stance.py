"""The stance of the compiler: what compiled functions do, for a time, in place of compiling."""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from tc.compiler.capture import hook
from tc.compiler.capture.dynamism import Memory
from tc.compiler.capture.torch_api.annotated import forbid
from tc.compiler.core.settings import nearest
from tc.compiler.core.sources import ItemSource, LocalSource, Source
from tc.compiler.errors import OptionError, RecompileError
from tc.trace.cells import place

F = TypeVar("F", bound=Callable[..., Any])
STANCES = (
    "default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile",
    "aot_eager_then_compile",
)  # fmt: skip


@dataclass(frozen=True)
class Stance:
    """What holds for all compiled functions of the process.

    Attributes:
        name: one of `STANCES`.
        skip_guard_eval_unsafe: check only the guards that distinguished compiled variants so far.
        force_backend: takes the place of each function's own backend.
    """

    name: str = "default"
    skip_guard_eval_unsafe: bool = False
    force_backend: str | Callable[..., Any] | None = None


class Standing:
    """The stance in force, and what has to happen where it changes.

    Attributes:
        prepare: called before only some guards are checked: picks them for all compiled code.
        redirect: ``(callback, backend) -> callback``: the same compiler for another backend.
        for_one_call: guards of what was compiled for one call only.
    """

    def __init__(self) -> None:
        self.now = Stance()
        self.prepare: Callable[[], None] = lambda: None
        self.redirect: Callable[[Any, Any], Any] = lambda callback, backend: callback
        self.for_one_call: deque[Any] = deque()

    def change(self, to: Stance) -> Stance:
        """Put a stance in force; return the one before."""
        if hook.active():
            raise RuntimeError("the stance cannot be changed while a compiled function runs")
        before, self.now = self.now, to
        if to.skip_guard_eval_unsafe:
            self.prepare()
        hook.check_few_guards(to.skip_guard_eval_unsafe)
        self._drop()
        chooses = to.name in ("force_eager", "aot_eager_then_compile") or to.force_backend
        hook.choose_by(self._choose if chooses else None)
        return before

    def runs_once(self, guards: Any) -> None:
        """Note what was compiled for one call only."""
        self.for_one_call.append(guards)

    def _drop(self) -> None:
        """Forget what was compiled for one call."""
        while self.for_one_call:  # other threads add to it, and take from it
            with suppress(IndexError):
                self.for_one_call.popleft().drop()

    def _choose(self, callback: Any) -> Any:
        if self.now.name == "force_eager":
            return None
        self._drop()
        backend = self.now.force_backend
        return callback if backend is None else self.redirect(callback, backend)


STANDING = Standing()
#: what `in_place_of_compiling` says where a frame is to be compiled for one call only
FIRST_RUN = hook.RunOnce()


def in_place_of_compiling(frame: hook.Frame, state: dict[Any, Any]) -> hook.Outcome | None:
    """Return what the stance does with a frame that no compiled code fits; None: compile it.

    Raises:
        RecompileError: the stance is "fail_on_recompile".
    """
    name = STANDING.now.name
    if name == "eager_on_recompile":
        return hook.RunOnce()
    if name == "fail_on_recompile" and has_tensors(frame.locals.values()):
        code = frame.code
        raise RecompileError(
            f"{code.co_qualname} ({place(code.co_filename, code.co_firstlineno)}) would be "
            "compiled, and the stance is 'fail_on_recompile'"
        )
    if name.endswith("eager_then_compile") and not state.get("ran_first"):
        state["ran_first"] = True
        if name.startswith("aot"):
            return FIRST_RUN
        memory: Memory = state.setdefault("memory", Memory())
        for local, obj in frame.locals.items():
            see(memory, obj, LocalSource(local))
        return hook.RunOnce()
    return None


def see(memory: Memory, obj: Any, source: Source) -> None:
    """Note sizes, strides and numbers in an argument, so that those that change become dynamic."""
    if isinstance(obj, torch.Tensor):
        memory.see_tensor(source, obj)
        if obj.layout is torch.strided:
            memory.see_strides(source, obj)
    elif type(obj) is int:
        memory.see_number(source, obj)
    elif type(obj) in (list, tuple):
        for index, item in enumerate(obj):
            see(memory, item, ItemSource(source, index))
    elif type(obj) is dict:
        for key, item in obj.items():
            see(memory, item, ItemSource(source, key))


_NO_DATA = (type, types.ModuleType, types.FunctionType)


def has_tensors(objects: Iterable[Any], depth: int = 4) -> bool:
    """Return whether there are tensors or modules among objects, or near in what they hold."""
    for obj in objects:
        if isinstance(obj, torch.Tensor | torch.nn.Module):
            return True
        held: Iterable[Any] = ()
        if isinstance(obj, list | tuple | set):
            held = obj
        elif isinstance(obj, dict):
            held = obj.values()
        elif isinstance(getattr(obj, "__dict__", None), dict) and not isinstance(obj, _NO_DATA):
            held = vars(obj).values()
        if depth and has_tensors(list(held), depth - 1):
            return True
    return False


class set_stance:
    """Set what compiled functions do: for good, in a ``with`` block, or in calls of a function.

    Args:
        stance: "default": compile; "force_eager": run everything as it is; "eager_on_recompile":
            use what is compiled, run the rest as it is; "fail_on_recompile": raise where something
            would be compiled; "eager_then_compile": run each function once as it is, to learn
            which sizes change, then compile; "aot_eager_then_compile": the same, the first run
            through ATen operations.
        skip_guard_eval_unsafe: check only the guards that distinguished compiled variants so far,
            and those on tensors; wrong results are possible where other things change.
        force_backend: the backend for all functions; only with "default".

    Raises:
        OptionError: there is no such stance, or a backend is given with another than "default".
        RuntimeError: called while a compiled function runs.

    Example:
        >>> import tc
        >>> with tc.set_stance("force_eager"):
        ...     pass
    """

    def __init__(
        self,
        stance: str = "default",
        *,
        skip_guard_eval_unsafe: bool = False,
        force_backend: str | Callable[..., Any] | None = None,
    ) -> None:
        if stance not in STANCES:
            raise OptionError(f"there is no stance {stance!r}{nearest(stance, list(STANCES))}")
        if force_backend is not None and stance != "default":
            raise OptionError(f"force_backend requires the stance 'default', not {stance!r}")
        self.stance = Stance(stance, skip_guard_eval_unsafe, force_backend)
        self._before = STANDING.change(self.stance)

    def __enter__(self) -> None:
        STANDING.change(self.stance)

    def __exit__(self, *raised: object) -> None:
        STANDING.change(self._before)

    def __call__(self, function: F) -> F:
        STANDING.change(self._before)

        @functools.wraps(function)
        def standing(*args: Any, **kwargs: Any) -> Any:
            before = STANDING.change(self.stance)
            try:
                return function(*args, **kwargs)
            finally:
                STANDING.change(before)

        forbid(standing)
        return standing  # type: ignore[return-value]


forbid(set_stance)
