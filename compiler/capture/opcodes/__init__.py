"""Bytecode handlers, one file for each family; importing the package fills the table."""

from tc.compiler.capture.bytecode.opcode_table import OPCODES
from tc.compiler.capture.opcodes import (
    blocks,
    build,
    calls,
    jumps,
    loads,
    patterns,
    refused,
    stack,
)

__all__ = [
    "OPCODES",
    "blocks",
    "build",
    "calls",
    "jumps",
    "loads",
    "patterns",
    "refused",
    "stack",
]
