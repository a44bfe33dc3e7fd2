"""State of torch on this thread: levels of torch.func transforms, modes, hooks of saved tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextlib import nullcontext as noop
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch._C import _functorch
from torch._C._dynamo import eval_frame as _c
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

_hooks = torch._C._autograd
_recorder = torch._C._dynamo.compiled_autograd  # which records what backward does
#: whether modes of functions were in force where the block of `own_tensors` began
_MODES = ContextVar("modes", default=False)
#: how many dispatch modes were in force where the block of `dispatch_modes_unseen` began
_DISPATCH_MODES: ContextVar[int | None] = ContextVar("dispatch modes", default=None)
_ANOMALIES: ContextVar[tuple[bool, bool] | None] = ContextVar("anomaly search", default=None)
#: how many levels of forward-mode derivatives the trace under way is inside of
_DUAL_LEVELS: ContextVar[int] = ContextVar("levels of forward mode", default=0)


def count_dual_level(change: int) -> None:
    """Note that traced code has entered (1) or left (-1) a level of forward-mode derivatives."""
    _DUAL_LEVELS.set(_DUAL_LEVELS.get() + change)


def depth() -> int:
    """Return how many levels are pushed."""
    return int(_functorch.get_dynamic_layer_stack_depth())


def modes() -> tuple[Any, ...]:
    """Return the modes that transforms set for the length of their call."""
    return (
        depth(),
        torch._C._is_fwd_grad_enabled(),
        _functorch.get_inplace_requires_grad_allowed(),
        _hooks._saved_tensors_hooks_get_disabled_error_message(),
        _DUAL_LEVELS.get(),
    )


def restore(before: tuple[Any, ...]) -> None:
    """Pop levels and set modes back to what they were; a level of forward mode is left."""
    pushed, forward, in_place, message, entered = before
    if (depth() > pushed or _DUAL_LEVELS.get() > entered) and forward_ad._current_level < 0:
        with suppress(RuntimeError):  # none was entered
            torch._C._exit_dual_level(0)
    _DUAL_LEVELS.set(entered)
    if depth() > pushed:
        _functorch.pop_dynamic_layer_stack_and_undo_to_depth(pushed)
    torch._C._set_fwd_grad_enabled(forward)
    _functorch.set_inplace_requires_grad_allowed(in_place)
    if message is None:
        _hooks._saved_tensors_hooks_enable()
    else:
        _hooks._saved_tensors_hooks_disable(message)


@contextmanager
def kept() -> Iterator[None]:
    """Leave levels and modes as they were before a block, whatever it pushes or raises."""
    before = modes()
    try:
        yield
    finally:
        if modes() != before:
            restore(before)


@contextmanager
def frames_unseen() -> Iterator[None]:
    """Keep frames that are run in a block from being offered to the frame hook."""
    previous = _c.set_eval_frame(None)
    try:
        yield
    finally:
        _c.set_eval_frame(previous)


def never_traced(function: Any) -> None:
    """Offer no frame of a function, nor of its callees, to the frame hook, tc's or PyTorch's.

    PyTorch's compiler does not trace a call of it either: the graph breaks there.
    """
    skip = _c._FrameAction.SKIP
    _c.set_code_exec_strategy(function.__code__, _c._FrameExecStrategy(skip, skip))
    function._torchdynamo_disable = True


@contextmanager
def autograd_unseen() -> Iterator[None]:
    """Keep hooks of saved tensors, searches for anomalies and compiled autograd from a block."""
    token = _ANOMALIES.set(anomaly_search())
    before = _hooks._saved_tensors_hooks_set_tracing(True)
    recorder, dynamic = _recorder.set_autograd_compiler(None, False)
    try:
        # The search is on for all threads: it is touched only where it is.
        with torch.autograd.set_detect_anomaly(False) if torch.is_anomaly_enabled() else noop():
            yield
    finally:
        _recorder.set_autograd_compiler(recorder, dynamic)
        _ANOMALIES.reset(token)
        _hooks._saved_tensors_hooks_set_tracing(before)


def anomaly_search() -> tuple[bool, bool]:
    """Return whether the program searches for anomalies of autograd, and whether for NaN."""
    outside = _ANOMALIES.get()
    if outside is not None:
        return outside
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def search_anomalies(mode: bool, check_nan: bool = True) -> None:
    """Do `torch.set_anomaly_enabled`; where code is traced, only note what it asks for.

    The search is one for all threads, and is none of what a compilation itself computes.
    """
    if _ANOMALIES.get() is None:
        torch.set_anomaly_enabled(mode, check_nan)
    else:
        _ANOMALIES.set((mode, check_nan))


@contextmanager
def dispatch_modes_unseen() -> Iterator[None]:
    """Keep dispatch modes of the program from what a block does."""
    token = _DISPATCH_MODES.set(dispatch_modes())
    try:
        with _disable_current_modes():
            yield
    finally:
        _DISPATCH_MODES.reset(token)


#: what dispatch modes add to the keys of each tensor
KEYS_OF_MODES = torch._C.DispatchKeySet(torch._C.DispatchKey.Python) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.PythonTLSSnapshot
)


def dispatch_keys_of_program() -> AbstractContextManager[Any]:
    """Return a block in which C++ sees the keys of tensors as it does where the program runs.

    Its dispatch modes are not in force there: code that computes with tensors has to disable
    dispatch to Python.
    """
    if not _DISPATCH_MODES.get():
        return noop()
    included = torch._C._dispatch_tls_local_include_set() | KEYS_OF_MODES
    return torch._C._ForceDispatchKeyGuard(included, torch._C._dispatch_tls_local_exclude_set())


def dispatch_modes() -> int:
    """Return how many dispatch modes the program has in force; those of the compiler are none."""
    outside = _DISPATCH_MODES.get()
    return int(torch._C._len_torch_dispatch_stack()) if outside is None else outside


@contextmanager
def eager_itself() -> Iterator[None]:
    """Let torch's own kernels and shape rules answer, with no mode and no Python kernel."""
    with _disable_current_modes(), torch._C._DisablePythonDispatcher():
        yield


@contextmanager
def own_tensors() -> Iterator[None]:
    """Keep the program's default device from tensors that a block makes for the compiler's use."""
    token = _MODES.set(_MODES.get() or modes_in_force())
    try:
        with torch._C.DisableTorchFunction():
            yield
    finally:
        _MODES.reset(token)


@contextmanager
def default_device() -> Iterator[None]:
    """Inside of `own_tensors`, do as the program does where it names no device.

    All modes that are in force here are modes of devices: others were traced into the graph.
    """
    if not _MODES.get():
        yield
        return
    with torch._C._EnableTorchFunction():
        yield


def name_of_default_device() -> str:
    """Return where the program makes tensors if it names no device."""
    with default_device():
        return str(torch.get_default_device())


def modes_in_force() -> bool:
    """Return whether there are modes of functions, and none are switched off."""
    disabled = torch._C._is_torch_function_all_disabled()
    return not disabled and torch._C._len_torch_function_stack() > 0


#: devices whose autocast is set again where backward runs
AUTOCAST = ("cpu", "cuda")


@dataclass(frozen=True)
class Autocast:
    """Autocast as it was at a call: backward runs outside of it."""

    settings: tuple[tuple[str, bool, torch.dtype], ...]

    @classmethod
    def now(cls) -> Autocast:
        """Return it as it is."""
        rows = [
            (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
            for device in AUTOCAST
        ]
        return cls(tuple(rows))

    @contextmanager
    def again(self) -> Iterator[None]:
        """Set it for a block."""
        with ExitStack() as stack:
            for device, on, dtype in self.settings:
                if on or torch.is_autocast_enabled(device):
                    stack.enter_context(torch.autocast(device, dtype=dtype, enabled=on))
            yield


@contextmanager
def popped_to(count: int) -> Iterator[None]:
    """Take the levels above the first few off for the length of a block."""
    taken = []
    try:
        while depth() > count:
            taken.append(_functorch.pop_dynamic_layer_stack())
        yield
    finally:
        while taken:
            _functorch.push_dynamic_layer_stack(taken.pop())


def keeping(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that leaves levels and modes as they were, even if it raises."""

    def call(*args: Any) -> Any:
        with kept():
            return function(*args)

    return call
