"""The sentinel for graphs of torch.compile: a backend around a backend."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from tc.compiler.backends.verify import copied
from tc.compiler.capture import hook
from tc.compiler.core.graphtext import with_code
from tc.compiler.options import config
from tc.compiler.sentinel.graph import Graph
from tc.compiler.sentinel.sampling import sentinel_setting, watched
from tc.trace import StackFrame

Compiled = Callable[..., Any]
#: share of calls that are compared where nothing else is asked for
RATE = "1/1000"
#: backends of torch that draw the random numbers that eager draws
DRAW_AS_EAGER = ("eager", "aot_eager", "aot_eager_decomp_partition")
_LINE = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def sentinel(
    backend: str | Compiled = "inductor", rate: float | str | None = None, action: str | None = None
) -> Callable[..., Compiled]:
    """Return a backend for torch.compile that compares calls of its graphs with eager.

    One call in so many runs again, by eager, on copies of its inputs; results, writes and gradients
    that differ by more than rounding are reported with a script that shows it. Graphs of
    `tc.compile` need no wrapper: ``tc.config.sentinel`` holds for them.

    Args:
        backend: what compiles: a name that torch.compile knows, or a function of a graph and
            example inputs.
        rate: share of calls; by default ``tc.config.sentinel``, or 1/1000 where that is 0.
        action: as ``tc.config.sentinel_action``, which is the default.

    Raises:
        OptionError: the rate is no share, or there is no such action.

    Example:
        >>> import tc, torch
        >>> f = torch.compile(lambda x: x.sin(), backend=tc.sentinel("eager", rate=1))
        >>> f(torch.zeros(2))
        tensor([0., 0.])
    """
    sentinel_setting(config, rate, action)  # raises an error on wrong ones

    def watching(gm: fx.GraphModule, example_inputs: Sequence[Any], **settings: Any) -> Compiled:
        setting = sentinel_setting(config, rate or config.sentinel or RATE, action)
        module = with_code(copied(gm))
        compiled = _compiled(backend, gm, example_inputs, settings)
        if setting is None:
            return compiled
        _LazyGraphModule.force_recompile(module)
        graph = Graph(
            module,
            hook.never_trace(module.forward),
            _note_places(module),
            compile_call=_call(backend, example_inputs, settings),
            draws_as_eager=backend in DRAW_AS_EAGER,
        )
        return watched(compiled, graph, setting)[0]

    watching.__name__ = f"sentinel_{backend if isinstance(backend, str) else 'of_yours'}"
    return watching


def _compiled(
    backend: str | Compiled, gm: fx.GraphModule, inputs: Sequence[Any], settings: dict[str, Any]
) -> Compiled:
    if not isinstance(backend, str):
        return backend(gm, inputs, **settings)  # type: ignore[no-any-return]
    rest = settings.get("mode"), settings.get("options"), None
    wrapper: Any
    if backend == "inductor":
        wrapper = torch._TorchCompileInductorWrapper(*rest)  # type: ignore[no-untyped-call]
    else:
        wrapper = torch._TorchCompileWrapper(backend, *rest)  # type: ignore[no-untyped-call]
    return wrapper(gm, inputs)  # type: ignore[no-any-return]


def _call(backend: str | Compiled, inputs: Sequence[Any], settings: dict[str, Any]) -> str:
    """Return how a program compiles such a graph; empty if no text does."""
    if not isinstance(backend, str):
        return ""
    given = {"backend": backend, **{name: value for name, value in settings.items() if value}}
    sizes = [size for v in inputs if isinstance(v, torch.Tensor) for size in v.shape]
    if any(isinstance(value, torch.SymInt) for value in (*inputs, *sizes)):
        given["dynamic"] = True
    return f"torch.compile({', '.join(['graph', *(f'{k}={v!r}' for k, v in given.items())])})"


def _note_places(module: fx.GraphModule) -> StackFrame:
    """Note the user's line on every node, and return the one that the graph begins with."""
    places: list[StackFrame] = []
    for node in module.graph.nodes:
        found = _LINE.findall(node.meta.get("stack_trace") or "")
        if found:
            file, line, name = found[-1]
            places.append(StackFrame(file, int(line), name, linecache.getline(file, int(line))))
            node.meta["tc_origin"] = (places[-1],)
    if places:
        return places[0]
    return StackFrame(
        "torch.compile", 0, f"graph {torch._guards.CompileContext.current_compile_id()}"
    )
