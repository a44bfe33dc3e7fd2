"""One side of the sweep: programs compiled, compared with eager and timed in a process of its own.

    python bench/sweep_worker.py tc|torch

It reads requests from standard input and answers on standard output, one JSON object a line:
``{"do": "compile", "path": ..., "symbolic": ..., "trained": ...}``, ``{"do": "time", "seconds":
...}`` of what was compiled last, and ``{"do": "explain"}``, whose answer says what tc made of it.
``tc`` and ``torch.compile`` never are in one process, because tc never imports Inductor.
"""

from __future__ import annotations

import copy
import gc
import json
import math
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import torch

#: nanoseconds that a batch of calls lasts at least
BATCH = 100_000
#: how many times eager's own error a result may err
LENIENT = 8.0


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of the children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def tensors(tree: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of nested tuples and lists."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, tuple | list):
        for item in tree:
            yield from tensors(item)


def mapped(tree: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return nested tuples of arguments with their floating tensors changed."""
    if isinstance(tree, torch.nn.Module):
        module = copy.deepcopy(tree)
        for parameter in module.parameters():
            parameter.data = change(parameter.data)
        return module
    if isinstance(tree, torch.Tensor):
        return change(tree) if tree.is_floating_point() or tree.is_complex() else tree
    return tuple(mapped(item, change) for item in tree) if isinstance(tree, tuple) else tree


def wider(t: torch.Tensor) -> torch.Tensor:
    return t.to(torch.complex128 if t.is_complex() else torch.float64)


def leaves(arguments: tuple[Any, ...]) -> list[torch.Tensor]:
    """Return the arguments that get gradients, parameters of modules included."""
    found: list[torch.Tensor] = []
    for item in arguments:
        if isinstance(item, torch.nn.Module):
            found += item.parameters()
        elif isinstance(item, torch.Tensor) and item.is_floating_point():
            found.append(item.detach().requires_grad_())
    return found


class Case:
    """One program with its arguments, ready to be called in several ways."""

    def __init__(self, path: str, trained: bool) -> None:
        space: dict[str, Any] = {}
        exec(compile(Path(path).read_text(), path, "exec"), space)
        self.function, self.trained = space["program"], trained
        self.arguments: tuple[Any, ...] = space["make"]()
        for item in self.arguments:
            if isinstance(item, torch.nn.Module) and not trained:
                item.requires_grad_(False)

    def caller(self, function: Callable[..., Any], given: tuple[Any, ...]) -> Callable[[], Any]:
        """Return a call of the program, with its gradients if it is trained."""
        if not self.trained:
            return lambda: function(*given)
        given = tuple(
            item.detach().requires_grad_()
            if isinstance(item, torch.Tensor) and item.is_floating_point()
            else item
            for item in given
        )
        wanted = [
            leaf
            for item in given
            for leaf in (item.parameters() if isinstance(item, torch.nn.Module) else [item])
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]

        def step() -> Any:
            made = function(*given)
            results = [t for t in tensors(made) if t.requires_grad]
            if not results:
                return made
            ones = [torch.ones_like(t) for t in results]
            return made, torch.autograd.grad(results, wanted, ones, allow_unused=True)

        return step

    def differences(self, compiled: Callable[..., Any]) -> str:
        """Return how compiled results differ from eager's beyond rounding; empty if they do not."""
        got = list(tensors(self.caller(compiled, self.arguments)()))
        want = list(tensors(self.caller(self.function, self.arguments)()))
        if len(got) != len(want):
            return f"{len(got)} results, eager has {len(want)}"
        judges = [self._judge(scale) for scale in (0.0, 1.0, -1.0)]
        for k, (mine, eager) in enumerate(zip(got, want, strict=True)):
            if (mine.shape, mine.dtype) != (eager.shape, eager.dtype):
                kinds = [f"{t.dtype}{list(t.shape)}" for t in (mine, eager)]
                return f"result {k}: {kinds[0]}, eager {kinds[1]}"
            found = differs(mine, eager, [judge[k] if judge else eager for judge in judges])
            if found:
                return f"result {k}: {found}"
        return ""

    def _judge(self, scale: float) -> list[torch.Tensor] | None:
        """Return the results in float64, inputs changed by so many units of rounding."""

        def change(t: torch.Tensor) -> torch.Tensor:
            return wider(t) * (1 + scale * torch.finfo(t.dtype).eps)

        try:
            given = tuple(mapped(item, change) for item in self.arguments)
            return list(tensors(self.caller(self.function, given)()))
        except (RuntimeError, TypeError, ValueError):
            return None


def differs(mine: torch.Tensor, eager: torch.Tensor, judges: list[torch.Tensor]) -> str:
    """Return how a result differs from eager's by more than rounding explains."""
    if not eager.is_floating_point() and not eager.is_complex():
        changed = judges[1] != judges[2] if judges[1].shape == judges[2].shape else True
        off = (mine != eager) & ~torch.as_tensor(changed)
        return f"{int(off.sum())} of {off.numel()} values differ" if off.any() else ""
    if any(judge.shape != eager.shape for judge in judges):
        judges = [eager] * 3
    exact, up, down = (wider(judge.detach()) for judge in judges)
    one, other = wider(mine.detach()), wider(eager.detach())
    eps = torch.finfo(eager.dtype).eps
    scale = other.abs()[other.isfinite()].max().item() if other.isfinite().any() else 0.0
    error = (one - exact).abs()
    allowed = LENIENT * torch.maximum((other - exact).abs(), (up - down).abs())
    allowed = allowed.nan_to_num(nan=math.inf) + 16 * eps * (exact.abs() + 0.1 * scale) + 1e-37
    same = (one == other) | (one.isnan() & other.isnan())
    off = ~same & ~(error <= allowed) & ~(up.isnan() != down.isnan())
    if not off.any():
        return ""
    at = int(off.flatten().nonzero()[0])
    values = (one.flatten()[at].item(), other.flatten()[at].item(), exact.flatten()[at].item())
    return (
        f"{int(off.sum())} of {off.numel()} values differ, the first %r, eager %r, exact %r"
        % values
    )


def fastest(call: Callable[[], Any], seconds: float) -> float:
    """Return microseconds of the fastest batch of calls, by the CPU clock of this thread."""
    count = 1
    while True:
        spent = batch(call, count)
        if spent >= BATCH or count >= 4096:
            break
        count = max(count * 2, min(4096, int(count * BATCH / max(spent, 1)) + 1))
    best, until = spent, time.thread_time_ns() + seconds * 1e9
    while time.thread_time_ns() < until:
        # under a hypervisor the clock has been seen to stand still
        best = min(best, batch(call, count) or best)
    return best / count / 1e3


def batch(call: Callable[[], Any], count: int) -> int:
    """Return the nanoseconds of so many calls."""
    start = time.thread_time_ns()
    for _ in range(count):
        call()
    return time.thread_time_ns() - start


class Worker:
    """Answers requests with one compiler."""

    def __init__(self, which: str) -> None:
        if which == "tc":
            import tc

            self.compiler: Any = tc
        else:
            self.compiler = torch
        self.which = which
        self.calls: list[Callable[[], Any]] = []
        self.events: Any = []

    def compile(self, path: str, symbolic: bool, trained: bool) -> dict[str, Any]:
        """Compile a program and compare its results."""
        (self.compiler if self.which == "tc" else self.compiler.compiler).reset()
        torch.manual_seed(0)
        case = Case(path, trained)
        used = cpu_seconds()
        compiled = self.compiler.compile(case.function, dynamic=True if symbolic else None)
        call = case.caller(compiled, case.arguments)
        call()
        used = cpu_seconds() - used
        self.calls = [call, case.caller(case.function, case.arguments)]
        return {"compile_s": used, "differs": case.differences(compiled)}

    def time(self, seconds: float) -> dict[str, Any]:
        """Time what was compiled last and its eager form, one after the other and back."""
        gc.collect()
        gc.disable()
        try:
            compiled, eager = (fastest(call, seconds) for call in self.calls)
            again = fastest(self.calls[0], seconds)
            return {"compiled": min(compiled, again), "eager": eager}
        finally:
            gc.enable()

    def explain(self, path: str, symbolic: bool, trained: bool) -> dict[str, Any]:
        """Return what the trace says of a program: its calls of ATen, and its scalar kernels."""
        from tc import config
        from tc.trace import capture_events

        config.fx_graph_cache = False
        with capture_events() as events:
            self.compile(path, symbolic, trained)
        found: dict[str, Any] = {"calls": [], "kernels": [], "refused": [], "breaks": 0}
        codes = []
        for item in events:
            event = getattr(item, "event", item)
            name = type(event).__name__
            if name == "Provenance":
                for line in event.facts["lines"].values():
                    found["calls"] += [c for c in line["calls"] if c not in found["calls"]]
            elif name == "Fusion":
                found["refused"] += [
                    f"{'+'.join(chain.from_iterable(d['nodes']))}: {d['reason']}"
                    for d in event.facts["decisions"]
                    if d["kind"] == "lower" and not d["taken"]
                ]
            elif name == "OutputCode":
                codes.append(event.code)
            elif name == "GraphBreak":
                found["breaks"] += 1
        for code in codes:
            found["kernels"] += kernels(code)
        return found


def kernels(code: str) -> list[str]:
    """Return what gcc made of each kernel: vector or scalar loops, and the libm calls of all."""
    from tc.compiler.runtime.build import find_compiler, kernel_flags

    start = code.find("#pragma GCC optimize")
    if start < 0:
        return []
    source = code[start:]
    with tempfile.TemporaryDirectory() as folder:
        path, made, report = (os.path.join(folder, n) for n in ("k.c", "k.so", "k.txt"))
        Path(path).write_text(source)
        compiler = find_compiler()
        flags = [*kernel_flags(compiler), f"-fopt-info-vec-optimized={report}"]
        subprocess.run(
            [*compiler.command, *flags, path, "-o", made], check=True, capture_output=True
        )
        places = [
            int(n) for n in re.findall(r"k\.c:(\d+):\d+: optimized: loop", Path(report).read_text())
        ]
        listed = subprocess.run(["nm", "-D", "-u", made], capture_output=True, text=True).stdout
    libm = sorted(set(re.findall(r"U (\w+)(?:@GLIBC\S*)?$", listed, re.M)) - {"memcpy", "memset"})
    found, lines = [], source.splitlines()
    starts = [k for k, line in enumerate(lines) if re.match(r"(void|int|long long) k\d+_", line)]
    for first, after in zip(starts, [*starts[1:], len(lines)], strict=True):
        name = re.findall(r"\b(k\d+_\w*)", lines[first])[0]
        loops = sum("for (" in line for line in lines[first:after])
        vector = sum(first < place <= after for place in places)
        shown = f"{vector} vectorised" if vector else "scalar"
        found.append(f"{name}: {loops} loops, {shown}" if loops else name)
    return found + ([f"calls {', '.join(libm)}"] if libm else [])


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    worker, out = Worker(sys.argv[1]), os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what programs print is no answer
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(worker, request.pop("do"))(**request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {str(error).strip()[:300]}"}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
