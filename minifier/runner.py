"""Runs a user's script and records the first graph that its compiler gets wrong.

    python -c RUNNER FOLDER HOME SCRIPT [ARG ...]    (`tc.minifier.problem.RUNNER`)

or, in a fork of the warm process, `run_recorded`.

In: a script that calls `tc.compile` or `torch.compile`. Out, in FOLDER: ``problem.json`` (what
failed, and the graph as a `Case`) and ``inputs.pt``. Before a graph is compiled or called for the
first time it is written as ``begun.json``, so that a process that dies leaves it behind.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

import torch
from torch import fx

import tc
from tc.compiler import api
from tc.minifier import call_watch, graphs, identity, judge, settings, spawned
from tc.minifier.case import Call, to_json
from tc.minifier.judge import Outcome
from tc.minifier.oracle import WITH_TC
from tc.minifier.own_backend import WITHOUT_OWN, OwnBackend
from tc.minifier.passes import rendering
from tc.minifier.problem import RUNNER
from tc.minifier.setup_code import joined, setup_for

SEQUENCE = 50  # calls of graphs that are kept in order
CHECKED_CALLS = 4  # of each graph; later calls run unchecked
#: variables that torch and the compilers read once, while they are loaded
READ_ONCE = ("TORCH", "PYTORCH", "TC_", "TRITON", "CUDA", "OMP_", "MKL_", "KMP_", "CXX")
GUARD_FILTER = api.GUARD_FILTER  # the option that is none of a backend's
FAILED = 10  # exit code of a run that found something
NO_SCRIPT = r"/torch/|/tc/|/minifier/|/runpy\.py$|<frozen|<string>"


@dataclass
class Limit:
    """Which calls of compiled functions run compiled; all others run eagerly.

    Attributes:
        calls: the first so many do.
        fresh: the last of them finds no compiled code of earlier ones.
        seen: calls so far.
        last: the last compiled one: who was called, and where.
        watch: what runs in that call.
    """

    calls: float
    fresh: bool = False
    seen: int = 0
    last: tuple[str, str] = ("", "")
    watch: call_watch.Watch = dataclasses.field(default_factory=call_watch.Watch)

    def on(self, compiled: Any, model: Any, forget: Callable[[], None]) -> Any:
        """Return what replaces a compiled function or module."""
        if compiled is model:
            return model
        place = "_call" if "_call" in vars(compiled) else "forward"  # tc's modules, torch's
        is_module = isinstance(compiled, torch.nn.Module)
        target = getattr(compiled, place) if is_module else compiled

        @functools.wraps(target)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.seen += 1
            if self.seen > self.calls:
                return model(*args, **kwargs)
            if self.seen == self.calls:
                if self.fresh:
                    forget()
                self.last = (describe(model), calling_line())
                self.watch.begin(model, args, kwargs)
            return target(*args, **kwargs)

        if not is_module:
            return call
        vars(compiled)[place] = call
        return compiled


def describe(model: Any) -> str:
    """Name a function or module, and say where it is defined."""
    code = getattr(model, "__code__", None)
    if code is None:
        return type(model).__name__
    return f"{code.co_name} ({code.co_filename}:{code.co_firstlineno})"


def calling_line() -> str:
    """Return ``file:line``, a tab, and the line's text of the innermost caller in a script."""
    stack = [f for f in traceback.extract_stack() if not re.search(NO_SCRIPT, f.filename)]
    return f"{stack[-1].filename}:{stack[-1].lineno}\t{stack[-1].line}" if stack else ""


class Recorder:
    """Watches all graphs of a process; ends it when one goes wrong.

    Attributes:
        folder: where the problem is written.
        script: text of the user's script.
        home: where the script finds its neighbours.
        graphs: how many were compiled.
        limit: which calls run compiled; None: all.
        sequence: every call of a graph so far, as cases; None: they are not kept.
        tensors: the inputs of these, each name with the number of its call before it.
        raises: a failure is an exception of the program, and no file.
        origin: the recording that this process belongs to; None: it is the first and only one.
        own: name and place of each backend that the script passes as a function.
    """

    def __init__(
        self, folder: Path, script: Path, limit: Limit | None = None, sequence: bool = False
    ) -> None:
        self.folder = folder
        self.limit = limit
        self.script = rendering.source_of(script) if script.is_file() else ""
        self.home = Path(sys.path[0] or ".").resolve()
        self.environment = dict(os.environ)
        self.settings = settings.current()
        self.sequence: list[dict[str, Any]] | None = [] if sequence else None
        self.tensors: dict[str, torch.Tensor] = {}
        self.raises = False
        self.origin: spawned.Origin | None = None
        self.compiler = ""
        self.refusal = ""
        self.begin_to_count()
        self.own: list[tuple[str, str]] = []
        self.notes: list[str] = []

    def begin_to_count(self) -> None:
        """Count from nothing: a process that the script forks counts what it does itself."""
        self.graphs = self.calls = self.compiles = 0
        self.random = self.rounding = self.refused = 0

    def backend(
        self, real: Callable[..., Any], call: Call, own: OwnBackend | None = None
    ) -> Callable[..., Any]:
        """Return a backend that compiles with the real one and checks what it made.

        Args:
            own: the real one, if it is the script's.
        """

        def recording(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
            self.graphs += 1
            self.leave_counts()
            watched = Watched(self, gm, with_dynamic(gm, call), own)
            inputs = [graphs.plain(value) for value in example_inputs]
            real_tensors = not any(_is_fake(value) for value in inputs)
            if real_tensors:
                watched.begin(example_inputs)
            try:
                watched.compiled = real(gm, example_inputs)
            except BaseException as error:
                watched.fail(judge.crash(error), example_inputs)
                raise
            return uncompiled(watched) if call.compiler == "torch" else watched

        return recording

    def noted(self, backend: Any) -> OwnBackend:
        """Return what is known of a backend of the script's own; note its place."""
        own = OwnBackend.of(backend, self.script)
        self.own.append((own.name, own.place))
        return own

    def changed(self) -> dict[str, str]:
        """Return what the script set of the variables that are read once."""
        return {
            name: value
            for name, value in os.environ.items()
            if name.startswith(READ_ONCE)
            and not name.endswith("CACHE_DIR")  # compilers set these themselves
            and self.environment.get(name) != value
        }

    def sources(self, spaces: set[str]) -> str:
        """Return the script, behind the texts of its modules that name one of these libraries."""
        if not spaces:
            return self.script
        texts = []
        for module in list(sys.modules.values()):
            file = getattr(module, "__file__", None) or ""
            if file.endswith(".py") and Path(file).parent.is_relative_to(self.home):
                text = rendering.source_of(Path(file))
                texts += [text] if any(f"{space}::" in text for space in spaces) else []
        return "\n".join([*texts, self.script])

    def note_begin(self) -> None:
        """Leave behind that a compiler is used, and with which backends of the script's.

        The process may die or hang.
        """
        self.leave_counts()
        if not self.raises and (self.compiles == 1 or self.own):
            died = Outcome("died", identity.of_death("?"), "the process died")
            self.write("used.json", problem_of(died, self))

    def join(self, origin: spawned.Origin) -> None:
        """Belong to a recording, to which other processes may belong, too."""
        self.origin = origin
        os.register_at_fork(after_in_child=self.begin_to_count)
        spawned.watch(origin, WITH_TC)

    def leave_counts(self) -> None:
        """Leave behind what was counted, where the first process does not count it."""
        if self.origin is not None and not self.origin.is_here:
            spawned.leave_counts(self.origin, vars(self))

    @property
    def is_over(self) -> bool:
        """Whether the problem is known already; another process of the script may have it."""
        return (self.folder / "problem.json").exists()

    def end(self, outcome: Outcome) -> int:
        """Write how the script ended, unless another of its processes has found a problem.

        How another one ends is not how the script does.

        Returns:
            The exit code of this process.
        """
        if self.is_over:
            return FAILED
        if self.origin is None or self.origin.is_here:
            self.write("problem.json", problem_of(outcome, self))
        return 0

    def watch_exit(self) -> None:
        """Write how the script ended also where it ends itself by `os._exit`."""
        real, own = os._exit, os.getpid()

        def leave(status: int) -> NoReturn:
            if os.getpid() == own:
                stop = SystemExit(status)
                self.end(judge.script_error(stop) if status else Outcome("ok"))
            real(status)

        os._exit = leave

    def watch_exec(self, script: str) -> None:
        """Record also where the script puts itself in its place, with another environment."""
        real = os.execve

        def begin_again(path: Any, argv: Sequence[Any], env: Any) -> NoReturn:
            words = [os.fsdecode(word) for word in argv]
            own = os.path.realpath(os.fsdecode(path)) == os.path.realpath(sys.executable)
            if own and len(words) > 1 and os.path.realpath(words[1]) == os.path.realpath(script):
                recorded = [str(self.folder), str(self.home), *words[1:]]
                words = [words[0], "-c", RUNNER, *recorded]
            real(path, words, env)

        os.execve = begin_again
        os.execv = lambda path, argv: begin_again(path, argv, os.environ)

    def write(self, name: str, problem: dict[str, Any]) -> None:
        """Write a file whole or not at all."""
        path = self.folder / name
        draft = self.folder / f"{name}.{os.getpid()}.part"
        draft.write_text(json.dumps(problem))
        draft.replace(path)


def _as_captured(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    return gm.forward


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep torch's compiler out of a function."""
    disable: Callable[..., Any] = torch.compiler.disable
    return cast(Callable[..., Any], disable(function))


class Watched:
    """A compiled graph that checks its first calls against eager.

    Attributes:
        gm: the graph as it was captured, which no backend has changed.
        settings: what the script had set of its compilers when they got the graph.
        own: the backend, if it is the script's.
    """

    def __init__(
        self, recorder: Recorder, gm: fx.GraphModule, call: Call, own: OwnBackend | None = None
    ) -> None:
        self.recorder = recorder
        self.gm = graphs.copied(gm)
        self.settings = settings.changed(recorder.settings)
        self.call = call
        self.own = own
        self.number = recorder.graphs
        self.checked = 0
        self.compiled: Callable[..., Any] | None = None
        self.grad = torch.is_grad_enabled()

    def __call__(self, *inputs: Any) -> Any:
        assert self.compiled is not None
        limit = self.recorder.limit
        if limit is not None and limit.seen == limit.calls:
            limit.watch.add(call_watch.rows_of(self.gm))
        if self.checked >= CHECKED_CALLS:
            return self.compiled(*inputs)
        self.checked += 1
        self.recorder.calls += 1
        self.begin(inputs)
        self._keep(inputs)
        outcome = self._check(inputs)
        try:
            result = self.compiled(*inputs)
        except Exception as error:
            if not judge.is_refusal(outcome, error):  # else the program's own, who may handle it
                self.fail(judge.crash(error), inputs)
            self.end()
            raise
        self.end()
        return result

    def backward(self, inputs: Sequence[Any]) -> bool:
        """Whether calling it is the beginning of a backward pass."""
        return torch.is_grad_enabled() and any(
            isinstance(v, torch.Tensor) and v.requires_grad for v in inputs
        )

    def _check(self, inputs: Sequence[Any]) -> Outcome:
        compiled, backward = self.compiled, self.backward(inputs)
        assert compiled is not None
        own = judge.clones(inputs)
        outcome = judge.judge(
            self.gm.forward, lambda: compiled, own, backward,
            draws_as_eager=judge.draws_as_eager(str(self.call)),
        )  # fmt: skip
        if outcome.kind == "random":
            self.recorder.random += 1
        elif outcome.kind == "invalid":
            self.recorder.refused += 1
            self.recorder.refusal = outcome.message
        elif outcome.kind == "ok" and outcome.message:
            self.recorder.rounding += 1
        if outcome.failed:
            self.fail(outcome, own)
        return outcome

    def case(self, inputs: Sequence[Any]) -> tuple[Any, dict[str, torch.Tensor]]:
        """Return this graph with these inputs as a case."""
        spaces = {
            str(node.target).partition(".")[0]
            for node in self.gm.graph.nodes
            if isinstance(node.target, torch._ops.OpOverload | torch._ops.OpOverloadPacket)
        } - {"aten", "prims", "prim"}
        setup = setup_for(self.recorder.sources(spaces), spaces)
        if self.own is not None:
            setup = joined(setup, self.own.text)
        case, recorded = graphs.case_of(self.gm, inputs, self.call, setup, self.backward(inputs))
        return dataclasses.replace(case, settings=self.settings), recorded

    def begin(self, inputs: Sequence[Any]) -> None:
        """Leave this graph behind in case the process dies."""
        if self.recorder.raises:
            return
        if self.checked <= 1:
            died = Outcome("died", identity.of_death("?"), "the process died")
            self._save("begun.json", died, inputs)

    def _keep(self, inputs: Sequence[Any]) -> None:
        """Append this call to the sequence; a graph without a text is left out."""
        sequence = self.recorder.sequence
        if sequence is None or len(sequence) >= SEQUENCE:
            return
        try:
            case, tensors = self.case(inputs)
        except graphs.Unprintable:
            return
        mark = f"call{len(sequence)}:"
        sequence.append(to_json(case))
        self.recorder.tensors.update((f"{mark}{k}", v.detach().cpu()) for k, v in tensors.items())

    def end(self) -> None:
        """The call came back."""
        if self.recorder.raises:
            return
        self.recorder.leave_counts()
        (self.recorder.folder / "begun.json").unlink(missing_ok=True)

    def fail(self, outcome: Outcome, inputs: Sequence[Any]) -> None:
        """Write the problem and end the process."""
        if self.recorder.raises:
            raise Differs(outcome)
        self._save("problem.json", outcome, inputs)
        origin = self.recorder.origin
        if origin is not None and not origin.is_here:
            origin.end_first()
        identity.flush()
        os._exit(FAILED)

    def _save(self, name: str, outcome: Outcome, inputs: Sequence[Any]) -> None:
        if self.recorder.is_over:
            return
        problem = problem_of(outcome, self.recorder)
        problem["graph"] = self.number
        problem["grad"] = self.grad
        origin = self.recorder.origin
        problem[spawned.ELSEWHERE] = origin is not None and not origin.is_here
        try:
            case, tensors = self.case(inputs)
        except graphs.Unprintable as reason:
            problem["unprintable"] = str(reason)
        else:
            problem["case"] = to_json(case)
            if self.own is not None and not self.own.text:
                problem["left_behind"] = self.own.name
            problem["sequence"] = self.recorder.sequence
            torch.save(
                {**{k: v.detach().cpu() for k, v in tensors.items()}, **self.recorder.tensors},
                self.recorder.folder / "inputs.pt",
            )
        self.recorder.write(name, problem)


def with_dynamic(gm: fx.GraphModule, call: Call) -> Call:
    """Set ``dynamic=True`` where a graph has symbolic sizes, whatever made them so."""
    fakes = [graphs._fake(node) for node in gm.graph.find_nodes(op="placeholder")]
    sizes = [s for fake in fakes if isinstance(fake, torch.Tensor) for s in fake.shape]
    symbolic = any(isinstance(s, torch.SymInt) for s in (*fakes, *sizes))
    options = tuple((n, v) for n, v in call.options if n != "dynamic")
    return Call(call.compiler, (*options, ("dynamic", "True")) if symbolic else options)


def _is_fake(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and type(value).__name__ == "FakeTensor"


def problem_of(outcome: Outcome, recorder: Recorder) -> dict[str, Any]:
    """Return what is known of a run, as plain data."""
    limit = recorder.limit
    return {
        **({"seen": limit.seen, "last": limit.last, "ran": limit.watch.as_json()} if limit else {}),
        **outcome.as_json(),
        "graphs": recorder.graphs, "calls": recorder.calls,
        "compiles": recorder.compiles, "compiler": recorder.compiler, "random": recorder.random,
        "rounding": recorder.rounding, "refused": recorder.refused, "refusal": recorder.refusal,
        "threads": torch.get_num_threads(), "environment": recorder.changed(),
        "own_backends": recorder.own,
    }  # fmt: skip


# -- in place of the compilers -----------------------------------------------------------------
def install(recorder: Recorder) -> None:
    """Put recording compilers in place of `tc.compile` and `torch.compile`."""
    of_tc, of_torch = api.compile, torch.compile

    def tc_backend(options: dict[str, Any]) -> Callable[..., Any]:
        backend = options.get("backend") or api.get_default_backend()
        return api.with_settings(backend, options.get("mode"), options.get("options"))

    def torch_backend(options: dict[str, Any]) -> Callable[..., Any]:
        backend = options.get("backend", "inductor")
        settings = {n: v for n, v in (options.get("options") or {}).items() if n != GUARD_FILTER}
        rest = options.get("mode"), settings or None, options.get("dynamic")
        if callable(backend):
            return cast(Callable[..., Any], backend)
        if backend == "inductor":
            return cast(Callable[..., Any], torch._TorchCompileInductorWrapper(*rest))  # type: ignore[no-untyped-call]
        return cast(Callable[..., Any], torch._TorchCompileWrapper(backend, *rest))  # type: ignore[no-untyped-call]

    recording_tc = _recording(of_tc, "tc", recorder, tc_backend)
    api.compile = recording_tc
    tc.compile = recording_tc
    torch.compile = _recording(of_torch, "torch", recorder, torch_backend)


class Differs(AssertionError):
    """Compiled code fails, and the program that runs is to raise because of it."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.tc_identity = outcome.identity


def watch() -> None:
    """Compare every compiled graph of this program with eager, and raise where one differs."""
    recorder = Recorder(Path(), Path(sys.argv[0]))
    recorder.raises = True
    install(recorder)


def _recording(
    real: Callable[..., Any],
    compiler: str,
    recorder: Recorder,
    backend_of: Callable[[dict[str, Any]], Callable[..., Any]],
) -> Callable[..., Any]:
    @functools.wraps(real)
    def compile(model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda target: compile(target, **options)
        if options.get("disable"):
            return real(model, **options)
        recorder.compiles += 1
        recorder.compiler = compiler
        own = recorder.noted(options["backend"]) if callable(options.get("backend")) else None
        recorder.note_begin()
        if own is not None and WITHOUT_OWN in os.environ:
            options = {**options, "backend": _as_captured}
        kept = tuple(
            (name, repr(value))
            for name, value in options.items()
            if name in ("backend", "mode", "options") and isinstance(value, str | dict)
        )
        if own is not None and own.text:
            kept = (("backend", own.name), *kept)
        recording = recorder.backend(backend_of(options), Call(compiler, kept), own)
        passed = {k: v for k, v in options.items() if k not in ("backend", "mode", "options")}
        if guard_filter := (options.get("options") or {}).get(GUARD_FILTER):
            passed["options"] = {GUARD_FILTER: guard_filter}
        compiled = real(model, backend=recording, **passed)
        if recorder.limit is None:
            return compiled
        forget = api.reset if compiler == "tc" else torch.compiler.reset
        return recorder.limit.on(compiled, model, forget)

    return compile


def run_recorded(
    folder: str,
    script: str,
    arguments: Sequence[str],
    limit: Limit | None = None,
    home: str | None = None,
    sequence: bool = False,
) -> int:
    """Run a script as a program; 0: nothing found, 10: `problem.json` is there."""
    sys.path[0] = home or str(Path(script).resolve().parent)
    if limit is not None and not limit.calls:
        os.environ |= settings.UNCOMPILED
    recorder = Recorder(Path(folder), Path(script), limit, sequence)
    install(recorder)
    recorder.join(spawned.Origin(folder, script, sys.path[0], os.getpid(), sequence))
    sys.argv = [script, *arguments]
    recorder.watch_exit()
    recorder.watch_exec(script)
    with identity.as_process():
        error = identity.run_program(script)
        outcome = judge.script_error(error) if error is not None else Outcome("ok")
    return recorder.end(outcome)


def join(**facts: Any) -> None:
    """Record what a process does that `multiprocessing` has started for a script."""
    origin = spawned.Origin(**facts)
    sys.path.insert(0, origin.home)  # where the recorder looks for neighbours
    recorder = Recorder(Path(origin.folder), Path(origin.script), sequence=origin.sequence)
    sys.path.pop(0)
    install(recorder)
    recorder.join(origin)


def main() -> None:
    """Run the script named on the command line, and end the process."""
    folder, home, script, *arguments = sys.argv[1:]
    identity.watch(str(Path(folder) / "stack.json"))
    os._exit(run_recorded(folder, script, arguments, home=home))


if __name__ == "__main__":
    main()
