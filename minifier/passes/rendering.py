"""The one way from an edited syntax tree to a candidate: text that parses, compiles and prints.

In: a tree that an edit has changed in whatever way. Out: its text, or None. Nothing else makes a
candidate of a tree, and no exception leaves this module: what Python cannot print or read again is
no candidate.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tc.trace import syntax

#: what CPython raises for trees and texts that mean nothing; deep nesting and odd values included
REFUSALS: Final = (
    *syntax.REFUSALS,
    *(AttributeError, KeyError, IndexError, AssertionError, SystemError, NotImplementedError),
)
PRINTS: Final = 3  # after which a text that still changes is no candidate
CONVERSIONS: Final = {-1: "", ord("s"): "!s", ord("r"): "!r", ord("a"): "!a"}

#: a comment that names the encoding of a file; Python looks for it in the first two lines
ENCODING: Final = re.compile(r"^([ \t\f]*#.*?)coding[:=][ \t]*[-\w.]+")


def decoded(content: bytes) -> str:
    """Return the text of a program as Python reads it: any encoding, mark of byte order, line end.

    The comment that names the encoding is changed, because candidates are written in UTF-8.

    Raises:
        SyntaxError, UnicodeDecodeError: Python cannot decode it either.
    """
    lines = importlib.util.decode_source(content).split("\n")
    return "\n".join([*(ENCODING.sub(r"\1", line) for line in lines[:2]), *lines[2:]])


def source_of(path: Path) -> str:
    """Return the text of a program in a file; what cannot be decoded is replaced."""
    content = path.read_bytes()
    try:
        return decoded(content)
    except (SyntaxError, UnicodeDecodeError):
        return content.decode(errors="replace")


def parsed(text: str) -> ast.Module | None:
    """Return the tree of a text, or None if it is no Python program, or too deep to be walked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return syntax.tree_of(text)


def is_program(text: str) -> bool:
    """Return whether Python compiles a text: `return` outside of a function parses, for one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "<candidate>", "exec", dont_inherit=True)
    except REFUSALS:
        return False
    return True


def unbound(tree: ast.AST) -> set[str]:
    """Return the names that a program reads and that nothing in it binds, in whatever scope."""
    read: set[str] = set()
    bound = set(vars(builtins)) | {"__file__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.ExceptHandler | ast.MatchStar | ast.MatchAs):
            bound.add(node.name or "")
        elif isinstance(node, ast.MatchMapping):
            bound.add(node.rest or "")
        elif isinstance(node, ast.Global | ast.Nonlocal):
            bound.update(node.names)
    return read - bound


def rendered(tree: ast.Module) -> str | None:
    """Return the text of a tree if it compiles and can be edited further, else None.

    The text is a fixed point: read and printed again it is the same, so that a tree without an edit
    never looks like a new candidate. A string that has become a docstring takes two prints.
    """
    try:
        text = ast.unparse(ast.fix_missing_locations(tree))
        for _ in range(PRINTS):
            again = parsed(text)
            if again is None:
                return None
            before, text = text, ast.unparse(again)
            if text == before:
                return text if is_program(text) else None
    except REFUSALS:
        pass
    return None


def normal_form(text: str) -> str | None:
    """Return a program's text as `rendered` prints it, or None if there is no such text.

    Formatted strings that Python reads and cannot print become calls of `str.format`.
    """
    tree = parsed(text)
    if tree is None:
        return None
    made = rendered(tree)
    return made if made is not None else rendered(_Formats().visit(tree))


class _Formats(ast.NodeTransformer):
    """Rewrites formatted strings that have no text as ``"...".format(...)``."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        self.generic_visit(node)
        if _prints(node):
            return node
        values: list[ast.expr] = []
        template = "".join(_pieces(node, values))
        return ast.Call(ast.Attribute(ast.Constant(template), "format", ast.Load()), values, [])


def _prints(node: ast.expr) -> bool:
    try:
        ast.parse(ast.unparse(node), mode="eval")
    except REFUSALS:
        return False
    return True


def _pieces(node: ast.JoinedStr, values: list[ast.expr]) -> Iterator[str]:
    """Yield the parts of the template; `values` takes what stands in its braces, in order."""
    for part in node.values:
        if isinstance(part, ast.Constant):
            yield str(part.value).replace("{", "{{").replace("}", "}}")
        elif isinstance(part, ast.FormattedValue):
            values.append(part.value)
            spec = part.format_spec
            inner = "".join(_pieces(spec, values)) if isinstance(spec, ast.JoinedStr) else ""
            yield f"{{{CONVERSIONS[part.conversion]}{':' if spec else ''}{inner}}}"
