"""Options of one `tc.compile` call, and the process-wide defaults users may change."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ContextDecorator
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import chain
from typing import Any

from tc import trace
from tc.compiler.core.settings import check, from_environment, nearest
from tc.compiler.core.torch_settings import (
    REASONS,
    refuse_functions,
    set_for_torch_only,
    why_no_effect,
)
from tc.compiler.errors import OptionError

#: mode -> the options it selects
MODE_OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune": {"max_autotune": True, "triton.cudagraphs": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True},
    "lite": {"fallback_by_default": True},
}
#: name of the default backend -> options that it has by that name, where no mode is given
BACKEND_OPTIONS: dict[str, dict[str, Any]] = {"cudagraphs": MODE_OPTIONS["reduce-overhead"]}


def _asked(variable: str, default: Any) -> Any:
    """Return a field that an environment variable sets."""
    return field(default_factory=partial(from_environment, variable, default))


@dataclass
class Config:
    """Process-wide settings; read when a frame is compiled.

    Attributes:
        recompile_limit: compiles of one code object after which it runs eagerly; torch's older
            name ``cache_size_limit`` works too.
        automatic_dynamic_shapes: make a size dynamic when it changes for the first time.
        suppress_errors: run eagerly, with one warning, where the compiler fails.
        disable: make `tc.compile` return its argument unchanged.
        threads: OpenMP threads of generated kernels; 0 takes torch's number.
        fx_graph_cache: look for compiled graphs on disk, and leave them there.
        error_on_recompile: raise `RecompileError` in place of compiling a frame again.
        fail_on_recompile_limit_hit: raise at the limit in place of continuing eagerly.
        capture_scalar_outputs: give ``item()`` and ``tolist()`` a symbol in place of a break; so
            does ``fullgraph``.
        capture_dynamic_output_shape_ops: the same for ``nonzero``, masks and the like.
        assume_static_by_default: False makes all sizes dynamic from the first compile on.
        specialize_int: never make an integer argument dynamic.
        specialize_float: never make a float argument dynamic.
        verify_correctness: run each compiled graph once, and compare it with the captured one.
        error_on_nested_fx_trace: raise where torch.fx traces a compiled function symbolically.
        compile_wait: seconds that a call waits for one compile of another thread; then it runs as
            Python, that time. It ends deadlocks, where the other one waits for the caller.
        cache_wait: seconds that a compile waits for another process that makes the same entry of a
            cache; then it makes its own. 0: it never waits.
        reorderable_logging_functions: functions that may be called after the graph (``print``).
        ignore_logger_methods: methods of loggers whose calls are left out.
        fallback_random: draw random numbers as eager does. False: kernels draw dropout masks and
            the like themselves, which is faster; the seed still comes from torch's generator.
        sentinel: share of the calls of compiled graphs that are compared with eager, 1/1000 for one
            in a thousand; 0: none. Text as in ``TC_SENTINEL`` will do.
        sentinel_action: what a difference leads to: ``report``; ``eager``: run that graph by eager
            from then on; ``raise``: raise `SentinelError`.
        sentinel_memory: bytes that copies of the inputs of one call may take.
        sentinel_bisect: run `tc-bisect` in the background on a difference.
        profile_eager: while a trace is open, run some calls of each compiled graph a second time,
            by eager on copies of the inputs, to find graphs that are slower than eager.
        check: compare every call: ``graphs``; also ``stages`` of the compile, or ``kernels``, each
            by itself; a difference raises.
        rank_check: seconds; under `torch.distributed` ranks are compared before the first
            collective after a compile, and a divergence raises `RanksDiverged`; a collective that
            does not end so long is reported. 0: off.
        allow_ignore_mark_dynamic: let a dimension marked with `mark_dynamic` become a constant.
    """

    recompile_limit: int = 8
    automatic_dynamic_shapes: bool = True
    suppress_errors: bool = False
    disable: bool = _asked("TC_DISABLE", False)
    threads: int = 0
    fx_graph_cache: bool = _asked("TC_FX_GRAPH_CACHE", True)
    error_on_recompile: bool = False
    fail_on_recompile_limit_hit: bool = False
    capture_scalar_outputs: bool = False
    capture_dynamic_output_shape_ops: bool = False
    assume_static_by_default: bool = True
    specialize_int: bool = False
    specialize_float: bool = False
    verify_correctness: bool = False
    fallback_random: bool = True
    allow_ignore_mark_dynamic: bool = False
    error_on_nested_fx_trace: bool = True
    compile_wait: float = 60.0
    cache_wait: float = 120.0
    sentinel: float | str = _asked("TC_SENTINEL", 0)
    sentinel_action: str = "report"
    sentinel_memory: int = 4 << 30
    sentinel_bisect: bool = True
    profile_eager: bool = _asked("TC_PROFILE_EAGER", False)
    check: str = _asked("TC_CHECK", "")
    rank_check: float = _asked("TC_RANK_CHECK", 0.0)
    reorderable_logging_functions: set[Any] = field(default_factory=set)
    ignore_logger_methods: set[Any] = field(default_factory=set)

    def __getattr__(self, name: str) -> Any:
        if name in _OLD_NAMES:
            return getattr(self, _OLD_NAMES[name])
        raise AttributeError(_unknown(name))

    def __setattr__(self, name: str, value: Any) -> None:
        name = _OLD_NAMES.get(name, name)
        if _is_known(name):
            check(f"config.{name}", value)
        else:
            _warn_of_no_effect(f"the setting {name!r}", why_no_effect("_dynamo", name))
        object.__setattr__(self, name, value)

    def patch(
        self, name: str | Mapping[str, Any] | None = None, value: Any = None, **changes: Any
    ) -> Patch:
        """Return a context manager, or decorator, that changes settings while it is at work.

        Args:
            name: of one setting, which gets `value`; or a mapping of several.
            changes: settings by keyword.

        Raises:
            OptionError: there is no such setting, or it does not take the value.

        Example:
            >>> from tc.compiler.options import config
            >>> with config.patch(recompile_limit=2):
            ...     config.recompile_limit
            2
        """
        if isinstance(name, str):
            changes = {name: value, **changes}
        elif name is not None:
            changes = {**name, **changes}
        for setting, wanted in changes.items():
            current = _OLD_NAMES.get(setting, setting)
            if _is_known(current):
                check(f"config.{current}", wanted)
        return Patch(self, changes)


class Patch(ContextDecorator):
    """Settings in force for the length of a block, or of each call of a function."""

    def __init__(self, of: Config, changes: Mapping[str, Any]) -> None:
        self._config = of
        self.changes = dict(changes)
        self._before: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        self._before.append({name: getattr(self._config, name, _UNSET) for name in self.changes})
        for name, value in self.changes.items():
            setattr(self._config, name, value)

    def __exit__(self, *raised: object) -> None:
        for name, value in self._before.pop().items():
            if value is _UNSET:  # a setting of torch that means nothing here
                delattr(self._config, name)
            else:
                setattr(self._config, name, value)


#: other names that torch has for a setting
_OLD_NAMES = {
    "cache_size_limit": "recompile_limit",
    "fail_on_cache_limit_hit": "fail_on_recompile_limit_hit",
    "ignore_logging_functions": "ignore_logger_methods",
}
_UNSET = object()


@functools.cache
def _settings() -> tuple[str, ...]:
    return tuple(setting.name for setting in fields(Config))


def _is_known(name: str) -> bool:
    """Return whether tc has a setting; False: torch has it, and tc does not.

    Raises:
        OptionError: neither has it.
    """
    if name in _settings():
        return True
    if why_no_effect("_dynamo", name) is None:
        raise OptionError(_unknown(name))
    return False


def _unknown(name: str) -> str:
    why = None if name.startswith("_") else why_no_effect("_dynamo", name)
    if why is not None:
        return f"tc.config has no setting {name!r}, as torch._dynamo.config has: {why}"
    return f"tc.config has no setting {name!r}{nearest(name, list(_settings()))}"


config = Config()
_FIRST = Config()  # as it was before anybody changed it


def warn_of_settings_of_torch() -> None:
    """Warn once of each setting that a program has set for `torch.compile` alone."""
    own = {name: (getattr(config, name), value) for name, value in vars(_FIRST).items()}
    for name, wanted in set_for_torch_only(own):
        _warn_of_other_setting(name, repr(wanted), repr(own[name][0]))


@functools.cache
def _warn_of_other_setting(name: str, wanted: str, value: str) -> None:
    trace.warn(
        f"torch._dynamo.config.{name} = {wanted} is not read by tc.compile; "
        f"tc.config.{name} is {value}"
    )


@dataclass(frozen=True)
class InductorOptions:
    """Settings of the default backend, given as ``options`` of a `tc.compile` call or by its mode.

    Each has the name that PyTorch's Inductor gives it; a dot there is an underscore here.

    Attributes:
        max_autotune: time the ways to compute a matrix product on this machine, on a GPU those of
            each kernel, and keep the fastest; the times are kept on disk.
        freezing: take the parameters of modules as constants, where no gradients are computed.
        fx_graph_cache: look for compiled graphs on disk, and leave them there.
        fallback_random: draw random numbers as eager does; False: see `Config`.
        cpp_threads: OpenMP threads of generated kernels; 0 takes `Config.threads`.
        triton_cudagraphs: replay kernel launches as CUDA graphs; means nothing on a CPU.
        background: run captured graphs by eager torch while another thread compiles them.
        trace_enabled: write what each stage makes into a debug folder; such a graph is compiled
            again in each process.
        trace_graph_diagram: draw the graphs into that folder, before and after fusion.
    """

    max_autotune: bool = False
    freezing: bool = False
    fx_graph_cache: bool = True
    fallback_random: bool = True
    cpp_threads: int = 0
    triton_cudagraphs: bool = False
    background: bool = False
    trace_enabled: bool = False
    trace_graph_diagram: bool = False

    @property
    def debugs(self) -> bool:
        """Whether a debug folder is asked for."""
        return self.trace_enabled or self.trace_graph_diagram

    @classmethod
    def of(cls, mode: str | None, options: Mapping[str, Any]) -> InductorOptions:
        """Return what a mode, or options by their names, ask for.

        Raises:
            OptionError: an unknown name, a value of another type, or both mode and options.
        """
        if mode is not None and options:
            raise OptionError(
                f"pass mode={mode!r} or options, not both; tc.list_mode_options({mode!r}) returns "
                "the options of that mode"
            )
        settings = {}
        for name, value in {**list_mode_options(mode or "default"), **options}.items():
            attribute = name.replace("-", "_")
            if attribute not in list_options():
                _pass_over(attribute, value)
                continue
            if attribute == "cpp.threads" and value == -1:
                value = 0  # torch's way to ask for the default
            check(f"options.{attribute}", value)
            settings[attribute.replace(".", "_")] = value
        return cls(**settings)


def _pass_over(name: str, value: Any) -> None:
    """Accept an option of torch that changes nothing here.

    Raises:
        OptionError: torch has no such option, or it is a function that torch would call.
    """
    why = why_no_effect("_inductor", name)
    if why is None:
        known = [*list_options(), *REASONS["_inductor"]]
        raise OptionError(
            f"there is no option {name!r} of the default backend{nearest(name, known)}; "
            "tc.list_options() returns all of them"
        )
    refuse_functions(name, value)
    _warn_of_no_effect(f"the option {name!r}", why)


@functools.cache
def _warn_of_no_effect(what: str, why: str | None) -> None:
    """Warn once that an option or setting changes nothing, and why."""
    trace.warn(f"{what} has no effect: {why}")


def list_options() -> list[str]:
    """Return the names of the options that the default backend takes."""
    names = [option.name for option in fields(InductorOptions)]
    return [re.sub(r"^(cpp|triton|trace)_", r"\1.", name) for name in names]


def list_mode_options(mode: str | None = None) -> dict[str, Any]:
    """Return the options a mode selects; None: of each mode, by its name.

    Raises:
        OptionError: there is no such mode.
    """
    if mode is None:
        return {name: dict(options) for name, options in MODE_OPTIONS.items()}
    if mode not in MODE_OPTIONS:
        raise OptionError(f"there is no mode {mode!r}{nearest(mode, list(MODE_OPTIONS))}")
    return dict(MODE_OPTIONS[mode])


@dataclass(frozen=True)
class Options:
    """What one `tc.compile` call asked for.

    Attributes:
        fullgraph: raise on a graph break.
        dynamic: True: all sizes dynamic at once; False: never; None: on their second value.
        backend: ``(gm, example_inputs) -> callable``.
        backend_name: its name, for logs and traces.
        extra: settings of a backend of the user's, by name.
        inductor: settings of the default backend.
        guard_filter: entries of guards -> which of them are kept; None keeps all.
        name: of the compiled region, for traces.
        recompile_limit: compiles after which a function runs eagerly; None: that of `Config`.
        region: a compiled call with one of its own shares no compiled code with others.
        shapes: what ``shapes_spec`` says, a `Specification`.
    """

    backend: Callable[..., Callable[..., Any]]
    backend_name: str
    fullgraph: bool = False
    dynamic: bool | None = None
    mode: str | None = None
    extra: tuple[tuple[str, Any], ...] = ()
    inductor: InductorOptions = InductorOptions()
    guard_filter: Callable[[Sequence[Any]], Sequence[bool]] | None = None
    name: str | None = field(default=None, compare=False)
    recompile_limit: int | None = field(default=None, compare=False)
    region: object = None
    shapes: Any = None


#: what is set outside of Python -> what it is taken for where it is not
VARIABLES = ("CC", "TC_BISECT", "TC_CACHE_DIR", "TC_DISABLE", "TC_FORCE_DISABLE_CACHES",
             "TC_FX_GRAPH_CACHE")  # fmt: skip
#: what may be asked of a call -> where it is not
_CALL = (
    ("fullgraph", False), ("dynamic", None), ("mode", None), ("name", None),
    ("recompile_limit", None),
)  # fmt: skip
_NO_OPTIONS = InductorOptions()
_OPTION_NAMES = tuple(list_options())


def settings_changed(options: Options) -> dict[str, tuple[Any, Any]]:
    """Return what is not at its default for a `tc.compile` call, as name -> (value, default).

    The names are those of arguments of `tc.compile`, ``options.NAME``, ``config.NAME`` and
    ``env.NAME``; the values are those JSON has, anything else as text.
    """
    given, default = vars(options.inductor), vars(_NO_OPTIONS)
    asked = zip(_OPTION_NAMES, given.values(), default.values(), strict=True)
    rows = chain(
        [("", name, getattr(options, name), value) for name, value in _CALL],
        [("options.", name, value, default) for name, value, default in asked],
        [("options.", name, value, None) for name, value in options.extra],
        [("config.", name, getattr(config, name), value) for name, value in vars(_FIRST).items()],
        [("env.", name, os.environ.get(name), None) for name in VARIABLES],
    )
    return {
        f"{of}{name}": (_plain(value), _plain(default))
        for of, name, value, default in rows
        if value is not default and value != default
    }


def _plain(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(str(getattr(one, "__qualname__", one)) for one in value)
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)
