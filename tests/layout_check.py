"""Compiles the programs of `layout_programs` and compares them with eager.

Several programs share a compiled function, which saves C compiles; where that function fails, each
is compiled alone, so that every failure names one program (or says that only all together fail).
"""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from layout_programs import NAMESPACE, Program, Sizes, draw, draw_sizes
from loop_graphs import arguments, draw_graph
from loop_harness import planned

import tc
from tc.compiler.codegen.stage import generate
from tc.compiler.errors import StageError
from tc.compiler.loops.interpret import interpret
from tc.compiler.runtime.load import load

TOLERANCE = {"float32": 2e-4, "float64": 1e-9, "bfloat16": 5e-2, "float16": 1e-2}
#: Errors that mean the same to a caller: eager itself is not of one mind about which it raises.
REFUSALS = (RuntimeError, IndexError, ValueError, TypeError)


@dataclass(frozen=True)
class Failure:
    """A program that does not do as eager does.

    Attributes:
        kind: ``compile``, ``values``, ``strides``, ``memory`` (which tensors share it), ``type``,
            ``raises`` or ``together``.
        programs: the one, or all of a function that fails only as a whole.
    """

    kind: str
    text: str
    programs: tuple[Program, ...]
    sizes: tuple[Sizes, ...]
    dynamic: bool | None
    threads: int

    def __str__(self) -> str:
        how = f"dynamic={self.dynamic} threads={self.threads} sizes={list(self.sizes)}"
        shown = []
        for program in self.programs:
            shown += [f"seed {program.seed}", *map(str, program.inputs), program.source()]
        return "\n".join([f"== {self.kind}: {how}", self.text, *shown])


@dataclass(frozen=True)
class Outcome:
    """What one run of a program did: its results and its inputs, or its error."""

    inputs: list[torch.Tensor]
    results: list[Any]
    error: BaseException | None = None


Function = Callable[..., tuple[Any, ...]]


def function_of(programs: Sequence[Program], name: str) -> Function:
    """One function of all programs; its source is there for tracebacks and traces."""
    parts = [(f"p{k}_", p) for k, p in enumerate(programs)]
    given = [f"{mark}x{k}" for mark, p in parts for k in range(len(p.inputs))]
    changed = [p.renamed(mark) for mark, p in parts]
    lines = [f"    {line}" for p in changed for line in p.lines]
    back = ", ".join(r for p in changed for r in p.returned)
    text = "\n".join([f"def {name}({', '.join(given)}):", *lines, f"    return ({back},)", ""])
    file = f"/layouts/{name}.py"  # of names in brackets capture thinks that nobody wrote them
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = dict(NAMESPACE)
    exec(compile(text, file, "exec"), namespace)
    made: Function = namespace[name]
    return made


def run(fn: Function, programs: Sequence[Program], sizes: Sizes) -> list[Outcome]:
    """Call a function of programs with fresh inputs; the outcome of each of them."""
    inputs: list[list[torch.Tensor]] = [[] for _ in programs]
    try:
        inputs = [p.make(sizes) for p in programs]
        with torch.no_grad():
            results = list(fn(*(x for own in inputs for x in own)))
    except Exception as error:  # whatever it raises is the outcome
        return [Outcome(own, [], error) for own in inputs]
    outcomes = []
    for program, own in zip(programs, inputs, strict=True):
        outcomes.append(Outcome(own, results[: len(program.returned)]))
        del results[: len(program.returned)]
    return outcomes


def difference(got: Outcome, want: Outcome, tolerance: float) -> tuple[str, str] | None:
    """How an outcome differs from eager's: kind and text."""
    if any(_is_too_large(one.error) for one in (got, want)):
        return None
    if got.error is not None or want.error is not None:
        if got.error is None:
            return "raises", f"eager raises {want.error!r}, compiled code does not"
        if want.error is None or isinstance(got.error, StageError):
            return "compile", f"{type(got.error).__name__}: {got.error}"
        refused = isinstance(got.error, REFUSALS) and isinstance(want.error, REFUSALS)
        return None if refused else ("raises", f"{got.error!r} in place of {want.error!r}")
    pairs = [
        *(
            (f"result {k}", g, w)
            for k, (g, w) in enumerate(zip(got.results, want.results, strict=True))
        ),
        *(
            (f"input {k}", g, w)
            for k, (g, w) in enumerate(zip(got.inputs, want.inputs, strict=True))
        ),
    ]
    for place, mine, theirs in pairs:
        found = _tensor_difference(mine, theirs, tolerance)
        if found is not None:
            return found[0], f"{place}: {found[1]}"
    return _memory_difference(got, want)


def _is_too_large(error: BaseException | None) -> bool:
    """Whether there was no memory for a program, which `bench/layouts.py` limits."""
    return "allocate memory" in str(error)


def _tensor_difference(mine: Any, theirs: Any, tolerance: float) -> tuple[str, str] | None:
    if not isinstance(theirs, torch.Tensor):
        return None if mine == theirs else ("values", f"{mine} in place of {theirs}")
    if (mine.dtype, mine.shape) != (theirs.dtype, theirs.shape):
        return "type", f"{mine.dtype} {mine.shape} in place of {theirs.dtype} {theirs.shape}"
    steps = zip(theirs.shape, mine.stride(), theirs.stride(), strict=True)
    if theirs.numel() and any(n > 1 and a != b for n, a, b in steps):
        return "strides", f"{mine.shape} has strides {mine.stride()}, not {theirs.stride()}"
    if not theirs.dtype.is_floating_point:
        same = torch.equal(mine, theirs)
    else:
        one, two = mine.double(), theirs.double()
        finite = two[two.isfinite()]
        most = float(finite.abs().max()) if finite.numel() else 0.0
        bound = tolerance * (1 + most)
        same = torch.allclose(one, two, rtol=0, atol=bound, equal_nan=True)
    return None if same else ("values", _first_differences(mine, theirs))


#: what the loop graphs of `loop_graphs` are called with
GRAPH_SIZES = ((5, 7, 3), (16, 64, 2), (33, 19, 5))


def check_graph(seed: int) -> str:
    """Return where the kernels of a random loop graph differ from the interpreter, or nothing."""
    graph = draw_graph(seed)
    call = load(generate(planned(graph), threads=2))
    coarse = 5e-2 if "bfloat16" in str(graph) else 1e-4
    for sizes in GRAPH_SIZES:
        try:
            wanted = interpret(graph, arguments(graph, sizes))
        except IndexError:  # the largest of no elements: no program gets as far as this
            continue
        for k, (mine, theirs) in enumerate(zip(call(arguments(graph, sizes)), wanted, strict=True)):
            found = _tensor_difference(mine, theirs, coarse)
            if found is not None:
                return f"result {k} at {sizes}: {': '.join(found)}\n{graph}"
    return ""


def _first_differences(mine: torch.Tensor, theirs: torch.Tensor) -> str:
    """The places where two tensors are furthest apart."""
    one, two = mine.double().flatten(), theirs.double().flatten()
    gap = (one - two).abs().nan_to_num(float("inf"), float("inf"))
    gap[one.isnan() & two.isnan() | (one == two)] = 0
    worst = gap.topk(min(5, gap.numel())).indices.tolist()
    shown = [f"[{k}] {one[k]:.7g} not {two[k]:.7g}" for k in worst if gap[k] > 0]
    shape = f"{tuple(mine.shape)}, {int((gap > 0).sum())} of {gap.numel()} elements differ"
    return f"{shape}: {', '.join(shown)}"


def _memory_difference(got: Outcome, want: Outcome) -> tuple[str, str] | None:
    """Which tensors share memory, and where in it results that do begin."""

    def shared(outcome: Outcome) -> list[Any]:
        tensors = [t for t in (*outcome.inputs, *outcome.results) if isinstance(t, torch.Tensor)]
        spots = [t.untyped_storage().data_ptr() if t.numel() else -1 for t in tensors]
        first = [spots.index(s) if s != -1 else k for k, s in enumerate(spots)]
        offsets = [
            t.storage_offset() if first[k] < len(outcome.inputs) and t.numel() else 0
            for k, t in enumerate(tensors)
        ]
        return list(zip(first, offsets, strict=True))

    mine, theirs = shared(got), shared(want)
    if mine == theirs:
        return None
    return "memory", f"(first tensor over the same memory, offset): {mine}, not {theirs}"


def check(
    programs: Sequence[Program],
    sizes: Sequence[Sizes],
    dynamic: bool | None,
    threads: int = 1,
    number: int = 0,
) -> list[Failure]:
    """Compile programs together, call them at each of the sizes, and compare with eager."""
    how = (tuple(sizes), dynamic, threads)
    fn = function_of(programs, f"layouts_{number}")
    alone = [function_of([p], f"layout_{p.seed}") for p in programs]
    compiled = tc.compile(fn, dynamic=dynamic, options={"cpp.threads": threads})
    failures: dict[int, Failure] = {}
    for at in sizes:
        got = run(compiled, programs, at)
        want = [run(one, [p], at)[0] for one, p in zip(alone, programs, strict=True)]
        if len(programs) > 1 and got[0].error is not None:
            return _one_by_one(programs, sizes, dynamic, threads, got[0].error)
        for k, (mine, theirs) in enumerate(zip(got, want, strict=True)):
            tolerance = TOLERANCE[programs[k].precision]
            found = difference(mine, theirs, tolerance)
            if found is None or k in failures:
                continue
            if found[0] != "values" or not _is_better(mine, theirs, alone[k], programs[k], at):
                text = f"at n, m = {at}: {found[1]}"
                failures[k] = Failure(found[0], text, (programs[k],), *how)
    return list(failures.values())


def _is_better(
    mine: Outcome, theirs: Outcome, fn: Function, program: Program, sizes: Sizes
) -> bool:
    """Whether all results of floats are as near as eager's to those of float64, or nearer.

    Eager adds up large tensors that are not contiguous with errors of some percent.
    """
    given = [x.double() if x.dtype == torch.float32 else x for x in program.make(sizes)]
    try:
        with torch.no_grad():
            exact = fn(*given)
    except Exception:
        return False  # the program says which types it has
    written = [*zip(mine.inputs, theirs.inputs, strict=True)]
    for got, want, judge in zip(mine.results, theirs.results, exact, strict=True):
        if isinstance(judge, torch.Tensor) and judge.dtype == torch.float64:
            if (got.double() - judge).abs().sum() > (want.double() - judge).abs().sum() * 1.01:
                return False
        else:
            written.append((got, want))
    tolerance = TOLERANCE[program.precision]
    return all(_tensor_difference(*pair, tolerance) is None for pair in written)


def _one_by_one(
    programs: Sequence[Program],
    sizes: Sequence[Sizes],
    dynamic: bool | None,
    threads: int,
    error: BaseException,
) -> list[Failure]:
    found = [f for p in programs for f in check([p], sizes, dynamic, threads)]
    text = f"each alone is right, together: {type(error).__name__}: {error}"
    how = (tuple(programs), tuple(sizes), dynamic, threads)
    return found if found or _is_too_large(error) else [Failure("together", text, *how)]


def batch(seed: int, count: int) -> tuple[list[list[Program]], list[Sizes], bool | None, int]:
    """Draw programs for one function, each that may raise in one of its own; and how to call."""
    rng = random.Random(seed)
    sizes = draw_sizes(rng)
    dynamic = rng.choice((True, True, True, None, False))
    threads = rng.choice((1, 2))
    together: list[Program] = []
    alone: list[list[Program]] = []
    for _ in range(count):
        program = draw(rng.getrandbits(40), sizes, may_raise=rng.random() < 0.1)
        if program.raises:
            alone.append([program])
        else:
            together.append(program)
    return [together, *alone] if together else alone, sizes, dynamic, threads


def check_batch(seed: int, count: int) -> tuple[int, list[Failure]]:
    """Draw and check programs; how many there were, and the failures."""
    groups, sizes, dynamic, threads = batch(seed, count)
    failures = []
    for number, group in enumerate(groups):
        failures += check(group, sizes, dynamic, threads, number)
    tc.reset()
    return sum(map(len, groups)), failures
