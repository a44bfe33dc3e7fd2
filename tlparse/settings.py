"""A session goes in; the settings it was compiled with, and their defaults where these differ."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final

from tc.trace.compiles import Compile
from tc.trace.parsed import parse_json
from tc.trace.session import Session

CONFIGS: Final = ("dynamo_config", "inductor_config", "functorch_config", "compiler_config")
TC_CONFIG: Final = "config"
_TC_DEFAULTS: Final = "config_defaults"
_RUNNABLE: Final = "fx_graph_runnable"
_HEAD: Final = 4096  # bytes of a runnable: its settings stand before its graph
_ASSIGNED: Final = re.compile(
    r"^torch\._(?P<package>inductor)\.config\.(?P<name>[\w.]+) = (?P<value>.+)$", re.MULTILINE
)
# What follows the machine, the folder or the installation, not what anybody has set.
LOCAL: Final = frozenset((
    "inductor.compile_threads", "inductor.worker_start_method", "inductor.cuda.cutlass_dir",
    "inductor.cutlass.cutlass_dir", "inductor.xpu.cutlass_dir", "inductor.cpp.cxx",
    "inductor.cuda.cuda_cxx", "inductor.rocm.rocm_home", "inductor.rocm.ck_dir",
    "inductor.TYPE_CHECKING", "inductor._cache_config_ignore_prefix",
    "inductor._save_config_ignore", "dynamo.debug_dir_root",
))  # fmt: skip
_LONGEST: Final = 120
_NO_VALUE: Final = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that is not at its default.

    Attributes:
        name: `dynamo.recompile_limit`, `options.max_autotune`.
        compiles: which compiles had this value; empty: all of them.
    """

    name: str
    value: str
    default: str
    compiles: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} = {self.value}"


@dataclass(frozen=True, slots=True)
class Settings:
    """What differs from the defaults.

    Attributes:
        rows: by name; a setting with several values has several.
        known: whose defaults these are: `torch 2.13`; empty where the trace has no settings.
        exact: they are those of the version that wrote the trace.
    """

    rows: tuple[Setting, ...] = ()
    known: str = ""
    exact: bool = True

    def __str__(self) -> str:
        return f"{len(self.rows)} not at the defaults of {self.known}"

    def to_json(self) -> dict[str, Any]:
        """Return them as plain values."""
        rows = [
            {"name": one.name, "value": one.value, "default": one.default,
             "compiles": list(one.compiles)}
            for one in self.rows
        ]  # fmt: skip
        return {"known": self.known, "exact": self.exact, "changed": rows}


def settings(session: Session, compiles: Sequence[Compile] | None = None) -> Settings:
    """Return the settings that are not at their defaults.

    Args:
        compiles: those that are looked at; None: all of the session.
    """
    looked = session.compiles if compiles is None else compiles
    mine = [one for one in looked if configured(one.metrics)]
    if not mine:
        return Settings()
    if session.producer == "tc":
        return Settings(_rows((one, _of_tc(one.metrics)) for one in mine), "tc")
    version = ".".join(session.environment.get("pytorch_version", "").split(".")[:2])
    known = _nearest(version)
    found = ((one, _of_torch(session, one, known)) for one in mine)
    return Settings(_rows(found), f"torch {known}", known == version)


def configured(metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return all settings that the metrics of a compile hold, by name."""
    recorded = metrics.get(TC_CONFIG)
    return recorded if isinstance(recorded, dict) else _configured(_texts(metrics))


def _texts(metrics: Mapping[str, Any]) -> tuple[str, ...]:
    found = (metrics.get(key) for key in CONFIGS)
    return tuple(one if isinstance(one, str) else "" for one in found)


@lru_cache(maxsize=64)  # a log has thousands of compiles, and few configurations
def _configured(texts: tuple[str, ...]) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    for key, text in zip(CONFIGS, texts, strict=True):
        try:
            values = parse_json(text) if text else None
        except ValueError:
            continue
        if isinstance(values, dict):
            head = key.removesuffix("_config")
            found.update((f"{head}.{name}", value) for name, value in values.items())
    return found


@lru_cache(maxsize=64)
def _differing(texts: tuple[str, ...], known: str) -> Mapping[str, tuple[Any, Any]]:
    return _against(_configured(texts), defaults()[known])


def _against(values: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {
        name: (value, default[name])
        for name, value in values.items()
        if name in default and name not in LOCAL and value != default[name]
    }


def _rows(
    found: Iterable[tuple[Compile, Mapping[str, tuple[Any, Any]]]],
) -> tuple[Setting, ...]:
    rows: dict[tuple[str, str, str], list[str]] = {}
    count = 0
    for one, changes in found:
        count += 1
        for name, (value, default) in changes.items():
            rows.setdefault((name, _shown(value), _shown(default)), []).append(one.slug)
    return tuple(
        Setting(*row, () if len(slugs) == count else tuple(slugs))
        for row, slugs in sorted(rows.items())
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _of_tc(metrics: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What tc recorded together with its defaults."""
    values, default = metrics.get(TC_CONFIG), metrics.get(_TC_DEFAULTS)
    if not isinstance(values, dict) or not isinstance(default, dict):
        return {}
    return {name: (values[name], was) for name, was in default.items() if name in values}


def _of_torch(session: Session, compiled: Compile, known: str) -> dict[str, tuple[Any, Any]]:
    """What PyTorch recorded; the options of one compile are recorded with its graph alone."""
    of_process = _differing(_texts(compiled.metrics), known)
    asked = _asked(session, compiled)
    rest = {name: pair for name, pair in of_process.items() if name not in asked}
    return {**rest, **_against(asked, defaults()[known])}


def _asked(session: Session, compiled: Compile) -> dict[str, Any]:
    """Return the settings in the program that repeats a graph: those of `mode` and `options`."""
    found: dict[str, Any] = {}
    for artifact in compiled.artifacts:
        if artifact.name == _RUNNABLE:
            for match in _ASSIGNED.finditer(session.start_of(artifact, _HEAD)):
                with suppress(*_NO_VALUE):  # an object, which has no default to compare with
                    value = _as_json(ast.literal_eval(match["value"]))
                    found[f"{match['package']}.{match['name']}"] = value
    return found


def _as_json(value: Any) -> Any:
    """Return a value in the form that JSON would have given it."""
    if isinstance(value, (set, frozenset)):
        return sorted(map(_as_json, value))
    if isinstance(value, (tuple, list)):
        return [_as_json(one) for one in value]
    return value


@cache
def defaults() -> dict[str, dict[str, Any]]:
    """Return the defaults of each known version of torch; `tests/make_defaults.py` writes them."""
    text = (files("tc.tlparse") / "static" / "defaults.json").read_text("utf-8")
    stored: dict[str, dict[str, Any]] = json.loads(text)
    found: dict[str, dict[str, Any]] = {}
    before: dict[str, Any] = {}
    for version, change in stored.items():
        before = {**before, **change["set"]}
        for name in change["gone"]:
            del before[name]
        found[version] = before
    return found


def _nearest(version: str) -> str:
    """Return the known version nearest to one: the newest that is not newer, else the oldest."""
    older = [one for one in defaults() if _numbers(one) <= _numbers(version)]
    return max(older, key=_numbers) if older else min(defaults(), key=_numbers)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
