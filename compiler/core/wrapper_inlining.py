"""The few lines of a function that runs a graph, for a caller that would have them in its own.

A call of a Python function costs as much as two kernels of a small graph, so what wraps a graph's
function takes its lines over where they are few.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

#: statements of a function that still count as few
FEW = 24
_ATTRIBUTE = "_tc_wrapper_body"


@dataclass(frozen=True)
class WrapperBody:
    """A function ``def call(args)`` of names bound to its arguments, steps, and a tuple returned.

    Attributes:
        code: of the function itself, not of one that wraps it.
        arguments: what ``args`` is unpacked to.
        steps: all between that and the return.
        results: what the tuple holds.
        line: where the function starts in its file.
        otherwise: what the function asks before all that; if it is so, it has to be called.
    """

    code: CodeType
    arguments: tuple[str, ...]
    steps: tuple[ast.stmt, ...]
    results: tuple[ast.expr, ...]
    line: int
    otherwise: ast.expr | None = None

    def names(self) -> set[str]:
        """Every name that the lines use."""
        nodes = (node for part in (*self.steps, *self.results) for node in ast.walk(part))
        return {*self.arguments, *(node.id for node in nodes if isinstance(node, ast.Name))}


def remember(function: Callable[..., Any], tree: ast.Module) -> None:
    """Note the lines of a function with it, where they are few and of the form of `WrapperBody`."""
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function.__name__]
    if len(found) != 1:
        return
    first, *rest = found[0].body
    body = rest if isinstance(first, ast.If) else [first, *rest]
    if len(body) > FEW:
        return
    match body:
        case [
            ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Name(id="args")),
            ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="args"), attr="clear"))),
            *steps,
            ast.Return(value=ast.Tuple(elts=results)),
        ]:
            arguments = tuple(name.id for name in names if isinstance(name, ast.Name))
            lines = WrapperBody(
                function.__code__, arguments, tuple(steps), tuple(results), found[0].lineno,
                first.test if isinstance(first, ast.If) else None,
            )  # fmt: skip
            setattr(function, _ATTRIBUTE, lines)


def wrapper_body(function: Callable[..., Any]) -> WrapperBody | None:
    """Return the lines of a function; None where they are many, or not known."""
    lines: WrapperBody | None = getattr(function, _ATTRIBUTE, None)
    # functools.wraps copies the attribute to functions around, which do more.
    own = lines is not None and getattr(function, "__code__", None) is lines.code
    return lines if own else None
