"""Triton kernels at run time: loads their modules, and launches them on the caller's stream.

In: a `GpuProgram`. Out: the function that runs it. Triton itself compiles each kernel at its first
launch and keeps the result in its own cache, by content.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tc.compiler.errors import StageError
from tc.compiler.runtime.cudagraphs import replayed
from tc.compiler.runtime.load import Compiled, load_wrapper
from tc.compiler.runtime.store import keep_source

if TYPE_CHECKING:
    from tc.compiler.core.artifacts import KernelSpec
    from tc.compiler.core.gpu import GpuProgram

Rows = int | Callable[..., int]


class Launch:
    """A Triton kernel that computes its grid from its arguments.

    Triton's own launch examines every argument in Python. It tests which pointers and sizes are
    multiples of 16; here one step does so, and then calls the launcher that Triton made for that
    case, with addresses, which it takes as they are.

    Attributes:
        jit: Triton's function.
        settings: compile-time parameters, block sizes first, and ``num_warps``.
        made: case of the arguments -> the kernel compiled for it. A program runs on one device.
        numbers: whether it takes sizes or other numbers besides pointers.
    """

    def __init__(self, jit: Any, rows: Rows, settings: dict[str, Any]) -> None:
        self.jit, self.rows = jit, rows
        # As in the C kernels, each operation rounds separately, as eager's do.
        self.settings = {**settings, "enable_fp_fusion": False}
        self.block: int = settings["XBLOCK"]
        self.constants = tuple(v for k, v in settings.items() if k.endswith("BLOCK"))
        self.made: dict[Any, _CompiledKernel] = {}
        self.numbers = not jit.fn.__annotations__.keys() <= settings.keys()

    def __call__(self, *args: Any) -> None:
        rows = self.rows if isinstance(self.rows, int) else self.rows(*args)
        if rows <= 0:
            return
        if self.numbers:
            given = [arg.data_ptr() if isinstance(arg, torch.Tensor) else arg for arg in args]
            case: Any = tuple(map(_case, given))
        else:
            given, low = [arg.data_ptr() for arg in args], 0
            for address in given:
                low |= address
            case = low & 15 == 0 or tuple(address & 15 == 0 for address in given)
        blocks = -(-rows // self.block)
        compiled = self.made.get(case)
        if compiled is not None:
            compiled(blocks, given, self.constants)
            return
        kernel = self.jit[blocks, 1, 1](*args, **self.settings)
        if kernel is not None:  # Triton's interpreter has none
            self.made[case] = _CompiledKernel(kernel)


class _CompiledKernel:
    """A compiled kernel, and what its launches have in common."""

    def __init__(self, kernel: Any) -> None:
        triton: Any = sys.modules["triton"]  # it made the kernel
        driver, knobs = triton.runtime.driver, triton.knobs
        self.kernel = kernel
        self.before = knobs.runtime.launch_enter_hook
        self.after = knobs.runtime.launch_exit_hook
        self.device = driver.active.get_current_device()
        self.stream_of = driver.active.get_current_stream
        self.known = kernel.function, kernel.packed_metadata
        self.run = kernel.run

    def __call__(self, blocks: int, given: Sequence[Any], constants: Sequence[int]) -> None:
        stream = self.stream_of(self.device)
        enter = leave = about = None
        if self.before.calls or self.after.calls:  # a profiler asks for them
            enter, leave = self.before, self.after
            about = self.kernel.launch_metadata((blocks, 1, 1), stream, *given)
        self.run(blocks, 1, 1, stream, *self.known, about, enter, leave, *given, *constants)


def _case(value: Any) -> Any:
    """Return one argument's part of the case for which Triton compiles a kernel.

    Addresses and sizes are tested alike: no address is 1, and all are past 32 bits, or 0.
    """
    if isinstance(value, int):
        return value & 15 == 0, value == 1, -(2**31) <= value < 2**31
    return None


def launch(rows: Rows, **settings: Any) -> Callable[[Any], Launch]:
    """Make a launchable kernel of Triton's function: one block for each ``XBLOCK`` rows."""
    return lambda jit: Launch(jit, rows, settings)


def load(program: GpuProgram) -> Compiled:
    """Return the program as a function from a list of inputs to a tuple of outputs.

    Raises:
        StageError: triton is missing, or generated code is not valid Python.
    """
    compiled = load_wrapper(program, open_kernels(program.triton_source, program.kernels))
    compiled = _on_device(compiled, program.device)
    return replayed(compiled, program) if program.replay else compiled


def _on_device(compiled: Compiled, device: str) -> Compiled:
    """Make a program's device the current one during calls, if there are several devices."""
    index = torch.device(device).index
    if index is None or not torch.cuda.is_available() or torch.cuda.device_count() < 2:
        return compiled

    @functools.wraps(compiled)
    def call(args: list[Any]) -> tuple[Any, ...]:
        with torch.cuda.device(index):
            return compiled(args)

    return call


def available() -> bool:
    """Return whether triton is installed, without importing it."""
    return importlib.util.find_spec("triton") is not None


def open_kernels(source: str, specs: Sequence[KernelSpec]) -> dict[str, Launch]:
    """Load a module of kernels and return them by name."""
    if not specs:
        return {}
    path = keep_source("triton", source)  # Triton reads it, and so may people
    names: dict[str, Any] = {"__name__": "tc_generated_kernels", "__file__": path}
    try:
        exec(compile(source, path, "exec"), names)
        return {spec.name: names[spec.name] for spec in specs}
    except ImportError as error:
        raise StageError(
            "runtime.load",
            f"Kernels for a GPU need triton, which cannot be imported: {error}. Install it "
            "(pip install triton), or compile with backend='eager'.",
        ) from error
    except (SyntaxError, KeyError, NameError) as error:
        raise StageError(
            "runtime.load", f"The generated kernels {path} cannot be loaded: {error!r}."
        ) from error
