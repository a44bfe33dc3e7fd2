"""The public face of tc: names are loaded on first use, so that the viewers never import torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from tc.compiler import errors as exc
    from tc.compiler.ahead.check import check_shapes
    from tc.compiler.ahead.precompile import precompile
    from tc.compiler.api import (
        OptimizedModule,
        allow_in_graph,
        aot_backend,
        assume_constant_result,
        compile,
        compile_in_place,
        config,
        counters,
        cudagraph_mark_step_begin,
        cudagraph_mark_warmup_incomplete,
        disable,
        disallow_in_graph,
        error_on_graph_break,
        explain,
        forbid_in_graph,
        get_default_backend,
        graph_break,
        is_compiling,
        is_dynamo_compiling,
        is_exporting,
        keep_portable_guards_unsafe,
        keep_tensor_guards_unsafe,
        list_backends,
        list_mode_options,
        list_options,
        load,
        load_cache_artifacts,
        lookup_backend,
        mark_dynamic,
        mark_static,
        mark_static_address,
        mark_unbacked,
        maybe_mark_dynamic,
        nested_compile_region,
        nonstrict_trace,
        on_graph,
        register_backend,
        reset,
        run,
        save,
        save_cache_artifacts,
        sentinel,
        set_default_backend,
        set_stance,
        skip_all_guards_unsafe,
        skip_frame,
        skip_guard_on_all_nn_modules_unsafe,
        skip_guard_on_globals_unsafe,
        skip_guard_on_inbuilt_nn_modules_unsafe,
        substitute_in_graph,
        wrap_numpy,
    )
    from tc.trace.logs import set_logs

_HOMES = {
    "tc.compiler.ahead.check": ("check_shapes",),
    "tc.compiler.ahead.precompile": ("precompile",),
    "tc.compiler.api": (
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
        "error_on_graph_break",
        "explain",
        "forbid_in_graph",
        "get_default_backend",
        "graph_break",
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
        "wrap_numpy",
    ),
    "tc.trace.logs": ("set_logs",),
}
_MODULES = {"exc": "tc.compiler.errors"}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
#: older names, which are not listed
_TOOLS = {"_on_graph_compiled": ("tc.compiler.api", "on_graph")}

__all__ = [
    "OptimizedModule",
    "__version__",
    "allow_in_graph",
    "aot_backend",
    "assume_constant_result",
    "check_shapes",
    "compile",
    "compile_in_place",
    "config",
    "counters",
    "cudagraph_mark_step_begin",
    "cudagraph_mark_warmup_incomplete",
    "disable",
    "disallow_in_graph",
    "error_on_graph_break",
    "exc",
    "explain",
    "forbid_in_graph",
    "get_default_backend",
    "graph_break",
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
    "precompile",
    "register_backend",
    "reset",
    "run",
    "save",
    "save_cache_artifacts",
    "sentinel",
    "set_default_backend",
    "set_logs",
    "set_stance",
    "skip_all_guards_unsafe",
    "skip_frame",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "substitute_in_graph",
    "wrap_numpy",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    home, inner = _TOOLS.get(name, (_HOME_OF.get(name), name))
    if home is None:
        raise AttributeError(f"module 'tc' has no attribute {name!r}")
    value = getattr(_loaded(home), inner)
    globals()[name] = value
    return value


def _loaded(home: str) -> Any:
    """Import a module of tc, without passes of the garbage collector: all it makes stays."""
    from tc.compiler.core import garbage

    with garbage.paused():
        try:
            return import_module(home)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ModuleNotFoundError(
                "tc compiles programs of PyTorch, and torch is not installed: pip install torch "
                "(tc-report and tc-tui work without)",
                name="torch",
            ) from None


def __dir__() -> list[str]:
    return sorted(__all__)
