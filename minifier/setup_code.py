"""Finds in a script the statements that register the custom ops a graph calls.

In: the script's text and the ops' names. Out: the statements, and what they need, as text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from tc.trace.syntax import tree_of

#: names that a written case has itself: its function, its inputs, what runs it
TAKEN: Final = re.compile(r"f|x\d*|run|recorded|keep|call_\d+|torch|tc|DATA")


def definition_of(source: str, name: str) -> str:
    """Return the top-level statements that define a function, and what they need.

    Empty where they would not mean the same in a file of their own: nothing at the top level of the
    source has the name, they import relative to a package, or a name is one of a written case's.
    """
    body = _body(source)
    kept = _needed(body, {i for i, node in enumerate(body) if name in _defines(node)})
    relative = any(isinstance(node, ast.ImportFrom) and node.level for node in kept)
    taken = any(TAKEN.fullmatch(name) for node in kept for name in _assigned(node))
    return "" if relative or taken else _text(kept)


def definition_names(text: str) -> set[str]:
    """Return the names that the statements of a text define, but for modules by their own names."""
    return {name for node in _body(text) for name in _assigned(node)}


def joined(*texts: str) -> str:
    """Return the statements of some texts, each once."""
    nodes = (node for text in texts for node in _body(text))
    return "\n".join(dict.fromkeys(map(ast.unparse, nodes)))


def setup_for(source: str, namespaces: Collection[str]) -> str:
    """Return the top-level statements that define ops of these namespaces (``mine`` of mine::op).

    A statement is needed if it names a namespace in a string, registers or decorates with a needed
    name, or defines a name that a needed statement uses.
    """
    if not namespaces:
        return ""
    body = _body(source)
    needed = {i for i, node in enumerate(body) if _names_namespace(node, namespaces)}
    defined = {name for i in needed for name in _defines(body[i])}
    needed |= {
        i
        for i, node in enumerate(body)
        if any(defined & set(_uses(one)) for one in _registrations(node))
    }
    return _text(_needed(body, needed))


def _body(source: str) -> list[ast.stmt]:
    tree = tree_of(source)
    return tree.body if tree is not None else []


def _needed(body: Sequence[ast.stmt], needed: set[int]) -> list[ast.stmt]:
    """Return the statements of these places, and those that define what they use."""
    while True:
        used = {name for i in needed for name in _uses(body[i])}
        more = {i for i, node in enumerate(body) if used & set(_defines(node))} - needed
        if not more:
            return [body[i] for i in sorted(needed)]
        needed = needed | more


def _text(kept: Sequence[ast.stmt]) -> str:
    return "\n".join(ast.unparse(node) for node in kept if not _is_main_import(node))


def _assigned(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement defines, but for modules under their own names."""
    if not isinstance(node, ast.Import) or any(a.asname for a in node.names):
        yield from _defines(node)


def _names_namespace(node: ast.stmt, namespaces: Collection[str]) -> bool:
    if isinstance(node, ast.If | ast.For | ast.While | ast.ClassDef):
        return False
    return any(
        isinstance(part, ast.Constant)
        and isinstance(part.value, str)
        and part.value.partition("::")[0] in namespaces
        for part in ast.walk(node)
    )


def _registrations(node: ast.stmt) -> Iterator[ast.expr]:
    """Yield the decorators of a function, or the call of a statement that registers."""
    if isinstance(node, ast.FunctionDef):
        yield from node.decorator_list
    called = node.value if isinstance(node, ast.Expr) else None
    while isinstance(called, ast.Call):
        called = called.func
    name = called.attr if isinstance(called, ast.Attribute) else ""
    if isinstance(node, ast.Expr) and (name in ("impl", "define") or name.startswith("register")):
        yield node.value


def _defines(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        if node.name != "_":
            yield node.name
    elif isinstance(node, ast.Assign):
        yield from (t.id for t in node.targets if isinstance(t, ast.Name))
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (a.asname or a.name.partition(".")[0] for a in node.names)


def _uses(node: ast.AST) -> Iterator[str]:
    yield from (part.id for part in ast.walk(node) if isinstance(part, ast.Name))


def _is_main_import(node: ast.stmt) -> bool:
    """``import torch`` and ``import tc`` stand in every program already."""
    return isinstance(node, ast.Import) and all(
        a.name in ("torch", "tc") and a.asname is None for a in node.names
    )
