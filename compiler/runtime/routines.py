"""Takes the name of a C file beside this one; returns a function of it, built once a machine.

Routines are called by wrappers where ATen's own would be, with tensors of any size.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import NoReturn

from tc.compiler.errors import StageError
from tc.compiler.runtime.build import build_kernels
from tc.compiler.runtime.launch import Kernel, make_kernel, share_openmp


@functools.cache
def open_routine(file: str, name: str, signature: tuple[str, ...]) -> Kernel | None:
    """Return function ``name`` of ``{file}.c``, None where it cannot be built.

    It returns whether memory was lacking, which raises `MemoryError`. Other threads run meanwhile.
    """
    try:
        share_openmp()
        library = build_kernels((Path(__file__).parent / f"{file}.c").read_text())
        function = getattr(ctypes.CDLL(str(library)), name)
    except (StageError, OSError):
        return None
    address = ctypes.cast(function, ctypes.c_void_p).value or 0

    def no_memory(bits: int) -> NoReturn:
        raise MemoryError(f"no memory for what {name} keeps meanwhile")

    return make_kernel(name, address, signature, release_gil=True, on_fault=no_memory)
