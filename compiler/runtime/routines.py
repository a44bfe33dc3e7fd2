"""Takes the name of a C file beside this one; returns a function of it, built once a machine.

Routines are called by wrappers where ATen's own would be, with tensors of any size. A comment
``/* helpers: tc_exp_f32, ... */`` in a file stands for helpers of generated kernels.
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


@once
def open_routine(file: str, name: str, signature: tuple[str, ...]) -> Kernel | None:
    """Return function ``name`` of ``{file}.c``, None where it cannot be built.

    It returns whether memory was lacking, which raises `MemoryError`. Other threads run meanwhile.
    """
    source = source_of(file)
    try:
        share_openmp()
        address = address_of(open_library(build_kernels(source), source), name)
    except (StageError, OSError):
        return None

    def no_memory(bits: int) -> NoReturn:
        raise MemoryError(f"no memory for what {name} keeps meanwhile")

    return make_kernel(name, address, signature, release_gil=True, on_fault=no_memory)


def source_of(file: str) -> str:
    """Return the text of ``{file}.c`` with the helpers that it names."""
    text = (Path(__file__).parent / f"{file}.c").read_text(encoding="utf-8")
    return re.sub(
        r"/\* helpers: ([^*]*)\*/",
        lambda mark: helpers().source((MACROS, *re.findall(r"\w+", mark[1]))),
        text,
    )
