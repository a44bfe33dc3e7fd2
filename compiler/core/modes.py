"""Global modes of torch that programs read and set: grad mode, autocast, default dtype, ...

One table says how each is read and set. `Settings` holds what they were, and sets them back.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import _C

from tc.compiler.core.levels import anomaly_search, search_anomalies
from tc.compiler.core.table import Table

#: mark on a graph that sets modes between its nodes, and on the nodes that do
SETS_MODES = "tc_sets_modes"

Call = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Mode:
    """One setting.

    Attributes:
        read: returns its value; takes no arguments.
        write: sets it.
        before: arguments of ``write`` that come before the value.
        guarded: whether the GLOBAL_STATE guard covers it: of autocast's types, where autocast is
            on. What reads them leaves a guard of its own.
    """

    read: Callable[[], Any]
    write: Callable[..., Any]
    before: tuple[Any, ...] = ()
    guarded: bool = True

    def setting(self, value: Any) -> Call:
        """Return the call that sets a value."""
        return self.write, (*self.before, value)


MODES: Table[str, Mode] = Table("modes of torch")


def _set_deterministic(mode: tuple[bool, bool]) -> None:
    """Set both halves of the deterministic mode: on, and only warning."""
    _C._set_deterministic_algorithms(mode[0], warn_only=mode[1])


def _set_anomaly_search(asked: tuple[bool, bool]) -> None:
    """Set both halves of the search for anomalies: on, and whether for NaN."""
    search_anomalies(*asked)


def _nest_autocast(depth: int) -> None:
    """Set the number of open autocast blocks; closing the outermost one clears the cast cache."""
    while depth_of_autocast() > depth:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
    while depth_of_autocast() < depth:
        torch.autocast_increment_nesting()


def depth_of_autocast() -> int:
    """Return the number of open autocast blocks on this thread."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


#: the precision of float32 products where torch's newer switches set it: the older one raises
MIXED = "set switch by switch"


def torch_mode(reader: str) -> Any:
    """Return the mode that a function of torch._C reports, `MIXED` if it raises."""
    try:
        return getattr(_C, reader)()
    except RuntimeError:
        return MIXED


def _set_matmul_precision(precision: str) -> None:
    """Set the precision of float32 products; the settings of the newer API stay."""
    if precision != MIXED:
        _C._set_float32_matmul_precision(precision)


MODES.add("grad", Mode(torch.is_grad_enabled, _C._set_grad_enabled))
for _device in ("cpu", "cuda", "xpu", "mps"):
    _at = (_device,)
    _enabled = functools.partial(torch.is_autocast_enabled, _device)
    _dtype = functools.partial(torch.get_autocast_dtype, _device)
    MODES.add(f"autocast.{_device}", Mode(_enabled, torch.set_autocast_enabled, _at))
    MODES.add(f"autocast.{_device}.dtype", Mode(_dtype, torch.set_autocast_dtype, _at))
MODES.add("autocast.cache", Mode(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled))
MODES.add("autocast.depth", Mode(depth_of_autocast, _nest_autocast))
MODES.add("default_dtype", Mode(torch.get_default_dtype, _C._set_default_dtype))
MODES.add(
    "deterministic",
    Mode(
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        _set_deterministic,
    ),
)
ANOMALY = "anomaly"
MODES.add(ANOMALY, Mode(anomaly_search, _set_anomaly_search, guarded=False))
#: reader and writer in torch._C of modes that the GLOBAL_STATE guard does not cover
_UNGUARDED = (
    ("_get_flash_sdp_enabled", "_set_sdp_use_flash"),
    ("_get_mem_efficient_sdp_enabled", "_set_sdp_use_mem_efficient"),
    ("_get_math_sdp_enabled", "_set_sdp_use_math"),
    ("_get_cudnn_sdp_enabled", "_set_sdp_use_cudnn"),
    ("_get_overrideable_sdp_enabled", "_set_sdp_use_overrideable"),
    ("_get_sdp_priority_order", "_set_sdp_priority_order"),
    ("_get_cudnn_enabled", "_set_cudnn_enabled"),
    ("_get_cudnn_benchmark", "_set_cudnn_benchmark"),
    ("_get_cudnn_deterministic", "_set_cudnn_deterministic"),
    ("_get_mkldnn_enabled", "_set_mkldnn_enabled"),
    ("_get_nnpack_enabled", "_set_nnpack_enabled"),
)
for _reader, _writer in _UNGUARDED:
    if hasattr(_C, _reader) and hasattr(_C, _writer):
        MODES.add(_reader, Mode(getattr(_C, _reader), getattr(_C, _writer), guarded=False))
PRECISION = "_get_float32_matmul_precision"
MODES.add(
    PRECISION, Mode(functools.partial(torch_mode, PRECISION), _set_matmul_precision, guarded=False)
)


class Settings:
    """What the modes were when this was made."""

    def __init__(self) -> None:
        self._before = {name: mode.read() for name, mode in MODES.rows()}

    def value_before(self, name: str) -> Any:
        """Return what a mode was."""
        return self._before[name]

    def value_now(self, name: str) -> Any:
        """Return what a mode is."""
        return MODES[name].read()

    def changes(self) -> Iterator[tuple[Call, Call]]:
        """Yield for each changed mode the call that sets it and the call that restores it."""
        for name, mode in MODES.rows():
            now, before = self.value_now(name), self._before[name]
            if now != before:
                yield mode.setting(now), mode.setting(before)

    def restore(self) -> None:
        """Set all modes back."""
        for _, (write, args) in list(self.changes()):
            write(*args)


@contextmanager
def kept() -> Iterator[None]:
    """Set all modes back where a block raises: it may stop between two nodes that set one."""
    before, inference = Settings(), torch.is_inference_mode_enabled()
    try:
        yield
    except BaseException as error:
        if torch.is_inference_mode_enabled() != inference:
            traceback.clear_frames(error.__traceback__)  # a local of one holds the mode
        before.restore()
        raise


@contextmanager
def put_back() -> Iterator[None]:
    """Set all modes back after a block, whether it raises or not."""
    before = Settings()
    try:
        yield
    finally:
        before.restore()


def restoring(graph: Callable[..., Any]) -> Callable[..., Any]:
    """Return a graph that sets modes back where it raises."""

    def call(*args: Any) -> Any:
        with kept():
            return graph(*args)

    return call
