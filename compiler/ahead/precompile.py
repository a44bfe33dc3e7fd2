"""`precompile`: a function and inputs to come in; code that calls find out, nothing is run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from tc import trace
from tc.compiler.ahead.calls import parameters_of
from tc.compiler.ahead.carrying import Job, NotCarried
from tc.compiler.ahead.compiling import Compile, Covered, cover
from tc.compiler.ahead.inputs import spec_of
from tc.compiler.ahead.specs import Case, Spec
from tc.compiler.ahead.workers import Answer, compiled_by_workers
from tc.compiler.api import compile as compile_function
from tc.compiler.capture import hook
from tc.compiler.core.machine import cores
from tc.compiler.core.settings import require_callable
from tc.compiler.errors import OptionError
from tc.compiler.frames import FrameCompiler
from tc.compiler.frontend.modules import OptimizedModule
from tc.compiler.options import config
from tc.compiler.runtime.store import caches_disabled
from tc.trace.notebook import Item, Shown, View
from tc.trace.words import count

#: called with the number of cases that are done, of how many, and what the last one was
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Precompiled(Shown):
    """What `precompile` compiled.

    Attributes:
        cases: one for each combination of inputs.
        seconds: of the whole.
        workers: processes that took part; 0: this one alone.
    """

    cases: tuple[Covered, ...]
    seconds: float
    workers: int = 0

    @property
    def graphs(self) -> int:
        """Graphs that calls now find."""
        return sum(one.graphs for case in self.cases for one in case.compiles)

    @property
    def errors(self) -> tuple[str, ...]:
        """Why cases failed, a sentence each."""
        return tuple(f"{case.text}: {case.error}" for case in self.cases if case.error)

    @property
    def remains(self) -> tuple[str, ...]:
        """What is left to the first call, a sentence each."""
        return tuple(f"{case.text}: {why}" for case in self.cases for why in case.remains)

    @property
    def complete(self) -> bool:
        """Whether calls with these inputs compile nothing."""
        return all(case.complete for case in self.cases)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "complete": self.complete,
            "graphs": self.graphs,
            "seconds": round(self.seconds, 3),
            "workers": self.workers,
            "cases": [
                {
                    "inputs": case.text,
                    "complete": case.complete,
                    "error": case.error or None,
                    "remains": list(case.remains),
                    "looked_at": case.looks,
                    "without_code": [dict(sizes) for sizes in case.left],
                    "compiles": [
                        {
                            "sizes": dict(one.sizes),
                            "graphs": one.graphs,
                            "from_cache": one.from_cache,
                            "breaks": [f"{b.file}:{b.line}: {b.title}" for b in one.breaks],
                            "seconds": round(one.seconds, 3),
                        }
                        for one in case.compiles
                    ],
                    "note": case.note or None,
                }
                for case in self.cases
            ],
        }

    def __str__(self) -> str:
        lines = [self._title]
        for case in self.cases:
            lines.append(f"  {_mark(case)} {case.text}  {_outcome(case)}")
            lines += [f"      {label}: {text}" for label, text in _rows(case)]
        return "\n".join(lines)

    @property
    def _title(self) -> str:
        left = sum(not case.complete for case in self.cases)
        words = [count(self.graphs, "graph"), f"of {count(len(self.cases), 'case')}"]
        words.append(f"in {self.seconds:.2f} s")
        if self.workers:
            words.append(f"with {count(self.workers, 'worker process')}")
        ending = f"{left} not complete" if left else "calls compile nothing"
        return f"precompiled {' '.join(words)}; {ending}"

    def as_view(self) -> View:
        """See `Shown`."""
        items = [
            Item.of("", case.text, _outcome(case), None, rows=_rows(case)) for case in self.cases
        ]
        return View("explanation", str(self), {"title": self._title, "causes": items, "graphs": []})


def _mark(case: Covered) -> str:
    return "✓" if case.complete else "✗" if case.error else "○"


def _outcome(case: Covered) -> str:
    graphs = sum(one.graphs for one in case.compiles)
    found = sum(one.from_cache for one in case.compiles)
    seconds = sum(one.seconds for one in case.compiles)
    if not case.compiles:
        return "was compiled before"
    text = f"{count(graphs, 'graph')}, {seconds:.2f} s"
    return f"{text}, all found in the cache" if graphs and found >= graphs else text


def _rows(case: Covered) -> list[tuple[str, str]]:
    rows = [("failed", case.error)] if case.error else []
    rows += [("left to the first call", why) for why in case.remains]
    if case.looks > 1:
        done = case.looks - len(case.left)
        rows.append(("sizes looked at", f"{case.looks}, of which {done} have code"))
    if case.note:
        rows.append(("note", case.note))
    return rows


def precompile(
    fn: Any,
    inputs: Any = None,
    *,
    shapes_spec: Any = None,
    sizes: Mapping[str, Any] | None = None,
    workers: int | None = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> Precompiled:
    """Compile a function for inputs to come, so that calls with them compile nothing.

    Nothing runs: no operation of the function, and no code of the user's. Attributes, parameters,
    gradients, buffers and random state are as before. Inputs that are described are made without
    values. The code is compiled for the modes in force (``torch.no_grad()``, autocast, the module's
    ``train()``): call it as the function will be called. Where gradients will be needed, backward
    is compiled, too.

    A size gives code for that size. A range gives code with a symbol, and further code for sizes
    that its guards refuse, such as 0 and 1: the guards are asked for up to 512 combinations of
    sizes, all of a range of 64 or less. What cannot be known without values is left to the first
    call, and the result says so: what follows a graph break, and what hooks of a module run.

    Args:
        fn: a function or module, compiled or not.
        inputs: a text, such as ``"x=B,128:int64 mask=B n:=3"``: ``name=SIZE,SIZE:dtype@device``,
            where a size is a number, a range ``1..64`` or ``8..64/8``, several of both
            ``8|16|32..64``, or a name out of ``sizes``; ``!grad`` at the end asks for gradients,
            and ``n:=3`` is a plain value. Or live inputs, a tuple or a dict by name, whose ranges
            `mark_dynamic` marked. Or a list of all of these.
        shapes_spec: a ``ParamsSpec`` or ``ShapesSpec`` of torch; ``inputs`` are then its examples.
        sizes: name of a size -> a text as above, a number, a Python range, or a list of these.
        workers: processes that compile the cases in parallel, into the cache on disk; None: one a
            core, if there are several cases. Each takes seconds to start. Functions that no import
            finds are compiled in this process alone.
        progress: called after each case with how many are done, of how many, and its text.
        settings: as `compile` takes them; ``fn`` that is compiled has its own.

    Returns:
        What was compiled, and what is left; printed, it says both.

    Raises:
        OptionError: the inputs cannot be followed, or are not those of the function.

    Example:
        >>> import tc, torch
        >>> run = tc.compile(torch.nn.Linear(4, 4))
        >>> tc.precompile(run, "input=1..64,4").complete
        True
    """
    clock = time.perf_counter()
    target, compiler = compiled_of("tc.precompile", fn, settings)
    specs = _specs(inputs, shapes_spec, sizes, parameters_of(target))
    report = (lambda done, of, text: None) if progress is None else progress
    require_callable("the argument 'progress' of tc.precompile", report, "a function")
    cases, helped = _compiled(target, compiler, specs, workers, report)
    result = Precompiled(tuple(cases), time.perf_counter() - clock, helped)
    for text in result.errors:
        trace.warn(f"tc.precompile: {text}")
    return result


def _compiled(
    target: Any, compiler: FrameCompiler, specs: Sequence[Spec], workers: int | None,
    report: Progress,
) -> tuple[list[Covered], int]:  # fmt: skip
    """Compile all cases in this process, after worker processes; returns how many there were."""
    cases = [(spec, case) for spec in specs for case in spec.cases()]
    if workers is None:
        workers = cores() if len(cases) > 1 else 0
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 0:
        raise OptionError(f"workers is a number of processes, not {workers!r}")
    answers: dict[int, Answer] = {}
    why = ""
    if workers:
        answers, why = _in_workers(target, compiler, specs, cases, workers, report)
    found = []
    for number, (spec, case) in enumerate(cases):
        covered = cover(target, compiler, spec, case)
        note = answers[number].problem if number in answers else why
        if note and note != covered.error:
            covered = replace(covered, note=f"{note}; compiled in this process")
        found.append(covered)
        if number not in answers:
            report(number + 1, len(cases), covered.text)
    return found, min(workers, len(cases)) if answers else 0


def compiled_of(taker: str, fn: Any, settings: Mapping[str, Any]) -> tuple[Any, FrameCompiler]:
    """Return what a compiled function calls, and the compiler of its frames.

    Args:
        taker: the function of tc that was given ``fn``.
        settings: of `compile`, for a function that is not compiled yet.

    Raises:
        OptionError: it is compiled and has settings of its own, or it cannot be compiled.
    """
    require_callable(taker, fn)
    if settings and _parts(fn) is not None:
        raise OptionError(
            f"the function is compiled: give {', '.join(settings)} to tc.compile, or the function "
            "that is not compiled"
        )
    found = _parts(fn) or _parts(compile_function(fn, **settings))
    if found is None:
        raise OptionError("there is nothing to compile: tc.config.disable is set, or disable=True")
    return found


def _parts(fn: Any) -> tuple[Any, FrameCompiler] | None:
    if isinstance(fn, OptimizedModule):
        compiler = fn.__dict__["_compiler"]
        return (fn._orig_mod, compiler) if isinstance(compiler, FrameCompiler) else None
    if isinstance(fn, torch.nn.Module):
        fn = fn._compiled_call_impl
    original = hook.original_of(fn)
    compiler = getattr(fn, hook.CALLBACK, None)
    if original is None or not isinstance(compiler, FrameCompiler):
        return None
    owner = getattr(original, "__self__", None)
    return (owner if isinstance(owner, torch.nn.Module) else original), compiler


def _specs(
    inputs: Any, shapes_spec: Any, sizes: Mapping[str, Any] | None, names: Sequence[str] | None
) -> list[Spec]:
    several = inputs if isinstance(inputs, list) else [inputs]
    if not several:
        raise OptionError("tc.precompile got an empty list of inputs")
    return [spec_of(one, shapes_spec, sizes, names) for one in several]


def _in_workers(
    target: Any, compiler: FrameCompiler, specs: Sequence[Spec],
    cases: Sequence[tuple[Spec, Case]], workers: int, report: Progress,
) -> tuple[dict[int, Answer], str]:  # fmt: skip
    """Compile cases by worker processes; returns what each says, or why there are none."""
    if not compiler.built_in:
        return (
            {},
            f"worker processes compile for tc's own backend, not {compiler.options.backend_name}",
        )
    kept = config.fx_graph_cache and compiler.options.inductor.fx_graph_cache
    if not kept or caches_disabled():
        return {}, "worker processes fill the cache on disk, which is off (fx_graph_cache)"
    try:
        job = Job.of(target, compiler.options, specs).packed()
    except NotCarried as error:
        return {}, f"worker processes cannot have the function, {error}"
    done = 0

    def on_answer(answer: Answer) -> None:
        nonlocal done
        if answer.case is None:
            return
        done += 1
        spec, case = cases[answer.case]
        report(done, len(cases), spec.text(case))

    answers = compiled_by_workers(job, range(len(cases)), workers, on_answer)
    early = next((one.problem for one in answers if one.case is None), "no worker is left")
    return {one.case: one for one in answers if one.case is not None}, early


__all__ = ["Compile", "Precompiled", "compiled_of", "precompile"]
