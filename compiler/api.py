"""What users and tools may call: `compile` and everything around it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from types import FrameType
from typing import Any, TypeVar, overload

import torch

from tc import trace
from tc.compiler.backends.aot_backend import aot_backend
from tc.compiler.backends.registry import (
    has_fixed_sizes,
    list_backends,
    lookup_backend,
    name_of,
    register_backend,
)
from tc.compiler.cache import saving
from tc.compiler.cache.saving import Saved
from tc.compiler.capture import hook, traceable
from tc.compiler.capture.guards.filter import (
    keep_portable_guards_unsafe,
    keep_tensor_guards_unsafe,
    skip_all_guards_unsafe,
    skip_guard_on_all_nn_modules_unsafe,
    skip_guard_on_globals_unsafe,
    skip_guard_on_inbuilt_nn_modules_unsafe,
)
from tc.compiler.capture.skips import inlined_only
from tc.compiler.capture.specified import Specification
from tc.compiler.capture.torch_api.torch_functions import (
    graph_break,
    is_compiling,
    mark_step,
    skip_frame,
)
from tc.compiler.capture.traceable import error_on_graph_break
from tc.compiler.core.gate import Gate
from tc.compiler.core.gpu import mark_warmup_incomplete
from tc.compiler.core.graphview import view_of
from tc.compiler.core.lock import alone
from tc.compiler.core.settings import check, require_callable
from tc.compiler.errors import OptionError, SavedFileError, error_context
from tc.compiler.frames import FrameCompiler
from tc.compiler.frontend.annotations import (
    mark_dynamic,
    mark_static,
    mark_static_address,
    mark_unbacked,
    maybe_mark_dynamic,
)
from tc.compiler.frontend.decorators import (
    allow_in_graph,
    assume_constant_result,
    disable,
    disallow_in_graph,
    forbid_in_graph,
    innermost,
    nested_compile_region,
    nonstrict_trace,
    one_spec,
    run,
    substitute_in_graph,
    wrap_numpy,
)
from tc.compiler.frontend.modules import OptimizedModule
from tc.compiler.frontend.stance import STANDING, set_stance
from tc.compiler.options import (
    BACKEND_OPTIONS,
    InductorOptions,
    Options,
    config,
    list_mode_options,
    list_options,
)
from tc.compiler.pipeline import STAGES as REPLAYED
from tc.compiler.pipeline import Inductor
from tc.compiler.process import PROCESS as _PROCESS
from tc.compiler.ranks import follow_setting
from tc.compiler.sentinel.torch_backend import sentinel
from tc.compiler.telemetry import counters as call_counters
from tc.compiler.telemetry.reporter import callers
from tc.trace.notebook import Shown, View

F = TypeVar("F", bound=Callable[..., Any])
GUARD_FILTER = "guard_filter_fn"  # the option that is none of the backend's
#: running counts under the names torch's programs know: "frames", "stats", "graph_break"
counters = _PROCESS.counters
is_dynamo_compiling = is_compiling
is_exporting = torch.compiler.is_exporting
cudagraph_mark_step_begin = mark_step
cudagraph_mark_warmup_incomplete = mark_warmup_incomplete

trace.setup_from_environment()
follow_setting(config.rank_check)


@overload
def compile(
    model: F,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | Callable[..., Any] | None = ...,
    mode: str | None = ...,
    options: dict[str, Any] | None = ...,
    name: str | None = ...,
    disable: bool = ...,
    recompile_limit: int | None = ...,
    isolate_recompiles: bool = ...,
    shapes_spec: Any = ...,
    dynamic_shapes: Any = ...,
) -> F: ...
@overload
def compile(
    model: None = None,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | Callable[..., Any] | None = ...,
    mode: str | None = ...,
    options: dict[str, Any] | None = ...,
    name: str | None = ...,
    disable: bool = ...,
    recompile_limit: int | None = ...,
    isolate_recompiles: bool = ...,
    shapes_spec: Any = ...,
    dynamic_shapes: Any = ...,
) -> Callable[[F], F]: ...
def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
    dynamic_shapes: Any = None,
) -> Any:
    """Compile a function or module; it is captured when it is first called.

    Args:
        model: a function (static and class methods too), class instance with ``__call__``, or
            ``nn.Module``. Without it a decorator is returned.
        fullgraph: raise `tc.compiler.errors.Unsupported` at the first graph break.
        dynamic: True: all sizes dynamic from the first call; False: never; None: a size becomes
            dynamic when it changes for the first time.
        backend: a name of `list_backends()` or a function ``(gm, example_inputs) -> callable``;
            by default the one of `set_default_backend`.
        mode: one of `list_mode_options()`; given to a backend of the user's as ``mode=``.
        options: settings of the default backend (`list_options()`), or of one of the user's as
            ``options=``; ``guard_filter_fn`` gets a `GuardEntry` a guard and says which are kept.
        name: of the compiled region, which traces show among its settings.
        disable: return the model as it is.
        recompile_limit: compiles of a function after which it runs eagerly, and under
            ``fullgraph`` raises `FailOnRecompileLimitHit`; None: that of `config`.
        isolate_recompiles: share no compiled code with other calls of `compile`.
        shapes_spec: a ``ShapesSpec`` of torch 2.13, or a dict of parameter -> ``TensorSpec``,
            ``IntVar`` and the like: what is dynamic, and within which bounds. The rest is constant.
        dynamic_shapes: its name since torch 2.14, where ``@dynamic_spec`` may say it as well.

    Raises:
        OptionError: an unknown backend, mode or option, both mode and options, or
            a ``shapes_spec`` that is given twice or cannot be followed.

    Example:
        >>> f = tc.compile(lambda x: x.sin() + 1)
    """
    asked: dict[str, Any] = {
        "fullgraph": fullgraph, "dynamic": dynamic, "backend": backend, "mode": mode,
        "options": options, "name": name, "recompile_limit": recompile_limit,
        "isolate_recompiles": isolate_recompiles, "shapes_spec": shapes_spec,
        "dynamic_shapes": dynamic_shapes,
    }  # fmt: skip
    for argument, value in (*asked.items(), ("disable", disable)):
        check(argument, value)
    if model is None:
        return lambda target: compile(target, disable=disable, **asked)
    if disable or config.disable:
        return model
    if isinstance(model, staticmethod | classmethod):
        return type(model)(compile(model.__func__, **asked))
    require_callable("tc.compile", model)
    return _attached(model, FrameCompiler(_request(model, **asked), config, _PROCESS))


def _attached(model: Any, compiler: FrameCompiler) -> Any:
    """Return what calls a model with its frames offered to a compiler."""
    if compiler.options.region is not None:
        hook.isolate()
    if isinstance(model, OptimizedModule):
        model = model._orig_mod
    if isinstance(model, torch.nn.Module):
        return OptimizedModule(model, compiler)
    target = innermost(model)
    return hook.wrap(traceable.calling(target) if inlined_only(target) else target, compiler)


def _request(
    model: Any, *, options: dict[str, Any] | None, name: str | None, recompile_limit: int | None,
    isolate_recompiles: bool, shapes_spec: Any, dynamic_shapes: Any, **asked: Any,
) -> Options:  # fmt: skip
    """Return what a call of `compile` asks for."""
    spec = one_spec(model, shapes_spec=shapes_spec, dynamic_shapes=dynamic_shapes)
    if spec is not None and asked["dynamic"] is not None:
        raise OptionError("give dynamic or a shapes_spec, not both: the spec says what is dynamic")
    return replace(
        _options(**asked, settings=dict(options or {})),
        name=name,
        recompile_limit=recompile_limit,
        region=object() if isolate_recompiles else None,
        shapes=None if spec is None else Specification(spec, innermost(model)),
    )


def _options(
    fullgraph: bool,
    dynamic: bool | None,
    backend: str | Callable[..., Any] | None,
    mode: str | None,
    settings: dict[str, Any],
) -> Options:
    list_mode_options(mode or "default")  # refuses unknown modes, whatever the backend
    backend = get_default_backend() if backend is None else backend
    compiler = lookup_backend(backend)
    guard_filter = settings.pop(GUARD_FILTER, None)
    if guard_filter is not None:
        check(f"options.{GUARD_FILTER}", guard_filter)
    built_in = isinstance(compiler, Inductor)
    if has_fixed_sizes(backend):
        if dynamic:
            trace.warn(
                f"dynamic=True changes nothing: backend {backend!r} gets graphs of fixed sizes"
            )
        dynamic = False
    if mode is None and isinstance(backend, str):
        settings = {**BACKEND_OPTIONS.get(backend, {}), **settings}
    return Options(
        backend=compiler,
        backend_name=name_of(backend),
        fullgraph=fullgraph,
        dynamic=dynamic,
        mode=mode,
        guard_filter=guard_filter,
        extra=() if built_in else tuple(sorted(settings.items())),
        inductor=InductorOptions.of(mode, settings) if built_in else InductorOptions(),
    )


def replaying(stage: str, gate: Gate | None = None) -> Inductor:
    """Return the default backend, stopped after a stage (a key of `REPLAYED`).

    Args:
        gate: asked before every optional step; all are allowed if omitted.
    """
    return Inductor(stage, gate or Gate())


def with_settings(
    backend: str | Callable[..., Any], mode: str | None, options: dict[str, Any] | None
) -> Callable[..., Any]:
    """Return a backend that compiles as `compile` would with a mode or options.

    Raises:
        OptionError: as `compile`.
    """
    settings = {name: value for name, value in (options or {}).items() if name != GUARD_FILTER}
    chosen = _options(False, None, backend, mode, settings)
    if isinstance(chosen.backend, Inductor):
        return partial(chosen.backend, options=chosen.inductor)
    given: dict[str, Any] = {"mode": mode} if mode else {}
    given |= {"options": settings} if settings else {}
    return partial(chosen.backend, **given) if given else chosen.backend


def compile_in_place(model: torch.nn.Module, **settings: Any) -> None:
    """Compile the calls of a module that stays itself; like ``model.compile()`` with torch.

    Args:
        settings: as `compile` takes them.
    """
    if not isinstance(model, torch.nn.Module):
        raise OptionError(f"tc.compile_in_place takes a module, not {model!r}")
    model._compiled_call_impl = compile(model._call_impl, **settings)


def set_default_backend(backend: str | Callable[..., Any] | None) -> None:
    """Set the backend of compiles that name none; None: "inductor" again.

    Raises:
        OptionError: there is none of that name.
    """
    chosen = "inductor" if backend is None else backend
    lookup_backend(chosen)
    _PROCESS.default_backend = chosen


def get_default_backend() -> str | Callable[..., Any]:
    """Return the backend of compiles that name none."""
    return _PROCESS.default_backend


# -- files of compiled code --------------------------------------------------------------------
def save(path: str | os.PathLike[str], fn: Any, *, key: bytes | None = None) -> Saved:
    """Write what this process has compiled to a file that other machines can load.

    The file holds every graph that the default backend has compiled in this process, or found in
    its cache, with kernels for each level of CPUs, their source, and what all of it depends on.
    Call the function before, with its backward where it is to train. See docs/saving.md.

    Args:
        path: is replaced as a whole, or not at all.
        fn: the function or module that the file is of, compiled or not; `load` finds it again.
        key: a secret of at least one byte: `load` then refuses files made without it.

    Raises:
        OptionError: ``fn`` is no function and no module.
        SavedFileError: nothing was compiled, or the file cannot be written.
        StageError: there is no C compiler, which builds the kernels for the other CPUs.
    """
    require_callable("tc.save", fn)
    return saving.save(path, fn, key)


def load(
    path: str | os.PathLike[str],
    fn: Any = None,
    *,
    key: bytes | None = None,
    sha256: str | None = None,
    **settings: Any,
) -> Any:
    """Compile a function with what a file of `save` holds, for which no C compiler is needed.

    The function is captured again at its first call; a graph that the file holds is taken from
    there, another one is compiled, and a warning says what differs. The file is verified before
    anything in it is looked at, but it holds native code: load none that you would not run.

    Args:
        path: the file.
        fn: the live function or module; None: the one that the file names is imported.
        key: the secret that the file was saved with.
        sha256: what the SHA-256 of the file has to be, as `save` returns it.
        settings: as `compile` takes them.

    Raises:
        SavedFileError: the file is damaged, or is not what ``key`` and ``sha256`` ask for.
    """
    if fn is not None:
        require_callable("tc.load", fn)
    _, found = saving.load(path, key, sha256)
    target = saving.found_function(str(path), found) if fn is None else fn
    return compile(target, **settings)


def save_cache_artifacts() -> tuple[bytes, Saved] | None:
    """Return what `save` writes, and what it holds; None if nothing was compiled."""
    try:
        return saving.pack(None)
    except SavedFileError:
        return None


def load_cache_artifacts(serialized_artifacts: bytes) -> Saved | None:
    """Take what `save_cache_artifacts` returned; `compile` finds it from then on.

    Raises:
        SavedFileError: it is damaged.
    """
    return saving.unpack(serialized_artifacts, "the cache artifacts")[0]


# -- the process -------------------------------------------------------------------------------
def reset() -> None:
    """Forget all compiled code and all that was remembered of earlier calls.

    A compile of another thread is waited for; calls under way end with the code they have found.
    """
    if trace.enabled():
        _report_reset(sys._getframe(1))
    alone(_reset, _reset)


@trace.reports(trace.nothing)
def _report_reset(caller: FrameType) -> None:
    asked = (callers(caller) or [trace.StackFrame("", 0, "")])[-1]
    trace.emit(trace.Reset(asked.name, asked.file, asked.line))


def _reset() -> None:
    for code in list(_PROCESS.code_objects.values()):
        hook.reset(code)
    _PROCESS.code_objects.clear()
    call_counters.reset()
    STANDING.for_one_call.clear()
    _PROCESS.frames = _PROCESS.graphs = _PROCESS.breaks = 0
    _PROCESS.warned.clear()


def graph_stats() -> dict[str, int]:
    """Return how many graphs were compiled, and how often capture broke, since the last reset."""
    return {"graphs": _PROCESS.graphs, "graph_breaks": _PROCESS.breaks}


def _narrow_guards() -> None:
    """Pick for all compiled code the guards that distinguished variants; see `set_stance`."""

    def narrow() -> None:
        for code in list(_PROCESS.code_objects.values()):
            failing: set[str] = set()
            for entry in hook.cache_entries(code):
                failing |= entry.guards.failing
            hook.narrow(code, lambda guards: guards.few(failing))  # noqa: B023 - called at once

    alone(narrow, narrow)


def _redirected(compiler: Any, backend: Any) -> Any:
    options = replace(
        compiler.options, backend=lookup_backend(backend), backend_name=name_of(backend)
    )
    return replace(compiler, options=options)


STANDING.prepare = _narrow_guards
STANDING.redirect = _redirected


def on_graph(listener: Callable[[torch.fx.GraphModule], None]) -> Callable[[], None]:
    """Call a function with each captured graph, in any thread, before a backend gets the graph.

    Args:
        listener: gets the graph module; what it raises fails the compile.

    Returns:
        A function that ends it.

    Example:
        >>> import tc, torch
        >>> stop = tc.on_graph(lambda gm: print(len(gm.graph.nodes), "nodes"))
        >>> tc.compile(lambda x: x.sin() + 1)(torch.zeros(2))
        4 nodes
        tensor([1., 1.])
        >>> stop()
    """
    require_callable("tc.on_graph", listener, "a function")
    _PROCESS.on_graph.append(listener)

    def stop() -> None:
        if listener in _PROCESS.on_graph:
            _PROCESS.on_graph.remove(listener)

    return stop


@dataclass
class Explanation(Shown):
    """What `explain` found.

    Attributes:
        graph_count, graph_break_count, op_count: occurrences in this one call.
        graphs: the captured graphs.
        break_reasons: one event a break.
    """

    graph_count: int = 0
    graph_break_count: int = 0
    op_count: int = 0
    graphs: list[torch.fx.GraphModule] = field(default_factory=list)
    break_reasons: list[trace.GraphBreak] = field(default_factory=list)

    def __str__(self) -> str:
        reasons = (f"{number}  {one.short}" for number, one in enumerate(self.break_reasons, 1))
        return "\n".join((self._title, *reasons))

    @property
    def _title(self) -> str:
        return (
            f"graphs: {self.graph_count}   graph breaks: {self.graph_break_count}   "
            f"operations: {self.op_count}"
        )

    def as_view(self) -> View:
        """See `Shown`."""
        items = [one.as_item() for one in self.break_reasons]
        graphs = [view_of(gm).values for gm in self.graphs]
        values = {"title": self._title, "causes": items, "graphs": graphs}
        return View("explanation", str(self), values)


def explain(fn: Any) -> Callable[..., Explanation]:
    """Return a function that runs ``fn`` once under capture and reports what happened.

    Example:
        >>> import tc, torch
        >>> print(tc.explain(lambda x: x.sin())(torch.ones(2)))  # doctest: +SKIP
    """

    require_callable("tc.explain", fn)

    def run(*args: Any, **kwargs: Any) -> Explanation:
        found = Explanation()

        def backend(gm: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
            found.graphs.append(gm)
            return gm.forward

        reset()
        with trace.capture_events() as events:
            compile(fn, backend=backend)(*args, **kwargs)
        found.break_reasons = list(events.of(trace.GraphBreak))
        found.graph_count = len(found.graphs)
        found.graph_break_count = len(found.break_reasons)
        found.op_count = sum(
            node.op.startswith("call_") for gm in found.graphs for node in gm.graph.nodes
        )
        reset()
        return found

    return run


__all__ = [
    "GUARD_FILTER",
    "REPLAYED",
    "Explanation",
    "Gate",
    "OptimizedModule",
    "allow_in_graph",
    "aot_backend",
    "assume_constant_result",
    "compile",
    "compile_in_place",
    "config",
    "counters",
    "cudagraph_mark_step_begin",
    "cudagraph_mark_warmup_incomplete",
    "disable",
    "disallow_in_graph",
    "error_context",
    "error_on_graph_break",
    "explain",
    "forbid_in_graph",
    "get_default_backend",
    "graph_break",
    "graph_stats",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "list_backends",
    "list_mode_options",
    "list_options",
    "load",
    "load_cache_artifacts",
    "lookup_backend",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nested_compile_region",
    "nonstrict_trace",
    "on_graph",
    "register_backend",
    "replaying",
    "reset",
    "run",
    "save",
    "save_cache_artifacts",
    "sentinel",
    "set_default_backend",
    "set_stance",
    "skip_all_guards_unsafe",
    "skip_frame",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "substitute_in_graph",
    "with_settings",
    "wrap_numpy",
]
