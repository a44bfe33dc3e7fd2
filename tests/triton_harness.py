"""Runs a function through the GPU stages, its kernels under Triton's interpreter on CPU tensors.

Needs ``TRITON_INTERPRET=1`` before triton is first imported, so tests with it run in a process of
their own (`tests/compiler/codegen/triton/test_interpreted.py`). The interpreter has no libdevice:
`complete_interpreter` gives it torch's functions of the same meaning.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loop_harness import check, copied, lowered, trace
from support import ROOT, python

from tc.compiler.codegen.triton.stage import generate
from tc.compiler.codegen.triton.tuning import Tuning
from tc.compiler.core.gate import Gate
from tc.compiler.core.gpu import GpuProgram
from tc.compiler.core.tune import Tuner, Way
from tc.compiler.loops import lower, size_hints
from tc.compiler.loops.ir import LoopGraph
from tc.compiler.runtime.triton import load, open_kernels
from tc.compiler.schedule import gpu
from tc.compiler.schedule.plan import Plan
from tc.trace import Autotune, emit

CPU = torch.device("cpu")
LIBDEVICE: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        *(torch.exp, torch.exp2, torch.expm1, torch.log, torch.log2, torch.log10, torch.log1p),
        *(torch.sin, torch.cos, torch.tan, torch.asin, torch.acos, torch.atan, torch.atan2),
        *(torch.sinh, torch.cosh, torch.tanh, torch.asinh, torch.acosh, torch.atanh),
        *(torch.erf, torch.erfc, torch.lgamma, torch.hypot, torch.nextafter, torch.rsqrt),
        *(torch.trunc, torch.fmod, torch.copysign, torch.pow),
    )
} | {"rint": torch.round}


def complete_interpreter() -> None:
    """Make libdevice work interpreted, loops up to a size under NumPy 2.4, and bfloat16 rounded;
    reductions and scans take many elements at a time, as a GPU does, and not each by itself.
    """
    from triton.language.extra import libdevice
    from triton.runtime import interpreter

    for name, function in LIBDEVICE.items():
        setattr(libdevice, name, _interpreted(function))
    convert, patch = interpreter._convert_float, interpreter._patch_lang_tensor

    def rounded(data: Any, source: Any, target: Any, mode: Any) -> Any:
        if (source.name, target.name) != ("fp32", "bf16"):
            return convert(data, source, target, mode)
        return torch.as_tensor(data).bfloat16().view(torch.uint16).numpy()

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor, interpreter._convert_float = patched, rounded
    builder = interpreter.InterpreterBuilder
    dot = builder.create_dot

    def multiplied(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        """Their bfloat16 numbers are kept as their bits, which it would multiply as such."""
        return dot(self, *map(_widened, (a, b)), *rest)

    builder.create_dot = multiplied
    interpreter.ReduceOps.generic_reduce = _reduced
    interpreter.ScanOps.generic_scan = _scanned
    interpreter._patch_builtin = _patched


#: package or class of triton's -> names of what it has to have another meaning interpreted
_BUILTINS: dict[Any, list[str]] = {}


def _patched(owner: Any, builder: Any, scope: Any) -> None:
    """As the interpreter does, which looks through all of the language at each call."""
    from triton.language.core import is_builtin
    from triton.runtime import interpreter

    if owner not in _BUILTINS:
        found = [name for name, one in inspect.getmembers(owner) if is_builtin(one)]
        if not found:
            return  # all of them have it already
        _BUILTINS[owner] = found
    for name in _BUILTINS[owner]:
        if is_builtin(member := getattr(owner, name)):
            interpreter._patch_attr(owner, name, member, builder, scope)


def _joined(self: Any, left: list[Any], right: list[Any], kinds: Sequence[Any]) -> list[Any]:
    """Arrays of the combined elements of two parts, one for each value of an element."""
    given = [
        self.to_tensor(part, kind)
        for parts in (left, right)
        for part, kind in zip(parts, kinds, strict=True)
    ]
    made = self.combine_fn.fn(*given)
    return [one.handle.data for one in (made if isinstance(made, tuple) else (made,))]


def _reduced(self: Any, tensors: Sequence[Any]) -> list[Any]:
    """A reduction by halves, as its order is nobody's promise."""
    assert self.axis is not None
    kinds = [one.dtype for one in tensors]
    rest: list[Any] = [np.moveaxis(one.handle.data, self.axis, 0) for one in tensors]
    while (size := len(rest[0])) > 1:
        half = size // 2
        pairs = _joined(self, [a[:half] for a in rest], [a[half : 2 * half] for a in rest], kinds)
        rest = [np.concatenate([p, a[2 * half :]]) for p, a in zip(pairs, rest, strict=True)]
    made = (np.moveaxis(a, 0, self.axis) if self.keep_dims else a[0] for a in rest)
    return [self.to_tensor(a, kind) for a, kind in zip(made, kinds, strict=True)]


def _scanned(self: Any, tensors: Sequence[Any]) -> list[Any]:
    """Running totals, each step over stretches twice as long (Hillis and Steele 1986)."""
    kinds = [one.dtype for one in tensors]
    rest: list[Any] = [np.moveaxis(one.handle.data, self.axis, 0) for one in tensors]
    step = 1
    while step < len(rest[0]):
        earlier = [np.roll(a, step, 0) for a in rest]  # of the same size, a power of two
        joined = _joined(self, earlier, rest, kinds)
        rest = [np.concatenate([a[:step], b[step:]]) for a, b in zip(rest, joined, strict=True)]
        step *= 2
    made = [np.moveaxis(a, 0, self.axis) for a in rest]
    return [self.to_tensor(a, kind) for a, kind in zip(made, kinds, strict=True)]


def _widened(handle: Any) -> Any:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    if handle.dtype.scalar != tl.bfloat16:
        return handle
    values = torch.as_tensor(handle.data.view(np.int16)).view(torch.bfloat16).float()
    return TensorHandle(values.numpy(), tl.float32)


def _interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def run(*args: Any, **_: Any) -> Any:
        dtype = next(a.dtype for a in args if isinstance(a, tl.tensor))
        given = [a.handle.data if isinstance(a, tl.tensor) else a for a in args]
        kind = next(a.dtype for a in given if isinstance(a, np.ndarray | np.generic))
        operands = [torch.as_tensor(np.asarray(a, dtype=kind)) for a in given]
        data = function(*operands).numpy()
        kinds = tl.block_type(dtype, list(data.shape)) if data.shape else dtype
        return tl.tensor(TensorHandle(data, dtype), kinds)

    return run


def gpu_program(graph: LoopGraph, device: torch.device = CPU) -> GpuProgram:
    """A verified GPU program of a loop graph."""
    plan = gpu.plan(graph, Gate())
    plan.verify()
    program = generate(plan, device)
    program.verify()
    return program


def machine_code(folder: Path, programs: Mapping[str, GpuProgram]) -> list[str]:
    """Compile kernels for sm_80 and sm_90 in a process of its own; a line each, two a kernel."""
    paths = []
    for name, program in programs.items():
        path = folder / f"{name}.py"
        path.write_text(program.triton_source)
        path.with_suffix(".json").write_text(json.dumps(dict(program.arguments)))
        paths.append(str(path))
    lines = run("triton_cubins.py", *paths).splitlines()
    assert len(lines) == 2 * sum(len(program.kernels) for program in programs.values())
    assert all(int(line.split()[-2]) > 0 for line in lines)
    return lines


def run(script: str, *arguments: str) -> str:
    """Output of a script of `tests/` in a process where Triton compiles."""
    pytest.importorskip("triton", reason="triton is not installed")
    tests = ROOT / "tests"
    path = os.pathsep.join([str(ROOT), str(tests), os.environ.get("PYTHONPATH", "")])
    variables = {"TRITON_INTERPRET": "0", "PYTHONPATH": path}
    done = python(str(tests / script), *arguments, timeout=1800, variables=variables)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def compare_gpu(
    fn: Callable[..., Any],
    args: Sequence[Any],
    mode: str = "fake",
    run_args: Sequence[Any] | None = None,
    **tolerance: float,
) -> GpuProgram:
    """Interpreted Triton == eager; returns the program for further looks."""
    program = gpu_program(lowered(fn, args, mode))
    used = args if run_args is None else run_args
    with torch.no_grad():
        want = fn(*copied(used))
    check(load(program)(copied(used)), want, **tolerance)
    return program


class Memory(dict[tuple[str, str], bytes]):
    """Keeps answers for a test."""

    def read(self, kind: str, key: str) -> bytes | None:
        return self.get((kind, key))

    def write(self, kind: str, key: str, content: bytes) -> bool:
        self[kind, key] = content
        return True


def favouring(choose: Callable[[list[str]], str], store: Memory | None = None) -> Tuner:
    """A tuner in whose measurements one way is fastest; the others are run all the same."""

    def measure(ways: Mapping[str, Way], rounds: int) -> dict[str, float]:
        best = choose(list(ways))
        return {name: 1.0 if name == best else 2.0 for name in ways}

    return Tuner(store if store is not None else Memory(), "a machine", True, measure)


class Choosing(Tuner):
    """A tuner that runs nothing: one of the ways that a question names is taken."""

    def __init__(self, choose: Callable[[list[str]], str]) -> None:
        super().__init__(Memory(), "a machine", True)
        object.__setattr__(self, "choose", choose)

    def fastest(self, question: str, ways: Callable[[], Mapping[str, Way]]) -> str:
        """Choose without a look at how long anything takes."""
        listed = question.rpartition("; ")[2].split(" or ")
        names = ["aten", *listed] if "triton" in listed[0] else listed
        best = self.choose(names)
        emit(Autotune(question, {name: 1.0 + (name != best) for name in names}, best, False))
        return best


def planned_by(
    fn: Callable[..., Any],
    args: Any,
    tuner: Tuner,
    mode: str = "fake",
    gate: Gate | None = None,
) -> tuple[Plan, GpuProgram]:
    """Plan and program as by max_autotune."""
    module = trace(fn, args, mode)
    tuning = Tuning(tuner, open_kernels, CPU, hints=size_hints(module))
    plan = gpu.plan(lower(module, Gate()), gate or Gate(), tuning.product)
    plan.verify()
    program = generate(plan, CPU, tuning=tuning)
    program.verify()
    return plan, program


def tuned(
    fn: Callable[..., Any],
    args: Any,
    tuner: Tuner,
    mode: str = "fake",
    run_args: Sequence[Sequence[Any]] = (),
    gate: Gate | None = None,
) -> tuple[Plan, GpuProgram]:
    """The same; what it computes is as eager."""
    plan, program = planned_by(fn, args, tuner, mode, gate)
    call = load(program)
    for given in run_args or [args]:
        with torch.no_grad():
            want = fn(*copied(given))
        near = 2e-2 if any(a.dtype.itemsize == 2 for a in given) else 1e-4
        check(call(copied(given)), want, rtol=near, atol=near)
    return plan, program
