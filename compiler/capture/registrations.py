"""Imports the modules that fill the tables of handlers; `translate` imports this one."""

from __future__ import annotations

from tc.compiler.capture import opcodes
from tc.compiler.capture.torch_api import (
    flex,
    gradients,
    higher_order,
    looping,
    override_handlers,
    pytrees,
    transforms,
)
from tc.compiler.capture.values import (
    class_checks,
    conversions,
    copies,
    hooks,
    indexing,
    iteration,
    pure,
    signatures,
)

__all__ = [
    "class_checks",
    "conversions",
    "copies",
    "flex",
    "gradients",
    "higher_order",
    "hooks",
    "indexing",
    "iteration",
    "looping",
    "opcodes",
    "override_handlers",
    "pure",
    "pytrees",
    "signatures",
    "transforms",
]
