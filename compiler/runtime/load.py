"""Loads a `Program`: builds and opens its library, and returns the function that runs it."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.core.wrapper_inlining import remember
from tc.compiler.errors import IndexOutOfRange, StageError
from tc.compiler.routines import modules
from tc.compiler.runtime.annotated import annotate, watched
from tc.compiler.runtime.build import build_kernels
from tc.compiler.runtime.launch import (
    Kernel,
    address_of,
    make_kernel,
    share_openmp,
)
from tc.compiler.runtime.memory import empty_large, empty_strided_cpu, empty_strided_cuda
from tc.compiler.runtime.store import keep_source

if TYPE_CHECKING:
    from tc.compiler.core.artifacts import KernelSpec, Program

Compiled = Callable[[list[Any]], tuple[Any, ...]]

#: the most lines of a wrapper that is inlined (see `core.wrapper_inlining`)
SHORT = 60
#: attribute that keeps PyTorch's tracer, in compiled autograd, from tracing backward's wrappers
OPAQUE = {"_torchdynamo_disable": True, "_torchdynamo_disable_msg": "compiled by tc"}


def load(program: Program) -> Compiled:
    """Return the program as a function from a list of inputs to a tuple of outputs.

    Raises:
        StageError: no C compiler, or it refuses the kernels, or the wrapper is not valid Python.
    """
    kernels = open_kernels(program.c_source, program.kernels, dict(program.provenance))
    return load_wrapper(program, kernels)


def load_wrapper(program: Program, kernels: Mapping[str, Any]) -> Compiled:
    """Run a program's wrapper source with its constants and kernels, and return its ``call``.

    Raises:
        StageError: the wrapper is not valid Python.
    """
    names = wrapper_globals()
    names.update(program.constants)
    names.update(kernels)
    annotate(program, names)
    path = keep_source("wrapper", program.wrapper_source)
    try:
        source: Any = watched(program.wrapper_source)
        short = source.count("\n") < SHORT
        source = ast.parse(source) if short else source
        exec(compile(source, path, "exec"), names)
        compiled: Compiled = names["call"]
        names.update(bindings(names))
        vars(compiled).update(OPAQUE)
        if short:
            remember(compiled, source)
    except (SyntaxError, KeyError, NameError) as error:
        raise StageError(
            "runtime.load", f"The generated wrapper {path} cannot be loaded: {error!r}."
        ) from error
    return compiled


def bindings(names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bindings that calls of ops in ``names`` end in: a Python frame less each."""
    return {k: op._op for k, op in names.items() if type(op) is torch._ops.OpOverload}


def wrapper_globals() -> dict[str, Any]:
    """Return the names every wrapper may use."""
    return {
        "__name__": "tc_generated",
        "torch": torch,
        "aten": torch.ops.aten,
        "prims": torch.ops.prims,
        "device": torch.device,
        "math": math,
        **modules(),
        "inf": math.inf,
        "nan": math.nan,
        "empty_strided_cpu": empty_strided_cpu,
        "empty_strided_cuda": empty_strided_cuda,
        "empty_large": empty_large,
    }


def open_kernels(
    source: str, specs: Sequence[KernelSpec], computes: Mapping[str, Sequence[str]]
) -> dict[str, Kernel]:
    """Build the C source and return its kernels by name.

    Args:
        computes: kernel -> ops and lines, for messages.
    """
    if not specs:
        return {}
    share_openmp()
    library = build_kernels(source)
    try:
        opened = library.open()
        addresses = {spec.name: address_of(opened, spec.name) for spec in specs}
    except (OSError, AttributeError) as error:
        raise StageError(
            "runtime.load",
            f"The kernels in {library} cannot be opened: {error}. Remove that file to have them "
            "built again; tc.config.suppress_errors = True runs the function eagerly instead.",
        ) from error
    return {
        spec.name: make_kernel(
            spec.name,
            addresses[spec.name],
            spec.signature,
            release_gil=getattr(spec, "release_gil", False),
            on_fault=fault_handler(spec.name, computes.get(spec.name, ()))
            if spec.checked
            else None,
        )
        for spec in specs
    }


def fault_handler(kernel: str, computes: Sequence[str]) -> Callable[[int], None]:
    """Return a function that raises eager's error for a kernel's fault bits (see `KernelSpec`).

    It raises `IndexOutOfRange`, or RuntimeError where an integer is divided by zero.
    """

    def fail(bits: int) -> None:
        place = f"kernel {kernel}, which computes {'; '.join(computes)}"
        if bits & 1:
            raise IndexOutOfRange(f"index out of range in {place}")
        raise RuntimeError(f"ZeroDivisionError: an integer is divided by zero in {place}")

    return fail
