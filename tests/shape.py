"""How tangled the code is, in figures: cycles of imports, width of the tracer, deferred imports.

    python tests/shape.py [FOLDER]

Goes in: a checkout. Comes out: one figure a line. `test_shape` keeps each from growing, so that
what was untangled stays so; a figure that falls is written down there.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterable
from pathlib import Path

from house import File, c_in_c_files, components, modules_named

ROOT = Path(__file__).resolve().parent.parent


def files(root: Path, folder: str) -> list[File]:
    """Return the parsed modules of a folder."""
    paths = sorted((root / folder).rglob("*.py"))
    return [File.of(str(path.relative_to(root)), path.read_text()) for path in paths]


def imports(modules: Iterable[File]) -> dict[str, set[str]]:
    """Return which of the modules each imports, those for type checkers included."""
    modules = list(modules)
    known = {file.module for file in modules}
    return {
        file.module: {
            name for found in file.imports for name in modules_named(found, known) & known
        }
        for file in modules
    }


def largest_cycle(modules: Iterable[File]) -> list[str]:
    """Return the largest set of modules that reach each other by imports."""
    return sorted(max(components(imports(modules)), key=len))


def folder_imports(modules: Iterable[File], package: str) -> dict[str, set[str]]:
    """Return which folders and loose modules of a package import which others of them."""

    def part(name: str) -> str:
        return name.removeprefix(f"{package}.").partition(".")[0]

    found = imports(modules)
    edges: dict[str, set[str]] = {part(name): set() for name in found if name != package}
    for name, others in found.items():
        if name != package:
            edges[part(name)] |= {part(other) for other in others if other != package}
    return {name: others - {name} for name, others in edges.items()}


def folders_in_cycles(modules: Iterable[File], package: str) -> int:
    """Return how many folders of a package import themselves through others, types counted."""
    modules = list(modules)
    depth = package.count(".") + 1
    folders = {file.module.split(".")[-2] for file in modules if file.module.count(".") > depth}
    rings = [ring for ring in components(folder_imports(modules, package)) if len(ring) > 1]
    return sum(name in folders for ring in rings for name in ring)


def members(modules: Iterable[File], name: str) -> set[str]:
    """Return the public methods and attributes of a class of tc and of its bases."""
    classes = {
        node.name: node for file in modules for node in file.nodes if isinstance(node, ast.ClassDef)
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


def deferred_imports(modules: Iterable[File]) -> int:
    """Return how many imports of tc are inside of functions."""
    return sum(
        isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tc.")
        for file in modules
        for function in file.nodes
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


def lookups_by_name(modules: Iterable[File]) -> int:
    """Return how many calls of hasattr, getattr and setattr there are."""
    names = ("hasattr", "getattr", "setattr")
    return sum(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
        for file in modules
        for node in file.nodes
    )


def figures(root: Path = ROOT) -> dict[str, float]:
    """Return all figures by their names."""
    compiler = files(root, "compiler")
    capture = [file for file in compiler if file.module.startswith("tc.compiler.capture")]
    return {
        "modules in the largest cycle of imports": len(largest_cycle(compiler)),
        "folders of capture in a cycle of imports": folders_in_cycles(
            capture, "tc.compiler.capture"
        ),
        "public members of Tracer": len(members(capture, "Tracer")),
        "imports inside of functions": deferred_imports(compiler),
        "tokens a line in capture": round(tokens_a_line(root, "compiler/capture"), 2),
        "lookups of attributes by name in capture": lookups_by_name(capture),
        "files with C in strings": len({found.file for found in c_in_c_files(compiler)}),
        "loose files of the compiler": len(list((root / "compiler").glob("*.py"))),
    }


if __name__ == "__main__":
    for what, figure in figures(Path(sys.argv[1]) if sys.argv[1:] else ROOT).items():
        print(f"{figure:8} {what}")
