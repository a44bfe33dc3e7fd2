"""Settings that torch's compiler has and `tc` does not: their names, and why they change nothing.

The names are read from the source of the installed torch, so that each version has its own; nothing
of `torch._dynamo` or `torch._inductor` is imported for that.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from tc.compiler.core.once import loaded
from tc.compiler.errors import OptionError

Part = Literal["_dynamo", "_inductor"]

_ASKS_MORE = "tc does not promise what it asks for; TC_CHECK=graphs compares each call with eager"
_CACHES = "TC_FORCE_DISABLE_CACHES=1 keeps nothing and finds nothing, and TC_CACHE_DIR says where"
#: what changes nothing -> why, where there is more to say than that tc has no such step; a row
#: that ends with a dot is for all names below it
REASONS: Mapping[Part, Mapping[str, str]] = {
    "_inductor": {
        "epilogue_fusion": "under max_autotune a product is fused with what follows it wherever "
        "that is measured to be faster",
        "shape_padding": "products are computed in the shapes that the program gives them",
        "coordinate_descent_tuning": "max_autotune times the ways that tc has",
        "cpp_wrapper": "kernels in C are called by a launcher in C in any case",
        "debug": "trace.enabled leaves the artifacts of each stage in a folder",
        "force_disable_caches": _CACHES,
        "nan_asserts": "TC_CHECK=kernels compares each kernel with eager",
        "compile_threads": "background=True compiles in another thread",
        "deterministic": _ASKS_MORE,
        "batch_invariant": _ASKS_MORE,
        "emulate_precision_casts": _ASKS_MORE,
        "emulate_precision_casts_on_saved_tensors": _ASKS_MORE,
        "eager_numerics.": _ASKS_MORE,
        "trace.": "trace.enabled leaves every file that tc has, in the folder that a line names",
    },
    "_dynamo": {
        "verbose": "TC_LOGS=+graph_breaks shows the calls that lead to a break",
        "compiled_autograd": "tc compiles the backward of each graph when it is first needed",
        "optimize_ddp": "graphs under DDP are cut at its buckets in any case",
        "repro_after": "tc-minify reduces a program that fails, and TC_CHECK finds wrong values",
        "repro_level": "tc-minify reduces a program that fails, and TC_CHECK finds wrong values",
        "report_guard_failures": "TC_LOGS=recompiles reports them",
    },
}
_OTHERWISE: Mapping[Part, str] = {
    "_inductor": "it is about how PyTorch's Inductor compiles, and tc compiles in its place",
    "_dynamo": "it is about how PyTorch's Dynamo captures, and tc captures in its place",
}


def why_no_effect(part: Part, name: str) -> str | None:
    """Return why a setting of torch changes nothing here; None: torch has no such setting."""
    rows = REASONS[part]
    if name in rows:
        return rows[name]
    if name not in names_of(part):
        return None
    group, dot, _ = name.partition(".")
    return rows.get(f"{group}{dot}", _OTHERWISE[part])


def refuse_functions(name: str, value: Any) -> None:
    """Raise an OptionError for an option by which torch would call a function of the user."""
    inside = value if isinstance(value, list | tuple | set) else (value,)
    if any(callable(one) for one in inside):
        raise OptionError(
            f"the option {name!r} is a function that PyTorch's Inductor calls, and tc would not; "
            "a backend made by tc.aot_backend gets the ATen graphs (docs/aot-backends.md)"
        )


def set_for_torch_only(own: Mapping[str, tuple[Any, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield settings of `torch._dynamo.config` that a program has set, and that tc does not read.

    Args:
        own: tc's settings of the same names: the value of each, and its default. One that the
            program has set here, too, or that is the same for both, is left out.
    """
    theirs = loaded("torch._dynamo.config")
    is_default = getattr(theirs, "_is_default", None)
    if theirs is None or is_default is None:
        return
    for name, (value, default) in own.items():
        if value == default and hasattr(theirs, name) and not is_default(name):
            wanted = getattr(theirs, name)
            if wanted != value:
                yield name, wanted


@functools.cache
def names_of(part: Part) -> Collection[str]:
    """Return the settings of a part of the installed torch; those of a group as ``GROUP.NAME``."""
    try:
        text = Path(torch.__file__).with_name(part).joinpath("config.py").read_text("utf-8")
        module = ast.parse(text)
    except (OSError, SyntaxError):  # a torch without its source: it has no names then
        return frozenset()
    groups = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    return frozenset(_assigned(module.body, "", groups))


def _assigned(
    statements: list[ast.stmt], group: str, groups: Mapping[str, ast.ClassDef]
) -> Iterator[str]:
    """Yield the public names that statements of a module of settings assign.

    Args:
        groups: classes of the module by name: one has the settings of its bases, too.
    """
    for statement in statements:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if not name.startswith("_"):
                    yield group + name
            case ast.ClassDef(name=name):
                bases = [base.id for base in statement.bases if isinstance(base, ast.Name)]
                parts = [statement, *(groups[base] for base in bases if base in groups)]
                for part in parts:
                    yield from _assigned(part.body, f"{group}{name}.", groups)
            case ast.If():
                yield from _assigned(statement.body + statement.orelse, group, groups)
