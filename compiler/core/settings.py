"""What each setting, option, argument of `tc.compile` and environment variable takes: a row each.

A value is checked where it is set, so that no compile meets one that means nothing.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tc.compiler.core.table import Table
from tc.compiler.errors import OptionError


@dataclass(frozen=True)
class Kind:
    """What a setting takes.

    Attributes:
        allowed: the values in words, which end the sentence "NAME takes".
        fits: whether a value is one of them.
        names: the values, where they are names.
    """

    allowed: str
    fits: Callable[[Any], bool]
    names: tuple[str, ...] = ()


def nearest(name: str, known: Sequence[str]) -> str:
    """Return ``; did you mean 'x'?`` for the closest known name, or an empty string."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def share_of(rate: Any) -> float:
    """Return a share of calls, given as a number or as text such as ``1/1000``.

    NaN is returned for what is no share.
    """
    if isinstance(rate, bool) or not isinstance(rate, int | float | str):
        return math.nan
    try:
        above, _, below = str(rate).partition("/")
        share = float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        return math.nan
    return share if 0 <= share <= 1 else math.nan


# -- kinds -------------------------------------------------------------------------------------
def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf


def _are_functions(value: Any) -> bool:
    several = isinstance(value, Collection) and not isinstance(value, str | Mapping)
    return several and all(map(callable, value))


def _is_named(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def _one_of(*names: str) -> Kind:
    texts = ", ".join(repr(name) for name in names if name)
    return Kind(f"one of {texts}", lambda value: isinstance(value, str) and value in names, names)


def _or_none(kind: Kind) -> Kind:
    return Kind(f"{kind.allowed}, or None", lambda value: value is None or kind.fits(value))


FLAG = Kind("True or False", lambda value: type(value) is bool)
COUNT = Kind("a whole number that is not negative", _is_count)
THREADS = Kind(
    "a number of threads, or 0 or -1 for torch's own",
    lambda value: _is_count(value) or (type(value) is int and value == -1),
)
SECONDS = Kind("a number of seconds that is not negative", _is_seconds)
SHARE = Kind(
    "a share of calls such as 1/1000, from 0 to 1", lambda value: not math.isnan(share_of(value))
)
FUNCTIONS = Kind("a set of functions", _are_functions)
FUNCTION = Kind("a function", callable)
TEXT = Kind("text", lambda value: isinstance(value, str))
NAMED = Kind("a dict of the name of an option -> its value", _is_named)
CHECKS = _one_of("", "graphs", "stages", "kernels")
ACTIONS = _one_of("report", "eager", "raise")
ANY = Kind("anything", lambda value: True)  # what another part of the compiler checks

#: name -> what it takes: ``config.NAME``, ``options.NAME``, or an argument of `tc.compile`
SETTINGS: Table[str, Kind] = Table("settings")
for _kind, _names in (
    (FLAG, ("config.automatic_dynamic_shapes", "config.suppress_errors", "config.disable",
            "config.fx_graph_cache", "config.error_on_recompile",
            "config.fail_on_recompile_limit_hit", "config.capture_scalar_outputs",
            "config.capture_dynamic_output_shape_ops", "config.assume_static_by_default",
            "config.specialize_int", "config.specialize_float", "config.verify_correctness",
            "config.fallback_random", "config.allow_ignore_mark_dynamic",
            "config.error_on_nested_fx_trace", "config.sentinel_bisect", "config.profile_eager",
            "options.max_autotune", "options.freezing", "options.fx_graph_cache",
            "options.fallback_random", "options.triton.cudagraphs", "options.background",
            "options.trace.enabled", "options.trace.graph_diagram",
            "fullgraph", "disable", "isolate_recompiles")),
    (COUNT, ("config.recompile_limit", "config.threads", "config.sentinel_memory")),
    (THREADS, ("options.cpp.threads",)),
    (SECONDS, ("config.compile_wait", "config.cache_wait", "config.rank_check")),
    (SHARE, ("config.sentinel",)),
    (ACTIONS, ("config.sentinel_action",)),
    (CHECKS, ("config.check",)),
    (FUNCTIONS, ("config.reorderable_logging_functions", "config.ignore_logger_methods")),
    (FUNCTION, ("options.guard_filter_fn",)),
    (_or_none(FLAG), ("dynamic",)),
    (_or_none(COUNT), ("recompile_limit",)),
    (_or_none(TEXT), ("mode", "name")),
    (_or_none(NAMED), ("options",)),
    (ANY, ("model", "backend", "shapes_spec", "dynamic_shapes")),
):  # fmt: skip
    for _name in _names:
        SETTINGS.add(_name, _kind)

#: environment variables by which a setting of `Config` begins -> what they take
FROM_ENVIRONMENT: Mapping[str, Kind] = {
    "TC_CHECK": CHECKS,
    "TC_DISABLE": FLAG,
    "TC_FX_GRAPH_CACHE": FLAG,
    "TC_PROFILE_EAGER": FLAG,
    "TC_RANK_CHECK": SECONDS,
    "TC_SENTINEL": SHARE,
}
_FLAGS = {"0": False, "1": True}


# -- checks ------------------------------------------------------------------------------------
def check(name: str, value: Any) -> None:
    """Raise an OptionError for a value that a setting does not take."""
    kind = SETTINGS[name]
    if not kind.fits(value):
        raise _refusal(_title(name), kind, value)


def require_callable(taker: str, value: Any, takes: str = "a function or module") -> None:
    """Raise an OptionError for what cannot be called."""
    if not callable(value):
        plain = value is None or isinstance(value, bool | int | float | str)
        what = repr(value) if plain else f"an object of type {type(value).__name__}"
        raise OptionError(f"{taker} takes {takes}, not {what}")


def require_counts(**given: Any) -> None:
    """Raise an OptionError for an argument of a tool, by its name, that is no count."""
    for name, value in given.items():
        if not COUNT.fits(value):
            raise _refusal(f"the argument {name!r}", COUNT, value)


def from_environment(variable: str, default: Any) -> Any:
    """Return what an environment variable says; a default where it is not set, or empty.

    Raises:
        OptionError: it says nothing that the setting takes.
    """
    text, kind = os.environ.get(variable, ""), FROM_ENVIRONMENT[variable]
    if not text:
        return default
    if kind is FLAG:
        if text not in _FLAGS:
            raise OptionError(f"the variable {variable} takes 0 or 1, not {text!r}")
        return _FLAGS[text]
    value: Any = text
    if kind is SECONDS:
        try:
            value = float(text)
        except ValueError:
            value = None
    if not kind.fits(value):
        raise _refusal(f"the variable {variable}", kind, text)
    return value


def _refusal(title: str, kind: Kind, value: Any) -> OptionError:
    hint = nearest(value, kind.names) if isinstance(value, str) else ""
    return OptionError(f"{title} takes {kind.allowed}, not {value!r}{hint}")


def _title(name: str) -> str:
    if name.startswith("config."):
        return f"tc.{name}"
    option = name.removeprefix("options.")
    return f"the option {option!r}" if option != name else f"the argument {name!r}"
