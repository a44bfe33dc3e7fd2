"""Compiles modules of generated kernels to machine code with no GPU: ``triton_cubins.py FILE…``.

Prints a line a kernel and target: name, architecture, bits of the narrowest access to memory, bytes
of the cubin.
Runs in a process of its own, without ``TRITON_INTERPRET``, which would turn kernels into Python.
"""

from __future__ import annotations

import json
import linecache
import re
import sys
from pathlib import Path
from typing import Any

ARCHITECTURES = (80, 90)


def compile_module(path: Path, kinds: dict[str, list[str]]) -> None:
    """Compile each kernel of a module; ``kinds`` names the Triton types of each one's arguments."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    source = path.read_text()
    linecache.cache[str(path)] = (len(source), None, source.splitlines(keepends=True), str(path))
    names: dict[str, Any] = {"__name__": path.stem}
    exec(__builtins__.compile(source, str(path), "exec"), names)  # type: ignore[attr-defined]
    for name, types in kinds.items():
        kernel = names[name]
        settings = dict(kernel.settings)
        constants = {k: v for k, v in settings.items() if k.endswith("BLOCK")}
        parameters = kernel.jit.arg_names
        signature = dict(zip(parameters, types, strict=False)) | dict.fromkeys(
            constants, "constexpr"
        )
        options = {k: v for k, v in settings.items() if k not in constants}
        aligned = {(k,): [["tt.divisibility", 16]] for k, t in enumerate(types) if t[0] == "*"}
        for architecture in ARCHITECTURES:
            made = compile(
                ASTSource(kernel.jit, signature, constants, aligned),
                target=GPUTarget("cuda", architecture, 32),
                options=options,
            )
            bits = narrowest(made.asm["ptx"])
            size = len(made.asm["cubin"])
            print(f"{name} sm_{architecture} {bits} bits at a time, {size} bytes", flush=True)


def narrowest(ptx: str) -> int:
    """The fewest bits that an instruction reads from memory, or writes to it; 0 if none does."""
    found = re.findall(r"\b(?:ld|st)\.global\b[\w.:]*?(?:\.v(\d))?\.b(\d+) ", ptx)
    return min((int(count or 1) * int(size) for count, size in found), default=0)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        folder = Path(argument)
        compile_module(folder, json.loads(folder.with_suffix(".json").read_text()))
