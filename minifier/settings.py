"""Settings of a process that decide what a compiler does, as statements that make them again.

In: the process. Out: `current`; what a script has changed is the difference of two of these. What
the environment sets is no matter of these: it holds for every process of a run.
"""

from __future__ import annotations

import ast
import dataclasses
import sys
from typing import Any, Final

import torch

from tc.compiler import api
from tc.minifier.case import SET_DTYPE

#: modules of torch whose settings are read, where something has loaded them
CONFIGS: Final = ("torch._dynamo.config", "torch._functorch.config", "torch._inductor.config")

#: devices whose automatic casts are read: a graph called in `torch.autocast` is another outside
AUTOCAST: Final = ("cpu", "cuda")

#: variables by which nothing is compiled in programs that a program starts
UNCOMPILED: Final = {"TC_DISABLE": "1", "TORCHDYNAMO_DISABLE": "1"}


def current() -> dict[str, str]:
    """Return every setting that is no default: its name, and the statement that makes it."""
    found = {
        f"tc.config.{name}": repr(value)
        for name, value in vars(api.config).items()
        if value != getattr(_DEFAULTS, name, value)
    }
    for home in CONFIGS:
        module: Any = sys.modules.get(home)
        changed = module._get_dict(skip_default=True) if hasattr(module, "_get_dict") else {}
        found |= {f"{home}.{name}": repr(value) for name, value in changed.items()}
    statements = {name: f"{name} = {text}" for name, text in found.items() if _is_literal(text)}
    precision = torch.get_float32_matmul_precision()
    statements["precision"] = f"torch.set_float32_matmul_precision({precision!r})"
    strict = torch.are_deterministic_algorithms_enabled()
    statements["deterministic"] = f"torch.use_deterministic_algorithms({strict})"
    statements["default dtype"] = f"{SET_DTYPE}{torch.get_default_dtype()})"
    for device in AUTOCAST:
        on, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        statements[f"autocast {device}"] = f"torch.set_autocast_enabled({device!r}, {on})"
        statements[f"dtype {device}"] = f"torch.set_autocast_dtype({device!r}, {dtype})"
    return statements


def changed(before: dict[str, str]) -> tuple[str, ...]:
    """Return the statements that make what was set since then."""
    return tuple(text for name, text in current().items() if before.get(name) != text)


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False
    return True


_DEFAULTS: Final = dataclasses.replace(api.config)
