"""Opens C routines, which are built once for each machine.

Wrappers call routines (`compiler/routines/`) in place of ATen's, with tensors of any size. A
comment ``/* helpers: tc_exp_f32, ... */`` in a file is replaced by those helpers of generated
kernels, and ``/* limits */`` by the constants in the routine's row.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NoReturn

from tc.compiler.core.c_helpers import MACROS, helpers
from tc.compiler.core.once import once
from tc.compiler.errors import StageError
from tc.compiler.runtime.build import build_kernels
from tc.compiler.runtime.launch import (
    Kernel,
    address_of,
    make_kernel,
    share_openmp,
)

_HELPERS = re.compile(r"/\* helpers: ([^*]*)\*/")
_WORD = re.compile(r"\w+")
_LIMITS = "/* limits */\n"

Limits = tuple[tuple[str, int], ...]


@once
def open_routine(
    file: Path, name: str, signature: tuple[str, ...], limits: Limits = ()
) -> Kernel | None:
    """Return function ``name`` of a C file, or None if it cannot be built.

    The C function returns whether it ran out of memory, which raises `MemoryError`. Other threads
    run meanwhile.
    """
    source = source_of(file, limits)
    try:
        share_openmp()
        address = address_of(build_kernels(source, of_graph=False).open(), name)
    except (StageError, OSError):
        return None

    def no_memory(bits: int) -> NoReturn:
        raise MemoryError(f"no memory for the temporary buffers of {name}")

    return make_kernel(name, address, signature, release_gil=True, on_fault=no_memory)


def source_of(file: Path, limits: Limits = ()) -> str:
    """Return the text of a C file with its limits and helpers inserted."""
    text = file.read_text(encoding="utf-8")
    head, mark_of_limits, rest = text.partition(_LIMITS)
    if mark_of_limits:
        text = head + "".join(f"#define {name} {value}\n" for name, value in limits) + rest
    mark = _HELPERS.search(text)
    if mark is None:
        return text
    named = helpers().source((MACROS, *_WORD.findall(mark[1])))
    return f"{text[: mark.start()]}{named}{text[mark.end() :]}"
