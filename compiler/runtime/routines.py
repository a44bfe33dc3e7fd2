"""Takes a C file of a routine; returns a function of it, built once a machine.

Routines (`compiler/routines/`) are called by wrappers where ATen's own would be, with tensors of
any size. A comment ``/* helpers: tc_exp_f32, ... */`` in a file is where helpers of generated
kernels go, and ``/* limits */`` where constants go that the routine's row decides.
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
    open_library,
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
    """Return function ``name`` of a C file, None where it cannot be built.

    It returns whether memory was lacking, which raises `MemoryError`. Other threads run meanwhile.
    """
    source = source_of(file, limits)
    try:
        share_openmp()
        address = address_of(open_library(build_kernels(source), source), name)
    except (StageError, OSError):
        return None

    def no_memory(bits: int) -> NoReturn:
        raise MemoryError(f"no memory for the temporary buffers of {name}")

    return make_kernel(name, address, signature, release_gil=True, on_fault=no_memory)


def source_of(file: Path, limits: Limits = ()) -> str:
    """Return the text of a C file with the limits, and with the helpers that it names."""
    text = file.read_text(encoding="utf-8")
    head, mark_of_limits, rest = text.partition(_LIMITS)
    if mark_of_limits:
        text = head + "".join(f"#define {name} {value}\n" for name, value in limits) + rest
    mark = _HELPERS.search(text)
    if mark is None:
        return text
    named = helpers().source((MACROS, *_WORD.findall(mark[1])))
    return f"{text[: mark.start()]}{named}{text[mark.end() :]}"
