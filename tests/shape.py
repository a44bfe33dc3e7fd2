"""How tangled the code is, in figures: cycles of imports, width of the tracer, deferred imports.

    python tests/shape.py [FOLDER]

Goes in: a checkout. Comes out: one figure a line. `test_shape` keeps each from growing, so that
what was untangled stays so; a figure that falls is written down there.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: what starts a line of C inside a Python string
C_LINE = re.compile(
    r"^\s*(?:static |#define |#include |typedef |for \(|return .*;$|\}$)", re.MULTILINE
)
#: lines that look like C from which on a string counts as C
C_LINES = 3


def files(root: Path, folder: str) -> dict[str, ast.Module]:
    """Return the parsed modules of a folder by their dotted names."""
    found = {}
    for path in sorted((root / folder).rglob("*.py")):
        parts = ("tc", *path.relative_to(root).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text())
    return found


def imports(tree: ast.Module, known: dict[str, ast.Module]) -> set[str]:
    """Return the modules of ours that a module imports, those for type checkers included."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (inner & known.keys()) or {node.module}
    return found & known.keys()


def components(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of a graph (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in edges[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            found.append(stack[at:])
            del stack[at:]

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        for name in edges:
            if name not in index:
                visit(name)
    finally:
        sys.setrecursionlimit(limit)
    return found


def largest_cycle(modules: dict[str, ast.Module]) -> list[str]:
    """Return the largest set of modules that reach each other by imports."""
    edges = {name: imports(tree, modules) for name, tree in modules.items()}
    return sorted(max(components(edges), key=len))


def folder_imports(modules: dict[str, ast.Module], package: str) -> dict[str, set[str]]:
    """Return which folders and loose modules of a package import which others of them."""

    def part(name: str) -> str:
        return name.removeprefix(f"{package}.").partition(".")[0]

    edges: dict[str, set[str]] = {part(name): set() for name in modules if name != package}
    for name, tree in modules.items():
        if name != package:
            edges[part(name)] |= {part(o) for o in imports(tree, modules) if o != package}
    return {name: others - {name} for name, others in edges.items()}


def folders_in_cycles(modules: dict[str, ast.Module], package: str) -> int:
    """Return how many folders of a package import themselves through others, types counted."""
    folders = {name.split(".")[-2] for name in modules if name.count(".") > package.count(".") + 1}
    rings = [ring for ring in components(folder_imports(modules, package)) if len(ring) > 1]
    return sum(name in folders for ring in rings for name in ring)


def members(modules: dict[str, ast.Module], name: str) -> set[str]:
    """Return the public methods and attributes of a class of ours and of its bases."""
    classes = {
        node.name: node
        for tree in modules.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found: set[str] = set()
    waiting = [name]
    while waiting:
        node = classes.get(waiting.pop())
        if node is None:
            continue
        waiting += [base.id for base in node.bases if isinstance(base, ast.Name)]
        for part in ast.walk(node):
            if isinstance(part, ast.FunctionDef) and part in node.body:
                found.add(part.name)
            elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                if isinstance(part.value, ast.Name) and part.value.id == "self":
                    found.add(part.attr)
            elif isinstance(part, ast.AnnAssign) and part in node.body:
                found.add(part.target.id if isinstance(part.target, ast.Name) else "")
    return {member for member in found if not member.startswith("_")}


def deferred_imports(modules: dict[str, ast.Module]) -> int:
    """Return how many imports of ours stand inside of functions."""
    return sum(
        isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tc.")
        for tree in modules.values()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
    )


def tokens_a_line(root: Path, folder: str) -> float:
    """Return how many tokens a line of code holds on average."""
    tokens = lines = 0
    for path in (root / folder).rglob("*.py"):
        seen = set()
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            if token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING):
                tokens += 1
                seen.add(token.start[0])
        lines += len(seen)
    return tokens / lines


def lookups_by_name(modules: dict[str, ast.Module]) -> int:
    """Return how many calls of hasattr, getattr and setattr there are."""
    names = ("hasattr", "getattr", "setattr")
    return sum(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
        for tree in modules.values()
        for node in ast.walk(tree)
    )


def files_with_c(modules: dict[str, ast.Module]) -> Iterator[str]:
    """Yield modules that hold C in strings."""
    for name, tree in modules.items():
        texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]
        if any(isinstance(t, str) and len(C_LINE.findall(t)) >= C_LINES for t in texts):
            yield name


def figures(root: Path = ROOT) -> dict[str, float]:
    """Return all figures by their names."""
    compiler = files(root, "compiler")
    capture = files(root, "compiler/capture")
    return {
        "modules in the largest cycle of imports": len(largest_cycle(compiler)),
        "folders of capture in a cycle of imports": folders_in_cycles(
            capture, "tc.compiler.capture"
        ),
        "public members of Tracer": len(members(capture, "Tracer")),
        "imports inside of functions": deferred_imports(compiler),
        "tokens a line in capture": round(tokens_a_line(root, "compiler/capture"), 2),
        "lookups of attributes by name in capture": lookups_by_name(capture),
        "files with C in strings": len(list(files_with_c(compiler))),
        "loose files of the compiler": len(list((root / "compiler").glob("*.py"))),
    }


if __name__ == "__main__":
    for what, figure in figures(Path(sys.argv[1]) if sys.argv[1:] else ROOT).items():
        print(f"{figure:8} {what}")
