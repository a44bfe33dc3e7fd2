"""Makes a callable over tensors of a compiled function's address and signature.

The callable is a C object (``launch.c``, built once a machine, Python and compiler) that costs 0.02
microseconds over the kernel itself; without Python's headers, ctypes takes its place.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tc.compiler.core.once import once
from tc.compiler.errors import StageError
from tc.compiler.runtime.extension import extension

Kernel = Callable[..., None]

CTYPES = {"p": ctypes.c_void_p, "i64": ctypes.c_longlong, "f64": ctypes.c_double}
OPENMP_SONAMES = ("libgomp", "libiomp5", "libomp")


def make_kernel(
    name: str,
    address: int,
    signature: Sequence[str],
    *,
    release_gil: bool = False,
    on_fault: Callable[[int], None] | None = None,
) -> Kernel:
    """Return a callable that calls the C function at ``address``.

    Args:
        name: the kernel's name, for messages.
        address: address of a C function that returns nothing, or, with ``on_fault``, an int64.
        signature: one of ``p`` (a tensor: its data pointer), ``i64``, ``f64`` an argument.
        release_gil: whether other Python threads may run meanwhile; pays for slow kernels.
        on_fault: called with the function's result if that is not 0.

    The extension calls functions of up to 96 pointers and integers and 8 numbers, ctypes the
    others.
    """
    extension = launcher()
    if extension is not None:
        with suppress(ValueError):
            kernel: Kernel = extension.Kernel(
                name, address, tuple(signature), release_gil, on_fault
            )
            return kernel
    return ctypes_kernel(name, address, signature, release_gil=release_gil, on_fault=on_fault)


@once
def launcher() -> ModuleType | None:
    """Return the launcher extension, or None where it cannot be built."""
    pointer = getattr(torch._C._dynamo.guards, "_torchinductor_pyobject_tensor_data_ptr", None)
    module = extension("launch") if pointer is not None else None
    if module is not None:
        module.setup(torch._C.TensorBase, pointer)
    return module


def offer_type() -> Callable[[Any, Any], Any] | None:
    """Return the type of callbacks for torch's frame hook (``launch.c``), or None as `launcher`."""
    extension = launcher()
    return None if extension is None else extension.Offer


def ctypes_kernel(
    name: str,
    address: int,
    signature: Sequence[str],
    *,
    release_gil: bool = False,
    on_fault: Callable[[int], None] | None = None,
) -> Kernel:
    """Return a callable made by ctypes, without C extensions: 0.3 microseconds a call."""
    prototype = (ctypes.CFUNCTYPE if release_gil else ctypes.PYFUNCTYPE)(
        ctypes.c_longlong if on_fault else None, *(CTYPES[kind] for kind in signature)
    )
    function = prototype(address)
    kinds = tuple(signature)

    def kernel(*args: Any) -> None:
        if len(args) != len(kinds):
            raise TypeError(
                f"kernel {name} takes {len(kinds)} positional arguments, got {len(args)}"
            )
        bits = function(
            *(arg.data_ptr() if kind == "p" else arg for kind, arg in zip(kinds, args, strict=True))
        )
        if bits and on_fault is not None:
            on_fault(bits)

    kernel.__name__ = name
    return kernel


def address_of(library: ctypes.CDLL, name: str) -> int:
    """Return the address of a function of a library."""
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0


@once
def share_openmp() -> None:
    """Make the OpenMP runtime that torch loaded visible to the kernels.

    Their symbols for it are undefined. Usually torch has loaded it globally and there is nothing to
    do; otherwise the same file is opened again, which loads no second copy but exports its symbols.
    """
    if hasattr(ctypes.CDLL(None), "GOMP_parallel"):
        return
    for path in [*_loaded_openmp(), "libgomp.so.1"]:
        try:
            library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        if hasattr(library, "GOMP_parallel"):
            return
    raise StageError(
        "runtime.launch",
        "torch ships no OpenMP runtime that kernels compiled by gcc can use, and the system has no "
        "libgomp.so.1. Install libgomp; tc.config.suppress_errors = True runs eagerly instead.",
    )


def _loaded_openmp() -> list[str]:
    """Return the OpenMP libraries mapped into this process."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[5] for line in maps.splitlines() if line.count("/")}
    return sorted(p for p in paths if Path(p).name.startswith(OPENMP_SONAMES))
