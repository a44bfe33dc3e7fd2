"""What users and tools may call: `compile` and everything around it."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

import torch

from tc import trace
from tc.compiler import driver
from tc.compiler.backends import list_backends, lookup_backend, name_of, register_backend
from tc.compiler.capture import hook
from tc.compiler.capture.dynamism import MARKS
from tc.compiler.capture.skips import DISABLED
from tc.compiler.capture.torchfns import graph_break, is_compiling
from tc.compiler.core.gate import Gate
from tc.compiler.errors import OptionError
from tc.compiler.options import MODES, Options, config, nearest
from tc.compiler.replay import REPLAYED, replaying

F = TypeVar("F", bound=Callable[..., Any])
_PROCESS = driver.Process()
#: running counts under the names torch's programs know: "frames", "stats", "graph_break"
counters = _PROCESS.counters

trace.setup_from_environment()


@overload
def compile(
    model: F,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | Callable[..., Any] = ...,
    mode: str | None = ...,
    options: dict[str, Any] | None = ...,
    disable: bool = ...,
) -> F: ...
@overload
def compile(
    model: None = None,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | Callable[..., Any] = ...,
    mode: str | None = ...,
    options: dict[str, Any] | None = ...,
    disable: bool = ...,
) -> Callable[[F], F]: ...
def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Compile a function or module; it is captured when it is first called.

    Args:
        model: a function, method, class instance with ``__call__``, or ``nn.Module``. Without it
            a decorator is returned.
        fullgraph: raise `tc.compiler.errors.Unsupported` at the first graph break.
        dynamic: True: all sizes dynamic from the first call; False: never; None: a size becomes
            dynamic when it changes for the first time.
        backend: a name of `list_backends()` or a function ``(gm, example_inputs) -> callable``.
        mode: one of `tc.compiler.options.MODES`.
        options: settings of the backend.
        disable: return the model as it is.

    Raises:
        OptionError: an unknown backend or mode.

    Example:
        >>> import tc, torch
        >>> f = tc.compile(lambda x: torch.sin(x) + 1)
    """
    if model is None:
        return lambda target: compile(
            target, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode,
            options=options, disable=disable,
        )  # fmt: skip
    if disable or config.disable:
        return model
    if not callable(model):
        raise OptionError(f"tc.compile takes something callable, not a {type(model).__name__}")
    if mode is not None and mode not in MODES:
        raise OptionError(f"there is no mode {mode!r}{nearest(mode, list(MODES))}")
    chosen = Options(
        backend=lookup_backend(backend),
        backend_name=name_of(backend),
        fullgraph=fullgraph,
        dynamic=dynamic,
        mode=mode,
        extra=tuple(sorted((options or {}).items())),
    )
    compiler = driver.FrameCompiler(chosen, config, _PROCESS)
    if isinstance(model, torch.nn.Module):
        return OptimizedModule(model, compiler)
    return _compiled_function(model, compiler)


def _compiled_function(target: Any, compiler: driver.FrameCompiler) -> Any:
    inner = getattr(target, "_tc_original", target)
    call = hook.wrap(inner, compiler)
    call._tc_original = inner
    return call


class OptimizedModule(torch.nn.Module):
    """A compiled module: calls are captured, all else goes to the module it wraps."""

    _orig_mod: torch.nn.Module

    def __init__(self, module: torch.nn.Module, compiler: driver.FrameCompiler) -> None:
        super().__init__()
        self._modules["_orig_mod"] = module
        self.__dict__["_compiler"] = compiler
        self.__dict__["_call"] = hook.wrap(module.__call__, compiler)
        self.__dict__["training"] = module.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module under capture."""
        return self._call(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._modules["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_orig_mod", "_call", "_compiler"):
            self.__dict__[name] = value
        else:
            setattr(self._modules["_orig_mod"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._modules["_orig_mod"], name)

    def train(self, mode: bool = True) -> OptimizedModule:
        """Set the wrapped module's training mode."""
        self._orig_mod.train(mode)
        self.__dict__["training"] = mode
        return self

    def __len__(self) -> int:
        return len(self._orig_mod)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._orig_mod)  # type: ignore[call-overload,no-any-return]

    def __getitem__(self, key: Any) -> Any:
        return self._orig_mod[key]  # type: ignore[index]

    def __reduce__(self) -> Any:
        return _rebuild_module, (self._modules["_orig_mod"], self.__dict__["_compiler"].options)

    def __deepcopy__(self, memo: dict[int, Any]) -> OptimizedModule:
        inner = copy.deepcopy(self._modules["_orig_mod"], memo)
        assert inner is not None
        return OptimizedModule(inner, self.__dict__["_compiler"])


def _rebuild_module(module: torch.nn.Module, options: Options) -> OptimizedModule:
    return OptimizedModule(module, driver.FrameCompiler(options, config, _PROCESS))


# -- the programming model ---------------------------------------------------------------------
def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Keep a function out of compiled code: it runs eagerly wherever it is called from.

    Args:
        fn: the function; without it a decorator is returned.
        recursive: what it calls is kept out too.
        reason: told in the graph break that a call of it makes.
    """
    if fn is None:
        return lambda target: disable(target, recursive, reason=reason)
    if recursive:
        wrapper = hook.disabled(fn)
    else:

        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

    setattr(wrapper, DISABLED, reason or "tc.disable")
    return wrapper


def mark_dynamic(tensor: torch.Tensor, index: int | list[int] | tuple[int, ...]) -> None:
    """Make dimensions of a tensor dynamic from the first compile on."""
    _mark(tensor, index, True)


def maybe_mark_dynamic(tensor: torch.Tensor, index: int | list[int] | tuple[int, ...]) -> None:
    """Like `mark_dynamic`; code that needs a fixed size may still specialise."""
    _mark(tensor, index, True)


def mark_static(
    tensor: torch.Tensor, index: int | list[int] | tuple[int, ...] | None = None
) -> None:
    """Keep dimensions of a tensor (all, if none is named) static."""
    _mark(tensor, list(range(tensor.dim())) if index is None else index, False)


def _mark(tensor: torch.Tensor, index: Any, dynamic: bool) -> None:
    marks: dict[int, bool] = dict(getattr(tensor, MARKS, {}))
    for dim in [index] if isinstance(index, int) else index:
        if not -tensor.dim() <= dim < tensor.dim():
            raise OptionError(f"dimension {dim} of a tensor with {tensor.dim()} dimensions")
        marks[dim % tensor.dim()] = dynamic
    setattr(tensor, MARKS, marks)


def reset() -> None:
    """Forget all compiled code and all that was remembered of earlier calls."""
    for code in list(_PROCESS.code_objects.values()):
        hook.reset(code)
    _PROCESS.code_objects.clear()
    _PROCESS.frames = _PROCESS.graphs = _PROCESS.breaks = 0
    _PROCESS.warned.clear()


def graph_stats() -> dict[str, int]:
    """Return how many graphs were compiled, and how often capture broke, since the last reset."""
    return {"graphs": _PROCESS.graphs, "graph_breaks": _PROCESS.breaks}


def on_graph_compiled(listener: Callable[[torch.fx.GraphModule], None]) -> None:
    """Tell a function of each captured graph before a backend gets it."""
    _PROCESS.on_graph.append(listener)


@dataclass
class Explanation:
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
        lines = [
            f"graphs: {self.graph_count}   graph breaks: {self.graph_break_count}   "
            f"operations: {self.op_count}"
        ]
        for number, reason in enumerate(self.break_reasons, 1):
            lines.append(f"{number}  {reason.code} {reason.title}  {reason.file}:{reason.line}")
            lines.extend(f"     fix: {fix}" for fix in reason.fix)
        return "\n".join(lines)


def explain(fn: Any) -> Callable[..., Explanation]:
    """Return a function that runs ``fn`` once under capture and tells what happened.

    Example:
        >>> import tc, torch
        >>> print(tc.explain(lambda x: x.sin())(torch.ones(2)))  # doctest: +SKIP
    """

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
    "REPLAYED",
    "Explanation",
    "Gate",
    "OptimizedModule",
    "compile",
    "config",
    "counters",
    "disable",
    "explain",
    "graph_break",
    "graph_stats",
    "is_compiling",
    "list_backends",
    "lookup_backend",
    "mark_dynamic",
    "mark_static",
    "maybe_mark_dynamic",
    "on_graph_compiled",
    "register_backend",
    "replaying",
    "reset",
]
