"""Triton kernels of the user's, as an operation of a graph: `torch.ops.tc.user_kernel`.

In: a kernel with what a call of it fixes (`Bound`), by number; tensors, sizes, floats and a grid.
Out: the tensors that the kernel writes to, as new ones: the operation itself changes nothing.
Whoever captures a call puts the new elements where the kernel would have written them.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tc.compiler.core.once import once

#: modules whose functions compute, but for those that write
LANGUAGE = "triton"
WRITERS = ("store", "scatter", "atomic_")


@dataclass(frozen=True, eq=False)
class Bound:
    """A kernel and what one call of it fixes.

    Attributes:
        kernel: a function made by ``triton.jit``.
        tensors, ints, floats: names of the parameters that the operation is given, in order.
        constants: all other parameters and settings (``num_warps``), by name.
        written: positions among the tensors that the kernel may write to.
        same: position of a tensor -> that of the same tensor earlier in the list.
    """

    kernel: Any
    tensors: tuple[str, ...]
    ints: tuple[str, ...]
    floats: tuple[str, ...]
    constants: tuple[tuple[str, Any], ...]
    written: tuple[int, ...]
    same: tuple[tuple[int, int], ...] = ()


_bound: list[Bound] = []
_numbers: dict[Any, int] = {}


def number_of(bound: Bound) -> int:
    """Return the number of a kernel and what is fixed; equal ones have the same."""
    fixed = tuple((name, type(value), value) for name, value in bound.constants)
    key = (id(bound.kernel), bound.tensors, bound.ints, bound.floats, fixed, bound.same)
    if key not in _numbers:
        _bound.append(bound)  # keeps the kernel, and so its id, alive
        _numbers[key] = len(_bound) - 1
    return _numbers[key]


def is_kernel(obj: Any) -> bool:
    """Return whether an object is a function of ``triton.jit``, compiled or interpreted."""
    if not type(obj).__module__.startswith("triton."):
        return False
    names = ("JITFunction", "InterpretedFunction")
    return type(obj).__name__ in names and hasattr(obj, "arg_names")


@once
def operation() -> Any:
    """Return the operation; made when first asked for, which takes as long as a small compile."""
    schema = "(int kernel, Tensor[] tensors, SymInt[] ints, float[] floats, SymInt[] grid)"
    made = torch.library.custom_op(
        "tc::user_kernel", _run, mutates_args=(), schema=f"{schema} -> Tensor[]"
    )
    made.register_fake(_run_fake)
    return torch.ops.tc.user_kernel.default


def _run(
    kernel: int,
    tensors: Sequence[torch.Tensor],
    ints: Sequence[int],
    floats: Sequence[float],
    grid: Sequence[int],
) -> list[torch.Tensor]:
    """Run a kernel on copies of the tensors that it writes to, and return those."""
    bound = _bound[kernel]
    given = list(tensors)
    for k in bound.written:
        given[k] = alike(tensors[k]).copy_(tensors[k])
    for k, earlier in bound.same:
        given[k] = given[earlier]
    named: dict[str, Any] = dict(zip(bound.tensors, given, strict=True))
    named.update(zip(bound.ints, ints, strict=True))
    named.update(zip(bound.floats, floats, strict=True))
    if all(grid):
        bound.kernel[tuple(grid)](**named, **dict(bound.constants))
    return [given[k] for k in bound.written]


def _run_fake(
    kernel: int,
    tensors: Sequence[torch.Tensor],
    ints: Sequence[int],
    floats: Sequence[float],
    grid: Sequence[int],
) -> list[torch.Tensor]:
    return [alike(tensors[k]) for k in _bound[kernel].written]


def alike(tensor: torch.Tensor) -> torch.Tensor:
    """Return new memory laid out like a tensor."""
    size, stride = tensor.size(), tensor.stride()
    return torch.empty_strided(size, stride, dtype=tensor.dtype, device=tensor.device)


# ---------------------------------------------------------------- what a kernel writes to


def parameters_written(kernel: Any) -> frozenset[str]:
    """Return the parameters through which a kernel may write; all of them if that is not known."""
    names = frozenset(kernel.arg_names)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kernel.fn)))
    except (OSError, TypeError, SyntaxError):
        return names
    (function,) = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return _Writes(function, kernel.fn.__globals__, names).found()


class _Writes:
    """Which parameters the addresses written to are made of."""

    def __init__(
        self, function: ast.FunctionDef, scope: dict[str, Any], names: frozenset[str]
    ) -> None:
        self.function, self.scope, self.names = function, scope, names
        self.made_of: dict[str, frozenset[str]] = {name: frozenset((name,)) for name in names}

    def found(self) -> frozenset[str]:
        """Return the names of parameters."""
        before = None
        while before != self.made_of:  # loops pass values back to lines above
            before = dict(self.made_of)
            for node in ast.walk(self.function):
                self._bind(node)
        calls = [node for node in ast.walk(self.function) if isinstance(node, ast.Call)]
        return frozenset().union(*map(self._written, calls))

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            value: ast.AST | None = node.value
        elif isinstance(node, ast.For):
            targets, value = [node.target], node.iter
        else:
            return
        parts = self._parts(value)
        for target in targets:
            for leaf in ast.walk(target):
                if isinstance(leaf, ast.Name):
                    self.made_of[leaf.id] = self.made_of.get(leaf.id, frozenset()) | parts

    def _parts(self, value: ast.AST | None) -> frozenset[str]:
        """Return the parameters that an expression is made of."""
        if value is None:
            return frozenset()
        leaves = (leaf.id for leaf in ast.walk(value) if isinstance(leaf, ast.Name))
        return frozenset().union(*(self.made_of.get(name, frozenset()) for name in leaves))

    def _written(self, call: ast.Call) -> frozenset[str]:
        called = call.func
        if isinstance(called, ast.Attribute) and called.attr.startswith(WRITERS):
            if not self._of_language(called.value):
                return self._parts(called.value)  # a descriptor's own method
            by_name = [k.value for k in call.keywords if k.arg in ("pointer", "desc")]
            return self._parts(call.args[0] if call.args else by_name[0])
        known = called.value if isinstance(called, ast.Attribute) else called
        if self._of_language(known) or (isinstance(called, ast.Attribute) and self._parts(known)):
            return frozenset()  # computes, or is a method of a value
        if isinstance(called, ast.Name) and called.id in ("range", "min", "max", "len", "float"):
            return frozenset()
        return self._parts(call)  # whatever another function is given, it may write to

    def _of_language(self, value: ast.AST) -> bool:
        """Return whether an expression is a module, or a function, of Triton's language."""
        if isinstance(value, ast.Attribute):
            return self._of_language(value.value)
        found = self.scope.get(value.id) if isinstance(value, ast.Name) else None
        if inspect.ismodule(found):
            return found.__name__.partition(".")[0] == LANGUAGE
        home = sys.modules.get(LANGUAGE + ".language")
        name = getattr(found, "__name__", None)
        return name is not None and not name.startswith(WRITERS) and (
            getattr(home, name, None) is found
        )  # fmt: skip
