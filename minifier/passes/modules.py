"""Puts a module of the user's in place of the statement that imports it, so that one file is left.

In: a script's text and the folder where it finds its neighbours. Out: candidates; an oracle says
whether a script still fails alike with names of two files in one.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tc.minifier.passes import rendering
from tc.minifier.passes.edits import blocks

Fails = Callable[[str], bool]


@dataclass(frozen=True)
class Module:
    """A module of the user's.

    Attributes:
        name: as it is imported.
        body: its statements, ready to stand in another file.
    """

    name: str
    body: tuple[ast.stmt, ...]

    @property
    def names(self) -> set[str]:
        """What it defines."""
        return {name for node in self.body for name in defined(node)}


def inlined(text: str, home: Path, fails: Fails, report: Callable[[str], None]) -> str:
    """Return the script with as many of its neighbours in it as can be."""
    done: set[str] = set()
    refused: set[str] = set()
    while True:
        for statement, names, candidate in candidates(text, home, done):
            if statement in refused:
                continue
            if candidate is not None and fails(candidate):
                text = candidate
                done |= names
                report(text)
                break
            refused.add(statement)
        else:
            return text


def neighbours(text: str, home: Path) -> list[str]:
    """Return the names of the user's modules that a script imports itself."""
    return sorted({name for _, names, _ in candidates(text, home, set()) for name in names})


def candidates(text: str, home: Path, done: set[str]) -> Iterator[tuple[str, set[str], str | None]]:
    """Yield an import of neighbours, their names, and the text with their bodies in its place.

    Args:
        done: modules whose bodies are in the text already.
    """
    first = rendering.parsed(text)
    if first is None:
        return
    for number in range(len(imports(first))):
        tree = ast.parse(text)
        block, place = imports(tree)[number]
        statement = ast.unparse(block[place])
        names = replace_import(tree, block, place, home, done)
        if names:
            yield statement, names, rendering.rendered(tree)


def imports(tree: ast.Module) -> list[tuple[list[ast.stmt], int]]:
    """Return where imports stand."""
    return [
        (block, place)
        for block in blocks(tree)
        for place, node in enumerate(block)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]


def replace_import(
    tree: ast.Module, block: list[ast.stmt], place: int, home: Path, done: set[str]
) -> set[str]:
    """Put bodies in place of an import; returns the names of their modules, maybe none."""
    statement = block[place]
    found: dict[str, Module] = {}
    made: list[ast.stmt] = []
    renamed: dict[str, Module] = {}
    kept: list[ast.alias] = []
    assert isinstance(statement, ast.Import | ast.ImportFrom)
    for alias in statement.names:
        base = "" if isinstance(statement, ast.Import) else absolute(statement, package_of(tree))
        whole = module_at(".".join(filter(None, (base, alias.name))), home)
        module = whole or (module_at(base, home) if base else None)
        if module is None:
            kept.append(alias)
            continue
        found[module.name] = module
        if whole is not None:
            called = alias.asname or (alias.name if not base else alias.name.rpartition(".")[2])
            renamed[called] = whole
        elif alias.asname and alias.asname != alias.name:
            made += ast.parse(f"{alias.asname} = {alias.name}").body
    if not found:
        return set()
    bodies = [node for m in found.values() if m.name not in done for node in m.body]
    if kept:
        statement.names = kept
        bodies.insert(0, statement)
    block[place : place + 1] = [*bodies, *made] or [ast.Pass()]
    _Renamed(renamed).visit(tree)
    return set(found)


class _Renamed(ast.NodeTransformer):
    """Writes ``name`` where a name of a module that is here now was written ``module.name``."""

    def __init__(self, modules: dict[str, Module]) -> None:
        self.modules = modules

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        module = self.modules.get(ast.unparse(node.value))
        if module is not None and node.attr in module.names:
            return ast.Name(node.attr, node.ctx)
        self.generic_visit(node)
        return node


def module_at(name: str, home: Path) -> Module | None:
    """Return the user's module of a name, or None."""
    base = home.joinpath(*name.split("."))
    for path, package in (
        (base / "__init__.py", name), (base.with_suffix(".py"), name.rpartition(".")[0])
    ):  # fmt: skip
        if path.is_file():
            tree = rendering.parsed(rendering.source_of(path))
            if tree is None:
                return None
            return Module(name, tuple(node for one in tree.body for node in moved(one, package)))
    return None


def moved(node: ast.stmt, package: str) -> Iterator[ast.stmt]:
    """Yield a statement of a module as it may stand elsewhere; nothing, where it may not."""
    if isinstance(node, ast.ImportFrom):
        if node.module == "__future__":
            return
        if node.level:
            node.module, node.level = absolute(node, package) or None, 0
            if node.module is None:
                return
    if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    yield node


def absolute(node: ast.ImportFrom, package: str) -> str:
    """Return the module that an import names, from the top."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*filter(None, parts), *filter(None, [node.module])])


def defined(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    else:
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                yield part.id


def package_of(tree: ast.Module) -> str:
    """Return the package that a script says it is in."""
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and ast.unparse(node.targets[0]) == "__package__"
            and isinstance(node.value, ast.Constant)
        ):
            return str(node.value.value)
    return ""
